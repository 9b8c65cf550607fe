"""Chunks that are in the engine's memory are decoded from there: nothing of theirs crosses PCIe, and all is right."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from numcodecs import Blosc
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.codecs import numcodecs as n3
from zarr.storage import GpuMemoryStore, MemoryStore, StorePath, WrapperStore

import zarrgpu
from tests.engines import ENGINES, device, fates, make, same, smooth, to_host
from tests.kernels.test_blosc import damaged
from tests.kernels.zstd_kit import block, frame
from tests.test_bad_input import FAULTS, KINDS, tamper
from zarrgpu import sizing
from zarrgpu._compat.store import source_of
from zarrgpu.codecs import Blosc as Container
from zarrgpu.engine import resolve
from zarrgpu.kernels.tables import Status
from zarrgpu.resident import PIECE, Resident

VALUES = smooth((40, 25), "<i4")
CHUNKS = (10, 25)
DEVICE = ENGINES[-1]


def crossed() -> dict[str, int]:
    """Bytes of chunks that crossed PCIe since the counters were reset."""
    return {name: n for name, n in zarrgpu.counters().items() if name.startswith("bytes.")}


def held(z: zarr.Array[Any], where: str) -> zarr.Array[Any]:
    """The same array in a `DeviceStore`."""
    array = zarr.open_array(zarrgpu.DeviceStore.load(z, device=where), mode="r")
    zarrgpu.reset_counters()
    return array


def size_of(z: zarr.Array[Any], key: str) -> int:
    """Encoded bytes of a chunk."""
    store: Any = z.store
    return int(store.array(key).size)


def check(z: zarr.Array[Any], want: Any, where: str) -> None:
    """Both front doors, whole and in part, give `want`, by a program of ours."""
    for selection in (np.s_[...], np.s_[3:31:2, 7:]):
        assert same(zarrgpu.read(z, selection, device=where), want[selection])
    with zarrgpu.enable(device=where, strict=True):
        assert same(zarr.open_array(z.store, mode="r")[...], want)
    assert fates().keys() == {f"chunks.{where.partition(':')[0]}"}


CHAINS: dict[str, tuple[int, dict[str, Any]]] = {
    "blosc lz4": (3, {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle", typesize=4)}),
    "blosc lz4, bits": (3, {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)}),
    "blosc lz4, not shuffled": (2, {"compressors": Blosc("lz4", 5, 0)}),
    "blosc lz4, not compressed": (2, {"compressors": Blosc("lz4", 0, 1)}),
    "blosc blosclz": (2, {"compressors": Blosc("blosclz", 5, 1)}),
    "lz4": (2, {"compressors": numcodecs.LZ4()}),
    "uncompressed": (3, {"compressors": None}),
    "uncompressed, big endian": (2, {"compressors": None, "dtype": ">i4"}),
    "crc32c": (3, {"compressors": [zarr.codecs.Crc32cCodec()]}),
    "blosc lz4 and crc32c": (
        3,
        {"compressors": [zarr.codecs.BloscCodec(cname="lz4", typesize=4), zarr.codecs.Crc32cCodec()]},
    ),
    "lz4 and crc32": (2, {"filters": [numcodecs.LZ4()], "compressors": numcodecs.CRC32()}),
    "delta and lz4": (2, {"filters": [numcodecs.Delta("<i4")], "compressors": numcodecs.LZ4()}),
    "zstd": (3, {"compressors": [zarr.codecs.ZstdCodec(checksum=True)]}),
    "blosc zstd": (3, {"compressors": zarr.codecs.BloscCodec(cname="zstd", shuffle="shuffle", typesize=4)}),
    "zstd and crc32c": (3, {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]}),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chain", CHAINS)
def test_nothing_crosses(engine: str, chain: str) -> None:
    """What kernels decode, few chunks or many, one of them missing: zarr's values, and no byte of a chunk moves."""
    zarr_format, options = CHAINS[chain]
    values = VALUES.astype(options.get("dtype", "<i4"))
    values[20:30] = 9  # the fill value: elided
    z = make(values, CHUNKS, zarr_format, fill_value=9, **{k: v for k, v in options.items() if k != "dtype"})
    assert z.nchunks_initialized == 3
    with device(engine) as name:
        check(held(z, name), values, name)
        assert crossed() == {}


BLOSC: list[Any] = [BytesCodec(), zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle", typesize=4)]
INSIDE: dict[str, list[Any]] = {
    "blosc": BLOSC,
    "uncompressed": [BytesCodec(endian="big")],
    "crc32c": [BytesCodec(), zarr.codecs.Crc32cCodec()],
    "nested": [ShardingCodec(chunk_shape=(5, 5), codecs=BLOSC)],
    "zstd": [BytesCodec(), zarr.codecs.ZstdCodec()],
    "gzip": [BytesCodec(), zarr.codecs.GzipCodec()],
    "bz2": [BytesCodec(), n3.BZ2(level=1)],
}


def in_shards(kind: str, at: Any = "end", **options: Any) -> tuple[zarr.Array[Any], npt.NDArray[Any]]:
    """`VALUES` in shards of (10, 25), of which the third is missing, and a chunk of the first; and those values."""
    values = VALUES.copy()
    values[20:30] = values[5:10, 5:10] = 9
    chunks = (10, 5) if kind == "nested" else (5, 5)
    sharding = ShardingCodec(chunk_shape=chunks, codecs=INSIDE[kind], index_location=at)
    options = {"compressors": None, "fill_value": 9, "serializer": sharding} | options
    z = zarr.create_array(MemoryStore(), shape=values.shape, chunks=CHUNKS, dtype="i4", **options)
    z[...] = values
    return z, values


def index_nbytes(entries: int) -> int:
    """Of an index with its checksum."""
    return 16 * entries + 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at", ["end", "start"])
@pytest.mark.parametrize("kind", ["blosc", "uncompressed", "crc32c", "nested"])
def test_of_shards_only_indexes_cross(kind: str, at: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte those that a read needs, once each, be it in one wave or in many; chunks are read where they lie."""
    z, values = in_shards(kind, at)
    with device(engine) as name:
        array = held(z, name)
        for nbytes in (1 << 20, 300):
            for limit in ("WAVE_BYTES", "HOST_WAVE_BYTES"):
                monkeypatch.setattr(sizing, limit, nbytes)
            for selection, shards, inner in ((np.s_[...], 3, 15), (np.s_[12, 3], 1, 1), (np.s_[22:28], 0, 0)):
                zarrgpu.reset_counters()
                assert same(zarrgpu.read(array, selection, device=name), values[selection])
                n = shards * index_nbytes(10)
                if kind == "nested":
                    n = shards * index_nbytes(5) + inner * index_nbytes(2)
                assert crossed() == ({"bytes.downloaded": n} if n and name != "host" else {})
        check(array, values, name)
        assert "bytes.uploaded" not in crossed()


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")
@pytest.mark.parametrize("engine", ENGINES)
def test_of_shards_that_libraries_decode_only_wanted_chunks_are_downloaded(engine: str) -> None:
    """As ranges; a shard that is encoded itself comes whole, and what is in it is uploaded."""
    for around in ((), (zarr.codecs.GzipCodec(level=1),)):
        z, values = in_shards("bz2", compressors=around or None)
        with device(engine) as name:
            array = held(z, name)
            assert same(zarrgpu.read(array, np.s_[12:14, 3], device=name), values[12:14, 3])
            got, whole = crossed(), size_of(array, "c/1/0")
            if name == "host":
                assert got == {}
            elif around:
                assert got["bytes.downloaded"] == whole
            else:
                assert index_nbytes(10) < got["bytes.downloaded"] < index_nbytes(10) + (whole - index_nbytes(10)) / 5
            check(array, values, name)


SHARD_FAULTS: dict[str, tuple[Any, str, str]] = {
    "index": (lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:], "c/1/0", "sharding_indexed"),
    "cut short": (lambda b: b[-50:], "c/1/0", "sharding_indexed"),
    "empty": (lambda b: b"", "c/1/0", "sharding_indexed"),
    "chunk": (lambda b: bytes([b[0], b[1], b[2], b[3], 0, 0, 0, 0]) + b[8:], "c/1/0[0]", "blosc"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", SHARD_FAULTS)
def test_a_damaged_shard_is_named(engine: str, fault: str) -> None:
    """As one that was fetched; the others read as before."""
    change, key, codec = SHARD_FAULTS[fault]
    z, values = in_shards("blosc")
    tamper(z, "c/1/0", change)
    with device(engine) as name:
        array = held(z, name)
        with pytest.raises(zarrgpu.ChunkError) as caught:
            zarrgpu.read(array, device=name)
        assert (caught.value.key, caught.value.codec) == (key, codec)
        assert same(zarrgpu.read(array, np.s_[20:], device=name), values[20:])


@pytest.mark.nogpu("counts the copies of the stand-in for cupy")
def test_copies_are_counted_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are not all: what really is copied between host and device is less than the chunks are."""
    values = np.random.default_rng(0).integers(0, 1 << 32, (64, 64), np.uint32)
    z = make(values, (16, 64), 3, compressors=None)
    with device("sim") as name:
        import cupy

        array, moved = held(z, name), [0, 0, 0, 0]
        memcpy = cupy.cuda.runtime.memcpyAsync

        def counted(target: int, source: int, n: int, kind: int, stream: int) -> None:
            moved[kind] += n
            memcpy(target, source, n, kind, stream)

        monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", counted)
        out = zarrgpu.read(array, device=name)
        assert 0 < moved[1] + moved[2] < values.nbytes / 4
        assert same(out, values)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_chunk_at_all(engine: str) -> None:
    z = zarr.create_array({}, shape=(40, 25), chunks=CHUNKS, dtype="i4", fill_value=5)
    with device(engine) as name:
        check(held(z, name), np.full((40, 25), 5, "i4"), name)
        assert crossed() == {}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chain", ["blosc lz4", "lz4", "blosc lz4 and crc32c", "uncompressed"])
def test_several_waves(engine: str, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are used again and again, by threads that fetch ahead, their arenas growing and shrinking."""
    monkeypatch.setattr(sizing, "WAVE_BYTES", 1000)
    monkeypatch.setattr(sizing, "HOST_WAVE_BYTES", 1000)
    zarr_format, options = CHAINS[chain]
    values = smooth((150, 10), "<i4", seed=3)
    values[40:60] = np.random.default_rng(1).integers(-(2**31), 2**31, (20, 10))  # larger chunks
    values[70:90] = 0
    z = make(values, (10, 10), zarr_format, **options)
    with device(engine) as name:
        array = held(z, name)
        for _ in range(2):
            assert same(zarrgpu.read(array, device=name), values)
        assert crossed() == {}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("chain", ["bz2", "shuffle and bz2"])
def test_what_libraries_decode_is_downloaded(
    engine: str, chain: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk once, whole; what it decodes to goes up."""
    if large:
        monkeypatch.setattr(sizing, "LARGE", 1)  # as chunks that the threads which decode them fetch
    filters, compressor = KINDS[chain]
    with device(engine) as name:
        z = held(make(VALUES, CHUNKS, 2, filters=filters, compressors=compressor), name)
        assert same(zarrgpu.read(z, device=name), VALUES)
        chunks = sum(size_of(z, f"{i}.0") for i in range(4))
        found = crossed()
        assert found.get("bytes.downloaded", 0) == (chunks if name != "host" else 0)
        assert (found.get("bytes.uploaded", 0) >= VALUES.nbytes) == (name != "host")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("checksum", [False, True])
def test_a_chunk_that_has_no_kernel_is_downloaded(engine: str, checksum: bool) -> None:
    """A frame of Zstandard of so many blocks that it is left to libzstd: that chunk travels, the others do not."""
    codec = Blosc("lz4", 3, 1)
    filters, compressor = ([codec], numcodecs.CRC32C()) if checksum else ([], codec)
    z = make(VALUES, CHUNKS, 2, filters=filters, compressors=compressor)
    stream = frame([block(0, b"")] * 2000 + [block(0, VALUES[10:20].tobytes())])
    data = struct.pack("<4B5i", 2, 1, 4 << 5 | 16, 1, 1000, 1000, 24 + len(stream), 20, len(stream)) + stream
    if checksum:
        data = bytes(numcodecs.CRC32C().encode(data))
    tamper(z, "1.0", lambda _: data)
    with device(engine) as name:
        z = held(z, name)
        assert same(zarrgpu.read(z, device=name), VALUES)
        assert crossed().get("bytes.downloaded", 0) == (len(data) if name != "host" else 0)
        assert fates().keys() == {f"chunks.{name.partition(':')[0]}"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_chunk_is_named(engine: str, fault: str) -> None:
    """As one that was fetched; only it is downloaded, for the CPU's last word."""
    change, reason = FAULTS[fault]
    z = make(VALUES, CHUNKS, 2, 0)
    tamper(z, "2.0", change)
    with device(engine) as name:
        z = held(z, name)
        with pytest.raises(zarrgpu.ChunkError) as caught:
            zarrgpu.read(z, device=name)
        error = caught.value
        assert (error.key, error.codec, error.store) == ("2.0", "blosc", str(z.store))
        refused = engine == "host" and reason in ("bad header", "bad bounds", "bad offset", "overflow")
        assert ("refused" if refused else reason) in error.reason, error
        assert crossed().get("bytes.downloaded", 0) == (size_of(z, "2.0") if name != "host" else 0)
        assert same(zarrgpu.read(z, np.s_[:20], device=name), VALUES[:20])
        assert same(zarrgpu.read(z, np.s_[30:], device=name), VALUES[30:])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_chunk_among_many(engine: str, kind: str) -> None:
    """The error names it; what is written of the others is right, and they read as before."""
    n, side, bad = 12, 64, 4
    filters, compressor = KINDS[kind]
    values = smooth((n, side), "<i4") if kind != "packbits" else smooth((n, side), "<i4") > 0
    values[bad, :2] = False, True
    z = make(values, (1, side), 2, filters=filters, compressors=compressor)

    def damage(chunk: bytes) -> bytes:
        if "blosc" in kind:
            return damaged(chunk, 8, 0)
        if kind in ("lz4", "delta", "shuffle and zlib"):
            return chunk[:-1]
        if kind == "packbits":
            return b"\x09" + chunk[1:]
        middle = len(chunk) // 2
        return chunk[:middle] + bytes([chunk[middle] ^ 0xFF]) + chunk[middle + 1 :]

    tamper(z, f"{bad}.0", damage)
    with device(engine) as name:
        z = held(z, name)
        where = resolve(name)
        out = where.empty(values.shape, values.dtype)
        where.assign(out, where.from_host(~values))
        with pytest.raises(zarrgpu.ChunkError) as caught:
            zarrgpu.read(z, out=out, device=name)
        assert caught.value.key == f"{bad}.0"
        got, others = to_host(out), np.arange(n) != bad
        right = (got == values).all(axis=1)
        assert (right | (got == ~values).all(axis=1))[others].all()
        assert same(zarrgpu.read(z, np.s_[:bad], device=name), values[:bad])
        assert same(zarrgpu.read(z, np.s_[bad + 1 :], device=name), values[bad + 1 :])


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("late", [False, True])
def test_the_cpu_has_the_last_word(engine: str, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that ours refuses when it is located, or when it is decoded; the others stay, though the arena grows."""
    z = make(VALUES, CHUNKS, 2, order="F")
    locate = Container.locate

    def refuse(self: Any, encoded: Any, chunks: Any) -> Any:
        found = locate(self, encoded, chunks)
        mine = found.streams[:, 4] == 1
        if late:
            found.streams[np.flatnonzero(mine)[0], 1] -= 1  # a stream that is cut short by a byte
            return found
        found.status[1] = Status.BAD_HEADER
        work = {kind: lines[~mine[lines]] for kind, lines in found.work.items()}
        return type(found)(found.layouts, found.streams, work, found.status)

    monkeypatch.setattr(Container, "locate", refuse)
    with device(engine) as name:
        z = held(z, name)
        with pytest.warns(zarrgpu.DecoderMismatchWarning, match=r"1\.0"):
            assert same(zarrgpu.read(z, device=name), VALUES)
        assert zarrgpu.counters()["mismatch"] == 1
        if name != "host":
            assert crossed() == {"bytes.downloaded": size_of(z, "1.0"), "bytes.uploaded": 1008}  # 1000, aligned


class Derived(zarrgpu.DeviceStore):
    """A store that may do something else with a key."""


@pytest.mark.parametrize("kind", ["wrapped", "derived", "of the host", "read by the host"])
def test_other_stores_go_through_the_host(kind: str) -> None:
    """They are read as any store is."""
    z = make(VALUES, CHUNKS)
    with device(DEVICE) as name:
        store: Store = (Derived if kind == "derived" else zarrgpu.DeviceStore).load(
            z, device="host" if kind == "of the host" else name
        )
        array = zarr.open_array(WrapperStore(store) if kind == "wrapped" else store, mode="r")
        where = "host" if kind == "read by the host" else name
        zarrgpu.reset_counters()
        assert same(zarrgpu.read(array, device=where), VALUES)
        with zarrgpu.enable(where, strict=True):
            assert same(zarr.open_array(array.store, mode="r")[...], VALUES)
        expected = {"wrapped": 2, "derived": 2, "of the host": 1, "read by the host": 1}[kind]
        assert len(crossed()) == expected
        assert fates().keys() == {f"chunks.{where.partition(':')[0]}"}


@pytest.fixture
def gpu_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The GPU's name, where zarr's own `GpuMemoryStore` works."""
    with device(DEVICE) as name:
        import cupy
        import zarr.core.buffer.gpu as zarrs

        monkeypatch.setattr(zarrs, "cp", cupy)
        yield name


@pytest.mark.parametrize("chain", [*CHAINS, "shards"])
def test_zarrs_own_store_of_device_memory(chain: str, gpu_memory: str) -> None:
    if chain == "shards":
        z, values = in_shards("blosc")
    else:
        zarr_format, options = CHAINS[chain]
        values = VALUES.astype(options.get("dtype", "<i4"))
        values[20:30] = 9
        z = make(values, CHUNKS, zarr_format, fill_value=9, **{k: v for k, v in options.items() if k != "dtype"})
    store, inner = GpuMemoryStore(), z.store
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, about what has to be uploaded
        for key, value in inner._store_dict.items():  # type: ignore[attr-defined]  # zarr's memory store
            store.set_sync(key, value)
    zarrgpu.reset_counters()
    check(zarr.open_array(store, mode="r"), values, gpu_memory)
    indexes = (3 + 2 + 3) * index_nbytes(10)  # of the shards of three reads
    assert crossed() == ({"bytes.downloaded": indexes} if chain == "shards" else {})
    assert same(zarrgpu.read(zarr.open_array(store, mode="r"), device="host"), values)


def test_places_of_one_store_only() -> None:
    """Byte getters of several stores, or that are none of a store, are not taken for chunks of one."""
    with device(DEVICE) as name:
        one, two = (zarrgpu.DeviceStore(name) for _ in range(2))
        engine = resolve(name)
        for getters, here in (
            ([StorePath(one, "a"), StorePath(one, "b")], True),
            ([StorePath(one, "a"), StorePath(two, "b")], False),
            ([object(), StorePath(one, "a")], False),
        ):
            source = source_of(getters, None, None, engine)  # type: ignore[arg-type]  # nothing is fetched
            assert isinstance(source, Resident) is here


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_gather(engine: str) -> None:
    """Arrays of any size that start anywhere, some in pieces, to aligned places, and nothing beside them."""
    rng = np.random.default_rng(5)
    sizes = [0, 1, 3, 16, 17, 100, 1001, 2 * PIECE + 5 if engine != "sim" else 3000]
    data = [rng.integers(0, 256, n, np.uint8) for n in sizes]
    with device(engine) as name:
        where = resolve(name)
        arrays: list[Any] = [where.from_host(np.pad(d, (i, 2)))[i : i + d.size] for i, d in enumerate(data)]
        arrays.insert(3, None)
        source = Resident(arrays, where)
        with where.lanes() as lanes:
            starts, found, used = source.gather(lanes[0], 0, len(arrays))
            arena = lanes[0].download(lanes[0].source(used))
            lanes[0].wait()
        assert found.tolist() == [*sizes[:3], -1, *sizes[3:]]
        assert not (starts % 16).any()
        assert used == sum(-(-n // 16) * 16 for n in sizes)
        for want, start in zip(data, np.delete(starts, 3).tolist(), strict=True):
            assert (arena[start : start + want.size] == want).all()
        assert source.read(3) is None
        assert same(source.read(5), data[4])


@pytest.mark.parametrize("engine", ["host", DEVICE])
def test_explain(engine: str) -> None:
    """Says where chunks are, and that there is no upload."""
    with device(engine) as name:
        lines = zarrgpu.explain(held(make(VALUES, CHUNKS), name), name).stages
        raw = zarrgpu.explain(held(make(VALUES, CHUNKS, compressors=None), name), name).stages
        bz2 = zarrgpu.explain(held(make(VALUES, CHUNKS, 2, compressors=numcodecs.BZ2()), name), name).stages
        where = zarrgpu.engine.normalize(name)
    assert raw[0] == f"fetch: copies on {where} into the arena"
    assert bz2[0] == "fetch: the store's async API into the arena" or name != "host"
    assert not any(line.startswith("upload") for line in (lines if name != "host" else raw))
    assert any(line.startswith("upload") for line in bz2) == (name != "host")


def test_values_are_not_written_to() -> None:
    """Reading leaves a store as it was."""
    with device(DEVICE) as name:
        z = held(make(VALUES, CHUNKS), name)
        store: Any = z.store
        before = {key: store.get_sync(key, prototype=cpu.buffer_prototype).to_bytes() for key in store._values}
        zarrgpu.read(z, device=name)
        after = {key: store.get_sync(key, prototype=cpu.buffer_prototype).to_bytes() for key in store._values}
        assert before == after
