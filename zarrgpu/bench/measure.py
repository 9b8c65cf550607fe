"""Correct, then timed: what each system took to read a selection, with the page cache warm and cold."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

import zarrgpu
from zarrgpu.bench.ways import System, plain_zarr, reopened

WRONG = "wrong data"
COLD_REPEATS = 3
MOST_CHUNKS = 100_000
"""With more of them, adding up their sizes takes longer than reading some."""


class BenchMismatch(AssertionError):
    """A system gave other bytes than plain zarr: it has no figure."""


@dataclass
class Measurement:
    """What one system took to read a selection.

    Attributes
    ----------
    system, device, ours
        As in `System`.
    decoded : int
        Bytes of the result.
    stored : int
        Bytes that the array takes in its store, in proportion to the selection.
    times : list of float
        Seconds of each repeat, the files in the page cache; empty after a failure.
    cold : list of float
        The same, the files dropped from the page cache before each; empty where that cannot be done.
    note : str or None
        What a reader of the figure must know.
    failure : str or None
        Why there is no figure.
    """

    system: str
    device: str
    ours: bool
    decoded: int
    stored: int
    times: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    note: str | None = None
    failure: str | None = None

    @property
    def seconds(self) -> float:
        """Median time; NaN without times."""
        return statistics.median(self.times) if self.times else math.nan

    @property
    def best(self) -> float:
        """Shortest time; NaN without times."""
        return min(self.times, default=math.nan)

    @property
    def spread(self) -> float:
        """Longest minus shortest time, as a part of the median; NaN without times."""
        return (max(self.times) - self.best) / self.seconds if self.times else math.nan

    @property
    def rate(self) -> float:
        """Decoded GB/s at the median time; NaN without times."""
        return self.decoded / self.seconds / 1e9

    @property
    def cold_rate(self) -> float:
        """Decoded GB/s at the median of the times with a cold page cache; NaN without them."""
        return self.decoded / statistics.median(self.cold) / 1e9 if self.cold else math.nan

    def fail(self, why: str) -> None:
        """Take the figures back."""
        self.failure = why
        self.times.clear()
        self.cold.clear()

    def as_dict(self) -> dict[str, Any]:
        """Fields and figures, for JSON: None in place of NaN."""
        figures = {k: getattr(self, k) for k in ("seconds", "best", "spread", "rate", "cold_rate")}
        return vars(self) | {k: None if math.isnan(v) else v for k, v in figures.items()}


@contextmanager
def on(device: str) -> Iterator[Callable[[], None]]:
    """Make `device` the current one, and give what waits until it has nothing left to do."""
    if device == "host":
        yield lambda: None
        return
    import cupy

    with cupy.cuda.Device(int(device.removeprefix("cuda:"))) as current:
        yield current.synchronize


def to_host(result: Any) -> npt.NDArray[Any]:
    """The result of a system as a NumPy array in native byte order."""
    array = np.asarray(result.get() if hasattr(result, "get") else result)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def difference(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> str | None:
    """Say how `got` differs from `want`, bit for bit, payloads of NaN included; None if it does not."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"shape {got.shape} and dtype {got.dtype} in place of {want.shape} and {want.dtype}"
    if want.dtype.hasobject or want.dtype.kind == "T":
        return None if np.array_equal(got, want) else "other values"
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (got, want))
    wrong = int(np.count_nonzero(a != b))
    return f"{wrong} of {b.size} bytes differ" if wrong else None


def compare(
    array: zarr.Array[Any],
    selection: Any = ...,
    *,
    systems: Sequence[System],
    repeats: int = 5,
    progress: Callable[[int, int, str], None] | None = None,
    drop: Callable[[], None] | None = None,
    budget: float = math.inf,
) -> list[Measurement]:
    """Read a selection of an array with each system: once to check it, then `repeats` times, in turn.

    Parameters
    ----------
    array : zarr.Array
        It is opened anew by each system.
    selection : optional
        As in ``array[selection]``.
    systems : sequence of System
        What plain zarr gives on the host is the truth, whether it is among them or not.
    repeats : int
        Timed reads of each.
    progress : callable, optional
        Called as ``progress(done, total, doing)`` before each read.
    drop : callable, optional
        Takes the array's files out of the page cache: with it, `COLD_REPEATS` more reads of each are timed.
    budget : float
        Seconds for all timed reads; a system that has had its share, and one read, gets no more.

    Returns
    -------
    list of Measurement
        In the order of `systems`. One that raised, or a system of others that gave wrong bytes, has a `failure`.

    Raises
    ------
    BenchMismatch
        When zarrgpu gives other bytes than plain zarr.
    """
    colds = 0 if drop is None else min(COLD_REPEATS, repeats)
    total, done = len(systems) * (1 + repeats + colds) + 1, 0

    def tell(what: str) -> None:
        nonlocal done
        if progress is not None:
            progress(done, total, what)
        done += 1

    tell("reading with plain zarr")
    with plain_zarr():
        truth = to_host(reopened(array)[selection])
    decoded, stored = truth.nbytes, _stored(array, truth.nbytes)
    opened, measured = [], []
    for system in systems:
        tell(f"checking {system.name} on {system.device}")
        measured.append(Measurement(system.name, system.device, system.ours, decoded, stored))
        opened.append(_check(system, array, selection, truth, measured[-1]))
    for k in range(colds + repeats):
        for system, own, result in zip(systems, opened, measured, strict=True):
            cold = k < colds
            tell(f"timing {system.name} on {system.device}{', cold' * cold}")
            times = result.cold if cold else result.times
            spent = sum(times) >= budget / len(systems) / (2 if colds else 1)
            if result.failure is not None or (times and spent and k + 1 < colds + repeats):
                continue
            if cold and drop is not None:
                drop()
            try:
                seconds, got = _timed(system, own, selection)
            except Exception as error:
                result.fail(one_line(error))
                continue
            times.append(seconds)
            if k + 1 == colds + repeats:  # once more, now that it was in a hurry
                _judge(system, got, truth, result)
    return measured


def _stored(array: zarr.Array[Any], decoded: int) -> int:
    """Bytes that so many decoded ones of an array take in its store; 0 where that is not told, or takes long."""
    if not array.nbytes or not array.store.supports_listing or array.nchunks > MOST_CHUNKS:
        return 0
    return round(array.nbytes_stored() * decoded / array.nbytes)


def _check(system: System, array: zarr.Array[Any], selection: Any, truth: npt.NDArray[Any], result: Measurement) -> Any:
    """Compare a system's first read with the truth, and return the array as it opened it."""
    try:
        with system.configured(), on(system.device):
            opened = system.open(array)
            before = zarrgpu.counters()
            got = system.read(opened, selection)
    except Exception as error:
        result.failure = one_line(error)
        return None
    _judge(system, got, truth, result)
    result.note = _fallbacks(before) if system.ours else None
    return opened


def _judge(system: System, got: Any, truth: npt.NDArray[Any], result: Measurement) -> None:
    """Refuse a system that gives other bytes than plain zarr."""
    with on(system.device):
        wrong = difference(to_host(got), truth)
    if wrong and system.ours:
        raise BenchMismatch(f"{system.name} on {system.device} does not give what plain zarr gives: {wrong}")
    if wrong:
        result.fail(f"{WRONG}: {wrong}")


def _timed(system: System, opened: Any, selection: Any) -> tuple[float, Any]:
    """Seconds, and the result: freeing it is not reading."""
    with system.configured(), on(system.device) as synchronize:
        synchronize()
        begin = time.perf_counter()
        result = system.read(opened, selection)
        synchronize()
        return time.perf_counter() - begin, result


def _fallbacks(before: dict[str, int]) -> str | None:
    """What fell back since `before`, as the counters say it."""
    grown = sorted(k for k, v in zarrgpu.counters().items() if v > before.get(k, 0) and k.startswith("fallback."))
    return ", ".join(k.removeprefix("fallback.") for k in grown) or None


def one_line(error: BaseException) -> str:
    """An exception's type and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
