"""Buffers: what comes from the host stays there until a device array is asked for; device arrays are not copied."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.abc.buffer
import zarr.buffer.cpu

from tests.engines import ENGINES, device, to_host
from zarrgpu.buffer import cpu


@pytest.fixture
def gpu() -> Iterator[Any]:
    """`zarrgpu.buffer.gpu` on this machine's CUDA engine, real or simulated."""
    with device(ENGINES[-1]):
        from zarrgpu.buffer import gpu

        yield gpu


def is_on_device(array: Any) -> bool:
    return hasattr(array, "__cuda_array_interface__")


def test_cpu_buffers_are_zarrs() -> None:
    assert issubclass(cpu.Buffer, zarr.abc.buffer.Buffer)
    assert issubclass(cpu.NDBuffer, zarr.abc.buffer.NDBuffer)
    assert cpu.Buffer.from_bytes(b"abc").to_bytes() == b"abc"
    assert pickle.loads(pickle.dumps(cpu.buffer_prototype)) == cpu.buffer_prototype


def test_bytes_travel_when_asked_for(gpu: Any) -> None:
    b = gpu.Buffer.from_bytes(b"hello")
    assert not is_on_device(b._data)
    assert (b.to_bytes(), len(b), b[1:3].to_bytes()) == (b"hello", 5, b"el")
    assert not is_on_device(b._data)
    assert is_on_device(b.as_array_like())
    assert is_on_device(b._data)
    assert (b.to_bytes(), len(b), b[1:3].to_bytes()) == (b"hello", 5, b"el")
    assert b == zarr.buffer.cpu.Buffer.from_bytes(b"hello")


def test_device_bytes_are_not_copied(gpu: Any) -> None:
    import cupy

    array = cupy.asarray(np.arange(8, dtype=np.uint8))
    b = gpu.Buffer.from_array_like(array)
    assert b.as_array_like().data.ptr == array.data.ptr
    assert gpu.Buffer.from_buffer(b).as_array_like().data.ptr == array.data.ptr
    assert gpu.Buffer.from_buffer(zarr.buffer.cpu.Buffer.from_bytes(b"ab")).to_bytes() == b"ab"


def test_buffers_are_combined_where_they_are(gpu: Any) -> None:
    host, more = gpu.Buffer.from_bytes(b"ab"), zarr.buffer.cpu.Buffer.from_bytes(b"cd")
    assert not is_on_device((host + more)._data)
    assert (host + more).to_bytes() == b"abcd"
    there = gpu.Buffer.from_bytes(b"ef")
    there.as_array_like()
    both = host.combine([there, more])
    assert is_on_device(both._data)
    assert both.to_bytes() == b"abefcd"
    assert gpu.Buffer.create_zero_length().to_bytes() == b""


def test_bytes_are_set_from_anywhere(gpu: Any) -> None:
    for upload in (False, True):
        b = gpu.Buffer.from_bytes(bytearray(6))
        if upload:
            b.as_array_like()
        b[0:2] = zarr.buffer.cpu.Buffer.from_bytes(b"ab")
        b[2:4] = gpu.Buffer.from_bytes(b"cd")
        b[4:6] = np.frombuffer(b"ef", np.uint8)
        assert b.to_bytes() == b"abcdef"


def test_wrong_arrays_are_refused(gpu: Any) -> None:
    with pytest.raises(ValueError, match="1-dim"):
        gpu.Buffer(np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match="byte dtype"):
        gpu.Buffer(np.zeros(2, np.int16))


def test_arrays(gpu: Any) -> None:
    """Created on the device in native byte order; views, scalars and values in and out."""
    a = gpu.NDBuffer.create(shape=(2, 3), dtype=">i4", order="F", fill_value=7)
    assert is_on_device(a.as_ndarray_like())
    assert a.dtype == np.dtype("i4")
    assert a.all_equal(7)
    assert not a.all_equal(8)
    a[1, :] = gpu.NDBuffer.from_numpy_array(np.array([1, 2, 3], ">i4"))
    a[0, 0:2] = zarr.buffer.cpu.NDBuffer.from_numpy_array(np.array([8, 9], "i4"))
    assert a.as_numpy_array().tolist() == [[8, 9, 7], [1, 2, 3]]
    assert a[1, 2:3].as_scalar() == 3
    assert a.reshape((3, 2)).shape == (3, 2)
    assert a.transpose((1, 0)).as_numpy_array().tolist() == [[8, 1], [9, 2], [7, 3]]
    assert a.astype("f8").dtype == np.dtype("f8")
    assert a.copy().all_equal(a.as_numpy_array())


def test_host_arrays_wait(gpu: Any) -> None:
    values = np.array([1, 2], ">i2")
    a = gpu.NDBuffer.from_numpy_array(values)
    assert not is_on_device(a._data)
    a[0] = gpu.NDBuffer.create(shape=(), dtype="i2", fill_value=5)
    assert to_host(a.as_ndarray_like()).tolist() == [5, 2]
    assert is_on_device(a._data)


@pytest.mark.parametrize("dtype", ["M8[s]", "S3", "<U2", "O", [("a", "i4")]])
def test_what_no_gpu_holds_stays_numpy(gpu: Any, dtype: Any) -> None:
    a = gpu.NDBuffer.empty((2,), dtype)
    assert isinstance(a.as_ndarray_like(), np.ndarray)
    assert a.as_ndarray_like().dtype == np.dtype(dtype)


def test_the_prototype_is_picklable(gpu: Any) -> None:
    assert pickle.loads(pickle.dumps(gpu.buffer_prototype)) == gpu.buffer_prototype
    assert gpu.buffer_prototype.buffer is gpu.Buffer


def test_arrays_are_made_on_the_device_that_was_enabled(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zarr allocates on a thread of its own, where the caller's current device is not known."""
    import cupy

    entered: list[int] = []
    real = cupy.cuda.Device

    def device_of(index: int) -> Any:
        entered.append(index)
        return real(0)

    monkeypatch.setattr(cupy.cuda, "Device", device_of)
    with zarr.config.set({"zarrgpu": {"device": "cuda:3"}}):
        gpu.NDBuffer.empty((2,), "i4")
        gpu.Buffer.from_bytes(b"ab").as_array_like()
    gpu.NDBuffer.empty((2,), "i4")
    assert entered == [3, 3]
