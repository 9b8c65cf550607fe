"""Buffers in device memory.

Bytes that come from the host stay there until somebody asks for a device array: metadata and shard indexes, which only
the host reads, never travel. Device arrays are taken as they are, without a copy, from anything with a
``__cuda_array_interface__``. Arrays that no GPU library can hold (strings, objects, structured dtypes, datetime64) stay
NumPy arrays for good; numbers are in native byte order on the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Literal, Self, cast

import cupy
import numpy as np
import numpy.typing as npt
import zarr
import zarr.abc.buffer
import zarr.buffer.cpu
from zarr.abc.buffer import ArrayLike, BufferPrototype, NDArrayLike
from zarr.registry import register_buffer, register_ndbuffer

from zarrgpu.engine import CUDA_DTYPES

__all__ = ["Buffer", "NDBuffer", "buffer_prototype"]


def _device() -> Any:
    """The device that `zarrgpu.enable` was told, else the current one; zarr allocates on a thread of its own."""
    kind, _, index = str(zarr.config.get("zarrgpu.device", "cuda")).partition(":")
    return cupy.cuda.Device(int(index)) if kind == "cuda" and index else nullcontext()


def _adopt(array: Any) -> Any:
    """A cupy view of a device array; a NumPy view of anything else."""
    return cupy.asarray(array) if hasattr(array, "__cuda_array_interface__") else np.asarray(array)


def _on_device(array: Any) -> Any:
    """`array` in device memory and native byte order; as it is when the device cannot hold its dtype."""
    if isinstance(array, cupy.ndarray) or array.dtype.char not in CUDA_DTYPES:
        return array
    with _device():
        return cupy.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _on_host(array: Any) -> npt.NDArray[Any]:
    return cupy.asnumpy(array) if isinstance(array, cupy.ndarray) else cast("npt.NDArray[Any]", array)


class Buffer(zarr.abc.buffer.Buffer):
    """A flat piece of device memory, or of host memory on its way there.

    Parameters
    ----------
    array_like : array
        ``uint8[n]``, contiguous: a device array, which is not copied, or a host array, which is uploaded when
        `as_array_like` is first called.
    """

    def __init__(self, array_like: ArrayLike) -> None:
        super().__init__(_adopt(array_like))

    @classmethod
    def create_zero_length(cls) -> Self:
        """Return a buffer of no bytes."""
        return cls(cast("ArrayLike", np.empty(0, np.uint8)))

    @classmethod
    def from_buffer(cls, buffer: zarr.abc.buffer.Buffer) -> Self:
        """Return the bytes of any buffer, copied only if it holds neither a device nor a host array."""
        return cls(buffer._data if isinstance(buffer, Buffer) else buffer.as_array_like())

    @classmethod
    def from_bytes(cls, bytes_like: Any) -> Self:
        """Return a buffer of host bytes, which stay on the host until a device array is asked for."""
        return cls(cast("ArrayLike", np.frombuffer(bytes_like, np.uint8)))

    def as_array_like(self) -> ArrayLike:
        """Return the bytes as a device array, ``cupy.ndarray uint8[n]``; as they are where there are none.

        zarr makes scalars that are written like the array of an empty buffer: they are encoded on the host, and may be
        of dtypes and in a byte order that only the host has.
        """
        if self._data.size:
            self._data = _on_device(self._data)
        return self._data

    def as_numpy_array(self) -> npt.NDArray[Any]:
        """Return the bytes as a NumPy array; a copy only when they are on the device."""
        return _on_host(self._data)

    def combine(self, others: Iterable[zarr.abc.buffer.Buffer]) -> Self:
        """Return the bytes of this buffer followed by those of `others`; on the device if any of them is."""
        parts = [self._data, *(o._data if isinstance(o, Buffer) else o.as_array_like() for o in others)]
        if any(hasattr(p, "__cuda_array_interface__") for p in parts):
            return self.__class__(cupy.concatenate([cupy.asarray(p) for p in parts]))
        return self.__class__(cast("ArrayLike", np.concatenate([np.asarray(p) for p in parts])))

    def __setitem__(self, key: slice, value: Any) -> None:
        super().__setitem__(key, _like(self._data, value))


class NDBuffer(zarr.abc.buffer.NDBuffer):
    """An N-d array in device memory, or in host memory on its way there.

    Parameters
    ----------
    array : array
        A device array, which is not copied, or a host array, which is uploaded when `as_ndarray_like` is first called.
    """

    def __init__(self, array: NDArrayLike) -> None:
        super().__init__(_adopt(array))

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
        buffer = cls.empty(tuple(shape), dtype, order)
        if fill_value is not None:
            buffer.fill(fill_value)
        return buffer

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        """Return a new buffer whose contents are undefined."""
        dtype = np.dtype(dtype)
        if dtype.char not in CUDA_DTYPES:
            return cls(cast("NDArrayLike", np.empty(shape, dtype, order)))
        with _device():
            return cls(cupy.empty(shape, dtype.newbyteorder("="), order))

    @classmethod
    def from_numpy_array(cls, array_like: npt.ArrayLike) -> Self:
        """Return a buffer of a host array, which stays there until a device array is asked for."""
        return cls(cast("NDArrayLike", np.asarray(array_like)))

    def as_ndarray_like(self) -> NDArrayLike:
        """Return the array on the device, a ``cupy.ndarray``; a ``numpy.ndarray`` for a dtype that cupy lacks."""
        self._data = _on_device(self._data)
        return self._data

    def as_numpy_array(self) -> npt.NDArray[Any]:
        """Return the array as a NumPy array; a copy only when it is on the device."""
        return _on_host(self._data)

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        """Whether every element equals `other`, by zarr's rules for host arrays."""
        host = zarr.buffer.cpu.NDBuffer(cast("NDArrayLike", self.as_numpy_array()))
        return host.all_equal(other, equal_nan)

    def __getitem__(self, key: Any) -> Self:
        return self.__class__(self._data[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._data[key] = _like(self._data, value)


def _like(array: Any, value: Any) -> Any:
    """`value`, a scalar, an array or a buffer, in the memory that `array` is in."""
    if isinstance(value, Buffer | NDBuffer):
        value = value._data
    elif isinstance(value, zarr.abc.buffer.NDBuffer):
        value = value.as_ndarray_like()
    elif isinstance(value, zarr.abc.buffer.Buffer):
        value = value.as_array_like()
    if isinstance(array, cupy.ndarray):
        return _on_device(value) if isinstance(value, np.ndarray) else value
    return _on_host(value)


buffer_prototype = BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)

register_buffer(Buffer, qualname="zarrgpu.buffer.gpu.Buffer")
register_ndbuffer(NDBuffer, qualname="zarrgpu.buffer.gpu.NDBuffer")
