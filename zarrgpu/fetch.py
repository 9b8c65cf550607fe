"""Stores -> arenas: the encoded chunks of a wave, in pinned memory.

Only this module, `zarrgpu.files` and `zarrgpu.shards` do I/O.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from zarrgpu._async import awaited, together
from zarrgpu._threads import spread
from zarrgpu.engine.base import ALIGN, Lane
from zarrgpu.errors import noted

MISSING = -1
"""Size of a chunk that is not in the store."""

UNKNOWN = -2
"""Size of a chunk that was not fetched yet, or that nobody told."""

Bytes = npt.NDArray[np.uint8]
Lines = npt.NDArray[np.int64]


class Reserve(Protocol):
    """What gives the arena of a wave."""

    def __call__(self, nbytes: int, keep: int = 0) -> Bytes:
        """Return it, ``uint8[>= nbytes]``, with the first `keep` bytes that it had when this was called before."""


Fetched = tuple[Lines, Lines, int]
"""First byte and bytes of each piece in an arena, and the arena's bytes in use, a multiple of `ALIGN`."""

Ends = tuple[list[Bytes | None], Lines]
"""Pieces, None where the store has nothing, and the bytes of all of each value, `UNKNOWN` where that was not told."""


class Source(ABC):
    """Where the chunks of a request come from; chunk ``i`` of the request is line ``i`` of its plan.

    Errors of the store surface as they are, with a note of the chunk.
    """

    name: Callable[[int], tuple[str, str]] | None = None
    """``name(i)`` gives store and key of chunk ``i``, for those notes."""

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

    @property
    def on_engine(self) -> bool:
        """Whether the chunks are in the engine's memory, so that `gather` works, and `read` too."""
        return False

    def gather(self, lane: Lane, first: int, last: int) -> Fetched:
        """Bring chunks ``first:last`` into a lane's source arena on the engine; returns what `load` does."""
        raise NotImplementedError

    def gather_ranges(self, lane: Lane, which: Lines, offsets: Lines, sizes: Lines) -> Fetched:
        """Bring byte ranges of chunks into that arena; takes and returns what `ranges` does."""
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
        How many requests to have under way at once, those of all waves together.
    """

    def __init__(self, value: Callable[[int], Value], loop: asyncio.AbstractEventLoop, concurrency: int) -> None:
        self.value, self.loop, self.concurrency = value, loop, concurrency
        self._places, self._turn = asyncio.Semaphore(concurrency), asyncio.Lock()

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        return copy(self._all(range(first, last), [self.value(i).get for i in range(first, last)]), reserve)

    def ends(self, which: Lines, nbytes: int, at_end: bool) -> Ends:
        """As `Source.ends`."""
        found = self._all(which.tolist(), [partial(self.value(i).end, nbytes, at_end) for i in which.tolist()])
        return found, np.fromiter((MISSING if data is None else UNKNOWN for data in found), np.int64, len(found))

    def ranges(self, which: Lines, offsets: Lines, sizes: Lines, reserve: Reserve) -> Fetched:
        """As `Source.ranges`."""
        found: list[Bytes | None] = [None] * len(which)
        whole = np.flatnonzero(sizes == UNKNOWN)
        mine = which[whole].tolist()
        for k, data in zip(whole.tolist(), self._all(mine, [self.value(i).get for i in mine]), strict=True):
            found[k] = None if data is None else data[offsets[k] :]
        parts = np.flatnonzero(sizes >= 0)
        named, number = np.unique(which[parts], return_inverse=True)
        lines = [parts[mine].tolist() for mine in by_number(number, len(named))]
        each = max(1, self.concurrency // max(1, len(named)))
        spans = list(zip(offsets.tolist(), (offsets + sizes).tolist(), strict=True))
        gets = [
            partial(self.value(i).ranges, [spans[k] for k in line], each)
            for i, line in zip(named.tolist(), lines, strict=True)
        ]
        for line, pieces in zip(lines, self._all(named.tolist(), gets, each), strict=True):
            for k, data in zip(line, pieces, strict=True):
                found[k] = data
        return copy(found, reserve)

    def _all(self, which: Iterable[int], gets: Sequence[Callable[[], Awaitable[Any]]], each: int = 1) -> list[Any]:
        """Await what is to be had of the chunks `which`; each get makes so many requests at once."""

        async def one(i: int, get: Callable[[], Awaitable[Any]]) -> Any:
            async with self._room(each):
                with noted(self.name, i):
                    return await get()

        return awaited(together(one(i, get) for i, get in zip(which, gets, strict=True)), self.loop)

    @asynccontextmanager
    async def _room(self, n: int) -> AsyncIterator[None]:
        """Wait until `n` more requests may be under way."""
        taken = 0
        try:
            async with self._turn:  # or two could wait for each other's
                while taken < n:
                    await self._places.acquire()
                    taken += 1
            yield
        finally:
            for _ in range(taken):
                self._places.release()


class Buffers(Source):
    """Chunks that are in host memory already.

    Parameters
    ----------
    buffers : sequence of uint8[] or None
        One for each chunk; None for a missing one.
    """

    def __init__(self, buffers: Sequence[Bytes | None]) -> None:
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


def by_number(number: Lines, n: int) -> list[Lines]:
    """Where each of the numbers below `n` stands in `number`, in order."""
    ends = np.cumsum(np.bincount(number, minlength=n)).tolist()
    order = np.argsort(number, kind="stable")
    return [order[begin:end] for begin, end in pairwise([0, *ends])]


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
