"""Shards: inner chunks of many in one wave, read as byte ranges, whatever the index and the codecs around it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import WrapperStore

import zarrgpu
from tests.engines import ENGINES, device, same, smooth
from zarrgpu import shards, sizing
from zarrgpu.files import files

SHAPE, SHARD, CHUNK = (19, 31), (12, 12), (6, 4)
BLOSC: list[Any] = [BytesCodec(), BloscCodec(cname="lz4")]
CHECKED: list[Any] = [BytesCodec(), Crc32cCodec()]
OUTSIDE = {"filters": [TransposeCodec(order=(1, 0))]}
CODED = {"compressors": [GzipCodec(level=1), Crc32cCodec()]}


def nested(at: str = "end", around: Any = ()) -> list[Any]:
    """Inner codecs that are shards again, of chunks of (3, 2)."""
    return [ShardingCodec(chunk_shape=(3, 2), codecs=BLOSC, index_codecs=CHECKED, index_location=at), *around]  # type: ignore[arg-type]  # a literal


KINDS: dict[str, tuple[list[Any], list[Any], str, dict[str, Any]]] = {
    "blosc": (BLOSC, CHECKED, "end", {}),
    "index at the start": (BLOSC, CHECKED, "start", {}),
    "index without a checksum, big-endian": (BLOSC, [BytesCodec(endian="big")], "end", {}),
    "index by zarr's own codecs": (BLOSC, [TransposeCodec(order=(1, 0, 2)), *CHECKED], "start", {}),
    "zstd, big-endian": ([BytesCodec(endian="big"), ZstdCodec()], CHECKED, "end", {}),
    "uncompressed": ([BytesCodec()], CHECKED, "end", {}),
    "transposed inside": ([TransposeCodec(order=(1, 0)), *BLOSC], CHECKED, "end", {}),
    "transposed outside": (BLOSC, CHECKED, "end", OUTSIDE),
    "transposed outside and inside": ([TransposeCodec(order=(1, 0)), *BLOSC], CHECKED, "start", OUTSIDE),
    "encoded as a whole": (BLOSC, CHECKED, "end", CODED),
    "nested": (nested(), CHECKED, "end", {}),
    "nested, indexes at the start": (nested("start"), CHECKED, "start", {}),
    "nested, transposed and encoded": (nested("start", [GzipCodec(level=1)]), CHECKED, "end", OUTSIDE | CODED),
}

SELECTIONS: list[Any] = [
    np.s_[...],
    np.s_[3:9, 5:20:2],
    np.s_[4],
    np.s_[18, 30],
    np.s_[12:, 13],
    (np.array([17, 2, 2, 9]), slice(1, 30)),
    (np.array([17, 2, 2, 9]), np.array([30, 0, 30, 11])),
]


def written(kind: str, values: npt.NDArray[Any], store: Any) -> zarr.Array[Any]:
    """An array with missing shards, missing chunks in a shard, and missing chunks in shards in shards."""
    codecs, index_codecs, at, around = KINDS[kind]
    sharding = ShardingCodec(chunk_shape=CHUNK, codecs=codecs, index_codecs=index_codecs, index_location=at)  # type: ignore[arg-type]  # a literal
    options: Any = {"shape": SHAPE, "chunks": SHARD, "dtype": values.dtype, "fill_value": 7, "serializer": sharding}
    z = zarr.create_array(store, **options, **around)
    z[:, :26] = values[:, :26]
    z[12:, :12] = 7
    z[6:12, 4:8] = 7
    z[:2, 12:15] = 7
    return z


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {} if request.param == "memory" else tmp_path / "a.zarr"


COMBINED = pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")


@COMBINED
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_shards_have_programs(kind: str, engine: str, store: Any) -> None:
    """Both front doors give plain zarr's values, and nothing goes through zarr's own pipeline."""
    z = written(kind, smooth(SHAPE, "<f4"), store)
    wanted = [np.asarray(z[selection]) for selection in SELECTIONS]
    with device(engine) as name, zarrgpu.enable(device=name, strict=True):
        for selection, want in zip(SELECTIONS, wanted, strict=True):
            assert same(zarr.open_array(z.store, mode="r")[selection], want)
            assert same(zarrgpu.read(z, selection, device=name), want)


class Counting(WrapperStore[Any]):
    """A store that remembers what it was asked for."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.asked: list[Any] = []

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if "c/" in key:
            self.asked.append(byte_range)
        return await super().get(key, prototype, byte_range)

    def get_ranges(self, *args: Any, **kwargs: Any) -> Any:
        return Store.get_ranges(self, *args, **kwargs)  # by `get`


def sharded(
    store: Any, n: int = 16, codecs: Any = BLOSC, around: Any = None
) -> tuple[zarr.Array[Any], npt.NDArray[Any]]:
    """Two shards of `n` chunks of 100 elements."""
    values = smooth((2 * n * 100,), "<i4")
    z = zarr.create_array(
        store,
        shape=values.shape,
        chunks=(n * 100,),
        dtype="<i4",
        serializer=ShardingCodec(chunk_shape=(100,), codecs=codecs),
        compressors=None,
    )
    z[:] = values
    return z, values


def test_a_shard_of_which_much_is_wanted_is_read_whole() -> None:
    """One request for all of it; for a little, one for the index and one for neighbours that lie close together."""
    store = Counting(zarr.storage.MemoryStore())
    z, values = sharded(store)
    for selection, requests in ((np.s_[:], 2), (np.s_[:1600], 1), (np.s_[:900], 1), (np.s_[100:310], 2)):
        store.asked.clear()
        assert same(zarrgpu.read(z, selection, device="host"), values[selection])
        assert len(store.asked) == requests, store.asked
    assert store.asked[0].suffix == 16 * 16 + 4


def test_indexes_are_read_once_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many waves a shard takes; and again in the next request, for it may have been written."""
    monkeypatch.setattr(sizing, "HOST_WAVE_BYTES", 400 * 3)
    monkeypatch.setattr(sizing, "cores", lambda: 1)
    monkeypatch.setattr(sizing, "CORES_BYTES", 1)
    store = Counting(zarr.storage.MemoryStore())
    z, values = sharded(store)
    for _ in range(2):
        store.asked.clear()
        assert same(zarrgpu.read(z, np.s_[:1600:2], device="host"), values[:1600:2])
        indexes = [asked for asked in store.asked if hasattr(asked, "suffix")]
        assert 1 <= len(indexes) <= 3  # waves that start together may ask for it together
        assert len(store.asked) > 5


@pytest.mark.parametrize("engine", ENGINES)
def test_shards_beyond_four_gigabytes(engine: str, tmp_path: Path) -> None:
    """Offsets, sizes and counts are 64 bits wide: a shard of 8 GiB, decoded, in a file of 6 GB with a hole."""
    side, chunk = 2**17, 2**16
    z = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(side, side // 2),
        chunks=(side, side // 2),
        dtype="u1",
        serializer=ShardingCodec(chunk_shape=(4, chunk), codecs=BLOSC, index_codecs=[BytesCodec()]),
        compressors=None,
        fill_value=3,
    )
    values = smooth((4, chunk), "u1")
    z[-4:, :] = values
    path = tmp_path / "a.zarr" / "c" / "0" / "0"
    data = path.read_bytes()
    pieces = side // 4
    index = np.frombuffer(data[-16 * pieces :], "<u8").reshape(-1, 2).copy()
    offset, size = (int(x) for x in index[-1])
    hole = 6_000_000_000
    index[-1, 0] = hole
    with path.open("wb") as file:  # the same, its only chunk behind a hole
        file.seek(hole)
        file.write(data[offset : offset + size] + index.tobytes())
    with device(engine) as name, zarrgpu.enable(device=name, strict=True):
        want = np.vstack([np.full((2, 90), 3, "u1"), values[:, :90]])
        assert same(zarrgpu.read(z, np.s_[side - 6 :, :90], device=name), want)
        assert same(zarrgpu.read(z, np.s_[-1, -5:], device=name), values[-1, -5:])


def tamper(z: zarr.Array[Any], key: str, change: Any) -> None:
    """Change the bytes of a shard in its store."""

    async def work() -> None:
        old = await z.store.get(key, cpu.buffer_prototype)
        assert old is not None
        await z.store.set(key, cpu.Buffer.from_bytes(change(old.to_bytes())))

    asyncio.run(work())


def index_entry(data: bytes, k: int, offset: int | None = None, size: int | None = None) -> bytes:
    """A shard of 16 chunks, without a checksum, with another entry in its index."""
    index = np.frombuffer(data[-256:], "<u8").reshape(16, 2).copy()
    index[k] = index[k, 0] if offset is None else offset, index[k, 1] if size is None else size
    return data[:-256] + index.tobytes()


FAULTS: dict[str, tuple[bool, Any, str]] = {
    "checksum wrong": (True, lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum"),
    "index changed": (True, lambda b: b[:-100] + bytes([b[-100] ^ 1]) + b[-99:], "checksum"),
    "empty": (True, lambda b: b"", "cut short"),
    "shorter than its index": (True, lambda b: b[-100:], "cut short"),
    "cut": (True, lambda b: b[:-40], "checksum"),
    "cut in the middle": (False, lambda b: b[:100] + b[-256:], "there are"),
    "offset outside": (False, lambda b: index_entry(b, 3, offset=len(b) - 5), "there are"),
    "offset far outside": (False, lambda b: index_entry(b, 3, offset=2**63 + 5), "there are"),
    "nothing, at an offset that is no int64": (False, lambda b: index_entry(b, 3, offset=2**63, size=0), "there are"),
    "offset and size overflow": (False, lambda b: index_entry(b, 3, offset=2**64 - 2, size=100), "there are"),
    "size too large": (False, lambda b: index_entry(b, 3, size=2**62), "there are"),
    "missing by half": (False, lambda b: index_entry(b, 3, offset=2**64 - 1), "there are"),
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_shard_is_named(fault: str, whole: bool, store: Any) -> None:
    """Through both front doors, read whole or by ranges; the other shard reads as before."""
    checked, change, reason = FAULTS[fault]
    values = smooth((3200,), "<i4")
    sharding = ShardingCodec(chunk_shape=(100,), codecs=BLOSC, index_codecs=CHECKED[: 1 + checked])
    z = zarr.create_array(store, shape=(3200,), chunks=(1600,), dtype="<i4", serializer=sharding, compressors=None)
    z[:] = values
    tamper(z, "c/1", change)
    selection = np.s_[1600:] if whole else np.s_[1900:2000]
    with zarrgpu.enable(device="host", strict=True):
        for read in (lambda: zarrgpu.read(z, selection, device="host"), lambda: zarr.open_array(z.store)[selection]):
            with pytest.raises(zarrgpu.ChunkError) as caught:
                read()
            assert (caught.value.codec, caught.value.key) == ("sharding_indexed", "c/1")
            assert reason in caught.value.reason or "cut short" in caught.value.reason, caught.value
        assert same(zarrgpu.read(z, np.s_[:1600], device="host"), values[:1600])


def test_decoded_shards_that_another_wave_drops_are_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves are fetched at once, and keep few decoded shards for each other."""
    paths = [tmp_path / "0", tmp_path / "1"]
    for path, pieces in zip(paths, (b"ab", b"cd"), strict=True):
        path.write_bytes(pieces + np.array([0, 1, 1, 1], "<u8").tobytes())
    level = shards.Level((2,), (0,), 32, True, lambda data: np.frombuffer(data, "<u8").reshape(2, 2), lambda data: data)
    source = shards.Shards(
        files([str(path) for path in paths]),
        [level],
        np.array([0, 0, 1, 1]),
        [np.array([0, 1, 0, 1])],
        lambda i: ("", str(i)),
    )
    arena = np.zeros(1000, np.uint8)
    source.load(0, 1, lambda nbytes, keep=0: arena)
    read = source._bytes

    def drop(*table: Any) -> Any:
        source._decoded.clear()
        return read(*table)

    monkeypatch.setattr(source, "_bytes", drop)
    starts, sizes, _ = source.load(1, 3, lambda nbytes, keep=0: arena)
    assert sizes.tolist() == [1, 1]
    assert arena[starts].tobytes() == b"bc"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_chunk_in_a_shard_is_named(engine: str) -> None:
    """By the shard's key and its place in the index."""
    z, values = sharded({}, codecs=[BytesCodec(), BloscCodec(cname="lz4", shuffle="noshuffle")])
    tamper(z, "c/0", lambda b: b[:8] + b"\0\0\0\0" + b[12:])  # the first chunk's block size
    with device(engine) as name:
        with pytest.raises(zarrgpu.ChunkError) as caught:
            zarrgpu.read(z, device=name)
        assert (caught.value.codec, caught.value.key) == ("blosc", "c/0[0]")
        assert same(zarrgpu.read(z, np.s_[100:], device=name), values[100:])


class Short(WrapperStore[Any]):
    """A store that gives fewer bytes than it was asked for."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        data = await super().get(key, prototype, byte_range)
        return data[: len(data) - 3] if data is not None and getattr(byte_range, "start", None) is not None else data

    def get_ranges(self, *args: Any, **kwargs: Any) -> Any:
        return Store.get_ranges(self, *args, **kwargs)  # by `get`


def test_a_short_read_is_named() -> None:
    """Bytes that a store did not give are not made up."""
    z, _ = sharded(Short(zarr.storage.MemoryStore()))
    with pytest.raises(zarrgpu.ChunkError, match=r"c/0.*sharding_indexed.*cut short"):
        zarrgpu.read(z, np.s_[:90], device="host")


@COMBINED
def test_missing_shards_can_be_forbidden(store: Any) -> None:
    """`read_missing_chunks=False` names shards that are not there; missing chunks in a shard are fill values."""
    z = written("blosc", smooth(SHAPE, "<f4"), store)
    z = zarr.open_array(z.store, mode="r", config={"read_missing_chunks": False})
    with zarrgpu.enable(device="host", strict=True):
        strict = zarr.open_array(z.store, mode="r", config={"read_missing_chunks": False})
        for read in (lambda s: zarrgpu.read(z, s, device="host"), lambda s: strict[s]):
            assert same(read(np.s_[:12, :12]), np.asarray(z[:12, :12]))
            with pytest.raises(zarr.errors.ChunkNotFoundError, match="c/1/0"):
                read(np.s_[:, :12])


@COMBINED
def test_explain_names_shards_and_what_keeps_them_from_a_program() -> None:
    z, _ = sharded({})
    assert "byte ranges of shards" in str(zarrgpu.explain(z, device="host"))
    codec = zarr.codecs.ScaleOffset(scale=2.0, offset=1.0)
    sharding = ShardingCodec(chunk_shape=(10,))
    z = zarr.create_array({}, shape=(20,), chunks=(20,), dtype="f4", filters=[codec], serializer=sharding)
    assert zarrgpu.explain(z, device="host").reason == "codec scale_offset outside shards"


def test_places() -> None:
    """Against indexing by hand: two levels, the outer one transposed."""
    options: Any = {"index_nbytes": 0, "at_end": True, "decode_index": None}
    levels = [shards.Level((2, 3), (1, 0), **options), shards.Level((4, 5), (0, 1), **options)]
    grid = np.array(list(np.ndindex(16, 30)))
    shard, entries = shards.places(levels, grid)
    for (x, y), where, outer, inner in zip(grid.tolist(), shard.tolist(), *(e.tolist() for e in entries), strict=True):
        assert where == [x // 8, y // 15]
        assert outer == (y // 5 % 3) * 2 + x // 4 % 2
        assert inner == (x % 4) * 5 + y % 5
    assert math.prod(levels[0].counts) == 6
