"""The engine without a GPU: NumPy arrays, numcodecs and compiled twins of the kernels on all cores.

numcodecs' own decoders, in C, are several times faster than the twins of ours. Rows are assembled by a twin, boxes with
strides by NumPy, which is ten times as fast there as the general twin.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import Kernel
from zarrgpu._interop import on_device, to_numpy
from zarrgpu._threads import PIECES, cores, share, workers
from zarrgpu.chain import is_plain
from zarrgpu.engine.base import ALIGN, Array, Engine, Lane, lent, roomy
from zarrgpu.kernels import blosclz, lz4, stored
from zarrgpu.kernels import tables as t

LANES = 4
"""One wave is assembled while three are fetched and decoded; more would only take memory."""


def empty_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """``uint8[nbytes]`` that starts at a multiple of `ALIGN`."""
    block = np.empty(nbytes + ALIGN, np.uint8)
    first = -block.ctypes.data % ALIGN
    return block[first : first + nbytes]


class HostLane(Lane):
    """Runs everything at once, in the caller's time, on all cores."""

    def __init__(self) -> None:
        self.arena = empty_bytes(0)
        self._scratch = [empty_bytes(0), empty_bytes(0)]

    def reserve(self, nbytes: int, keep: int = 0) -> npt.NDArray[np.uint8]:
        if nbytes > self.arena.size:
            grown = empty_bytes(roomy(nbytes))
            kept = self.arena[:keep]
            grown[: kept.size] = kept
            self.arena = grown
        return self.arena

    def upload(self, used: int, first: int = 0) -> Array:
        return self.arena[:used]

    def source(self, used: int) -> Array:
        return self.reserve(used, keep=used)[:used]

    def tables(self, *tables: npt.NDArray[Any]) -> tuple[Array, ...]:
        return tables

    def scratch(self, nbytes: int, which: int = 0) -> Array:
        if nbytes > self._scratch[which].size:
            self._scratch[which] = empty_bytes(roomy(nbytes))
        return self._scratch[which][:nbytes]

    def zeros(self, n: int) -> Array:
        return np.zeros(n, np.int32)

    def room(self, n: int, dtype: npt.DTypeLike) -> Array:
        return np.empty(n, dtype)

    def local(self, n: int) -> Array:
        return self.room(n, np.uint32)

    def launch(self, kernel: Kernel, n: int, *args: Any) -> None:
        twin = kernel.host()
        step = max(1, -(-n // (cores() * PIECES)))
        share(workers(), cores(), -(-n // step), lambda k: twin(k * step, min((k + 1) * step, n), *args))

    def download(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def wait(self) -> None:
        return None


class HostEngine(Engine):
    """All cores of this machine."""

    name = "host"
    kind = "host"
    ahead = 3
    by_library = True

    def __init__(self) -> None:
        self._shelf: list[list[Lane]] = []

    def supports(self, dtype: np.dtype[Any]) -> bool:
        return is_plain(dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        return empty_bytes(count * dtype.itemsize).view(dtype).reshape(shape, order=order)  # type: ignore[call-overload]  # order is C or F

    def from_host(self, array: npt.NDArray[Any]) -> Array:
        return array

    def to_host(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def assign(self, out: Array, value: Array) -> None:
        out[...] = value

    def owns(self, array: object) -> bool:
        return isinstance(array, np.ndarray)

    def adopt(self, out: Any) -> Array:
        if on_device(out):
            raise TypeError(f"out must be an array on {self.name}, got {type(out).__name__} in device memory")
        try:
            array = to_numpy(out)
        except TypeError as error:
            raise TypeError(f"out must be an array on {self.name}, got {type(out).__name__} ({error})") from error
        if not array.flags.writeable:
            raise ValueError("out is read-only")
        return array

    def lanes(self, stream: Any = None) -> AbstractContextManager[list[Lane]]:
        return lent(self._shelf, lambda: [HostLane() for _ in range(LANES)])

    def decoders(self) -> dict[str, Kernel]:
        return {"blosclz": blosclz.KERNEL, "lz4": lz4.KERNEL, "stored": stored.KERNEL}

    def copy_boxes(
        self,
        arenas: Sequence[Array],
        out: Array,
        layouts: npt.NDArray[np.int64],
        boxes: npt.NDArray[np.int64],
        strides: Sequence[npt.NDArray[np.int64]],
        itemsize: int,
        swap: int,
    ) -> npt.NDArray[np.bool_]:
        mine = layouts[boxes[:, t.B_LAYOUT]]
        done: npt.NDArray[np.bool_] = (mine[:, t.L_MODE] == t.PLAIN) & (mine[:, t.L_ARENA] != t.FILL) & self.by_library
        width = swap or min(itemsize & -itemsize, 8)  # elements are copied as whole numbers of so many bytes
        stored = np.dtype(f"u{width}").newbyteorder("S" if swap else "=")
        source, target = ((*(s * k).tolist(), width) for s, k in zip(strides, (itemsize, 1), strict=True))

        def copy(i: int) -> None:
            shape = (*boxes[i, t.B_COUNT :].tolist(), itemsize // width)
            arena, first = arenas[mine[i, t.L_ARENA]], int(mine[i, t.L_BASE] + boxes[i, t.B_FIRST] * itemsize)
            chunk: Array = np.ndarray(shape, stored, arena, first, source)  # refuses what lies outside the arena
            box: Array = np.ndarray(shape, f"u{width}", out, int(boxes[i, t.B_DEST]), target)
            np.copyto(box, chunk)

        which = np.flatnonzero(done).tolist()
        share(workers(), cores(), len(which), lambda k: copy(which[k]))
        return done

    @staticmethod
    def address(array: Array) -> int:
        return int(array.ctypes.data)

    def window(self, address: int, nbytes: int) -> Array:
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
