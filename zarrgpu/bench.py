"""Measuring reads of one array by zarr and by zarrgpu, side by side, correct before timed.

Every system's result is compared with plain zarr's, bit for bit, before any clock starts. The reads are then timed in
turn, round after round, so that what else the machine does falls on all of them; ratios mean more than rates.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

import zarrgpu

WRONG = "wrong data"


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
        Seconds of each repeat; empty after a failure.
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

    def as_dict(self) -> dict[str, Any]:
        """Fields and figures, for JSON: None in place of NaN."""
        figures = {k: getattr(self, k) for k in ("seconds", "best", "spread", "rate")}
        return vars(self) | {k: None if math.isnan(v) else v for k, v in figures.items()}


@dataclass(frozen=True)
class System:
    """A way to read an array.

    Attributes
    ----------
    name : str
        Shown in tables.
    device : str
        Where its result is: ``"host"`` or ``"cuda:N"``.
    read : callable
        ``read(array, selection) -> result``.
    configured : callable
        Gives the context in which the array is opened and read.
    ours : bool
        Whether it is zarrgpu.
    """

    name: str
    device: str
    read: Callable[[zarr.Array[Any], Any], Any]
    configured: Callable[[], AbstractContextManager[Any]] = nullcontext
    ours: bool = False


@contextmanager
def plain_zarr(pipeline: str | None = None, gpu: bool = False) -> Iterator[None]:
    """Zarr as it is out of the box, or with another of its own pipelines, or with its GPU buffers."""
    shipped = zarr.config.defaults[0]
    module, _, batched = str(shipped["codec_pipeline"]["path"]).rpartition(".")
    path = f"{module}.{pipeline or batched}"
    changes = {"codec_pipeline.path": path, "buffer": shipped["buffer"], "ndbuffer": shipped["ndbuffer"]}
    with zarr.config.set(changes), zarr.config.enable_gpu() if gpu else nullcontext():
        yield


def systems(devices: Sequence[str]) -> list[System]:
    """All ways to get an array to `devices`.

    Parameters
    ----------
    devices : sequence of str
        ``"host"`` or ``"cuda:N"`` each; zarr's ways are listed for the host and for the first GPU.

    Returns
    -------
    list of System
        The first is plain zarr, to the host.
    """
    fused = partial(plain_zarr, "FusedCodecPipeline")
    found = [System("zarr", "host", _index, plain_zarr), System("zarr fused", "host", _index, fused)]
    gpu = next((d for d in devices if d != "host"), None)
    if gpu is not None:
        found += [
            System("zarr + copy", gpu, _index_and_copy(gpu), plain_zarr),
            System("zarr fused + copy", gpu, _index_and_copy(gpu), fused),
            System("zarr enable_gpu", gpu, _index, partial(plain_zarr, gpu=True)),
        ]
    return found + [_ours(device) for device in devices]


def _index(array: zarr.Array[Any], selection: Any) -> Any:
    return array[selection]


def _index_and_copy(device: str) -> Callable[[zarr.Array[Any], Any], Any]:
    def read(array: zarr.Array[Any], selection: Any) -> Any:
        import cupy

        host = np.asarray(array[selection])
        return cupy.asarray(host.astype(host.dtype.newbyteorder("="), copy=False))

    return read


def _ours(device: str) -> System:
    return System("zarrgpu", device, lambda array, selection: zarrgpu.read(array, selection, device=device), ours=True)


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

    Returns
    -------
    list of Measurement
        In the order of `systems`. One that raised, or a system of others that gave wrong bytes, has a `failure`.

    Raises
    ------
    BenchMismatch
        When zarrgpu gives other bytes than plain zarr.
    """
    total, done = len(systems) * (1 + repeats) + 1, 0

    def tell(what: str) -> None:
        nonlocal done
        if progress is not None:
            progress(done, total, what)
        done += 1

    tell("reading with plain zarr")
    with plain_zarr():
        truth = to_host(_reopened(array)[selection])
    decoded = truth.nbytes
    stored = round(array.nbytes_stored() * decoded / array.nbytes) if array.nbytes else 0
    opened, measured = [], []
    for system in systems:
        tell(f"checking {system.name} on {system.device}")
        measured.append(Measurement(system.name, system.device, system.ours, decoded, stored))
        opened.append(_check(system, array, selection, truth, measured[-1]))
    del truth
    for _ in range(repeats):
        for system, own, result in zip(systems, opened, measured, strict=True):
            tell(f"timing {system.name} on {system.device}")
            if result.failure is None:
                try:
                    result.times.append(_seconds(system, own, selection))
                except Exception as error:
                    result.failure = one_line(error)
                    result.times.clear()
    return measured


def _check(
    system: System, array: zarr.Array[Any], selection: Any, truth: npt.NDArray[Any], result: Measurement
) -> zarr.Array[Any]:
    """Compare a system's first read with the truth, and return the array as it opened it."""
    try:
        with system.configured(), on(system.device):
            array = _reopened(array)
            before = zarrgpu.counters()
            got = to_host(system.read(array, selection))
    except Exception as error:
        result.failure = one_line(error)
        return array
    wrong = difference(got, truth)
    if wrong and system.ours:
        raise BenchMismatch(f"{system.name} on {system.device} does not give what plain zarr gives: {wrong}")
    result.failure = wrong and f"{WRONG}: {wrong}"
    result.note = _fallbacks(before) if system.ours else None
    return array


def _seconds(system: System, array: zarr.Array[Any], selection: Any) -> float:
    with system.configured(), on(system.device) as synchronize:
        synchronize()
        begin = time.perf_counter()
        _kept = system.read(array, selection)  # until the clock stops: freeing it is not reading
        synchronize()
        return time.perf_counter() - begin


def _reopened(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array opened under the configuration in force: zarr chooses its pipeline then."""
    return zarr.open_array(array.store_path, mode="r", zarr_format=array.metadata.zarr_format)


def _fallbacks(before: dict[str, int]) -> str | None:
    """What fell back since `before`, as the counters say it."""
    grown = sorted(k for k, v in zarrgpu.counters().items() if v > before.get(k, 0) and k.startswith("fallback."))
    return ", ".join(k.removeprefix("fallback.") for k in grown) or None


def one_line(error: BaseException) -> str:
    """An exception's type and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
