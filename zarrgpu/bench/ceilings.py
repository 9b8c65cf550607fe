"""What the machine can do at best, in GB/s: the rates that everything else is compared with."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from zarrgpu._threads import cores
from zarrgpu.bench.measure import on
from zarrgpu.files import files as store_files

REPEATS = 7
COPIED = 1 << 28
READ = 1 << 29
"""Bytes of files that are read at most, but for the first."""


def measure(
    device: str, files: Sequence[str] | None = None, drop: Callable[[], None] | None = None
) -> dict[str, float]:
    """Every ceiling of this machine that a read may meet, in GB/s.

    Parameters
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.
    files : sequence of str, optional
        The store's, which are read into memory that is there already.
    drop : callable, optional
        Takes them out of the page cache.

    Returns
    -------
    dict of str to float
        ``memcpy`` (bytes copied, all cores), ``files`` and ``files, cold``; with a GPU also ``upload, pinned``,
        ``upload, pageable`` and ``copy on cuda:N`` (read and written).
    """
    found = {"memcpy": host_copy(COPIED, cores())}
    if files:
        found["files"] = file_read(files)
    if files and drop is not None:
        found["files, cold"] = file_read(files, drop)
    if device != "host":
        with on(device):
            found |= {f"upload, {kind}": upload(COPIED, kind == "pinned") for kind in ("pinned", "pageable")}
            found[f"copy on {device}"] = device_copy(COPIED)
    return found


def file_read(paths: Sequence[str], drop: Callable[[], None] | None = None) -> float:
    """Files to memory by compiled workers, encoded bytes; with `drop`, once, from the disk."""
    bounded = list(itertools.takewhile(lambda total: total <= READ, itertools.accumulate(map(os.path.getsize, paths))))
    some = list(paths[: max(1, len(bounded))])
    source, arena = store_files(some), [np.ones(0, np.uint8)]

    def reserve(nbytes: int, keep: int = 0) -> npt.NDArray[np.uint8]:
        if arena[0].size < nbytes:
            arena[0] = np.ones(nbytes, np.uint8)  # nobody looks at the bytes
        return arena[0]

    nbytes = sum(map(os.path.getsize, some))
    source.load(0, len(some), reserve)
    if drop is None:
        return nbytes / median(lambda: source.load(0, len(some), reserve)) / 1e9
    drop()
    begin = time.perf_counter()
    source.load(0, len(some), reserve)
    return nbytes / (time.perf_counter() - begin) / 1e9


def device_copy(nbytes: int) -> float:
    """Device to device on the current GPU, bytes read plus bytes written."""
    import cupy

    source, target = (cupy.zeros(nbytes, np.uint8) for _ in range(2))
    times = []
    for _ in range(REPEATS):
        events = [cupy.cuda.Event() for _ in range(2)]
        target.data.copy_from_device_async(source.data, nbytes)  # the device is busy while the next ones are enqueued
        events[0].record()
        target.data.copy_from_device_async(source.data, nbytes)
        events[1].record()
        events[1].synchronize()
        times.append(cupy.cuda.get_elapsed_time(*events) / 1e3)
    return float(2 * nbytes / statistics.median(times) / 1e9)


def upload(nbytes: int, pinned: bool) -> float:
    """Host to the current GPU."""
    import cupy

    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes) if pinned else np.empty(nbytes, "u1")
    host[:] = 1
    target = cupy.empty(nbytes, np.uint8)

    def copy() -> None:
        target.set(host)
        cupy.cuda.Device().synchronize()

    return nbytes / median(copy) / 1e9


def host_copy(nbytes: int, threads: int) -> float:
    """Memory to memory by NumPy, bytes copied."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    bounds = [nbytes * i // threads for i in range(threads + 1)]

    def part(i: int) -> None:
        target[bounds[i] : bounds[i + 1]] = source[bounds[i] : bounds[i + 1]]

    with ThreadPoolExecutor(threads) as pool:
        return nbytes / median(lambda: list(pool.map(part, range(threads)))) / 1e9


def median(work: Callable[[], object]) -> float:
    """Median time of some runs after a first."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
