"""Arrays of other libraries: in whose memory they are, and views of them that share it.

Device arrays are known by ``__cuda_array_interface__`` (cupy, numba, torch, JAX) or, without it, by their DLPack device
(TensorFlow, JAX); host arrays by DLPack and by the buffer protocol.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

DLPACK_CUDA = (2, 13)
"""DLPack's kDLCUDA and kDLCUDAManaged."""

_VERSIONED = b"dltensor_versioned"
_FLAGS = 24
"""Where DLManagedTensorVersioned has its uint64 flags: after two uint32 of version and two pointers."""


def on_device(array: object) -> bool:
    """Whether an object is an array in memory of a CUDA device."""
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in DLPACK_CUDA


def to_cupy(array: Any) -> tuple[Any, bool]:
    """View a device array.

    The view may be used on cupy's current stream: the producer of the array is told of it (DLPack), or its stream is
    waited for (``__cuda_array_interface__``, where it names one).

    Returns
    -------
    cupy.ndarray
        Of the same memory, strides and all.
    bool
        Whether that memory must not be written: cupy has no read-only arrays.
    """
    import cupy

    if isinstance(array, cupy.ndarray):
        return array, False
    if not hasattr(array, "__cuda_array_interface__"):
        exported = _Exported(array)
        return cupy.from_dlpack(exported), exported.read_only
    pointer, read_only = array.__cuda_array_interface__["data"]
    # cupy.asarray copies what is not on the current device
    where = cupy.cuda.Device(cupy.cuda.runtime.pointerGetAttributes(pointer).device) if pointer else nullcontext()
    with where:
        return cupy.asarray(array), bool(read_only)


def to_numpy(array: Any) -> npt.NDArray[Any]:
    """View a host array: a NumPy array of the same memory, read-only where the array is.

    Before its version 1.0 DLPack does not tell, and NumPy takes what comes so for read-only, unless the array converts
    to a NumPy array of the same memory itself, as torch's do, which then tells.

    Raises
    ------
    TypeError
        For an object that is no array in host memory, or one of a dtype that NumPy lacks.
    """
    if isinstance(array, np.ndarray):
        return np.asarray(array)  # of a subclass, the plain array
    try:
        if not hasattr(array, "__dlpack__"):
            return np.asarray(memoryview(array))
        view = np.from_dlpack(array)
        if not view.flags.writeable and hasattr(array, "__array__"):
            own = np.asarray(array)
            if own.ctypes.data == view.ctypes.data:
                return own
        return view
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"no array in host memory: {error}") from error


class _Exported:
    """An array that remembers whether it was exported, through DLPack, as read-only."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.read_only = False

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._array.__dlpack__(**options)
        if is_valid(capsule, _VERSIONED):  # others have no flags
            flags = ctypes.c_uint64.from_address(pointer_of(capsule, _VERSIONED) + _FLAGS)
            self.read_only = bool(flags.value & 1)
        return capsule


is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
pointer_of = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
