"""Buffers in device memory.

Device arrays are taken as they are, without a copy and with their strides, from anything with a
``__cuda_array_interface__`` (cupy, numba, torch, JAX) or a DLPack device (JAX, TensorFlow). What is read-only there
stays so: writing to such a buffer raises.

Host data stay on the host until somebody asks for a device array: metadata and shard indexes, which only the host
reads, never travel. Whoever asks for what the constructor, `from_array_like` or `from_ndarray_like` was given in host
memory is warned of the copy (`zarr.errors.ZarrUserWarning`, as by zarr's own buffers); `from_bytes`,
`from_numpy_array` and `from_buffer` say by their names where the data are.

Arrays that no GPU library can hold (strings, objects, structured dtypes, datetime64) stay NumPy arrays for good;
numbers are in native byte order on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal, Self, SupportsIndex, cast

import cupy
import numpy as np
import numpy.typing as npt
import zarr.abc.buffer
import zarr.buffer.cpu
from zarr.abc.buffer import ArrayLike, BufferPrototype, NDArrayLike
from zarr.registry import register_buffer, register_ndbuffer

from zarrgpu.buffer import Prototype
from zarrgpu.buffer._data import Data
from zarrgpu.buffer._equal import all_equal
from zarrgpu.engine import CUDA_DTYPES

__all__ = ["Buffer", "NDBuffer", "buffer_prototype"]


class Buffer(Data, zarr.abc.buffer.Buffer):
    """A flat piece of device memory, or of host memory on its way there.

    Parameters
    ----------
    array_like : array
        ``uint8[n]``, contiguous: a device array, which is not copied, or a host array, which is uploaded, with a
        warning, when `as_array_like` is first called.
    """

    def __init__(self, array_like: ArrayLike) -> None:
        self._take(array_like)
        super().__init__(self._data)
        if not self._data.flags.c_contiguous:
            raise ValueError("array_like: only contiguous allowed")

    @classmethod
    def create_zero_length(cls) -> Self:
        """Return a buffer of no bytes."""
        return cls._of(np.empty(0, np.uint8))

    @classmethod
    def from_buffer(cls, buffer: zarr.abc.buffer.Buffer) -> Self:
        """Return the bytes of any buffer, copied only if it holds neither a device nor a host array."""
        if isinstance(buffer, Buffer):
            return cls._of(buffer._data, buffer._read_only)
        return cls._of(buffer.as_array_like())

    @classmethod
    def from_bytes(cls, bytes_like: Any) -> Self:
        """Return a buffer of host bytes, which stay on the host until a device array is asked for."""
        return cls._of(np.frombuffer(bytes_like, np.uint8))

    def as_array_like(self) -> ArrayLike:
        """Return the bytes as a device array, ``cupy.ndarray uint8[n]``; as they are where there are none.

        zarr makes what is written of a scalar "like" an array of no bytes. It is encoded on the host, and may be of
        a dtype or in a byte order that only the host has.
        """
        return cast("ArrayLike", self._on_device() if self._data.size else self._data)

    def as_numpy_array(self) -> npt.NDArray[Any]:
        """Return the bytes as a NumPy array; a copy only when they are on the device."""
        return self._on_host()

    def combine(self, others: Iterable[zarr.abc.buffer.Buffer]) -> Self:
        """Return the bytes of this buffer followed by those of `others`; on the device if any of them is."""
        parts: list[Buffer] = [self, *(o if isinstance(o, Buffer) else self.from_buffer(o) for o in others)]
        there = next((part for part in parts if part._is_on_device), None)
        if there is None:
            return self._of(np.concatenate([part._data for part in parts]))
        with there._here():
            return self._of(cupy.concatenate([part._on_device() for part in parts]))

    def __getitem__(self, key: slice) -> Self:
        return self._view(super().__getitem__(key)._data)

    def __setitem__(self, key: slice, value: Any) -> None:
        self[key]._set(..., value)

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Buffer) and self._is_on_device and other._is_on_device):
            return super().__eq__(other)
        return len(self) == len(other) and all_equal(self._data, other._data, False)


class NDBuffer(Data, zarr.abc.buffer.NDBuffer):
    """An N-d array in device memory, or in host memory on its way there.

    Parameters
    ----------
    array : array
        Of any strides: a device array, which is not copied, or a host array, which is uploaded, with a warning, when
        `as_ndarray_like` is first called.
    """

    def __init__(self, array: NDArrayLike) -> None:
        self._take(array)

    @classmethod
    def create(
        cls,
        *,
        shape: Iterable[int],
        dtype: npt.DTypeLike,
        order: Literal["C", "F"] = "C",
        fill_value: Any | None = None,
    ) -> Self:
        """Return a new buffer, full of `fill_value` unless that is None."""
        if np.dtype(dtype).char not in CUDA_DTYPES:
            options: dict[str, Any] = {"shape": shape, "dtype": dtype, "order": order, "fill_value": fill_value}
            return cls._of(zarr.buffer.cpu.NDBuffer.create(**options).as_numpy_array())
        buffer = cls.empty(tuple(shape), dtype, order)
        if fill_value is not None:
            buffer.fill(fill_value)
        return buffer

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        """Return a new buffer whose contents are undefined."""
        dtype = np.dtype(dtype)
        if dtype.char not in CUDA_DTYPES:
            return cls._of(zarr.buffer.cpu.NDBuffer.empty(shape, dtype, order).as_numpy_array())
        with cls._device():
            return cls._of(cupy.empty(shape, dtype.newbyteorder("="), order))

    @classmethod
    def from_numpy_array(cls, array_like: npt.ArrayLike) -> Self:
        """Return a buffer of a host array, which stays there until a device array is asked for."""
        return cls._of(np.asarray(array_like))

    def as_ndarray_like(self) -> NDArrayLike:
        """Return the array on the device, a ``cupy.ndarray``; a ``numpy.ndarray`` for a dtype that cupy lacks."""
        return cast("NDArrayLike", self._on_device())

    def as_numpy_array(self) -> npt.NDArray[Any]:
        """Return the array as a NumPy array; a copy only when it is on the device."""
        return self._on_host()

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        """Whether every element equals `other`, by zarr's rules for host arrays; told where the elements are."""
        if self._is_on_device:
            return all_equal(self._data, other, equal_nan)
        return zarr.buffer.cpu.NDBuffer(self._data).all_equal(other, equal_nan)

    def reshape(self, newshape: tuple[int, ...] | Literal[-1]) -> Self:
        with self._here():
            return self._view(self._data.reshape(newshape))

    def squeeze(self, axis: tuple[int, ...]) -> Self:
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if i not in axis))

    def transpose(self, axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Self:
        return self._view(self._data.transpose(axes))

    def copy(self) -> Self:
        with self._here():
            return self._of(self._data.copy(), warn=self._warn)

    def astype(self, dtype: npt.DTypeLike, order: Literal["K", "A", "C", "F"] = "K") -> Self:
        """Return the array in another dtype: on the device in native byte order, on the host if no device has it."""
        dtype = np.dtype(dtype)
        if not self._is_on_device or dtype.char not in CUDA_DTYPES:
            host = zarr.buffer.cpu.NDBuffer(cast("NDArrayLike", self._on_host())).astype(dtype, order)
            return self._of(host.as_numpy_array(), warn=self._warn)
        with self._here():
            return self._of(self._data.astype(dtype.newbyteorder("="), order=order))

    def fill(self, value: Any) -> None:
        self._check_writable()
        with self._here():
            self._data.fill(value)

    def __getitem__(self, key: Any) -> Self:
        with self._here():
            # with an ellipsis NumPy, too, gives a view rather than a scalar
            whole = isinstance(key, tuple) and any(k is Ellipsis for k in key)
            return self._view(self._data[key if whole or not isinstance(key, tuple) else (*key, ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(key, value)


buffer_prototype = Prototype(buffer=Buffer, nd_buffer=NDBuffer)


@cache
def on(index: int) -> BufferPrototype:
    """The same for new data on one device, whatever zarr is configured for."""
    members = {"_index": index, "__module__": __name__}
    return Prototype(buffer=type("Buffer", (Buffer,), members), nd_buffer=type("NDBuffer", (NDBuffer,), members))


register_buffer(Buffer, qualname="zarrgpu.buffer.gpu.Buffer")
register_ndbuffer(NDBuffer, qualname="zarrgpu.buffer.gpu.NDBuffer")
