"""`NDBuffer.all_equal` on the device, with the answers of zarr's host buffers."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import zarr.buffer.cpu

from zarrgpu._interop import on_device, to_cupy
from zarrgpu.engine import CUDA_DTYPES


def all_equal(data: Any, other: Any, equal_nan: bool) -> bool:
    """Whether every element of a device array equals `other`, a scalar or an array that broadcasts.

    As NumPy compares arrays: in the dtype that both promote to, integers of unlike signs exactly. A floating-point zero
    stands for its bits, as zarr has it: all of an array of -0.0 is not 0.0. What has no dtype on a device (strings,
    times, long doubles) is compared on the host.

    Parameters
    ----------
    data : cupy.ndarray
        Of any strides.
    other : scalar or array
        None equals nothing.
    equal_nan : bool
        Whether NaN equals NaN; a complex number is one if any of its parts is.
    """
    if other is None:
        return False
    if on_device(other):
        value = to_cupy(other)[0]
        if value.size == 1 or value.device != data.device:
            value = value.get()
    else:
        value = np.asarray(other)
    if value.dtype.char not in CUDA_DTYPES:
        return zarr.buffer.cpu.NDBuffer(data.get()).all_equal(other, equal_nan)
    with data.device:
        if value.dtype.kind == "f" and bool(value == 0.0):
            return bool(_has_bits_of_zero(data, bool(np.signbit(value.item()))).all())
        if isinstance(value, np.ndarray):
            value = cupy.asarray(value.astype(value.dtype.newbyteorder("="), copy=False))
        return bool(_equal(data, value, equal_nan).all())


def _has_bits_of_zero(data: Any, negative: bool) -> Any:
    if data.dtype.kind == "c":
        return _has_bits_of_zero(data.real, negative) & _has_bits_of_zero(data.imag, False)
    if data.dtype.kind == "f":
        return (data == 0) & (cupy.signbit(data) == negative)
    return data == 0


def _equal(data: Any, value: Any, equal_nan: bool) -> Any:
    kinds = data.dtype.kind, value.dtype.kind
    if set(kinds) == {"i", "u"} and np.uint64 in (data.dtype, value.dtype):  # both promote to a float, inexactly
        signed, unsigned = (data, value) if kinds[0] == "i" else (value, data)
        return (signed >= 0) & (signed.astype(np.uint64) == unsigned)
    equal = data == value
    if equal_nan and set(kinds) <= {"f", "c"}:
        equal = equal | ((data != data) & (value != value))
    return equal
