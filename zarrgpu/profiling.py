"""`profile`: where the time of reads goes, step by step and wave by wave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from time import perf_counter
from typing import Any, NamedTuple

from zarrgpu import _record
from zarrgpu._record import HOST, Log, Span

STEPS = ("fetch", "locate", "upload", "decompress", "assemble", "check", "enqueue", "wait")
"""In the order of a wave; the last two are what a host does for a GPU."""


class Step(NamedTuple):
    """What a step took, over all waves.

    Attributes
    ----------
    name : str
        ``fetch`` (store to arena), ``locate`` (where streams are), ``upload``, ``decompress``, ``assemble`` (into the
        output), ``check`` (checksums and statuses), ``enqueue`` (what Python does to ask a GPU for the last four; on
        the host, around them) or ``wait`` (for a GPU).
    where : str
        ``"host"``, by its clock, or ``"cuda:N"``, by events on the stream of the wave.
    seconds : float
        Sum over all waves, of which several may be in a step at once.
    busy : float
        Seconds in which at least one wave was in it.
    nbytes : int
        Bytes that it was given (fetch, locate, upload, check) or gave (decompress, assemble).
    """

    name: str
    where: str
    seconds: float
    busy: float
    nbytes: int

    @property
    def rate(self) -> float:
        """GB/s while it is busy; NaN where there are no bytes."""
        return self.nbytes / self.busy / 1e9 if self.nbytes and self.busy else math.nan


class Wave(NamedTuple):
    """What one wave took.

    Attributes
    ----------
    read : int
        Number of the read, in the order in which they ended.
    first, chunks : int
        First chunk, counted in the read, and number of chunks.
    seconds : dict of (str, str) to float
        Of each step at each place, as in `Step`.
    nbytes : dict of (str, str) to int
        The same of bytes.
    """

    read: int
    first: int
    chunks: int
    seconds: dict[tuple[str, str], float]
    nbytes: dict[tuple[str, str], int]


@dataclass
class Profile:
    """What the reads of a `profile` block took; ``str()`` of it is a table.

    Attributes
    ----------
    seconds : float
        From the beginning of the block to its end; 0 before.
    decoded : int
        Decoded bytes of all chunks that were read.
    reads : int
        Requests that programs of ours read; those through zarr's own pipeline are not seen.
    spans : list of Span
        Every stretch of time, times since the beginning of the block.
    waves : list of Wave
    """

    seconds: float = 0.0
    decoded: int = 0
    reads: int = 0
    spans: list[Span] = field(default_factory=list, repr=False)
    waves: list[Wave] = field(default_factory=list, repr=False)
    _begin: float = field(default_factory=perf_counter, repr=False)

    def _add(self, log: Log) -> None:
        before = len(self.waves)
        places = sorted({(span.step, span.where) for span in log.spans})
        for number, (first, chunks) in enumerate(log.waves):
            mine = [span for span in log.spans if span.wave == number]
            times = {p: sum(s.end - s.begin for s in mine if (s.step, s.where) == p) for p in places}
            nbytes = {p: log.nbytes[(*p, number)] for p in places}
            self.waves.append(Wave(self.reads, first, chunks, times, nbytes))
        for span in log.spans:
            times_since = span.begin - self._begin, span.end - self._begin
            self.spans.append(Span(span.step, span.where, before + span.wave, *times_since))
        self.reads += 1
        self.decoded += log.decoded

    @property
    def steps(self) -> list[Step]:
        """Every step that took time, in the order of a wave."""
        places = {(span.step, span.where) for span in self.spans}
        found = []
        for name, where in sorted(places, key=lambda place: (STEPS.index(place[0]), place[1] != HOST)):
            mine = [(s.begin, s.end) for s in self.spans if (s.step, s.where) == (name, where)]
            total = sum(end - begin for begin, end in mine)
            nbytes = sum(wave.nbytes.get((name, where), 0) for wave in self.waves)
            found.append(Step(name, where, total, union(mine), nbytes))
        return found

    @property
    def outside(self) -> float:
        """Seconds of the block in which no wave was in any step: planning, Python, and what else the block does."""
        return max(0.0, self.seconds - union((s.begin, s.end) for s in self.spans))

    def as_dict(self) -> dict[str, Any]:
        """All of it but the spans, for JSON."""
        return {
            "seconds": self.seconds,
            "decoded": self.decoded,
            "reads": self.reads,
            "outside": self.outside,
            "steps": [s._asdict() | {"rate": None if math.isnan(s.rate) else s.rate} for s in self.steps],
            "waves": [
                w._asdict() | {k: {"@".join(p): v for p, v in getattr(w, k).items()} for k in ("seconds", "nbytes")}
                for w in self.waves
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.reads} reads, {len(self.waves)} waves, {self.decoded / 1e6:.1f} MB decoded, {self.seconds:.4f} s"
        ]
        lines.append(f"{'step':<11}{'where':<8}{'seconds':>9}{'busy':>9}{'MB':>10}{'GB/s':>8}")
        for s in self.steps:
            figures = f"{s.nbytes / 1e6:>10.1f}{s.rate:>8.2f}" if s.nbytes else ""
            lines.append(f"{s.name:<11}{s.where:<8}{s.seconds:>9.4f}{s.busy:>9.4f}{figures}")
        return "\n".join([*lines, f"{'outside of waves':<19}{'':>9}{self.outside:>9.4f}"])

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the timeline of all waves, a line for each wave and place, and save it.

        Parameters
        ----------
        path : path
            Its suffix says how: ``.png``, ``.svg``, ``.pdf``.

        Raises
        ------
        ModuleNotFoundError
            Where matplotlib is missing; the extra ``bench`` brings it.
        """
        from zarrgpu import _plots

        _plots.timeline(self.spans, path)


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of what intervals cover together."""
    covered, until = 0.0, -math.inf
    for begin, end in sorted(intervals):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


@contextmanager
def profile() -> Iterator[Profile]:
    """Record what the steps of all reads take that end while this is entered, of all threads.

    On a GPU, events on the streams of the waves tell the times; where the package nvtx is installed, each step is also
    a range in the domain ``zarrgpu``, for Nsight Systems. Recording costs some microseconds a step, and nothing while
    nobody profiles.

    Yields
    ------
    Profile
        Grows with each read; complete when the block has ended.

    Examples
    --------
    >>> import numpy as np, zarr, zarrgpu
    >>> z = zarr.create_array({}, data=np.arange(1000), chunks=(100,))
    >>> with zarrgpu.profile() as seen:
    ...     _ = zarrgpu.read(z, device="host")
    >>> seen.decoded, [step.name for step in seen.steps if step.name in ("fetch", "decompress")]
    (8000, ['fetch', 'decompress'])
    """
    found = Profile()
    with _record.heard_by(found._add):
        found._begin = perf_counter()
        try:
            yield found
        finally:
            found.seconds = perf_counter() - found._begin
