"""What a bench found, for people: tables by rich, a plot by matplotlib, and one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from zarrgpu.bench import bounds
from zarrgpu.bench.measure import WRONG, Measurement
from zarrgpu.profiling import Profile


@dataclass
class Findings:
    """All that was measured of reads of one array in one run.

    Attributes
    ----------
    title : str
        What was read.
    measured : list of Measurement
    profiles : dict of str to Profile
        Of one read of ours on each device that has a figure.
    ceilings : dict of str to float
        As `zarrgpu.bench.ceilings.measure` gives them.
    """

    title: str
    measured: list[Measurement]
    profiles: dict[str, Profile] = field(default_factory=dict)
    ceilings: dict[str, float] = field(default_factory=dict)

    @property
    def encoded(self) -> int:
        """Bytes that were fetched, as reads of ours saw it; 0 where there are none."""
        seen = (sum(s.nbytes for s in p.steps if s.name == "fetch") for p in self.profiles.values())
        return next((n for n in seen if n), 0)

    @property
    def failed(self) -> bool:
        """Whether one of ours failed, or anyone gave wrong data."""
        return any(m.failure and (m.ours or m.failure.startswith(WRONG)) for m in self.measured)

    def best(self) -> Measurement | None:
        """The fastest, to the preferred place of a result."""
        timed = [m for m in self.measured if m.times]
        gpu = [m for m in timed if m.device != "host"]
        return max(gpu or timed, key=lambda m: m.rate, default=None)

    def bound(self, m: Measurement) -> bounds.Bound | None:
        """What bounds a read; None where that cannot be told."""
        if m.ours:
            profile = self.profiles.get(m.device)
            return bounds.of_ours(profile) if profile is not None and profile.spans else None
        host = self.profiles.get("host")
        decoding = next((s.busy for s in host.steps if s.name == "decompress"), 0.0) if host and host.spans else None
        return bounds.of_others(m, self.encoded, self.ceilings, decoding)

    def verdict(self) -> str:
        """One sentence: which way to read this store, and what bounds it."""
        best = self.best()
        if best is None:
            return "Nothing could be read."
        said = f"Read this store with {best.system} on {best.device}: {digits(best.rate)} GB/s"
        base = baseline(best, self.measured)
        if base is not None and base is not best:
            said += (
                f", {base.seconds / best.seconds:.1f} times as fast as plain {base.system.replace(' + ', ' and a ')}"
            )
        bound = self.bound(best)
        if bound is None:
            return f"{said}; what bounds it cannot be told."
        how = "is busy for" if bound.seen else "by this run's ceilings takes"
        return f"{said}; what bounds it is {bound.what}, which {how} {bound.share:.0%} of the time."

    def as_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "array": self.title,
            "measurements": [m.as_dict() for m in self.measured],
            "profiles": {device: profile.as_dict() for device, profile in self.profiles.items()},
            "ceilings": self.ceilings,
            "verdict": self.verdict(),
        }

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the rates as bars and save them."""
        from zarrgpu import _plots

        timed = [m for m in self.measured if m.times]
        labels = [f"{m.system} \u2192 {m.device}" for m in timed]
        series = {"page cache warm": [m.rate for m in timed]}
        if any(m.cold for m in timed):
            series["cold"] = [m.cold_rate for m in timed]
        _plots.bars(labels, series, [m.ours for m in timed], self.title, path)

    def show(self, console: Any) -> None:
        """Print everything, the sentence last."""
        console.print(self._table())
        for device, profile in self.profiles.items():
            if profile.spans:
                console.print(self._steps(device, profile))
        if self.ceilings:
            text = ", ".join(f"{name} {digits(rate)}" for name, rate in self.ceilings.items())
            console.print(f"Ceilings of this machine in this run, GB/s: {text}", markup=False)
        if not any(m.cold for m in self.measured):
            console.print("No figures with a cold page cache: this store's files cannot be dropped from one.")
        for m in self.measured:
            if m.note or m.failure:
                what = f"failed: {m.failure}" if m.failure else f"fell back: {m.note}"
                console.print(f"{m.system} on {m.device} {what}", markup=False)
        console.print(self.verdict(), markup=False)

    def _table(self) -> Any:
        first = self.measured[0]
        size = f"{digits(first.decoded / 1e6)} MB decoded"
        if first.stored:
            size += f", {first.decoded / first.stored:.2f} times smaller in the store"
        cold = any(m.cold for m in self.measured)
        table = _rich_table(
            self.title,
            f"{size}; results are the same bit for bit;\nmedians of reads in turn, files in the page cache"
            f"{', or dropped from it before each (cold)' * cold};\nspeed-up over plain zarr to the same place",
            ("read with", "result on"),
            ("ms", "spread", "GB/s", *(("cold GB/s",) * cold), "speed-up"),
        )
        for m in self.measured:
            if m.failure:
                table.add_row(m.system, m.device, "-", "-", "failed", *(("-",) * cold), "-")
                continue
            base = baseline(m, self.measured)
            gain = f"{base.seconds / m.seconds:.1f}x" if base is not None else "-"
            colds = (digits(m.cold_rate),) * cold
            figures = (f"{m.seconds * 1e3:.1f}", f"{m.spread:.0%}", digits(m.rate), *colds, gain)
            table.add_row(m.system, m.device, *figures, style="bold" if m.ours else None)
        return table

    def _steps(self, device: str, profile: Profile) -> Any:
        title = f"One read by zarrgpu on {device}, {profile.seconds * 1e3:.1f} ms, {len(profile.waves)} waves"
        caption = "busy: at least one wave is in the step"
        table = _rich_table(
            title, caption, ("step", "where"), ("ms busy", "of the read", "MB", "GB/s", "of its ceiling")
        )
        for step in profile.steps:
            part = bounds.fraction(step, self.ceilings)
            table.add_row(
                step.name,
                step.where,
                f"{step.busy * 1e3:.2f}",
                f"{step.busy / profile.seconds:.0%}",
                digits(step.nbytes / 1e6) if step.nbytes else "",
                "" if math.isnan(step.rate) else digits(step.rate),
                "" if part is None else f"{part:.0%}",
            )
        share = f"{profile.outside / profile.seconds:.0%}"
        table.add_row("outside of waves", "host", f"{profile.outside * 1e3:.2f}", share, "", "", "")
        return table


def digits(x: float) -> str:
    """A figure with two digits after the point, or, if it is small, two digits that say something."""
    return f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"


def baseline(m: Measurement, measured: Sequence[Measurement]) -> Measurement | None:
    """Plain zarr's measurement to the same kind of place."""
    name = "zarr" if m.device == "host" else "zarr + copy"
    return next((b for b in measured if b.system == name and b.times), None)


def _rich_table(title: str, caption: str, left: Sequence[str], right: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), caption=Text(caption))
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table
