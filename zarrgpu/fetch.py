"""Stores -> arenas: the encoded chunks of a wave, in pinned memory. The only code that does I/O."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._async import awaited, together
from zarrgpu.engine.base import ALIGN, Lane, cores, readers
from zarrgpu.errors import noted

MISSING = -1
"""Size of a chunk that is not in the store."""

Reserve = Callable[[int], npt.NDArray[np.uint8]]


class Source(ABC):
    """Where the chunks of a request come from; chunk ``i`` of the request is line ``i`` of its plan.

    Errors of the store surface as they are, with a note of the chunk.
    """

    name: Callable[[int], tuple[str, str]] | None = None
    """``name(i)`` gives store and key of chunk ``i``, for those notes."""

    @abstractmethod
    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
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

    def read(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Chunk `i`, in memory of its own, by the calling thread; None where the store has none."""
        raise NotImplementedError

    @property
    def on_engine(self) -> bool:
        """Whether the chunks are in the engine's memory, so that `gather` works, and `read` too."""
        return False

    def gather(self, lane: Lane, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """Bring chunks ``first:last`` into a lane's source arena on the engine; returns what `load` does."""
        raise NotImplementedError


class Files(Source):
    """Chunks that are files of their own, read by threads of Python.

    Parameters
    ----------
    paths : sequence of str
        One for each chunk.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    @property
    def one_by_one(self) -> bool:
        """They do."""
        return True

    def read(self, i: int) -> npt.NDArray[np.uint8] | None:
        """As `Source.read`."""
        with noted(self.name, i):
            try:
                with open(self.paths[i], "rb", buffering=0) as file:
                    return np.frombuffer(file.readall(), np.uint8)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.load`."""
        which = range(first, last)
        found = _spread(lambda part: [self._size(i) for i in part], which)
        sizes = np.fromiter((size for part in found for size in part), np.int64, len(which))
        starts, used = pack(sizes)
        arena = memoryview(reserve(used))

        def fill(part: Sequence[tuple[int, int, int]]) -> None:
            for i, at, n in part:
                if n > 0:
                    with noted(self.name, i):
                        _read(self.paths[i], arena[at : at + n])

        _spread(fill, list(zip(which, starts.tolist(), sizes.tolist(), strict=True)))
        return starts, sizes, used

    def _size(self, i: int) -> int:
        with noted(self.name, i):
            return _size(self.paths[i])


class NativeFiles(Files):
    """Chunks that are files of their own, read by compiled workers; Linux only."""

    SURPRISING = 1 << 30
    """Size from which a file is looked at again: some file systems say so of a folder."""

    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.load`."""
        from zarrgpu import _native as native

        paths = self.paths[first:last]
        n, table = len(paths), native.path_table(paths)
        sizes = np.empty(n, np.int64)
        _split(n, lambda begin, end: native.file_sizes(*table, sizes, begin, end), least=32)
        sizes[(sizes == -errno.ENOENT) | (sizes == -errno.ENOTDIR)] = MISSING
        for i in np.flatnonzero((sizes < MISSING) | (sizes >= self.SURPRISING)).tolist():
            sizes[i] = self._size(first + i)
        starts, used = pack(sizes)
        arena, status = reserve(used), np.zeros(n, np.int64)
        span = (*table, starts, np.maximum(sizes, 0), arena, status)
        _split(used, lambda begin, end: native.read_span(*span, begin, end), least=1 << 16)
        for i in np.flatnonzero(status).tolist():
            if status[i] != -errno.EISDIR:
                with noted(self.name, first + i):
                    raise _os_error(int(status[i]), paths[i])
            sizes[i] = MISSING
        return starts, sizes, used


class Objects(Source):
    """Chunks that an asynchronous store gives as buffers.

    Parameters
    ----------
    get : callable
        ``get(i)`` gives an awaitable of chunk ``i``'s bytes, an ``uint8[]``, or of None when it is missing.
    loop : asyncio event loop
        Where to await it; never the calling thread's.
    concurrency : int
        How many to await at once.
    """

    def __init__(
        self, get: Callable[[int], Awaitable[Any | None]], loop: asyncio.AbstractEventLoop, concurrency: int
    ) -> None:
        self.get, self.loop = get, loop
        self.places = asyncio.Semaphore(concurrency)  # of all waves together

    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.load`."""
        return _copy(awaited(self._gather(first, last), self.loop), reserve)

    async def _gather(self, first: int, last: int) -> list[npt.NDArray[np.uint8] | None]:
        async def one(i: int) -> npt.NDArray[np.uint8] | None:
            async with self.places:
                with noted(self.name, i):
                    data = await self.get(i)
            return None if data is None else np.frombuffer(data, np.uint8)

        return await together(one(i) for i in range(first, last))


class Buffers(Source):
    """Chunks that are in host memory already.

    Parameters
    ----------
    buffers : sequence of uint8[] or None
        One for each chunk; None for a missing one.
    """

    def __init__(self, buffers: Sequence[npt.NDArray[np.uint8] | None]) -> None:
        self.buffers = buffers

    @property
    def one_by_one(self) -> bool:
        """They do."""
        return True

    def read(self, i: int) -> npt.NDArray[np.uint8] | None:
        """As `Source.read`."""
        return self.buffers[i]

    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.load`."""
        return _copy(self.buffers[first:last], reserve)


def files(paths: Sequence[str]) -> Files:
    """The way to read files on this system."""
    return NativeFiles(paths) if sys.platform == "linux" else Files(paths)


def pack(sizes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Aligned places for pieces of `sizes` bytes, one after the other."""
    room = -(-np.maximum(sizes, 0) // ALIGN) * ALIGN  # a missing chunk takes none
    ends = np.cumsum(room)
    return ends - room, int(ends[-1]) if len(ends) else 0


def _copy(
    found: Sequence[npt.NDArray[np.uint8] | None], reserve: Reserve
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Copy chunks that are in host memory into an arena: what `Source.load` returns."""
    sizes = np.fromiter((MISSING if data is None else data.size for data in found), np.int64, len(found))
    starts, used = pack(sizes)
    arena = reserve(used)

    def copy(part: Sequence[tuple[npt.NDArray[np.uint8] | None, int]]) -> None:
        for data, at in part:
            if data is not None:
                arena[at : at + data.size] = data

    _spread(copy, list(zip(found, starts.tolist(), strict=True)))
    return starts, sizes, used


def _spread(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do `work` on parts of `items` on all workers, and give the results in order."""
    parts = min(len(items), 4 * cores())
    if parts <= 1:
        return [work(items)] if items else []
    bounds = [len(items) * k // parts for k in range(parts + 1)]
    tasks: list[Future[Any]] = [readers().submit(work, items[a:b]) for a, b in pairwise(bounds)]
    return [t.result() for t in tasks]


def _split(n: int, work: Callable[[int, int], Any], least: int = 1) -> None:
    """Do ``work(begin, end)`` for even parts of ``range(n)``, of `least` or more, on all workers."""
    parts = min(max(2, cores() - 2), n // least)
    if parts <= 1:
        work(0, n)
        return
    bounds = [n * k // parts for k in range(parts + 1)]
    for task in [readers().submit(work, begin, end) for begin, end in pairwise(bounds)]:
        task.result()


def _os_error(status: int, path: str) -> OSError:
    from zarrgpu._native import SHORT

    if status == SHORT:
        return OSError(f"{path} became shorter while it was read")
    return OSError(-status, os.strerror(-status), path)


def _size(path: str) -> int:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    return MISSING if found.st_mode & 0o170000 == 0o040000 else found.st_size  # a folder is no chunk


def _read(path: str, target: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        done = 0
        while done < len(target):
            n = os.preadv(fd, [target[done:]], done)
            if n == 0:
                raise OSError(f"{path} became shorter while it was read: {done} of {len(target)} bytes")
            done += n
    finally:
        os.close(fd)
