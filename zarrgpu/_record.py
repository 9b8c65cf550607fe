"""What the steps of waves take, recorded while somebody profiles: the hooks of `zarrgpu.profile`.

A lane that nobody watches has no `Watch`, and a step that is marked by `step` then costs one look at it. Steps nest,
and time counts for the innermost: what `locate` has libraries decode is decompression.
"""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from zarrgpu.engine.base import Lane
    from zarrgpu.request import Request
    from zarrgpu.wave import Wave

HOST = "host"


class Span(NamedTuple):
    """A stretch of time in which a wave was in a step.

    Attributes
    ----------
    step : str
    where : str
        ``"host"`` or ``"cuda:N"``.
    wave : int
        Number of the wave, counted over all reads.
    begin, end : float
        Seconds, as of `time.perf_counter`.
    """

    step: str
    where: str
    wave: int
    begin: float
    end: float


@dataclass
class Log:
    """What was recorded of one read.

    Attributes
    ----------
    engine : str
        Its name.
    waves : list of (int, int)
        First chunk and number of chunks of each.
    spans : list of Span
    nbytes : Counter of (step, where, wave)
        Bytes that the steps were given or gave.
    decoded : int
        Bytes of all chunks, decoded.
    """

    engine: str
    decoded: int
    waves: list[tuple[int, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    nbytes: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def wave(self, first: int, last: int) -> int:
        """Number a new wave."""
        with self._lock:
            self.waves.append((first, last - first))
            return len(self.waves) - 1


class Track:
    """The steps that a lane's wave is in at one place, the innermost last.

    Parameters
    ----------
    now : callable
        What time it is there.
    emit : callable
        ``emit(step, begin, end)``, for each stretch of time in a step.
    """

    def __init__(self, now: Callable[[], Any], emit: Callable[[str, Any, Any], None]) -> None:
        self._now, self._emit = now, emit
        self._steps: list[str] = []
        self._since: Any = None

    def enter(self, step: str) -> None:
        """Begin a step inside the one that is going on."""
        self._cut()
        self._steps.append(step)

    def leave(self) -> None:
        """End the innermost step."""
        self._cut()
        self._steps.pop()

    def _cut(self) -> None:
        now = self._now()
        if self._steps:
            self._emit(self._steps[-1], self._since, now)
        self._since = now


class Watch:
    """Records what happens to the waves on one lane.

    The lane's wave is in one step at a time, whichever thread is at it. What `aside` times runs on several threads
    within a step, which is then shared out by the threads' times.
    """

    def __init__(self, lane: Lane, log: Log, ranges: Any) -> None:
        self.log, self.ranges = log, ranges
        self.wave = -1
        self.stamps: list[tuple[str, int, Any, Any]] = []
        self.host = Track(perf_counter, self._on_host)
        there = lane.stamp() is not None
        self.device = Track(lane.stamp, self._on_device) if there else self.host
        self._shares: dict[str, float] = {}
        self._lock = threading.Lock()

    def _on_host(self, step: str, begin: float, end: float) -> None:
        shares = self._shares or {step: 1.0}
        self._shares, total = {}, sum(shares.values()) or 1.0
        whole = end - begin
        for name, share in shares.items():
            until = begin + whole * share / total
            self.log.spans.append(Span(name, HOST, self.wave, begin, until))
            begin = until

    def _on_device(self, step: str, begin: Any, end: Any) -> None:
        self.stamps.append((step, self.wave, begin, end))

    def share(self, step: str, seconds: float, instead_of: str | None, nbytes: int) -> None:
        """Count a thread's `seconds` within the step that is going on for `step`, no longer for another."""
        with self._lock:
            self._shares[step] = self._shares.get(step, 0.0) + seconds
            if instead_of is not None:
                self._shares[instead_of] = self._shares.get(instead_of, 0.0) - seconds
            self.log.nbytes[step, HOST, self.wave] += nbytes


def step[**P, R](
    name: str,
    lane_of: int,
    nbytes: Callable[..., int] | None = None,
    device: bool = False,
    first: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function as a step of a wave.

    Parameters
    ----------
    name : str
        Of the step.
    lane_of : int
        The argument that is the wave's lane, or has it as its attribute ``lane``.
    nbytes : callable, optional
        ``nbytes(result, *arguments)``: bytes that it was given or gave.
    device : bool
        Whether what is timed is what the function asks of the engine rather than the function.
    first : bool
        Whether a wave begins with it; the two arguments after the lane are its first chunk, and the one after its last.
    """

    def marked(work: Callable[P, R]) -> Callable[P, R]:
        @wraps(work)
        def watched(*args: P.args, **options: P.kwargs) -> R:
            lane: Any = getattr(args[lane_of], "lane", args[lane_of])
            watch: Watch | None = lane.watch
            if watch is None:
                return work(*args, **options)
            if first:
                watch.wave = watch.log.wave(*args[lane_of + 1 : lane_of + 3])  # type: ignore[arg-type]  # as is said
            track = watch.device if device else watch.host
            watch.ranges.push_range(name, domain="zarrgpu", payload=watch.wave)
            track.enter(name)
            try:
                result = work(*args, **options)
            finally:
                track.leave()
                watch.ranges.pop_range(domain="zarrgpu")
            if nbytes is not None:
                where = HOST if track is watch.host else watch.log.engine
                watch.log.nbytes[name, where, watch.wave] += int(nbytes(result, *args, **options))
            return result

        return watched

    return marked


def aside(
    name: str,
    lane: Lane,
    work: Callable[..., Any],
    instead_of: str | None = None,
    nbytes: Callable[[Any], int] = lambda result: 0,
) -> Callable[..., Any]:
    """What does `work` on one of several threads, and counts time and bytes for `name` while the lane is watched."""
    watch = lane.watch
    if watch is None:
        return work

    def timed(*args: Any) -> Any:
        begin = perf_counter()
        result = work(*args)
        watch.share(name, perf_counter() - begin, instead_of, nbytes(result))
        return result

    return timed


class _NoRanges:
    """In place of the package nvtx where that is missing."""

    def push_range(self, message: str, domain: str, payload: int) -> None:
        """Do nothing."""

    def pop_range(self, domain: str) -> None:
        """Do nothing."""


_listeners: list[Callable[[Log], None]] = []
_ranges: Any = _NoRanges()


@contextmanager
def heard_by(listener: Callable[[Log], None]) -> Iterator[None]:
    """Give `listener` the log of every read that ends well."""
    global _ranges
    try:
        _ranges = importlib.import_module("nvtx")
    except ImportError:
        _ranges = _NoRanges()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def recorded(request: Request, lanes: Sequence[Lane]) -> Iterator[None]:
    """Watch the lanes of a read, if anybody listens."""
    if not _listeners:
        yield
        return
    log = Log(request.engine.name, request.program.nbytes * len(request.plan))
    watches = [Watch(lane, log, _ranges) for lane in lanes]
    try:
        for lane, watch in zip(lanes, watches, strict=True):
            lane.watch = watch
        yield
    finally:
        for lane in lanes:
            lane.watch = None
    end, last = lanes[0].stamp(), lanes[0]
    last.wait()
    now = perf_counter()
    for name, wave, begin, until in (stamped for watch in watches for stamped in watch.stamps):
        times = (now - last.elapsed(stamp, end) for stamp in (begin, until))
        log.spans.append(Span(name, log.engine, wave, *times))
    for listener in list(_listeners):
        listener(log)


def fetched_bytes(wave: Wave, *_: Any) -> int:
    """Bytes that were fetched as one, not each chunk by the thread that decodes it."""
    return int(wave.chunks[:, t.C_SIZE].clip(0).sum())


def located_bytes(_: None, request: Request, wave: Wave, refused: Any) -> int:
    """Bytes whose streams were looked for."""
    return int(wave.inner[:, t.C_SIZE].clip(0).sum())


def assembled_bytes(_: None, request: Request, wave: Wave, arenas: Any, which: npt.NDArray[np.bool_], how: Any) -> int:
    """Bytes of the output that were written."""
    own = request.plan.boxes[wave.first : wave.last][which]
    extents = own[:, t.B_COUNT : t.B_COUNT + request.plan.src_strides.size]
    return int(extents.prod(axis=1).sum()) * request.fill.size
