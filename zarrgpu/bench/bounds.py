"""What bounds a read: the storage, PCIe, the decoder, or Python.

Of a read of ours, `zarrgpu.profile` says how long each of them was busy. Of another's, no more is known than how long
it took and what this machine could do at best: what storage and PCIe would take at their ceilings, what all cores need
to decode by the same libraries, and the rest, which is Python.
"""

from __future__ import annotations

from typing import NamedTuple

from zarrgpu.bench.measure import Measurement
from zarrgpu.profiling import Profile, Step, union

STORAGE, PCIE, DECODER, PYTHON = "storage", "PCIe", "the decoder", "Python"
DECODING = ("decompress", "assemble", "check")
ASKING = ("locate", "enqueue")
OFTEN = 2.0
"""A copy reads as many bytes as it writes."""


class Bound(NamedTuple):
    """What bounds a read, and which part of its time that takes; whether it was seen, or estimated by ceilings."""

    what: str
    share: float
    seen: bool


def of_ours(profile: Profile) -> Bound:
    """What was busy for the longest of a profile of one read."""
    by_step = {step.name: step.busy for step in profile.steps if step.name in ("fetch", "upload")}

    def busy(names: tuple[str, ...]) -> float:
        return union((s.begin, s.end) for s in profile.spans if s.step in names)

    seconds = {
        STORAGE: by_step.get("fetch", 0.0),
        PCIE: by_step.get("upload", 0.0),
        DECODER: busy(DECODING),
        PYTHON: busy(ASKING) + profile.outside,
    }
    return _longest(seconds, profile.seconds, seen=True)


def of_others(m: Measurement, encoded: int, ceilings: dict[str, float], decoding: float | None) -> Bound | None:
    """What would take the longest by the ceilings; None where these say nothing.

    Parameters
    ----------
    m : Measurement
    encoded : int
        Bytes that are fetched.
    ceilings : dict of str to float
        As `zarrgpu.bench.ceilings.measure` gives them.
    decoding : float or None
        Seconds that libraries on all cores need to decode the same, by a profile of ours.
    """
    if decoding is None:
        return None
    seconds = {DECODER: decoding}
    if "files" in ceilings:
        seconds[STORAGE] = encoded / ceilings["files"] / 1e9
    if m.device != "host":
        upload = ceilings["upload, pinned" if "pinned" in m.system else "upload, pageable"]
        seconds[PCIE] = m.decoded / upload / 1e9
    seconds[PYTHON] = max(0.0, m.seconds - sum(seconds.values()))
    return _longest(seconds, m.seconds, seen=False)


def _longest(seconds: dict[str, float], total: float, seen: bool) -> Bound:
    what = max(seconds, key=lambda name: seconds[name])
    return Bound(what, min(1.0, seconds[what] / total) if total else 0.0, seen)


def fraction(step: Step, ceilings: dict[str, float]) -> float | None:
    """The part of its ceiling that a step reached, None where none was measured."""
    host = step.where == "host"
    name, factor = {
        "fetch": ("files", 1.0),
        "upload": ("upload, pinned", 1.0),
        "assemble": ("memcpy", 1.0) if host else (f"copy on {step.where}", OFTEN),
    }.get(step.name, ("", 1.0))
    return factor * step.rate / ceilings[name] if name in ceilings and step.nbytes else None
