"""Threads that live as long as the process, and work that they share with the thread that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

from zarrgpu import _fork

PIECES = 8
"""Pieces of work for each core: enough that a core which drew long ones does not keep the others waiting."""


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def workers() -> ThreadPoolExecutor:
    """The threads that run compiled twins and zarr's codecs: as many as this process may use cores."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="zarrgpu-work")


@cache
def readers() -> ThreadPoolExecutor:
    """The threads that read files and copy bytes; they leave cores to the threads that feed the GPU meanwhile."""
    return ThreadPoolExecutor(max(2, cores() - 2), thread_name_prefix="zarrgpu-read")


_fork.in_child(workers.cache_clear)  # threads do not survive a fork: the child makes its own
_fork.in_child(readers.cache_clear)


def share(pool: ThreadPoolExecutor, threads: int, n: int, work: Callable[[int], Any]) -> list[Any]:
    """``[work(k) for k in range(n)]``, by the calling thread and `threads` less one of a pool, each taking the next.

    Little work so waits for nobody to wake up, and none of it runs any more when this ends. All of it is done before
    the error of the first that failed is raised.
    """
    turns, results, errors = iter(range(n)), [None] * n, dict[int, Exception]()

    def some() -> None:
        for k in turns:  # an iterator in C: no two threads get the same
            try:
                results[k] = work(k)
            except Exception as error:
                errors[k] = error

    jobs = [pool.submit(some) for _ in range(min(threads, n) - 1)]
    try:
        some()
    finally:  # an interrupt, too
        for _ in turns:
            pass
        begun = [job for job in jobs if not job.cancel()]
        wait(begun)
    for job in begun:
        job.result()  # which raises what is no `Exception`
    if errors:
        raise errors[min(errors)]
    return results


def spread(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do `work` on parts of `items`, shared with `readers`, and give the results in order."""
    parts = min(len(items), 4 * cores())
    bounds = [len(items) * k // max(parts, 1) for k in range(parts + 1)]
    return share(readers(), max(2, cores() - 2), parts, lambda k: work(items[bounds[k] : bounds[k + 1]]))


def split(n: int, work: Callable[[int, int], Any], least: int = 1) -> None:
    """Do ``work(begin, end)`` for even parts of ``range(n)``, of `least` or more, shared with `readers`."""
    parts = max(1, min(max(2, cores() - 2), n // least))
    bounds = [n * k // parts for k in range(parts + 1)]
    share(readers(), parts, parts, lambda k: work(bounds[k], bounds[k + 1]))


def on_all_cores(work: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """``work(*line)`` for each line of the arguments, shared with `workers`."""
    lines = list(zip(*arguments, strict=True))
    step = max(1, len(lines) // (cores() * PIECES))  # to hand over a piece costs more than a small chunk

    def some(k: int) -> list[Any]:
        return [work(*line) for line in lines[k * step : (k + 1) * step]]

    parts = share(workers(), cores(), -(-len(lines) // step), some)
    return [result for part in parts for result in part]
