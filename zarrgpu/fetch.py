"""Stores -> arenas: the encoded chunks of a wave, in pinned memory.

Only this module, `zarrgpu.files` and `zarrgpu.shards` do I/O.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from zarrgpu.engine.base import ALIGN, cores, readers

MISSING = -1
"""Size of a chunk that is not in the store."""

UNKNOWN = -2
"""Size of a chunk that was not fetched yet, or that nobody told."""

Bytes = npt.NDArray[np.uint8]
Lines = npt.NDArray[np.int64]

Reserve = Callable[[int], Bytes]
"""``reserve(nbytes)`` gives an arena, ``uint8[>= nbytes]``."""

Fetched = tuple[Lines, Lines, int]
"""First byte and bytes of each piece in an arena, and the arena's bytes in use, a multiple of `ALIGN`."""

Ends = tuple[list[Bytes | None], Lines]
"""Pieces, None where the store has nothing, and the bytes of all of each value, `UNKNOWN` where that was not told."""


class Source(ABC):
    """Where the chunks of a request come from; chunk ``i`` of the request is line ``i`` of its plan."""

    @abstractmethod
    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """Bring chunks ``first:last`` into an arena.

        Parameters
        ----------
        first, last : int
            Chunks of the request.
        reserve : callable
            ``reserve(nbytes)`` gives the arena, ``uint8[>= nbytes]``.

        Returns
        -------
        starts, sizes : int64[last - first]
            First byte and bytes of each chunk; size `MISSING` where the store has none.
        used : int
            Bytes of the arena in use, a multiple of `zarrgpu.engine.base.ALIGN`.
        """

    @property
    def one_by_one(self) -> bool:
        """Whether `read` works."""
        return False

    def read(self, i: int) -> Bytes | None:
        """Chunk `i`, in memory of its own, by the calling thread; None where the store has none."""
        raise NotImplementedError

    def ends(self, which: Lines, nbytes: int, at_end: bool) -> Ends:
        """The first or the last `nbytes` bytes of the chunks `which`, or all that they have; only of shards."""
        raise NotImplementedError

    def ranges(self, which: Lines, offsets: Lines, sizes: Lines, reserve: Reserve) -> Fetched:
        """Bring byte ranges of chunks into an arena, as `load` does; only of shards.

        Parameters
        ----------
        which, offsets, sizes : int64[k]
            Chunk, first byte and bytes of each range; neighbours in a chunk should follow each other. `MISSING` sizes
            stay so; for `UNKNOWN` the range ends where the chunk does.
        reserve : callable
            As in `load`.

        Returns
        -------
        starts, sizes, used
            As `load`; sizes may be smaller than those asked for, where a chunk ends before its range does.
        """
        raise NotImplementedError


class Value(Protocol):
    """A value of an asynchronous store; what it gives is ``uint8[]``, or None where the store has no such value."""

    async def get(self) -> Any:
        """All of it."""

    async def end(self, nbytes: int, at_end: bool) -> Any:
        """Its first or its last `nbytes` bytes, or all that it has."""

    async def ranges(self, spans: Sequence[tuple[int, int]], concurrency: int) -> Sequence[Any]:
        """Byte ranges ``first:stop`` of it, or what there is of them, fetched by so many requests at once."""


class Objects(Source):
    """Chunks that are values of an asynchronous store.

    Parameters
    ----------
    value : callable
        ``value(i)`` is the `Value` of chunk ``i``.
    loop : asyncio event loop
        Where to await it; never the calling thread's.
    concurrency : int
        How many requests to have under way at once.
    """

    def __init__(self, value: Callable[[int], Value], loop: asyncio.AbstractEventLoop, concurrency: int) -> None:
        self.value, self.loop, self.concurrency = value, loop, concurrency

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        return copy(self._all([self.value(i).get for i in range(first, last)]), reserve)

    def ends(self, which: Lines, nbytes: int, at_end: bool) -> Ends:
        """As `Source.ends`."""
        found = self._all([partial(self.value(i).end, nbytes, at_end) for i in which.tolist()])
        return found, np.fromiter((MISSING if data is None else UNKNOWN for data in found), np.int64, len(found))

    def ranges(self, which: Lines, offsets: Lines, sizes: Lines, reserve: Reserve) -> Fetched:
        """As `Source.ranges`."""
        found: list[Bytes | None] = [None] * len(which)
        whole = np.flatnonzero(sizes == UNKNOWN).tolist()
        for k, data in zip(whole, self._all([self.value(int(which[k])).get for k in whole]), strict=True):
            found[k] = None if data is None else data[offsets[k] :]
        parts = np.flatnonzero(sizes >= 0)
        named, number = np.unique(which[parts], return_inverse=True)
        lines = [parts[number == k].tolist() for k in range(len(named))]
        each = max(1, self.concurrency // max(1, len(named)))
        spans = list(zip(offsets.tolist(), (offsets + sizes).tolist(), strict=True))
        gets = [
            partial(self.value(i).ranges, [spans[k] for k in mine], each)
            for i, mine in zip(named.tolist(), lines, strict=True)
        ]
        for mine, pieces in zip(lines, self._all(gets, each), strict=True):
            for k, data in zip(mine, pieces, strict=True):
                found[k] = data
        return copy(found, reserve)

    def _all(self, gets: Sequence[Callable[[], Awaitable[Any]]], each: int = 1) -> list[Any]:
        """Await all of them, each of which makes so many requests at once."""
        return asyncio.run_coroutine_threadsafe(self._gather(gets, self.concurrency // each), self.loop).result()

    async def _gather(self, gets: Sequence[Callable[[], Awaitable[Any]]], at_once: int) -> list[Any]:
        places = asyncio.Semaphore(at_once)

        async def one(get: Callable[[], Awaitable[Any]]) -> Any:
            async with places:
                return await get()

        tasks = [asyncio.ensure_future(one(get)) for get in gets]
        try:
            return await asyncio.gather(*tasks)
        finally:  # after a failure nothing is left running; the store's error surfaces as it is
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Buffers(Source):
    """Chunks that are in host memory already.

    Parameters
    ----------
    buffers : sequence of uint8[]
        One for each chunk.
    """

    def __init__(self, buffers: Sequence[Bytes]) -> None:
        self.buffers = buffers

    @property
    def one_by_one(self) -> bool:
        """They do."""
        return True

    def read(self, i: int) -> Bytes | None:
        """As `Source.read`."""
        return self.buffers[i]

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        return copy(self.buffers[first:last], reserve)


def pack(sizes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Aligned places for pieces of `sizes` bytes, one after the other."""
    room = -(-np.maximum(sizes, 0) // ALIGN) * ALIGN  # a missing chunk takes none
    ends = np.cumsum(room)
    return ends - room, int(ends[-1]) if len(ends) else 0


def copy(found: Sequence[Bytes | None], reserve: Reserve) -> Fetched:
    """Copy chunks that are in host memory into an arena: what `Source.load` returns."""
    sizes = np.fromiter((MISSING if data is None else data.size for data in found), np.int64, len(found))
    starts, used = pack(sizes)
    arena = reserve(used)

    def some(part: Sequence[tuple[Bytes | None, int]]) -> None:
        for data, at in part:
            if data is not None:
                arena[at : at + data.size] = data

    spread(some, list(zip(found, starts.tolist(), strict=True)))
    return starts, sizes, used


def spread(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do `work` on parts of `items` on all workers, and give the results in order."""
    parts = min(len(items), 4 * cores())
    if parts <= 1:
        return [work(items)] if items else []
    bounds = [len(items) * k // parts for k in range(parts + 1)]
    tasks: list[Future[Any]] = [readers().submit(work, items[a:b]) for a, b in pairwise(bounds)]
    return [t.result() for t in tasks]


def split(n: int, work: Callable[[int, int], Any], least: int = 1) -> None:
    """Do ``work(begin, end)`` for even parts of ``range(n)``, of `least` or more, on all workers."""
    parts = min(max(2, cores() - 2), n // least)
    if parts <= 1:
        work(0, n)
        return
    bounds = [n * k // parts for k in range(parts + 1)]
    for task in [readers().submit(work, begin, end) for begin, end in pairwise(bounds)]:
        task.result()
