"""What the machine can do at best, in GB/s: the rates that everything else is compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

REPEATS = 7


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
