"""The engine on a GPU: cupy for memory, streams and events, numba-cuda for kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from zarrgpu._counters import count
from zarrgpu._cuda import Kernel
from zarrgpu._interop import on_device, to_cupy
from zarrgpu._record import step
from zarrgpu.engine import CUDA_DTYPES
from zarrgpu.engine.base import ALIGN, Array, Engine, Lane, aligned, lent, roomy
from zarrgpu.kernels import blosclz, lz4_group, stored

LANES = 5
"""Waves in flight: two are fetched, one is enqueued, two decode. One decode at a time halves the throughput."""

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # cudaMemcpyKind


class CudaLane(Lane):
    """A non-blocking stream with pinned and device arenas that grow and are kept for the next wave."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.arena = pinned(ALIGN)
        self._source: Array = None
        self._scratch: list[Array] = [None, None]
        self._alive: list[Any] = []  # what the stream may still use

    def reserve(self, nbytes: int, keep: int = 0) -> npt.NDArray[np.uint8]:
        if nbytes > self.arena.size:
            grown = pinned(roomy(nbytes))
            kept = self.arena[:keep]
            grown[: kept.size] = kept
            self.arena = grown
        return self.arena

    @step("upload", 0, lambda _, lane, used, first=0: max(used - first, 0), device=True)
    def upload(self, used: int, first: int = 0) -> Array:
        source = self.source(used, keep=first)
        if first < used:
            count("bytes.uploaded", used - first)
            self._copied(source[first:used], self.arena[first:used])
        return source

    def source(self, used: int, keep: int = 0) -> Array:
        before, self._source = self._source, self._grown(self._source, used)
        if before is not None and before is not self._source and keep:
            pointers = self._source.data.ptr, before.data.ptr
            cupy.cuda.runtime.memcpyAsync(*pointers, min(keep, before.size), ON_DEVICE, self.stream.ptr)
            self._alive.append(before)
        return self._source[: max(used, ALIGN)]

    def tables(self, *tables: npt.NDArray[Any]) -> tuple[Array, ...]:
        starts = np.cumsum([0] + [aligned(t.nbytes) for t in tables])
        staged = pinned(max(int(starts[-1]), ALIGN))
        for start, t in zip(starts[:-1], tables, strict=True):
            staged[start : start + t.nbytes] = np.ascontiguousarray(t).reshape(-1).view(np.uint8)
        with self.stream:
            device = cupy.empty(staged.size, np.uint8)
        self._copied(device, staged)
        self._alive += [staged, device]
        return tuple(
            device[start : start + max(t.nbytes, t.itemsize)]
            .view(t.dtype)
            .reshape(t.shape if t.size else (1,) * t.ndim)
            for start, t in zip(starts[:-1].tolist(), tables, strict=True)
        )

    def scratch(self, nbytes: int, which: int = 0) -> Array:
        self._scratch[which] = arena = self._grown(self._scratch[which], nbytes)
        return arena[: max(nbytes, ALIGN)]

    def zeros(self, n: int) -> Array:
        with self.stream:
            array = cupy.zeros(max(n, 1), np.int32)
        self._alive.append(array)
        return array

    def room(self, n: int, dtype: npt.DTypeLike) -> Array:
        with self.stream:
            array = cupy.empty(roomy(n), dtype)[: max(n, 1)]  # of few sizes, which the pool then has
        self._alive.append(array)
        return array

    def local(self, n: int) -> Array:
        return self.room(1, np.uint32)

    def launch(self, kernel: Kernel, n: int, *args: Any) -> None:
        kernel.launch(n, args, self.stream)

    def download(self, array: Array) -> npt.NDArray[Any]:
        host = pinned(max(array.nbytes, ALIGN))
        cupy.cuda.runtime.memcpyAsync(host.ctypes.data, array.data.ptr, array.nbytes, TO_HOST, self.stream.ptr)
        self._alive.append(host)
        filled: npt.NDArray[Any] = host[: array.nbytes].view(array.dtype).reshape(array.shape)
        return filled

    @step("wait", 0)
    def wait(self) -> None:
        self.stream.synchronize()
        self._alive.clear()

    def stamp(self) -> Any:
        event = cupy.cuda.Event()
        event.record(self.stream)
        return event

    def elapsed(self, begin: Any, end: Any) -> float:
        return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def _grown(self, array: Array | None, nbytes: int) -> Array:
        if array is not None and array.size >= max(nbytes, ALIGN):
            return array
        with self.stream:  # the old one is freed in the order of the stream
            return cupy.empty(max(roomy(nbytes), ALIGN), np.uint8)

    def _copied(self, device: Array, host: npt.NDArray[np.uint8]) -> Array:
        cupy.cuda.runtime.memcpyAsync(device.data.ptr, host.ctypes.data, host.nbytes, TO_DEVICE, self.stream.ptr)
        return device


def pinned(nbytes: int) -> npt.NDArray[np.uint8]:
    """``uint8[nbytes]`` in page-locked memory of cupy's pool."""
    array: npt.NDArray[np.uint8] = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
    return array


class CudaEngine(Engine):
    """One GPU.

    Parameters
    ----------
    index : int
        Its number, as the driver counts.
    """

    kind = "cuda"
    ahead = 2
    by_library = False

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.index = index
        self._shelf: list[list[Lane]] = []

    def supports(self, dtype: np.dtype[Any]) -> bool:
        return dtype.char in CUDA_DTYPES

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
        with cupy.cuda.Device(self.index):
            return cupy.empty(shape, dtype.newbyteorder("="), order)

    def from_host(self, array: npt.NDArray[Any]) -> Array:
        count("bytes.uploaded", array.nbytes)
        with cupy.cuda.Device(self.index):
            device = cupy.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))
            cupy.cuda.get_current_stream().synchronize()
            return device

    def to_host(self, array: Array) -> npt.NDArray[Any]:
        count("bytes.downloaded", array.nbytes)
        with cupy.cuda.Device(self.index):
            host: npt.NDArray[Any] = array.get()
            return host

    def assign(self, out: Array, value: Array) -> None:
        with cupy.cuda.Device(self.index):
            out[...] = value
            cupy.cuda.get_current_stream().synchronize()

    def owns(self, array: object) -> bool:
        return isinstance(array, cupy.ndarray) and array.device.id == self.index

    def adopt(self, out: Any) -> Array:
        if not on_device(out):
            raise TypeError(f"out must be an array on {self.name}, got {type(out).__name__} in host memory")
        array, read_only = to_cupy(out)
        if array.size and array.device.id != self.index:  # no elements are nowhere
            raise ValueError(f"out must be an array on {self.name}, got one on cuda:{array.device.id}")
        if read_only:
            raise ValueError("out is read-only")
        return array

    @contextmanager
    def lanes(self, stream: Any = None) -> Iterator[list[Lane]]:
        with cupy.cuda.Device(self.index), lent(self._shelf, self._make) as lanes:
            # the current stream too: outputs come from cupy's pool, which orders the reuse of memory by it
            for earlier in (cupy.cuda.get_current_stream(), *(() if stream is None else (as_stream(stream),))):
                before = cupy.cuda.Event(disable_timing=True)
                before.record(earlier)
                for lane in lanes:
                    lane.stream.wait_event(before)
            yield lanes

    @staticmethod
    def _make() -> list[Lane]:
        return [CudaLane() for _ in range(LANES)]

    def decoders(self) -> dict[str, Kernel]:
        return {"blosclz": blosclz.KERNEL, "lz4": lz4_group.KERNEL, "stored": stored.KERNEL}

    @staticmethod
    def address(array: Array) -> int:
        return int(array.data.ptr)

    def window(self, address: int, nbytes: int) -> Array:
        memory = cupy.cuda.UnownedMemory(address, nbytes, self, self.index)
        return cupy.ndarray((nbytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def budget(self) -> int | None:
        """A quarter of what is free, or at least in cupy's pool, so that several requests and the user have room."""
        with cupy.cuda.Device(self.index):
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free + cupy.get_default_memory_pool().free_bytes()) // 4

    def settle(self) -> None:
        with cupy.cuda.Device(self.index):
            cupy.cuda.Stream.null.synchronize()

    def use(self) -> None:
        cupy.cuda.Device(self.index).use()


class _Pointer:
    """A stream of which only the pointer is known, in the CUDA stream protocol."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def as_stream(stream: Any) -> Any:
    """The cupy stream for a cupy, torch or numba stream, an object with ``__cuda_stream__``, or a pointer."""
    if isinstance(stream, cupy.cuda.Stream):
        return stream
    if not hasattr(stream, "__cuda_stream__"):
        pointer = getattr(stream, "cuda_stream", None)  # torch
        if pointer is None:
            pointer = getattr(stream, "handle", stream)  # numba
        pointer = getattr(pointer, "value", pointer) or 0
        if not isinstance(pointer, int):
            raise TypeError(f"stream must be a cupy, torch or numba stream or a pointer, got {type(stream).__name__}")
        stream = _Pointer(pointer)
    return cupy.cuda.Stream.from_external(stream)
