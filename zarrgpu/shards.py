"""Shards -> arenas: inner chunks as byte ranges of the values that hold them.

The index of a shard is read once a request, inner chunks by ranges; a shard of which a wave wants most is read
whole. Indexes of shards in shards are read likewise, and shards that are encoded themselves are decoded on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from zarrgpu._threads import on_all_cores
from zarrgpu.engine.base import Lane
from zarrgpu.errors import ChunkError
from zarrgpu.fetch import MISSING, UNKNOWN, Bytes, Fetched, Lines, Reserve, Source, by_number, copy

Index = npt.NDArray[np.uint64]

EMPTY = np.uint64(2**64 - 1)
"""Offset and size of an inner chunk that is missing, by the specification of ``sharding_indexed``."""

LIMIT = np.uint64(2**63 - 1)
"""The last place that an index can name where nobody told the size of the shard: offsets become int64."""

SHARD, HELD, OFFSET, SIZE = range(4)
"""Columns of a table of pieces: the shard, which bytes hold it (-1: those in the store), where it lies in them."""

KEPT = 4
"""Decoded shards that are kept for the next wave."""


@dataclass(frozen=True)
class Level:
    """One codec ``sharding_indexed`` of a chain, which may have another inside.

    Attributes
    ----------
    counts : tuple of int
        Pieces of a shard along each axis of the array; they are chunks, or shards of the next level.
    order : tuple of int
        Axes of the array in the order of the index, the slowest first.
    index_nbytes : int
        Of the encoded index.
    at_end : bool
        Whether it follows the pieces.
    decode_index : callable
        ``decode_index(uint8[index_nbytes]) -> uint64[pieces, 2]``, offsets and sizes in C order of the index; raises
        for bytes that are none, such as those with a wrong checksum.
    decode : callable or None
        ``decode(uint8[]) -> uint8[]``: a shard as it is stored -> pieces and index; None where that is the same.
    """

    counts: tuple[int, ...]
    order: tuple[int, ...]
    index_nbytes: int
    at_end: bool
    decode_index: Callable[[Bytes], Index]
    decode: Callable[[Bytes], Bytes] | None = None


def places(levels: Sequence[Level], grid: Lines) -> tuple[Lines, list[Lines]]:
    """Find chunks in shards.

    Parameters
    ----------
    levels : sequence of Level
        The outermost first.
    grid : int64[n, ndim]
        Coordinates of the chunks in the grid of all chunks of the array.

    Returns
    -------
    shard : int64[n, ndim]
        Coordinates of the shards that hold them.
    entries : list of int64[n]
        For each level the line of the index.
    """
    below = np.ones(grid.shape[1], np.int64)  # chunks along each axis in a piece of the level
    entries: list[Lines] = []
    for level in reversed(levels):
        counts = np.array(level.counts, np.int64)
        local, entry = grid // below % counts, np.zeros(len(grid), np.int64)
        for axis in level.order:
            entry = entry * counts[axis] + local[:, axis]
        entries.append(entry)
        below = below * counts
    return grid // below, entries[::-1]


class Shards(Source):
    """Chunks that are pieces of the chunks of another source, which are shards.

    Parameters
    ----------
    store : Source
        Of the shards.
    levels : sequence of Level
        The outermost first.
    shard : int64[n]
        Which chunk of `store` holds chunk ``i``; chunks of a shard follow each other.
    entries : list of int64[n]
        As of `places`.
    name : callable
        ``name(i) -> (store, key)`` of chunk ``i`` of `store`, for messages.
    """

    def __init__(
        self,
        store: Source,
        levels: Sequence[Level],
        shard: Lines,
        entries: Sequence[Lines],
        name: Callable[[int], tuple[str, str]],
    ) -> None:
        self.store, self.levels, self.shard, self.entries, self._name_of = store, levels, shard, entries, name
        self._in_shard = int(np.prod([level.counts for level in levels]))  # chunks
        self._reading = Lock()  # of indexes: waves that are fetched at once ask for none twice
        # both by level, shard and offset:
        self._known: dict[tuple[int, int, int], tuple[Index | None, int]] = {}  # index, size of the shard
        self._decoded: dict[tuple[int, int, int], Bytes] = {}

    def present(self) -> npt.NDArray[np.bool_]:
        """Of which chunks, all of which were loaded, the shard is in the store."""
        absent = [shard for (level, shard, _), (_, size) in self._known.items() if level == 0 and size == MISSING]
        return ~np.isin(self.shard, absent)

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`."""
        return self._fetch(*self._pieces(first, last), reserve)

    @property
    def on_engine(self) -> bool:
        """Where the shards are, unless they have to be decoded themselves."""
        return self.store.on_engine and all(level.decode is None for level in self.levels)

    def gather(self, lane: Lane, first: int, last: int) -> Fetched:
        """As `Source.gather`."""
        rows, _ = self._pieces(first, last)
        return self._complete(rows, self.store.gather_ranges(lane, rows[:, SHARD], rows[:, OFFSET], rows[:, SIZE]))

    def read(self, i: int) -> Bytes | None:
        """As `Source.read`."""
        return self._bytes(*self._pieces(i, i + 1))[0]

    def _pieces(self, first: int, last: int) -> tuple[Lines, list[Bytes]]:
        """The table of pieces of chunks ``first:last``, and the decoded shards that hold some of them."""
        shards, of, wanted = np.unique(self.shard[first:last], return_inverse=True, return_counts=True)
        table = np.column_stack(
            [shards, np.full_like(shards, -1), np.zeros_like(shards), np.full_like(shards, UNKNOWN)]
        )
        held: list[Bytes] = []
        lines = table[of]
        for k, level in enumerate(self.levels):
            if level.decode is not None:
                self._hold(k, table, np.flatnonzero(table[:, SIZE] != MISSING), held)
            elif k == 0 and not self.store.one_by_one:  # a shard of which much is wanted takes one request, not two
                new = np.array([(0, shard, 0) not in self._known for shard in shards.tolist()], bool)
                self._hold(k, table, np.flatnonzero(new & (2 * wanted > self._in_shard)), held)
            with self._reading:
                indexes = self._indexes(k, table, held)
            lines = table[of]
            for mine, index in zip(by_number(of, len(indexes)), indexes, strict=True):
                if index is None:
                    lines[mine, SIZE] = MISSING
                else:
                    self._enter(lines, mine, index[self.entries[k][first:last][mine]])
            if k + 1 < len(self.levels):
                table, of = np.unique(lines, axis=0, return_inverse=True)
                of = of.reshape(-1)
        return lines, held

    def _hold(self, k: int, table: Lines, which: Lines, held: list[Bytes]) -> None:
        """Bring shards of level `k` into memory, decoded, and say so in their table."""
        keys = [(k, shard, offset) for shard, offset in table[which][:, [SHARD, OFFSET]].tolist()]
        kept = [self._decoded.get(key) for key in keys]  # now: another wave may drop them
        new = which[np.array([data is None for data in kept], bool)]
        decode = self.levels[k].decode

        def one(shard: int, stored: Bytes | None) -> Bytes | None:
            if stored is None or decode is None:
                return stored
            try:
                return decode(stored)
            except Exception as error:
                raise self._refuse(shard, f"{type(error).__name__}: {error}") from error

        decoded = on_all_cores(one, table[new, SHARD].tolist(), self._bytes(table[new], held))
        found = dict(zip(new.tolist(), decoded, strict=True))
        for row, key, data in zip(which.tolist(), keys, kept, strict=True):
            data = found.get(row, data)
            if data is None:
                self._known[key] = None, MISSING
                table[row, SIZE] = MISSING
                continue
            table[row, HELD:] = len(held), 0, data.size
            held.append(data)
            if decode is not None:
                self._decoded[key] = data
        for key in list(self._decoded)[:-KEPT]:
            self._decoded.pop(key, None)

    def _indexes(self, k: int, table: Lines, held: Sequence[Bytes]) -> list[Index | None]:
        """The index of each shard of level `k`, None for those that are missing; sets the sizes of the outermost."""
        level, n = self.levels[k], self.levels[k].index_nbytes
        stored = (table[:, HELD] < 0) & (table[:, SIZE] != MISSING)
        keys = [(k, shard, offset) for shard, offset in table[:, [SHARD, OFFSET]].tolist()]
        new = np.flatnonzero(stored & np.array([key not in self._known for key in keys], bool))
        if len(new):
            if k == 0:
                ends, sizes = self.store.ends(table[new, SHARD], n, level.at_end)
            else:
                ends, sizes = self._ends(table[new], n, level.at_end), table[new, SIZE]
            for row, data, size in zip(new.tolist(), ends, sizes.tolist(), strict=True):
                self._known[keys[row]] = (None if data is None else self._index(level, data, keys[row][1])), size
        indexes: list[Index | None] = []
        for row, key in enumerate(keys):
            index = None
            if stored[row]:
                index, table[row, SIZE] = self._known[key]
            elif table[row, SIZE] != MISSING:
                data = held[table[row, HELD]][table[row, OFFSET] :][: table[row, SIZE]]
                index = self._index(level, data[max(0, data.size - n) :] if level.at_end else data[:n], key[1])
            indexes.append(index)
        return indexes

    def _ends(self, rows: Lines, nbytes: int, at_end: bool) -> list[Bytes | None]:
        """The first or the last `nbytes` bytes of shards in shards."""
        asked, n = rows.copy(), np.minimum(rows[:, SIZE], nbytes)
        asked[:, OFFSET] += rows[:, SIZE] - n if at_end else 0
        asked[:, SIZE] = n
        return self._bytes(asked, ())

    def _index(self, level: Level, data: Bytes, shard: int) -> Index:
        """Decode an index."""
        if data.size < level.index_nbytes:
            raise self._refuse(shard, f"cut short: {data.size} bytes, and its index alone has {level.index_nbytes}")
        try:
            return level.decode_index(data)
        except Exception as error:
            raise self._refuse(shard, f"index: {error}") from error

    def _enter(self, lines: Lines, mine: Lines, found: Index) -> None:
        """Go from one shard to the pieces of it that its index names, in the lines `mine`."""
        start, n = found.T
        missing = (start == EMPTY) & (n == EMPTY)
        size = int(lines[mine[0], SIZE])
        end = LIMIT if size == UNKNOWN else np.uint64(size)
        outside = ~missing & ((start > end) | (n > end) | (start > end - np.minimum(n, end)))
        if outside.any():
            k = int(np.flatnonzero(outside)[0])
            there = "fewer" if size == UNKNOWN else size
            reason = f"the index names {n[k]} bytes from byte {start[k]} on, and there are {there}"
            raise self._refuse(int(lines[mine[0], SHARD]), reason)
        lines[mine, OFFSET] += np.where(missing, 0, start).astype(np.int64)
        lines[mine, SIZE] = np.where(missing, np.uint64(0), n).astype(np.int64)
        lines[mine[missing], SIZE] = MISSING

    def _fetch(self, rows: Lines, held: Sequence[Bytes], reserve: Reserve) -> Fetched:
        """Bring the pieces of a table into an arena."""
        here = rows[:, HELD] >= 0
        if not here.any():
            return self._complete(rows, self.store.ranges(rows[:, SHARD], rows[:, OFFSET], rows[:, SIZE], reserve))
        pieces: list[Bytes | None] = [None] * len(rows)
        for k in np.flatnonzero(here & (rows[:, SIZE] != MISSING)).tolist():
            _, number, offset, size = rows[k].tolist()
            pieces[k] = held[number][offset : offset + size]
        stored = np.flatnonzero(~here & (rows[:, SIZE] != MISSING))
        for k, data in zip(stored.tolist(), self._bytes(rows[stored], ()), strict=True):
            pieces[k] = data
        return copy(pieces, reserve)

    def _complete(self, rows: Lines, fetched: Fetched) -> Fetched:
        """`fetched`, if these are all the bytes of a table's pieces, but for those of a shard that is gone by now."""
        sizes = fetched[1]
        for k in np.flatnonzero((rows[:, SIZE] >= 0) & (sizes != rows[:, SIZE]) & (sizes != MISSING)).tolist():
            reason = f"cut short at {sizes[k]} of {rows[k, SIZE]} bytes of a chunk"
            raise self._refuse(int(rows[k, SHARD]), reason)
        return fetched

    def _bytes(self, rows: Lines, held: Sequence[Bytes]) -> list[Bytes | None]:
        """The pieces of a table, in memory of their own; None where there is none."""
        arena = np.empty(0, np.uint8)

        def reserve(nbytes: int, keep: int = 0) -> Bytes:
            nonlocal arena
            kept, arena = arena[:keep], np.empty(nbytes, np.uint8)
            arena[: kept.size] = kept
            return arena

        starts, sizes, _ = self._fetch(rows, held, reserve)
        places = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [None if size == MISSING else arena[start : start + size] for start, size in places]

    def _refuse(self, shard: int, reason: str) -> ChunkError:
        """The error for a shard."""
        return ChunkError(*self._name_of(shard), "sharding_indexed", reason)
