"""Damaged chunks: one exception that names store, key, codec and reason; the rest of the machine is as before."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs import Blosc
from zarr.buffer import cpu

import zarrgpu
from tests.engines import ENGINES, device, fates, make, same, smooth, to_host
from tests.kernels.test_blosc import damaged
from zarrgpu.codecs import Blosc as Container
from zarrgpu.codecs.lz4 import LZ4
from zarrgpu.codecs.preference import FEWEST_STREAMS
from zarrgpu.engine import resolve
from zarrgpu.kernels.tables import S_CHUNK, S_SIZE, Status

VALUES = smooth((40, 25), "<i4")
CHUNKS = (10, 25)  # 1000 bytes each


def tamper(z: zarr.Array[Any], key: str, change: Any) -> None:
    """Change the bytes of a chunk in its store."""

    async def work() -> None:
        old = await z.store.get(key, cpu.buffer_prototype)
        assert old is not None
        await z.store.set(key, cpu.Buffer.from_bytes(change(old.to_bytes())))

    asyncio.run(work())


FAULTS = {
    "cut": (lambda b: b[:-1], "cut short"),
    "header cut": (lambda b: b[:15], "cut short at 15 bytes"),
    "empty": (lambda b: b"", "cut short at 0 bytes"),
    "block size zero": (lambda b: damaged(b, 8, 0), "bad header"),
    "block size negative": (lambda b: damaged(b, 8, -5), "bad header"),
    "block start outside": (lambda b: damaged(b, 16, len(b)), "bad bounds"),
    "block start negative": (lambda b: damaged(b, 16, -1), "bad bounds"),
    "split size past the end": (lambda b: damaged(b, 20, len(b)), "bad bounds"),
    "decoded size": (lambda b: damaged(damaged(b, 4, 996), 8, 996), "wrong size"),
    "offset before the start": (lambda b: b[:24] + b"\x10A\xff\xff" + b[28:], "bad offset"),
    "output too long": (lambda b: b[:24] + b"\x1fA\x01\x00" + b"\xff" * 20 + b[48:], "overflow"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_chunk_is_named(engine: str, fault: str, tmp_path: Path) -> None:
    """Through both front doors; afterwards the neighbours read as before."""
    change, reason = FAULTS[fault]
    z = make(VALUES, CHUNKS, 2, 0, store=tmp_path / "a.zarr")
    tamper(z, "2.0", change)
    with device(engine) as name:
        for read in (lambda: zarrgpu.read(z, device=name), lambda: zarr.open_array(z.store, mode="r")[...]):
            with zarrgpu.enable(device=name), pytest.raises(zarrgpu.ChunkError) as caught:
                read()
            error = caught.value
            assert (error.key.rpartition("/")[2], error.codec) == ("2.0", "blosc")
            assert str(tmp_path) in error.store
            # the library does not say what is wrong
            refused = engine == "host" and reason in ("bad header", "bad bounds", "bad offset", "overflow")
            assert ("refused" if refused else reason) in error.reason, error
            for part in (error.store, error.key, error.codec, error.reason):
                assert part in str(error)
        assert same(zarrgpu.read(z, np.s_[:20], device=name), VALUES[:20])
        assert same(zarrgpu.read(z, np.s_[30:], device=name), VALUES[30:])


def test_uncompressed_chunks_of_the_wrong_size() -> None:
    """A chunk without compression that is too short or too long."""
    for change in (lambda b: b[:-4], lambda b: b + b"0000", lambda b: b""):
        z = make(VALUES, CHUNKS, 3, None)
        tamper(z, "c/1/0", change)
        with pytest.raises(zarrgpu.ChunkError, match=r"c/1/0.*bytes: wrong size"):
            zarrgpu.read(z, device="host")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("promised", "stored"), [("lz4", "zstd"), ("lz4", "blosclz"), ("zlib", "lz4"), ("lz4", "zlib")]
)
def test_the_header_wins_over_the_metadata(engine: str, promised: str, stored: str) -> None:
    """A chunk with another inner codec than the array's is right, whatever has a kernel, and no fallback."""
    z, other = (make(VALUES, CHUNKS, 2, compressors=Blosc(c, 3, 1)) for c in (promised, stored))
    asyncio.run(_copy(other, z, "1.0"))
    with device(engine) as name:
        zarrgpu.reset_counters()
        assert same(zarrgpu.read(z, device=name), VALUES)
        assert fates() == {f"chunks.{name.partition(':')[0]}": 4}


async def _copy(source: zarr.Array[Any], target: zarr.Array[Any], key: str) -> None:
    data = await source.store.get(key, cpu.buffer_prototype)
    assert data is not None
    await target.store.set(key, data)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_the_cpu_has_the_last_word(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a decoder of ours refuses what the CPU decodes, the values are the CPU's, with a warning and a count."""
    z = make(VALUES, CHUNKS, 2, order="F")
    locate = Container.locate

    def refuse(self: Any, arena: Any, chunks: Any) -> Any:
        found = locate(self, arena, chunks)
        found.status[1] = Status.BAD_HEADER
        keep = found.streams[:, 4] != 1
        work = {kind: lines[keep[lines]] for kind, lines in found.work.items()}
        first = next(iter(work.values()))[0]
        found.streams[first, 1] -= 1  # and a stream that is cut short by a byte
        return type(found)(found.layouts, found.streams, work, found.status)

    monkeypatch.setattr(Container, "locate", refuse)
    with device(engine) as name:
        zarrgpu.reset_counters()
        with pytest.warns(zarrgpu.DecoderMismatchWarning, match="please|decodes it"):
            assert same(zarrgpu.read(z, device=name), VALUES)
        assert zarrgpu.counters()["mismatch"] == 2


def test_a_store_s_error_is_not_swallowed(tmp_path: Path) -> None:
    """An I/O error on one chunk surfaces, and nothing is left running."""
    z = make(VALUES, CHUNKS, store=tmp_path / "a.zarr")
    (tmp_path / "a.zarr/c/1/0").unlink()
    (tmp_path / "a.zarr/c/1/0").symlink_to(tmp_path / "a.zarr/c/1/0")  # a loop
    with pytest.raises(OSError, match="symbolic links"):
        zarrgpu.read(tmp_path / "a.zarr", device="host")
    assert same(zarrgpu.read(tmp_path / "a.zarr", np.s_[20:], device="host"), VALUES[20:])
    assert z.shape == VALUES.shape


def test_errors_survive_pickling() -> None:
    """Workers of other processes can raise them."""
    error = pickle.loads(pickle.dumps(zarrgpu.ChunkError("store", "c/0", "blosc", "bad header")))
    assert (error.store, error.key, error.codec, error.reason) == ("store", "c/0", "blosc", "bad header")


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_stream_too_long_for_its_decoder_is_the_data_s_fault(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LZ4 frames may say more than 2 GiB; the kernel's word for that is not taken for a fault of ours."""
    monkeypatch.setitem(FEWEST_STREAMS, "lz4", 0)
    z = make(VALUES, CHUNKS, 2, compressors=numcodecs.LZ4())
    locate = LZ4.locate

    def enlarge(self: Any, arena: Any, chunks: Any) -> Any:
        found = locate(self, arena, chunks)
        found.streams[found.streams[:, S_CHUNK] == 2, S_SIZE] = 3 << 30
        return found

    monkeypatch.setattr(LZ4, "locate", enlarge)
    with device(engine) as name, pytest.warns(zarrgpu.DecoderMismatchWarning, match="2.0.*lz4.*bad table"):
        assert same(zarrgpu.read(z, device=name), VALUES)


KINDS: dict[str, Any] = {  # of Zarr 2: filters and compressor
    "blosc lz4": ([], Blosc("lz4", 5, 1)),
    "blosc blosclz": ([], Blosc("blosclz", 5, 2)),
    "blosc zstd": ([], Blosc("zstd", 5, 1)),
    "blosc zlib": ([], Blosc("zlib", 5, 1)),
    "lz4": ([], numcodecs.LZ4()),
    "zstd": ([], numcodecs.Zstd(3, checksum=True)),
    "gzip": ([], numcodecs.GZip(1)),
    "bz2": ([], numcodecs.BZ2(1)),
    "shuffle and bz2": ([numcodecs.Shuffle(4)], numcodecs.BZ2(1)),
    "shuffle and zlib": ([numcodecs.Shuffle(4)], numcodecs.Zlib(1)),
    "crc32": ([numcodecs.CRC32()], None),
    "crc32c": ([numcodecs.CRC32C()], numcodecs.LZ4()),
    "adler32": ([numcodecs.Adler32()], None),
    "fletcher32": ([numcodecs.Blosc("lz4")], numcodecs.Fletcher32()),
    "delta": ([numcodecs.Delta("<i4")], numcodecs.LZ4()),
    "packbits": ([numcodecs.PackBits()], None),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_chunk_among_a_thousand(engine: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it; what is written of the others is right, and the machine goes on reading."""
    for codec in FEWEST_STREAMS:
        monkeypatch.setitem(FEWEST_STREAMS, codec, 0)  # kernels, few as the chunks of a simulator are
    n, side = (1000, 64) if engine != "sim" else (12, 64)
    filters, compressor = KINDS[kind]
    values = smooth((n, side), "<i4") if kind != "packbits" else smooth((n, side), "<i4") > 0
    bad = n // 3
    values[bad, :2] = False, True  # not all of it the fill value
    z = make(values, (1, side), 2, filters=filters, compressors=compressor)

    def damage(chunk: bytes) -> bytes:  # what every chunk of the kind has: a header, an end, a checksum
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
