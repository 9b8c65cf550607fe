"""Buffers: what comes from the host stays there until a device array is asked for; device arrays are not copied."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.abc.buffer
import zarr.buffer.cpu
from zarr.errors import ZarrUserWarning

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth, to_host
from tests.foreign import Interface, Packed
from zarrgpu._interop import to_numpy
from zarrgpu.buffer import cpu
from zarrgpu.engine import CUDA_DTYPES

READ_ONLY = "assignment destination is read-only"


@pytest.fixture
def gpu() -> Iterator[Any]:
    """`zarrgpu.buffer.gpu` on this machine's CUDA engine, real or simulated."""
    with device(ENGINES[-1]):
        from zarrgpu.buffer import gpu

        yield gpu


def is_on_device(array: Any) -> bool:
    return hasattr(array, "__cuda_array_interface__")


def upload(values: Any) -> Any:
    """A device array of `values`."""
    import cupy

    return cupy.asarray(values)


def pointer(array: Any) -> int:
    return int(array.data.ptr)


def test_cpu_buffers_are_zarrs() -> None:
    assert issubclass(cpu.Buffer, zarr.abc.buffer.Buffer)
    assert issubclass(cpu.NDBuffer, zarr.abc.buffer.NDBuffer)
    assert cpu.Buffer.from_bytes(b"abc").to_bytes() == b"abc"
    assert pickle.loads(pickle.dumps(cpu.buffer_prototype)) is cpu.buffer_prototype


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
    array = upload(np.arange(8, dtype=np.uint8))
    for source in (array, Interface(array), Packed(array), Packed(array, versioned=False)):
        b = gpu.Buffer.from_array_like(source)
        assert pointer(b.as_array_like()) == pointer(array)
        assert pointer(b[2:].as_array_like()) == pointer(array) + 2
        assert pointer(gpu.Buffer.from_buffer(b).as_array_like()) == pointer(array)
    assert gpu.Buffer.from_buffer(zarr.buffer.cpu.Buffer.from_bytes(b"ab")).to_bytes() == b"ab"


@pytest.mark.parametrize("key", [np.s_[:], np.s_[::2, ::-1], np.s_[1:1], np.s_[:, :0]], ids=str)
def test_device_arrays_keep_their_strides(gpu: Any, key: Any) -> None:
    """Whatever library they come from, and in whatever order they are."""
    whole = upload(np.arange(24, dtype="i4").reshape(4, 6))
    array = whole[key]
    for source in (array, Interface(array), Packed(array), Interface(array.T), Packed(array.T, versioned=False)):
        b = gpu.NDBuffer.from_ndarray_like(source)
        got = b.as_ndarray_like()
        want = array if b.shape == array.shape else array.T
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert same(got, to_host(want))
        if got.size:
            assert (pointer(got), got.strides) == (pointer(array), want.strides)
            b[...] = 7
            assert to_host(array).tolist() == np.full(array.shape, 7).tolist()


def test_producers_are_told_of_the_stream(gpu: Any) -> None:
    """DLPack's `stream` is the consumer's: what the producer still does on its own comes first."""
    source = Packed(upload(np.arange(4, dtype="f4")))
    gpu.NDBuffer(source)
    assert len(source.streams) == 1
    assert source.streams[0] is not None


@pytest.mark.parametrize("kind", [Interface, Packed])
def test_read_only_device_arrays_stay_so(gpu: Any, kind: Any) -> None:
    array = upload(np.arange(6, dtype=np.uint8))
    b = gpu.Buffer(kind(array, read_only=True))
    for part in (b, b[1:4], gpu.Buffer.from_buffer(b)):
        with pytest.raises(ValueError, match=READ_ONLY):
            part[0:1] = gpu.Buffer.from_bytes(b"x")
    n = gpu.NDBuffer(kind(array, read_only=True))
    for view in (n, n[1:4], n.reshape((2, 3)), n.transpose((0,)), n.squeeze(())):
        with pytest.raises(ValueError, match=READ_ONLY):
            view[...] = 1
        with pytest.raises(ValueError, match=READ_ONLY):
            view.fill(1)
    for own in (n.copy(), n.astype("i4")):
        own[...] = 9
    assert to_host(array).tolist() == list(range(6))


def test_read_only_host_arrays_stay_so_on_the_device(gpu: Any) -> None:
    values = np.arange(3)
    values.flags.writeable = False
    b = gpu.NDBuffer.from_numpy_array(values)
    for _ in range(2):
        with pytest.raises(ValueError, match=READ_ONLY):
            b[0] = 1
        assert is_on_device(b.as_ndarray_like())


def test_an_output_that_is_read_only_is_refused(gpu: Any) -> None:
    """As the `out` of zarr's own methods, on the device and on the host."""
    z = make(smooth((6,)), (4,))
    array, host = upload(np.zeros(6, "f4")), np.zeros(6, "f4")
    host.flags.writeable = False
    with zarrgpu.enable("cuda"):
        again = zarr.open_array(z.store, mode="r")
        for out in (gpu.NDBuffer(Interface(array, read_only=True)), cpu.NDBuffer.from_numpy_array(host)):
            with pytest.raises(ValueError, match="out is read-only"):
                again.get_basic_selection(..., out=out)
    assert not to_host(array).any()
    assert not host.any()


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
    for on_device in (False, True):
        b = gpu.Buffer.from_bytes(bytearray(12))
        if on_device:
            b.as_array_like()
        b[0:2] = zarr.buffer.cpu.Buffer.from_bytes(b"ab")
        b[2:4] = gpu.Buffer.from_bytes(b"cd")
        b[4:6] = np.frombuffer(b"ef", np.uint8)
        b[6:8] = Interface(upload(np.frombuffer(b"gh", np.uint8)))
        b[8:10] = Packed(upload(np.frombuffer(b"ij", np.uint8)))
        b[10:12] = Packed(np.frombuffer(b"kl", np.uint8).copy())
        assert b.to_bytes() == b"abcdefghijkl"
        with pytest.raises(ValueError, match="contiguous"):
            b[::2] = 1
        with pytest.raises(TypeError, match="expected slice"):
            b[0] = 1


def test_bytes_are_compared_where_they_are(gpu: Any) -> None:
    a, b = (gpu.Buffer(upload(np.frombuffer(b"hello", np.uint8))) for _ in range(2))
    assert a == b
    assert a != b[:4]
    assert a == gpu.Buffer.from_bytes(b"hello")
    assert a != gpu.Buffer(upload(np.frombuffer(b"hallo", np.uint8)))
    assert a != b"hello"
    assert gpu.Buffer(upload(np.empty(0, np.uint8))) == gpu.Buffer.create_zero_length()


def test_wrong_arrays_are_refused(gpu: Any) -> None:
    for place in (np.asarray, upload):
        for kind in (lambda a: a, Packed) if place is np.asarray else (lambda a: a, Interface, Packed):
            with pytest.raises(ValueError, match="1-dim"):
                gpu.Buffer(kind(place(np.zeros((2, 2), np.uint8))))
            with pytest.raises(ValueError, match="byte dtype"):
                gpu.Buffer(kind(place(np.zeros(2, np.int16))))
            with pytest.raises(ValueError, match="byte dtype"):
                gpu.Buffer(kind(place(np.zeros(2, np.int8))))
            with pytest.raises(ValueError, match="only contiguous"):
                gpu.Buffer(kind(place(np.zeros(8, np.uint8))[::2]))


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
    assert (a.reshape((3, 2)).shape, a.reshape(-1).shape, len(a)) == ((3, 2), (6,), 2)
    assert a.transpose((1, 0)).as_numpy_array().tolist() == [[8, 1], [9, 2], [7, 3]]
    assert a[:1].squeeze((0,)).as_numpy_array().tolist() == [8, 9, 7]
    assert a.astype("f8").dtype == np.dtype("f8")
    assert a.astype("S2").as_ndarray_like().tolist() == [[b"8", b"9", b"7"], [b"1", b"2", b"3"]]
    assert a.copy().all_equal(a.as_numpy_array())


@pytest.mark.parametrize(("shape", "order"), [((1, 2), "C"), ((2, 3, 4), "F")])
def test_empty_arrays_have_the_order_asked_for(gpu: Any, shape: tuple[int, ...], order: Any) -> None:
    got = gpu.NDBuffer.empty(shape=shape, dtype="f8", order=order).as_ndarray_like()
    contiguous = got.flags.c_contiguous if order == "C" else got.flags.f_contiguous
    assert (got.shape, got.dtype, contiguous) == (shape, np.dtype("f8"), True)


def test_scalars(gpu: Any) -> None:
    """0-d buffers are views, on the host too; more than one element is no scalar."""
    for place in (gpu.NDBuffer.from_numpy_array, lambda a: gpu.NDBuffer(upload(a))):
        b = place(np.arange(6, dtype="i4").reshape(2, 3))
        element = b[1, 2]
        assert (element.shape, element.as_scalar(), type(element.as_scalar())) == ((), 5, np.int32)
        element[...] = 8
        element[()] = 9
        assert b[1, 2].as_scalar() == 9
        with pytest.raises(ValueError, match="single scalar"):
            b.as_scalar()


@pytest.mark.parametrize(
    ("key", "shape"), [(np.s_[...], (2, 4)), (np.s_[1:, :2], (3, 2)), (np.ix_([0, 2], [1]), (2, 1, 1))]
)
@pytest.mark.parametrize("there", [False, True], ids=["host", "device"])
def test_values_of_another_shape(gpu: Any, there: bool, key: Any, shape: tuple[int, ...]) -> None:
    """NumPy's words, which callers look at, wherever the elements and the values are."""
    for value in (np.ones(shape, "i4"), upload(np.ones(shape, "i4"))):
        zeros = np.zeros((3, 3), "i4")
        b = gpu.NDBuffer(upload(zeros)) if there else gpu.NDBuffer.from_numpy_array(zeros)
        with pytest.raises(ValueError, match="shape mismatch" if there else "shape mismatch|could not broadcast"):
            b[key] = value
        assert not to_host(b.as_ndarray_like()).any()
        b[...] = value.reshape(-1)[:1].reshape(1, 1, 1)  # leading axes of one element count for nothing
        assert to_host(b.as_ndarray_like()).all()


def test_what_is_no_number_is_not_called_a_shape(gpu: Any) -> None:
    b = gpu.NDBuffer(upload(np.zeros(3, "i4")))
    with pytest.raises(ValueError, match=r"^(?!shape mismatch)"):
        b[0] = "a"


def test_host_arrays_wait(gpu: Any) -> None:
    values = np.array([1, 2], ">i2")
    a = gpu.NDBuffer.from_numpy_array(values)
    assert not is_on_device(a._data)
    a[0] = gpu.NDBuffer.create(shape=(), dtype="i2", fill_value=5)
    assert to_host(a.as_ndarray_like()).tolist() == [5, 2]
    assert is_on_device(a._data)


@pytest.mark.parametrize("host", [np.arange(4, dtype=np.uint8), Packed(np.arange(4, dtype=np.uint8))], ids=type)
def test_uploads_of_what_was_not_said_to_be_host_data_warn(gpu: Any, host: Any) -> None:
    """Once, when the upload happens, however the data were viewed before; never for data named as the host's."""
    b = gpu.Buffer.from_array_like(host)
    assert b.to_bytes() == bytes(range(4))
    for part in (b, b[1:]):
        with pytest.warns(ZarrUserWarning, match=r"zarrgpu\.buffer\.gpu\.Buffer .* copied to the device"):
            part.as_array_like()
        part.as_array_like()
    views: list[Callable[[Any], Any]] = [
        lambda n: n,
        lambda n: n[1:],
        lambda n: n.reshape((2, 2)),
        lambda n: n.transpose((0,)),
        lambda n: n.squeeze(()),
        lambda n: n.astype(">i4"),
        lambda n: n.copy(),
    ]
    for make_view in views:
        view = make_view(gpu.NDBuffer.from_ndarray_like(host))
        assert not is_on_device(view._data)
        with pytest.warns(ZarrUserWarning, match=r"zarrgpu\.buffer\.gpu\.NDBuffer .* copied to the device"):
            view.as_ndarray_like()
        view.as_ndarray_like()
        view = make_view(gpu.NDBuffer.from_numpy_array(np.arange(4)))
        assert is_on_device(view.as_ndarray_like())  # and pytest makes errors of warnings
    for quiet in (gpu.Buffer.from_bytes(b"ab"), gpu.Buffer.from_buffer(zarr.buffer.cpu.Buffer.from_bytes(b"ab"))):
        assert is_on_device(quiet[1:].as_array_like())


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (8, 8))])
def test_reads_and_writes_of_users_do_not_warn(gpu: Any, zarr_format: int, shards: Any) -> None:
    """``z[...] = numpy array`` is no mistake; nor are scalars, parts of chunks, and arrays read by zarr's pipeline."""
    values = smooth((12, 9), "i4")
    before = make(values, (4, 4), zarr_format, store=zarr.storage.MemoryStore(), shards=shards)
    with zarrgpu.enable("cuda"), warnings.catch_warnings():
        warnings.simplefilter("error")
        if zarr_format == 3:  # of Zarr 2 its pipeline reads nothing into device buffers, zarr's own neither
            assert same(before[...], values)
        z = make(values, (4, 4), zarr_format, store=zarr.storage.MemoryStore(), shards=shards)
        for written in (z, zarr.open_array(z.store)):
            written[...] = values
            written[1:3, 2:7] = values[1:3, 2:7]
            written[5] = 5
            written[5] = gpu.cupy.asarray(values[5])
            assert same(written[...], values)


@pytest.mark.parametrize("dtype", ["M8[s]", ">M8[2generic]", "S3", "<U2", "O", [("a", "i4")]])
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
def test_what_no_gpu_holds_stays_numpy(gpu: Any, dtype: Any) -> None:
    for a in (gpu.NDBuffer.empty((2,), dtype), gpu.NDBuffer.create(shape=(2,), dtype=dtype, fill_value=None)):
        assert isinstance(a.as_ndarray_like(), np.ndarray)
        assert a.as_ndarray_like().dtype == np.dtype(dtype)
        assert a.all_equal(a.as_numpy_array(), equal_nan=True) or dtype == "O" or np.dtype(dtype).kind in "M"


def test_prototypes_are_pickled_by_name(gpu: Any) -> None:
    prototype = gpu.buffer_prototype
    assert pickle.loads(pickle.dumps(prototype)) is prototype
    assert copy.deepcopy(prototype) is prototype
    assert prototype == (gpu.Buffer, gpu.NDBuffer)


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


CONTENTS: list[Any] = [0, -0.0, np.nan, 1, 0.1, -1, 2**53 + 1, 2**64 - 1, complex(np.nan, 1), complex(0, -0.0)]
VALUES = [*CONTENTS, 0.0, 1.0, 255, 2**63, 2**70, True, False, np.inf, 0j, np.float32(0.1), np.float16(0.1)]
VALUES += [np.int8(-1), None, "a", b"0", np.longdouble(0.1), np.datetime64("NaT"), np.datetime64(5, "s")]


@pytest.mark.parametrize("dtype", [*CUDA_DTYPES])
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning", "ignore:.*:DeprecationWarning")
def test_all_equal_is_zarrs(gpu: Any, dtype: str) -> None:
    """For every pair of contents and value what zarr's host buffers say, errors included, in all layouts."""

    def ask(buffer: Any, value: Any, equal_nan: bool) -> Any:
        try:
            return buffer.all_equal(value, equal_nan)
        except Exception as error:
            return type(error)

    parts: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: a[::2, ::-1],
        lambda a: a.T,
        lambda a: a[:0],
        lambda a: a[2, 3, ...],
    ]
    asked = 0
    for contents in CONTENTS:
        try:
            data = np.full((3, 4), contents, dtype)
        except (TypeError, ValueError, OverflowError):
            continue
        other = data.copy()
        other[2, 3] = 7
        for whole, part in [*((data, part) for part in parts), (other, parts[0])]:
            host, there = part(whole), gpu.NDBuffer(part(upload(whole)))
            for value in [*VALUES, data[0], data, np.array([7.0]), np.array([0.0])]:
                for equal_nan in (False, True) if value is np.nan else (True,):
                    want = ask(zarr.buffer.cpu.NDBuffer(host), value, equal_nan)
                    assert ask(there, value, equal_nan) == want, (host, value, equal_nan)
                    asked += 1
    assert asked > 800


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "u8", "f2", "f4", "c8", "c16"])
def test_all_equal_is_told_on_the_device(gpu: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all that a device has a dtype for; values on the device are welcome too."""

    def refuse(*_: Any) -> bool:
        raise AssertionError("asked on the host")

    monkeypatch.setattr(zarr.buffer.cpu.NDBuffer, "all_equal", refuse)
    b = gpu.NDBuffer.create(shape=(5, 5), dtype=dtype, fill_value=1)
    assert b.all_equal(1)
    assert b.all_equal(1.0)
    assert not b.all_equal(0.0)
    assert not b.all_equal(-1)
    assert b.all_equal(upload(np.ones(5, "u1")))
    assert b.all_equal(Interface(upload(np.ones((), dtype))))
    assert not b.all_equal(upload(np.zeros((1, 1), "f4")))


@pytest.mark.parametrize("engine", ENGINES)
def test_results_leave_without_a_copy(engine: str) -> None:
    """DLPack gives readers the memory of the result itself, for the stream that they name."""
    values = smooth((6, 10), "f4")
    z = make(values, (4, 8))
    with device(engine) as name, zarrgpu.enable(device=name):
        results: list[Any] = [zarrgpu.read(z, device=name), zarr.open_array(z.store, mode="r")[...]]
        for got in results:
            if name == "host":
                assert to_numpy(Packed(got)).ctypes.data == got.ctypes.data
                continue
            import cupy

            taken = cupy.from_dlpack(Packed(got, versioned=False))
            assert pointer(taken) == pointer(got)
            assert same(taken, values)
            if engine == "sim":
                from tests import fake_cupy

                assert fake_cupy.exported[-1] is not None


@pytest.mark.parametrize("library", ["torch", "jax", "tensorflow"])
def test_libraries_that_are_here(gpu: Any, library: str) -> None:
    """Into the real thing and back, where it is installed with its GPU part: one memory, whoever writes to it."""
    if ENGINES[-1] != "cuda":
        pytest.skip("needs a GPU")
    module = pytest.importorskip(library)
    readers: dict[str, Callable[[], Any]] = {
        "torch": lambda: module.from_dlpack,
        "jax": lambda: module.dlpack.from_dlpack,
        "tensorflow": lambda: lambda a: module.experimental.dlpack.from_dlpack(a.toDlpack()),
    }
    from_dlpack = readers[library]()
    values = np.arange(12, dtype="f4").reshape(3, 4)
    got = zarrgpu.read(make(values, (2, 2)), device="cuda")
    taken = from_dlpack(got)
    back = gpu.NDBuffer(taken)
    assert pointer(back.as_ndarray_like()) == pointer(got)
    assert same(back.as_ndarray_like(), values)


@pytest.mark.gpu
def test_numba(gpu: Any) -> None:
    """Arrays of numba, strided and read-only ones among them, share their memory."""
    from zarrgpu._cuda import import_cuda

    values = np.arange(12, dtype="f4").reshape(3, 4)
    array = import_cuda().to_device(values)
    part = array[:, ::2]
    b = gpu.NDBuffer(part)
    assert pointer(b.as_ndarray_like()) == part.__cuda_array_interface__["data"][0]
    assert same(b.as_ndarray_like(), values[:, ::2])
    got = zarrgpu.read(make(values, (2, 2)), device="cuda")
    assert (import_cuda().as_cuda_array(got).copy_to_host() == values).all()
