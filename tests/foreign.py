"""Arrays of other libraries, as far as they can be told apart: what they say of the memory of a cupy or NumPy array."""

from __future__ import annotations

import ctypes
from typing import Any

from zarrgpu import _interop


class Interface:
    """As numba's and torch's on a device: ``__cuda_array_interface__`` and nothing else."""

    def __init__(self, array: Any, read_only: bool = False) -> None:
        self.array, self.read_only = array, read_only

    @property
    def __cuda_array_interface__(self) -> Any:
        interface = self.array.__cuda_array_interface__
        return {**interface, "data": (interface["data"][0], self.read_only)}


class Packed:
    """As JAX's and TensorFlow's, on a device or on the host: DLPack and nothing else.

    Attributes
    ----------
    streams : list
        The streams that it was exported for.
    """

    def __init__(self, array: Any, read_only: bool = False, versioned: bool = True) -> None:
        self.array, self.read_only, self.versioned = array, read_only, versioned
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        capsule = self.array.__dlpack__(stream=stream, max_version=(1, 0) if self.versioned else None)
        if self.read_only:
            flags = _interop.pointer_of(capsule, b"dltensor_versioned") + 24
            ctypes.c_uint64.from_address(flags).value |= 1
        return capsule


class Torch(Packed):
    """As torch's on the host: NumPy arrays can be had of it too, and its DLPack may be of before version 1.0."""

    def __array__(self, dtype: Any = None) -> Any:
        return self.array
