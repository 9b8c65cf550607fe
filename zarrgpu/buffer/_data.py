"""What `zarrgpu.buffer.gpu`'s classes do with their data, wherever those are."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any, Self, cast

import cupy
import numpy as np
import numpy.typing as npt
import zarr
import zarr.abc.buffer
from zarr.errors import ZarrUserWarning

from zarrgpu._interop import on_device, to_cupy, to_numpy
from zarrgpu.buffer import uploads_are_expected
from zarrgpu.engine import CUDA_DTYPES, FORKED, is_forked
from zarrgpu.errors import DeviceUnavailableError


class Data:
    """What both classes of buffers do with their data."""

    _data: Any
    _read_only = False
    _warn = False
    _index: int | None = None
    """The device for new data; where it is None, the one that `zarrgpu.enable` was told, else the current one."""

    def _take(self, array: Any) -> None:
        """Hold an array: a device array as a cupy view of it, anything else as a NumPy array."""
        if isinstance(array, cupy.ndarray):
            self._data = array
        elif on_device(array):
            self._data, self._read_only = to_cupy(array)
        else:
            self._data = to_numpy(array) if hasattr(array, "__dlpack__") else np.asarray(array)
            self._warn = True

    @classmethod
    def _of(cls, array: Any, read_only: bool = False, warn: bool = False) -> Self:
        """A buffer of an array that is known to be where it is."""
        new = cls(array)  # type: ignore[call-arg]  # of the classes below
        new._read_only |= read_only
        new._warn = warn
        return new

    def _view(self, array: Any) -> Self:
        """A buffer of an array that is part of this one."""
        return self._of(array, self._read_only, self._warn)

    @property
    def _is_on_device(self) -> bool:
        return isinstance(self._data, cupy.ndarray)

    def _here(self) -> Any:
        """Make the device that has the data the current one, as cupy wants for all that it does with them."""
        return self._data.device if self._is_on_device else nullcontext()

    def _on_device(self) -> Any:
        """The data, brought to the device unless that cannot hold their dtype."""
        if not self._is_on_device and self._data.dtype.char in CUDA_DTYPES:
            if self._warn and not uploads_are_expected.get():
                what = f"{type(self).__module__}.{type(self).__name__}"
                message = f"{what} was given an array in host memory, which is now copied to the device"
                warnings.warn(message, ZarrUserWarning, stacklevel=3)
            self._read_only |= not self._data.flags.writeable
            self._data, self._warn = self._upload(self._data), False
        return self._data

    def _on_host(self) -> npt.NDArray[Any]:
        return cast("npt.NDArray[Any]", cupy.asnumpy(self._data, order="A") if self._is_on_device else self._data)

    def _set(self, key: Any, value: Any) -> None:
        """Set elements to a scalar, an array or a buffer, which is copied from wherever it is."""
        self._check_writable()
        if isinstance(value, Data):
            value = value._data
        elif isinstance(value, zarr.abc.buffer.NDBuffer):
            value = value.as_ndarray_like()
        elif isinstance(value, zarr.abc.buffer.Buffer):
            value = value.as_array_like()
        if on_device(value):
            value = to_cupy(value)[0]
        elif hasattr(value, "__dlpack__"):
            value = to_numpy(value)
        with self._here():
            if self._is_on_device and isinstance(value, np.ndarray):
                value = self._upload(value)
            elif not self._is_on_device and isinstance(value, cupy.ndarray):
                value = value.get()
            try:
                self._data[key] = value
            except ValueError as error:
                if not isinstance(value, cupy.ndarray):
                    raise
                # cupy has words of its own for what NumPy, and code that looks at its errors, calls so.
                raise ValueError(f"shape mismatch: value array of shape {value.shape} does not fit: {error}") from error

    def _check_writable(self) -> None:
        if self._read_only:
            raise ValueError("assignment destination is read-only")  # NumPy's words

    @classmethod
    def _device(cls) -> Any:
        """The device for new data, to be entered; zarr allocates on a thread of its own."""
        if is_forked():
            raise DeviceUnavailableError(FORKED)
        if cls._index is not None:
            return cupy.cuda.Device(cls._index)
        kind, _, index = str(zarr.config.get("zarrgpu.device", "cuda")).partition(":")
        return cupy.cuda.Device(int(index)) if kind == "cuda" and index else nullcontext()

    @classmethod
    def _upload(cls, array: npt.NDArray[Any]) -> Any:
        """A copy of a host array in device memory and native byte order; itself when no device has its dtype."""
        if array.dtype.char not in CUDA_DTYPES:
            return array
        with cls._device():
            return cupy.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))
