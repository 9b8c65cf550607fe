"""Local files -> arenas: chunks that are files, and byte ranges of shards that are."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from zarrgpu import _fork
from zarrgpu._threads import split, spread
from zarrgpu.engine.base import ALIGN, aligned
from zarrgpu.errors import noted
from zarrgpu.fetch import MISSING, UNKNOWN, Ends, Fetched, Reserve, Source, pack
from zarrgpu.keys import Keys

SHORT = "{} became shorter while it was read"


class Files(Source):
    """Files, read by threads of Python.

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

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        which = np.arange(first, last)
        sizes = self.sizes(which)
        starts, used = pack(sizes)
        self.fill(which, np.zeros_like(sizes), sizes, starts, reserve(used))
        return starts, sizes, used

    def ends(self, which: npt.NDArray[np.int64], nbytes: int, at_end: bool) -> Ends:
        """As `Source.ends`."""
        sizes = self.sizes(which)
        found = np.minimum(sizes, nbytes)
        starts, used = pack(found)
        arena = np.empty(used, np.uint8)
        self.fill(which, np.maximum(sizes - nbytes, 0) if at_end else np.zeros_like(sizes), found, starts, arena)
        pieces = zip(starts.tolist(), found.tolist(), strict=True)
        return [None if n == MISSING else arena[at : at + n] for at, n in pieces], sizes

    def ranges(
        self,
        which: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        reserve: Reserve,
    ) -> Fetched:
        """As `Source.ranges`."""
        open_ended = sizes == UNKNOWN
        if open_ended.any():
            sizes = sizes.copy()
            there = self.sizes(which[open_ended])
            sizes[open_ended] = np.where(there == MISSING, MISSING, there - offsets[open_ended])
        starts, used = pack(sizes)
        self.fill(which, offsets, sizes, starts, reserve(used))
        return starts, sizes, used

    def sizes(self, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes of the files `which`; `MISSING` where there is none."""
        found = spread(lambda part: [self._size(i) for i in part], which.tolist())
        return np.fromiter((size for part in found for size in part), np.int64, len(which))

    def _size(self, i: int) -> int:
        with noted(self.name, i):
            return _size(self.paths[i])

    def fill(
        self,
        which: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        arena: npt.NDArray[np.uint8],
    ) -> None:
        """Read ranges of the files `which`, which must be that long, to `starts` in an arena."""
        view = memoryview(arena)

        def read(places: Sequence[tuple[int, int, int, int]]) -> None:
            for i, offset, size, at in places:
                if size > 0:
                    with noted(self.name, i):
                        _read(self.paths[i], offset, view[at : at + size])

        spread(read, list(zip(*(x.tolist() for x in (which, offsets, sizes, starts)), strict=True)))


class NativeFiles(Files):
    """Files, read by compiled workers; Linux only."""

    PIECE = 1 << 22
    """Bytes that a worker reads at once, so that the largest range does not keep the others waiting."""

    SHARE = 1 << 19
    """Bytes that are worth another worker: to wake one takes as long as to read a tenth of that from the page cache."""

    SMALL = 1 << 19
    """Bytes up to which files, on average, are opened once, by workers that learn their sizes as they read them.

    To open a file of the page cache and close it takes as long as to read some 20 kB of it. Larger ones are asked for
    their sizes first, and read in pieces."""

    FEW = 8
    """Files below which to ask the system for a size takes less than to prepare a table for the workers."""

    SAMPLE = 32
    """Files that are asked for their sizes, to know about how much room all need."""

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        native, n = _native(), last - first
        if n < 8 * self.SAMPLE:
            return super().load(first, last, reserve)
        each = int(np.maximum(self.sizes(first + np.arange(self.SAMPLE) * n // self.SAMPLE), 0).mean())
        if each > self.SMALL:
            return super().load(first, last, reserve)
        starts, sizes, taken = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(1, np.int64)
        arena = reserve(n * (each + each // 8 + ALIGN))
        job = *self._table(np.arange(first, last)), arena, taken, starts, sizes
        split(n, lambda begin, end: native.read_files(*job, begin, end), least=self.SAMPLE)
        self._told(np.arange(first, last), sizes)
        placed, there = starts >= 0, sizes >= 0
        used = aligned(int((starts + sizes).max(where=placed & there, initial=0)))
        late, starts[~placed] = np.flatnonzero(there & ~placed), 0
        if len(late):
            starts[late], more = pack(sizes[late])
            starts[late] += used
            self.fill(first + late, np.zeros_like(late), sizes[late], starts[late], reserve(used + more, used))
            used += more
        return starts, sizes, used

    def sizes(self, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """As `Files.sizes`."""
        n = len(which)
        if n < self.FEW:
            return np.array([self._size(i) for i in which.tolist()], np.int64)
        native, table = _native(), self._table(which)
        sizes = np.empty(n, np.int64)
        split(n, lambda begin, end: native.file_sizes(*table, sizes, begin, end), least=32)
        self._told(which, sizes)
        return sizes

    def _told(self, which: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        """Raise what workers met with files `which`, or else mark those that are `MISSING`."""
        missing = (
            (sizes == -errno.ENOENT) | (sizes == -errno.ENOTDIR) | (sizes == -errno.EISDIR)
        )  # no folder is a chunk
        for k in np.flatnonzero((sizes < 0) & ~missing).tolist():
            self._raise(int(sizes[k]), int(which[k]))
        sizes[missing] = MISSING

    def fill(
        self,
        which: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        arena: npt.NDArray[np.uint8],
    ) -> None:
        """As `Files.fill`."""
        native = _native()
        named, number = which, np.arange(len(which))
        if not (which[1:] > which[:-1]).all():  # ranges of fewer files
            named, number = np.unique(which, return_inverse=True)
        pieces = np.maximum(-(-sizes // self.PIECE), 0)
        of = np.repeat(np.arange(len(sizes)), pieces)
        within = (np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * self.PIECE
        size = np.minimum(sizes[of] - within, self.PIECE)
        table = self._table(named)
        status = np.zeros(len(of), np.int64)
        job = (*table, number[of], offsets[of] + within, size, starts[of] + within, arena, status)
        ends = np.cumsum(size)

        def read(begin: int, end: int) -> None:  # of so many bytes, rounded to pieces
            native.read_ranges(*job, *np.searchsorted(ends, [begin, end], side="right").tolist())

        split(int(ends[-1]) if len(ends) else 0, read, least=self.SHARE)
        for k in np.flatnonzero(status).tolist():
            self._raise(int(status[k]), int(which[of[k]]))

    def _table(self, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The paths `which` for the workers."""
        native = _native()
        if isinstance(self.paths, Keys) and self.paths.style is not None:
            table: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] = native.key_table(self.paths, which)
            return table
        table = native.path_table([self.paths[i] for i in which.tolist()])
        return table

    def _raise(self, status: int, i: int) -> NoReturn:
        """Raise the error that a worker met with file `i`."""
        native, path = _native(), self.paths[i]
        with noted(self.name, i):
            if status == native.SHORT:
                raise OSError(SHORT.format(path))
            raise OSError(-status, os.strerror(-status), path)


def files(paths: Sequence[str]) -> Files:
    """The way to read files on this system."""
    return NativeFiles(paths) if sys.platform == "linux" else Files(paths)


def _native() -> Any:
    """The compiled workers."""
    with _fork.loading:
        from zarrgpu import _native
    return _native


def _size(path: str) -> int:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    return MISSING if found.st_mode & 0o170000 == 0o040000 else found.st_size  # a folder is no chunk


def _read(path: str, offset: int, target: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        done = 0
        while done < len(target):
            n = os.preadv(fd, [target[done:]], offset + done)
            if n == 0:
                raise OSError(SHORT.format(path))
            done += n
    finally:
        os.close(fd)
