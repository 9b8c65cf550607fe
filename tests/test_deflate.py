"""Arrays of zlib and gzip: kernels where there are many chunks, in waves of enough of them, the library elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.buffer import cpu

import zarrgpu
from tests.engines import ENGINES, device, fates, make, same, smooth
from tests.test_bad_input import tamper
from zarrgpu.codecs.preference import AT_ONCE, AT_ONCE_BYTES, FEWEST_STREAMS, streams_at_once
from zarrgpu.kernels import deflate

VALUES = smooth((40, 25), "<i4")
CHUNKS = (10, 25)
KERNELS = ENGINES[1:]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[deflate.Job]:
    """What kernels have been given to decode."""
    given: list[deflate.Job] = []
    decode = deflate.decode

    def watched(launch: Any, job: deflate.Job, *args: Any) -> None:
        given.append(job)
        decode(launch, job, *args)

    monkeypatch.setattr(deflate, "decode", watched)
    return given


@pytest.mark.parametrize("engine", KERNELS)
@pytest.mark.parametrize("codec", [numcodecs.Zlib(6), numcodecs.GZip(6), numcodecs.Blosc("zlib", 5, 0)])
def test_kernels_decode_many_streams_and_libraries_few(
    engine: str, codec: Any, jobs: list[deflate.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how many a wave has, and with the same values."""
    name = codec.codec_id if codec.codec_id != "blosc" else "blosc zlib"
    streams = 4 if name != "blosc zlib" else 16  # a block for each byte of the elements
    z = make(VALUES, CHUNKS, 2, compressors=codec)
    with device(engine) as where:
        for fewest, used in ((streams + 1, []), (streams, [streams])):
            monkeypatch.setitem(FEWEST_STREAMS, name, fewest)
            jobs.clear()
            zarrgpu.reset_counters()
            assert same(zarrgpu.read(z, device=where), VALUES)
            assert [job.streams for job in jobs] == used
            assert fates() == {f"chunks.{where.partition(':')[0]}": 4}


@pytest.mark.parametrize("engine", KERNELS)
def test_one_launch_decodes_and_the_shuffle_of_hdf5_is_undone_in_assemble(
    engine: str, jobs: list[deflate.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffle, then zlib, as HDF5 has it: no pass of its own."""
    monkeypatch.setitem(FEWEST_STREAMS, "zlib", 0)
    z = make(VALUES, CHUNKS, 2, filters=[numcodecs.Shuffle(4)], compressors=numcodecs.Zlib(6))
    with device(engine) as where:
        assert same(zarrgpu.read(z, device=where), VALUES)
        assert [(job.framing, job.streams, job.want) for job in jobs] == [(deflate.ZLIB, 4, 1000)]
        lines = zarrgpu.explain(z, where).stages
    assert any("zlib: on the device" in line for line in lines)
    assert any("shuffle: on the device, unshuffled in assemble" in line for line in lines)


@pytest.mark.parametrize("engine", KERNELS)
def test_zlib_before_shuffle(engine: str, jobs: list[deflate.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round what is shuffled is a stream, whose size nothing says: libraries undo both."""
    monkeypatch.setitem(FEWEST_STREAMS, "zlib", 0)
    z = make(VALUES, CHUNKS, 2, filters=[numcodecs.Zlib(0)], compressors=numcodecs.Shuffle(3))  # 1011 bytes each
    with device(engine) as where:
        zarrgpu.reset_counters()
        assert same(zarrgpu.read(z, device=where), VALUES)
        assert not jobs
        assert fates() == {f"chunks.{where.partition(':')[0]}": 4}


@pytest.mark.parametrize("engine", KERNELS)
@pytest.mark.parametrize(("members", "fallback"), [(3, 0), (deflate.MEMBERS, 0), (deflate.MEMBERS + 1, 1)])
def test_chunks_of_several_members(engine: str, members: int, fallback: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded by kernels up to a number of them, and by the CPU beyond, which is counted but is no mismatch."""
    monkeypatch.setitem(FEWEST_STREAMS, "gzip", 0)
    z = make(VALUES, CHUNKS, 2, compressors=numcodecs.GZip(6))
    codec, data = numcodecs.GZip(6), VALUES[20:30].tobytes()
    step = -(-len(data) // members)
    parts = [bytes(codec.encode(data[k * step : (k + 1) * step])) + bytes(k) for k in range(members)]
    tamper(z, "2.0", lambda _: b"".join(parts))
    with device(engine) as where:
        zarrgpu.reset_counters()
        assert same(zarrgpu.read(z, device=where), VALUES)
        counters = zarrgpu.counters()
        assert counters.get("fallback.check:unsupported", 0) == fallback
        assert "mismatch" not in counters


@pytest.mark.parametrize("engine", KERNELS)
def test_a_wrong_checksum_is_named(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all bytes are as they were."""
    for codec in (numcodecs.Zlib(6), numcodecs.GZip(6)):
        monkeypatch.setitem(FEWEST_STREAMS, codec.codec_id, 0)
        z = make(VALUES, CHUNKS, 2, compressors=codec)
        at = -1 if codec.codec_id == "zlib" else -5
        tamper(z, "1.0", lambda chunk, at=at: chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[len(chunk) + at + 1 :])
        with device(engine) as where, pytest.raises(zarrgpu.ChunkError, match=r"1\.0.*bad checksum"):
            zarrgpu.read(z, device=where)


def test_waves_have_streams_for_a_gpu() -> None:
    """As many as it takes, but for large chunks, of which as many as fit."""
    assert streams_at_once(1) == streams_at_once(1 << 20) == AT_ONCE
    assert streams_at_once(4 << 20) == AT_ONCE_BYTES // (4 << 20) >= FEWEST_STREAMS["zlib"]
    assert streams_at_once(1 << 30) == 0


def test_a_missing_and_an_empty_chunk() -> None:
    """The one is the fill value, the other is refused, or, of gzip, is no member and so too short."""
    with device("twins") as where, pytest.MonkeyPatch.context() as patch:
        for codec in (numcodecs.Zlib(6), numcodecs.GZip(6)):
            patch.setitem(FEWEST_STREAMS, codec.codec_id, 0)
            z = make(VALUES, CHUNKS, 2, compressors=codec)
            asyncio.run(z.store.delete("1.0"))
            want: Any = z[...]
            assert same(zarrgpu.read(z, device=where), want)
            asyncio.run(_empty(z))
            with pytest.raises(zarrgpu.ChunkError, match=r"1\.0"):
                zarrgpu.read(z, device=where)


async def _empty(z: zarr.Array[Any]) -> None:
    await z.store.set("1.0", cpu.Buffer.from_bytes(b""))


def test_values_are_checked_by_this_test() -> None:
    """The arrays above compress, so that their chunks are more than stored blocks."""
    assert len(numcodecs.Zlib(6).encode(VALUES[:10])) < 0.8 * VALUES[:10].nbytes
    assert np.unique(VALUES).size > 5
