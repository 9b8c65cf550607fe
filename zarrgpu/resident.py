"""Chunks that lie encoded in the memory of the engine that reads them: gathered there, without a way over PCIe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from zarr.storage import GpuMemoryStore

from zarrgpu import _fork, encoded
from zarrgpu.engine.base import ALIGN, Array, Engine, Lane, aligned
from zarrgpu.fetch import MISSING, UNKNOWN, Bytes, Ends, Fetched, Lines, Reserve, Source, copy, pack
from zarrgpu.kernels import tables as t
from zarrgpu.store import DeviceStore

PIECE = 1 << 15
"""Bytes that a warp copies: few enough that a wave of large chunks keeps a GPU busy."""


class Resident(Source):
    """Chunks that are arrays of the engine.

    Parameters
    ----------
    arrays : sequence of uint8[n] or None
        One for each chunk or shard, contiguous; None where the store has none.
    engine : Engine
    """

    on_engine = True
    one_by_one = True

    def __init__(self, arrays: Sequence[Array | None], engine: Engine) -> None:
        self.arrays, self.engine = arrays, engine

    def read(self, i: int) -> Bytes | None:
        """As `Source.read`: a copy over PCIe where the engine is a GPU."""
        return self._part(i, slice(None))

    def load(self, first: int, last: int, reserve: Reserve) -> Fetched:
        """As `Source.load`: for what libraries decode on the host."""
        return copy([self.read(i) for i in range(first, last)], reserve)

    def ends(self, which: Lines, nbytes: int, at_end: bool) -> Ends:
        """As `Source.ends`: only these bytes are copied."""
        sizes = self._sizes(which)
        first = np.maximum(sizes - nbytes, 0) if at_end else np.zeros_like(sizes)
        places = zip(which.tolist(), first.tolist(), strict=True)
        return [self._part(i, slice(start, start + nbytes)) for i, start in places], sizes

    def ranges(self, which: Lines, offsets: Lines, sizes: Lines, reserve: Reserve) -> Fetched:
        """As `Source.ranges`: for what libraries decode on the host."""
        sizes = self._there(which, offsets, sizes)
        spans = zip(which.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
        return copy([None if n == MISSING else self._part(i, slice(at, at + n)) for i, at, n in spans], reserve)

    def gather(self, lane: Lane, first: int, last: int) -> Fetched:
        """As `Source.gather`."""
        which = np.arange(first, last)
        return self.gather_ranges(lane, which, np.zeros_like(which), np.full_like(which, UNKNOWN))

    def gather_ranges(self, lane: Lane, which: Lines, offsets: Lines, sizes: Lines) -> Fetched:
        """As `Source.gather_ranges`."""
        sizes = self._there(which, offsets, sizes)
        starts, used = pack(sizes)
        there = np.flatnonzero(sizes > 0)
        if len(there):
            named, of = np.unique(which[there], return_inverse=True)
            address = np.fromiter((self.engine.address(self.arrays[i]) for i in named.tolist()), np.int64, len(named))
            address = address[of] + offsets[there]
            origin = int(address.min()) // ALIGN * ALIGN
            window = self.engine.window(origin, aligned(int((address + sizes[there]).max()) - origin))
            streams = pieces(address - origin, sizes[there], starts[there])
            encoded.copy(lane, window, lane.source(used), streams)
        return starts, sizes, used

    def _part(self, i: int, part: slice) -> Bytes | None:
        """A part of chunk `i` in host memory."""
        array = self.arrays[i]
        return None if array is None else self.engine.to_host(array[part])

    def _sizes(self, which: Lines) -> Lines:
        """Bytes of chunks."""
        arrays = (self.arrays[i] for i in which.tolist())
        return np.fromiter((MISSING if array is None else array.size for array in arrays), np.int64, len(which))

    def _there(self, which: Lines, offsets: Lines, sizes: Lines) -> Lines:
        """Bytes that there are of ranges."""
        all_of = self._sizes(which)
        rest = np.where(all_of == MISSING, MISSING, np.maximum(all_of - offsets, 0))
        return np.where(sizes == UNKNOWN, rest, np.minimum(sizes, rest))


def pieces(start: Lines, size: Lines, dest: Lines) -> Lines:
    """Lines of `zarrgpu.kernels.stored` that copy so many bytes each, no more than `PIECE` in one."""
    count = -(-size // PIECE)
    chunk = np.repeat(np.arange(len(size)), count)
    before = PIECE * (np.arange(len(chunk)) - np.repeat(np.cumsum(count) - count, count))
    lines = np.empty((len(chunk), t.STREAM_COLUMNS), np.int64)
    lines[:, t.S_START], lines[:, t.S_DEST] = start[chunk] + before, dest[chunk] + before
    lines[:, t.S_SIZE] = lines[:, t.S_WANT] = np.minimum(size[chunk] - before, PIECE)
    lines[:, t.S_CHUNK] = chunk
    return lines


def resident(store: Any, keys: Iterable[str], engine: Engine) -> Resident | None:
    """The source of the values `keys` of a store that keeps them in the memory of `engine`; None for all others.

    Exact types of stores: one that is wrapped, or derived, may do something else when it is asked for a value.
    """
    if type(store) is DeviceStore and store.device == engine.name:
        arrays = [store.array(key) for key in keys]
    elif type(store) is GpuMemoryStore and engine.kind == "cuda":
        with _fork.loading:
            from zarrgpu.buffer import gpu

        buffers = [store.get_sync(key, prototype=gpu.buffer_prototype) for key in keys]
        arrays = [None if buffer is None else buffer.as_array_like() for buffer in buffers]
        engine.settle()  # zarr's thread does not wait for the copies that it makes
    else:
        return None
    here = all(array is None or (engine.owns(array) and array.flags.c_contiguous) for array in arrays)
    return Resident(arrays, engine) if here else None
