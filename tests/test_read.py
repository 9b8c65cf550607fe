"""`zarrgpu.read` and ``z[...]`` give what plain zarr gives, bit for bit, on every engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.abc.buffer import BufferPrototype
from zarr.buffer import cpu
from zarr.errors import ChunkNotFoundError
from zarr.storage import MemoryStore

import zarrgpu
from tests.engines import ENGINES, Mine, device, fates, make, same, smooth, to_host
from zarrgpu.engine import resolve

SELECTIONS: list[Any] = [
    np.s_[...],
    np.s_[3],
    np.s_[::3, 5:40:7],
    np.s_[-1, ..., 2],
    np.s_[5:5],
    np.s_[1, 2, 3],
    np.s_[2:9, 19:21, 6:8],
    np.s_[1:100:30],
    np.s_[..., np.int64(4)],
]


@pytest.mark.parametrize("engine", ENGINES[:2])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("shuffle", [None, 0, 1, 2])
@pytest.mark.parametrize("dtype", ["<f4", ">i2"])
def test_basic_selections_on_the_host(engine: str, zarr_format: int, shuffle: int | None, dtype: str) -> None:
    """Every basic selection of every layout, through both front doors."""
    values = smooth((13, 41, 21), dtype)
    z = make(values, (5, 20, 8), zarr_format, shuffle)
    zarrgpu.reset_counters()
    with device(engine) as name, zarrgpu.enable(device=name, strict=True):
        again = zarr.open_array(z.store, mode="r")
        for selection in SELECTIONS:
            assert same(zarrgpu.read(z, selection, device=name), values[selection]), selection
            assert same(again[selection], np.asarray(values[selection])), selection
    counts = zarrgpu.counters()
    assert set(counts) == {"chunks.host"}, counts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("shuffle", [None, 1, 2])
def test_both_front_doors(engine: str, zarr_format: int, shuffle: int | None) -> None:
    """A small array with clipped chunks and a missing one, whole and in parts; results live on the engine's device."""
    values = smooth((6, 10), ">f4")
    z = make(values, (4, 8), zarr_format, shuffle, fill_value=7)
    values[4:, 8:] = 7
    z[4:, 8:] = 7  # elided: the chunk is missing
    with device(engine) as name:
        zarrgpu.reset_counters()
        for selection in (np.s_[...], np.s_[1:6:2, 7], np.s_[5, 9]):
            got = zarrgpu.read(z, selection, device=name)
            assert same(got, values[selection])
            assert hasattr(got, "__cuda_array_interface__") == (name != "host")
        with zarrgpu.enable(device=name, strict=True):
            again = zarr.open_array(z.store, mode="r")
            assert same(again[...], values)
            assert hasattr(again[1:3], "__cuda_array_interface__") == (name != "host")
            assert again[5, 9] == 7
        kind = name.partition(":")[0]
        assert set(fates()) == {f"chunks.{kind}"}


@pytest.mark.parametrize("engine", ENGINES)
def test_local_files(engine: str, tmp_path: Path) -> None:
    """Files are read by paths: nested keys, a path as source, a folder where a chunk should be counts as missing."""
    values = smooth((9, 8), "i4")
    make(values, (4, 4), 3, store=tmp_path / "a.zarr")
    (tmp_path / "a.zarr/c/2/1").unlink()
    (tmp_path / "a.zarr/c/2/1").mkdir()
    values[8:, 4:] = 0
    with device(engine) as name:
        assert same(zarrgpu.read(tmp_path / "a.zarr", device=name), values)
        assert same(zarrgpu.read(str(tmp_path / "a.zarr"), np.s_[7:], device=name), values[7:])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_out(engine: str, order: Any) -> None:
    """`out` is written to and returned, contiguous or not; a wrong one is refused with expected and actual."""
    values = smooth((6, 10), "f8")
    z = make(values, (4, 8))
    with device(engine) as name:
        target = zarrgpu.engine.resolve(name)
        out = target.empty((6, 10), np.dtype("f8"), order)
        assert zarrgpu.read(z, out=out, device=name) is out
        assert same(out, values)
        strided = target.empty((6, 20), np.dtype("f8"))[:, ::2]
        zarrgpu.read(z, out=strided, device=name)
        assert same(strided, values)
        with pytest.raises(ValueError, match=r"shape \(6, 10\) and dtype float64, got \(10, 6\)"):
            zarrgpu.read(z, out=target.empty((10, 6), np.dtype("f8")), device=name)
        with pytest.raises(ValueError, match=r"got .* float32"):
            zarrgpu.read(z, out=target.empty((6, 10), np.dtype("f4")), device=name)
        with pytest.raises(TypeError, match=f"an array on {name}"):
            zarrgpu.read(z, out=[0], device=name)


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "<i2", ">u4", "<i8", ">u8", "<f2", ">f2", ">f4", "<f8", "<c8", ">c16"]
)
def test_dtypes(dtype: str) -> None:
    """All plain numbers in both byte orders, shuffled or not, by kernels and by the library; NaN payloads survive."""
    values = smooth((70, 9), dtype)
    zarrgpu.reset_counters()
    for shuffle in (0, 1, 2):
        z = make(values, (33, 5), 2, shuffle)
        for engine in ENGINES[:2]:
            with device(engine) as name:
                assert same(zarrgpu.read(z, device=name), values)
    assert set(fates()) == {"chunks.host"}


def test_times_come_as_arrays_of_numpy_and_on_a_device_as_their_bits() -> None:
    """A GPU has no datetime64: the host decodes it, unless there is an output of int64 on the device."""
    values = smooth((20,), "i8").view("M8[s]")
    z = make(values, (7,))
    assert same(zarrgpu.read(z, device="host"), values)
    with device(ENGINES[-1]) as name:
        zarrgpu.reset_counters()
        got = zarrgpu.read(z, device=name)
        assert isinstance(got, np.ndarray)
        assert same(got, values)
        assert fates() == {"chunks.host": 3}
        assert zarrgpu.explain(z, device=name).device == "host"
        bits = resolve(name).empty(values.shape, np.dtype("i8"))
        assert zarrgpu.read(z, device=name, out=bits) is bits
        assert same(bits, values.view("i8"))
        assert fates() == {"chunks.host": 3, "chunks.cuda": 3}
        shards = make(values, (5,), shards=(10,))
        assert same(zarrgpu.read(shards, device=name, out=bits), values.view("i8"))
        with pytest.raises(TypeError, match="out must be an array on host"):
            zarrgpu.read(z, device=name, out=resolve(name).empty(values.shape, np.dtype("u8")))


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")  # zarr's, about void
def test_raw_bits_come_as_arrays_of_numpy() -> None:
    """So does void: Zarr 3's ``r*``."""
    values = smooth((20, 3), "u1").view("V3")[..., 0]
    z = zarr.create_array({}, shape=20, chunks=7, dtype="V3", fill_value=b"abc")
    z[:14] = values[:14]
    with device(ENGINES[-1]) as name, zarrgpu.enable(name, strict=True):
        got = zarrgpu.read(z, np.s_[3:], device=name)
        assert got.tobytes() == values[3:14].tobytes() + b"abc" * 6
        assert np.asarray(zarr.open_array(z.store, mode="r")[3:]).tobytes() == got.tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_of_elements(order: Any) -> None:
    """Zarr 2 stores chunks in either order of their elements."""
    values = smooth((11, 7, 5), "i4")
    z = make(values, (4, 3, 2), 2, order=order)
    with zarrgpu.enable(device="host", strict=True):
        assert same(zarr.open_array(z.store, mode="r")[1:10:3, :, 1], values[1:10:3, :, 1])
    assert same(zarrgpu.read(z, device="host"), values)


def test_zero_dimensions_and_no_elements() -> None:
    """A 0-d array is one element; an array of no elements touches no chunk."""
    assert same(zarrgpu.read(make(smooth((), "f4"), ()), device="host"), smooth((), "f4"))
    empty = zarr.create_array({}, shape=(0, 3), chunks=(1, 3), dtype="i4")
    assert zarrgpu.read(empty, device="host").shape == (0, 3)


def test_out_of_range_is_zarrs_error() -> None:
    """Selections that zarr refuses are refused with its own exceptions."""
    z = make(smooth((6, 10)), (4, 8))
    with pytest.raises(IndexError, match="out of bounds"):
        zarrgpu.read(z, 6, device="host")
    with pytest.raises(IndexError, match="too many"):
        zarrgpu.read(z, (1, 2, 3), device="host")


@pytest.mark.parametrize("engine", ENGINES)
def test_selections_by_arrays_have_programs(engine: str) -> None:
    """Points, masks, orthogonal arrays and blocks, of any order and with repeats, by both front doors."""
    values = smooth((6, 10))
    z = make(values, (4, 8))
    with device(engine) as name, zarrgpu.enable(device=name, strict=True):
        zarrgpu.reset_counters()
        points = np.array([[0, 5], [5, 0]]), np.array([[1, 9], [9, 1]])
        for selection in (([0, 5], [1, 2]), points, (slice(None), [8, 2, 2]), values > 0, (2, [7, 1])):
            assert same(zarrgpu.read(z, selection, device=name), np.asarray(values[selection]))
        out = np.empty((2, 2), "f4", "F") if name == "host" else None
        assert same(zarrgpu.read(z, points, out=out, device=name), values[points])
        again: Any = zarr.open_array(z.store, mode="r")
        assert same(again.vindex[points], values[points])
        assert same(again.vindex[values > 0], values[values > 0])
        assert same(again.oindex[np.array([5, 0]), 1:3], values[[5, 0], 1:3])
        assert same(again.oindex[[True, False] * 3, [9, 9, 0]], values[::2][:, [9, 9, 0]])
        assert same(again.oindex[3, [9, 0]], values[3, [9, 0]])
        assert same(again.blocks[1, 0:2], values[4:])
        assert fates().keys() == {f"chunks.{name.partition(':')[0]}"}


@pytest.mark.parametrize("engine", ENGINES)
def test_other_codecs_go_through_zarr(engine: str) -> None:
    """An array that has no program is read by zarr, its result on the device asked for, its reason counted."""
    values = smooth((6, 10), "i4")
    with device(engine) as name:
        z = make(values, (4, 8), serializer=Mine(endian="little"))
        zarrgpu.reset_counters()
        got = zarrgpu.read(z, device=name)
        assert same(got, values)
        assert hasattr(got, "__cuda_array_interface__") == (name != "host")
        assert same(zarrgpu.read(z, ([5, 0], [1, 2]), device=name), values[[5, 0], [1, 2]])
        assert fates() == {"fallback.bind:codec bytes": 2, "chunks.zarr": 6}
        with zarrgpu.enable(device=name, strict=True), pytest.raises(zarrgpu.UnsupportedError, match="codec bytes"):
            zarrgpu.read(z, device=name)
        pairs = make(np.zeros(3, [("a", "<i4")]), (2,), 2)
        with zarrgpu.enable(device=name):
            assert (np.asarray(zarr.open_array(pairs.store, mode="r")[...]) == np.zeros(3, [("a", "<i4")])).all()
        with zarrgpu.enable(device=name, strict=True), pytest.raises(zarrgpu.UnsupportedError, match="dtype"):
            zarr.open_array(pairs.store, mode="r")[...]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_containers_are_not_taken_for_one(engine: str) -> None:
    """Of several codecs with streams inside, kernels decode the last at most, and libraries what comes before it."""
    values = smooth((40,), "i4")
    inner, outer = (zarr.codecs.BloscCodec(typesize=k, cname="lz4") for k in (4, 1))
    for codecs in ([inner, outer], [inner, zarr.codecs.GzipCodec()], [zarr.codecs.ZstdCodec(), outer]):
        z = make(values, (16,), compressors=codecs)
        with device(engine) as name:
            zarrgpu.reset_counters()
            assert same(zarrgpu.read(z, device=name), values)
            assert fates().keys() == {f"chunks.{name.partition(':')[0]}"}


def test_a_codec_of_the_same_name_is_not_taken_for_ours() -> None:
    """Codecs that a user puts in the place of zarr's are zarr's to run."""
    z = make(smooth((9,), "i4"), (4,), 3, None, serializer=Mine(endian="little"))
    zarrgpu.reset_counters()
    assert same(zarrgpu.read(z, device="host"), smooth((9,), "i4"))
    assert zarrgpu.counters()["fallback.bind:codec bytes"] == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_writes_go_through_zarr(engine: str, zarr_format: Any) -> None:
    """Host and device arrays are written as plain zarr writes them, partial chunks included."""
    values = smooth((6, 10), "i4")
    with device(engine) as name, zarrgpu.enable(device=name):
        z = make(values, (4, 8), zarr_format)
        z[1:3, 4:9] = 5
        z[5] = zarrgpu.engine.resolve(name).from_host(np.arange(10, dtype="i4"))
        got = to_host(z[...])
    values[1:3, 4:9] = 5
    values[5] = np.arange(10)
    assert same(got, values)
    assert same(zarr.open_array(z.store, mode="r")[...], values)


def test_missing_chunks_are_reported_to_zarr() -> None:
    """`read_missing_chunks=False` raises for a missing chunk as it does without us."""
    z = make(smooth((8,), "i4"), (4,), fill_value=9)
    with zarrgpu.enable(device="host", strict=True):
        again = zarr.open_array(z.store, mode="r", config={"read_missing_chunks": False})
        assert np.shape(again[...]) == (8,)
        asyncio.run(z.store.delete("c/1"))
        for read in (lambda: again[...], lambda: zarrgpu.read(again, device="host")):
            with pytest.raises(ChunkNotFoundError, match=r"1 chunk\(s\) not found(.|\n)*c/1"):
                read()
        assert same(zarrgpu.read(again, np.s_[:4], device="host"), smooth((8,), "i4")[:4])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compressor", [zarr.codecs.BloscCodec(cname="lz4", typesize=4), zarr.codecs.ZstdCodec()])
def test_several_waves(engine: str, compressor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More waves than lanes, the last one short, by kernels and by libraries; the memory limit makes them smaller."""
    from zarrgpu import sizing

    values = smooth((64, 50), "f4")
    for name in ("WAVE_BYTES", "LIBRARY_WAVE_BYTES", "HOST_WAVE_BYTES"):
        monkeypatch.setattr(sizing, name, 2 * 3 * 50 * 4)
    monkeypatch.setattr(sizing, "CORES_BYTES", 0)
    monkeypatch.setattr(sizing, "LARGE", 0)  # files are read by the threads that decode them
    stores: list[Any] = [{}, tmp_path / "a"]
    for store in stores:
        z = make(values, (3, 50), compressors=compressor, store=store)
        with device(engine) as where:
            assert same(zarrgpu.read(z, device=where), values)
            assert same(zarrgpu.read(z, np.s_[::2, 3:], device=where), values[::2, 3:])
            with zarrgpu.enable(device=where, memory_limit=1):
                assert same(zarr.open_array(z.store, mode="r")[...], values)


@settings(max_examples=60)
@given(data=st.data())
def test_parity_with_zarr(data: st.DataObject) -> None:
    """Any shape, chunks, layout and basic selection: what plain zarr gives."""
    shape = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3), label="shape"))
    chunks = tuple(data.draw(st.integers(1, n + 3), label="chunk") for n in shape)
    dtype = data.draw(st.sampled_from(["<f4", ">i2", "u1"]), label="dtype")
    shuffle = data.draw(st.sampled_from([None, 0, 1, 2]), label="shuffle")
    values = smooth(shape, dtype)
    z = make(values, chunks, 2, shuffle, order=data.draw(st.sampled_from("CF"), label="order"))
    selection = tuple(
        data.draw(
            st.one_of(
                st.integers(-n, n - 1),
                st.builds(
                    slice,
                    st.none() | st.integers(-n - 2, n + 2),
                    st.none() | st.integers(-n - 2, n + 2),
                    st.integers(1, n + 1),
                ),
            ),
            label="axis",
        )
        for n in shape
    )
    want = np.asarray(z[selection])
    with device(data.draw(st.sampled_from(ENGINES[:2]), label="engine")) as name:
        assert same(zarrgpu.read(z, selection, device=name), want)
        with zarrgpu.enable(device=name, strict=True):
            assert same(zarr.open_array(z.store, mode="r")[selection], want)


@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
@pytest.mark.parametrize("dtype", [">m8", ">M8", ">m8[s]", "<M8[D]"])
def test_byte_order_of_times(dtype: str) -> None:
    """Fill values and values of times in both byte orders, without a unit too, which NumPy's `astype` does not swap."""
    values = np.array([5, 6, 7, 8, 9], "i8").astype(dtype.replace(">", "<"))
    z = make(values.byteswap().view(dtype) if dtype[0] == ">" else values, (2,), 2, fill_value=values.dtype.type("NaT"))
    asyncio.run(z.store.delete("1"))
    want = np.asarray(z[...]).view("i8" if dtype[0] == "<" else ">i8").tolist()
    assert want[:2] == [5, 6]
    for engine in ENGINES[:2]:
        with device(engine) as name, zarrgpu.enable(device=name, strict=True):
            assert zarrgpu.read(z, device=name).view("i8").tolist() == want
            again = np.asarray(zarr.open_array(z.store, mode="r")[...])
            assert again.view(np.dtype("i8").newbyteorder(again.dtype.byteorder)).tolist() == want


def test_buffers_of_other_classes_are_left_alone() -> None:
    """A prototype of the caller's own, for the host, is what the store and the result see."""

    class Bytes(cpu.Buffer):
        pass

    class Numbers(cpu.NDBuffer):
        pass

    class Asking(MemoryStore):
        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            if "json" not in key:
                assert prototype.buffer is Bytes
            return await super().get(key, prototype, byte_range)

    values = smooth((6, 5), "i4")
    with zarrgpu.enable(device="host"):
        for compressor in (zarr.codecs.BloscCodec(typesize=4, cname="lz4"), zarr.codecs.ZstdCodec()):
            z = make(values, (4, 4), store=Asking(), compressors=compressor)
            got = z.get_basic_selection(np.s_[1:], prototype=BufferPrototype(Bytes, Numbers))
            assert same(got, values[1:])
