"""Chunks that lie encoded in the memory of the engine that reads them: gathered there, without a way over PCIe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.storage import GpuMemoryStore, StorePath

from zarrgpu.encoded import copy
from zarrgpu.engine.base import ALIGN, Array, Engine, Lane, aligned
from zarrgpu.fetch import MISSING, Buffers, Reserve, Source, pack
from zarrgpu.kernels import tables as t
from zarrgpu.store import DeviceStore

PIECE = 1 << 15
"""Bytes that a warp copies: few enough that a wave of large chunks keeps a GPU busy."""


class Resident(Source):
    """Chunks that are arrays of the engine.

    Parameters
    ----------
    arrays : sequence of uint8[n] or None
        One for each chunk, contiguous; None where the store has none.
    engine : Engine
    """

    on_engine = True
    one_by_one = True

    def __init__(self, arrays: Sequence[Array | None], engine: Engine) -> None:
        self.arrays, self.engine = arrays, engine

    def read(self, i: int) -> npt.NDArray[np.uint8] | None:
        """As `Source.read`: a copy over PCIe where the engine is a GPU."""
        array = self.arrays[i]
        return None if array is None else self.engine.to_host(array)

    def load(self, first: int, last: int, reserve: Reserve) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.load`: for what libraries decode on the host."""
        return Buffers([self.read(i) for i in range(first, last)]).load(0, last - first, reserve)

    def gather(self, lane: Lane, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
        """As `Source.gather`."""
        arrays = self.arrays[first:last]
        sizes = np.fromiter((MISSING if a is None else a.size for a in arrays), np.int64, len(arrays))
        starts, used = pack(sizes)
        which = np.flatnonzero(sizes > 0)
        if len(which):
            address = np.fromiter((self.engine.address(arrays[i]) for i in which.tolist()), np.int64, len(which))
            origin = int(address.min()) // ALIGN * ALIGN
            window = self.engine.window(origin, aligned(int((address + sizes[which]).max()) - origin))
            copy(lane, window, lane.source(used), pieces(address - origin, sizes[which], starts[which]))
        return starts, sizes, used


def pieces(
    start: npt.NDArray[np.int64], size: npt.NDArray[np.int64], dest: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
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
        from zarrgpu.buffer import gpu

        buffers = [store.get_sync(key, prototype=gpu.buffer_prototype) for key in keys]
        arrays = [None if buffer is None else buffer.as_array_like() for buffer in buffers]
        engine.settle()  # zarr's thread does not wait for the copies that it makes
    else:
        return None
    here = all(array is None or (engine.owns(array) and array.flags.c_contiguous) for array in arrays)
    return Resident(arrays, engine) if here else None


def resident_places(places: Sequence[Any], engine: Engine) -> Resident | None:
    """As `resident`, for store paths or other byte getters."""
    store = getattr(places[0], "store", None)
    if not all(isinstance(place, StorePath) and place.store is store for place in places):
        return None
    return resident(store, (place.path for place in places), engine)
