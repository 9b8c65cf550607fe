"""A stand-in for cupy in host memory, so that the CUDA engine and its buffers run where there is no GPU.

Only what zarrgpu uses is here, and it is strict where cupy is: a device array is never taken for a host array by
accident, dtypes that cupy lacks are refused, and asynchronous copies really are late - they happen when the stream is
waited for or when a kernel is launched -, so that memory which is reused too soon shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

DTYPES = "?bhilqBHILQefdFD"
KDLCUDA = 2

exported: list[Any] = []
"""The streams for which arrays were exported through DLPack."""


class ndarray:  # cupy's name
    """A device array: NumPy inside, but not one."""

    def __init__(self, inner: Any, dtype: Any = None, memptr: Any = None) -> None:
        self._inner = inner if memptr is None else memptr.view(inner, dtype)
        self._owner: Any = None  # what else keeps the memory alive

    shape = property(lambda self: self._inner.shape)
    dtype = property(lambda self: self._inner.dtype)
    ndim = property(lambda self: self._inner.ndim)
    size = property(lambda self: self._inner.size)
    nbytes = property(lambda self: self._inner.nbytes)
    itemsize = property(lambda self: self._inner.itemsize)
    strides = property(lambda self: self._inner.strides)
    flags = property(
        lambda self: types.SimpleNamespace(
            c_contiguous=self._inner.flags.c_contiguous, f_contiguous=self._inner.flags.f_contiguous
        )
    )
    T = property(lambda self: ndarray(self._inner.T))
    data = property(lambda self: types.SimpleNamespace(ptr=self._inner.ctypes.data))
    device = property(lambda self: Device(0))
    real = property(lambda self: ndarray(self._inner.real))
    imag = property(lambda self: ndarray(self._inner.imag))

    @property
    def __cuda_array_interface__(self) -> Any:
        interface = self._inner.__array_interface__
        return {**interface, "data": (interface["data"][0], False), "version": 3, "stream": 1}

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDLCUDA, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **options: Any) -> Any:
        """A capsule for readers that know what they get: `from_dlpack` does."""
        exported.append(stream)
        return self._inner.__dlpack__(max_version=max_version)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions on device arrays give device arrays."""
        kwargs.pop("like", None)
        result = function(*(a._inner if isinstance(a, ndarray) else a for a in args), **kwargs)
        return asarray(result) if isinstance(result, np.ndarray) else result

    def get(self, order: Any = "C") -> Any:
        return self._inner.copy(order)

    def tobytes(self, order: Any = "C") -> bytes:
        return bytes(self._inner.tobytes(order))

    def __bool__(self) -> bool:
        return bool(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(np.asarray(self._inner[key]))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        self._inner[key] = value._inner if isinstance(value, ndarray) else value

    def fill(self, value: Any) -> None:
        self._inner.fill(value)

    def __eq__(self, other: object) -> Any:
        return ndarray(np.asarray(self._inner == (other._inner if isinstance(other, ndarray) else other)))

    def __ne__(self, other: object) -> Any:
        return ndarray(np.asarray(self._inner != (other._inner if isinstance(other, ndarray) else other)))

    def __ge__(self, other: Any) -> Any:
        return ndarray(np.asarray(self._inner >= other))

    def __and__(self, other: ndarray) -> Any:
        return ndarray(np.asarray(self._inner & other._inner))

    def __or__(self, other: ndarray) -> Any:
        return ndarray(np.asarray(self._inner | other._inner))

    def all(self) -> Any:
        return ndarray(np.asarray(self._inner.all()))

    def view(self, dtype: Any) -> ndarray:
        return ndarray(self._inner.view(dtype))

    def reshape(self, *shape: Any, **kwargs: Any) -> ndarray:
        return ndarray(self._inner.reshape(*shape, **kwargs))

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        return ndarray(self._inner.astype(_checked(dtype), order=order, copy=copy))

    def ravel(self, order: Any = "C") -> ndarray:
        return ndarray(self._inner.ravel(order))

    def transpose(self, *axes: Any) -> ndarray:
        return ndarray(self._inner.transpose(*axes))

    def copy(self) -> ndarray:
        return ndarray(self._inner.copy())


def _checked(dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.char not in DTYPES or not dtype.isnative:
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def _aligned(shape: Any, dtype: Any, order: str = "C") -> Any:
    """Poisoned memory that starts at a multiple of 256 bytes, as cudaMalloc's does."""
    dtype = _checked(dtype)
    n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    block = np.full(n + 256, 0xCD, np.uint8)
    first = -block.ctypes.data % 256
    return block[first : first + n].view(dtype).reshape(shape, order=order)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(_aligned(shape, dtype, order))


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    array = _aligned(shape, dtype, order)
    array[...] = 0
    return ndarray(array)


def asarray(a: Any) -> ndarray:
    if isinstance(a, ndarray):
        return a
    if hasattr(a, "__cuda_array_interface__"):
        interface = a.__cuda_array_interface__
        shared = {**interface, "data": (interface["data"][0], False)}  # cupy has no read-only arrays
        view = ndarray(np.asarray(types.SimpleNamespace(__array_interface__=shared)))
        view._owner = a
        return view
    host = np.asarray(a)
    array = _aligned(host.shape, host.dtype)
    array[...] = host
    return ndarray(array)


def from_dlpack(a: Any) -> ndarray:
    """As cupy's: for device arrays only, and the producer is told of the current stream."""
    assert a.__dlpack_device__()[0] in (KDLCUDA, 13)
    try:
        capsule = a.__dlpack__(stream=_null.ptr, max_version=(1, 0), copy=None)
    except TypeError:
        capsule = a.__dlpack__(stream=_null.ptr)
    host = types.SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0))
    shared = np.from_dlpack(host)
    interface = {**shared.__array_interface__, "data": (shared.ctypes.data, False)}
    view = ndarray(np.asarray(types.SimpleNamespace(__array_interface__=interface)))
    view._owner = shared
    return view


def signbit(a: ndarray) -> ndarray:
    return ndarray(np.asarray(np.signbit(a._inner)))


def asnumpy(a: Any, order: Any = "C") -> Any:
    return a.get(order) if isinstance(a, ndarray) else np.asarray(a)


def concatenate(parts: Any) -> ndarray:
    return ndarray(np.concatenate([p._inner for p in parts]))


_turn = threading.RLock()


class Stream:
    """Work in order, done late."""

    null: Stream

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = id(self)
        self.late: list[Any] = []
        _streams[self.ptr] = self

    @classmethod
    def from_external(cls, foreign: Any) -> Stream:
        """A stream of another library."""
        stream = cls()
        stream.ptr = foreign.__cuda_stream__()[1]
        return stream

    def synchronize(self) -> None:
        with _turn:  # a launch of another thread may be at it
            late, self.late = self.late, []
            for work in late:
                work()

    def wait_event(self, event: Any) -> None:
        return None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


_streams: dict[int, Stream] = {}
_null = Stream.null = Stream()


class Event:
    """A point in a stream."""

    def __init__(self, disable_timing: bool = False) -> None:
        self.at: float | None = None
        self._timed = not disable_timing

    def record(self, stream: Any) -> None:
        assert isinstance(stream, Stream)
        if self._timed:
            self.at = time.perf_counter()


def get_elapsed_time(begin: Event, end: Event) -> float:
    """Milliseconds."""
    assert begin.at is not None
    assert end.at is not None
    return (end.at - begin.at) * 1e3


class Device:
    """The one device."""

    def __init__(self, index: int) -> None:
        assert index == 0
        self.id = index

    def use(self) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class UnownedMemory:
    """Memory that others allocated; what is between their arrays may be touched by nobody."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size = ptr, size


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    def view(self, shape: Any, dtype: Any) -> Any:
        """The array that lies there."""
        array = np.ndarray(shape, dtype, (ctypes.c_uint8 * self.mem.size).from_address(self.mem.ptr))
        assert array.ctypes.data == self.ptr
        return array


def memcpy_async(target: int, source: int, n: int, kind: int, stream: int) -> None:
    assert kind in (1, 2, 3)
    with _turn:
        _streams[stream].late.append(lambda: ctypes.memmove(target, source, n))


def alloc_pinned_memory(n: int) -> Any:
    return _aligned(n, np.uint8)


@contextlib.contextmanager
def installed() -> Iterator[types.ModuleType]:
    """Make ``import cupy`` give this module, and numba's simulator take its arrays."""
    from numba import cuda

    import zarrgpu.buffer
    import zarrgpu.engine  # noqa: F401  # packages whose modules are made anew below

    module = types.ModuleType("cupy")
    module.__spec__ = ModuleSpec("cupy", None)
    for name in ("ndarray", "empty", "zeros", "asarray", "asnumpy", "concatenate", "from_dlpack", "signbit"):
        setattr(module, name, globals()[name])
    module.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: 0)  # type: ignore[attr-defined]  # as below
    module.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]  # a module made by hand
        Stream=Stream,
        Event=Event,
        get_elapsed_time=get_elapsed_time,
        Device=Device,
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        alloc_pinned_memory=alloc_pinned_memory,
        get_current_stream=lambda: _null,
        runtime=types.SimpleNamespace(
            memcpyAsync=memcpy_async,
            getDevice=lambda: 0,
            memGetInfo=lambda: (1 << 30, 1 << 31),
            deviceSynchronize=lambda: None,
            pointerGetAttributes=lambda pointer: types.SimpleNamespace(device=0),
        ),
    )

    def as_cuda_array(array: ndarray, sync: bool = True) -> Any:
        assert not sync
        for stream in list(_streams.values()):
            stream.synchronize()  # a launch comes after what was copied before it
        return array._inner

    before = {
        name: sys.modules.get(name)
        for name in (
            "cupy",
            "zarrgpu.engine.cuda",
            "zarrgpu.buffer.gpu",
            "zarrgpu.buffer._data",
            "zarrgpu.buffer._equal",
        )
    }

    def forget() -> None:
        """Let the modules that import cupy be imported anew; a package keeps its submodules as attributes too."""
        for name in before:
            sys.modules.pop(name, None)
            package, _, attribute = name.rpartition(".")
            if package and hasattr(sys.modules[package], attribute):
                delattr(sys.modules[package], attribute)

    numba_before = getattr(cuda, "as_cuda_array", None)  # the simulator has none
    forget()
    sys.modules["cupy"] = module
    cuda.as_cuda_array = as_cuda_array
    try:
        yield module
    finally:
        forget()
        sys.modules.update({name: value for name, value in before.items() if value is not None})
        cuda.as_cuda_array = numba_before
