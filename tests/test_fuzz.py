"""Whole chunks, mutated: every way of decoding accepts what numcodecs accepts, with its bytes, and refuses the rest.

``ZARRGPU_FUZZ=N`` makes N mutated chunks of each case rather than the few that are for every day.
"""

from __future__ import annotations

import os
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pytest

from tests.conftest import GPU
from tests.engines import device, smooth, to_host
from tests.kit import mutate
from zarrgpu import libraries
from zarrgpu.chain import Chain, Named, bind
from zarrgpu.codecs.library import as_bytes
from zarrgpu.codecs.preference import FEWEST_STREAMS
from zarrgpu.engine import resolve
from zarrgpu.fetch import Buffers
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status
from zarrgpu.plan import Plan
from zarrgpu.request import Request
from zarrgpu.wave import run

N = 768  # bytes of a decoded chunk: few enough that mutations hit what matters
COUNTS = {"host": 2000, "twins": 2000, "sim": 24, "cuda": 20_000}

Bytes = npt.NDArray[np.uint8]


def blosc(cname: str, shuffle: int, blocksize: int = 256) -> list[Any]:
    return [numcodecs.Blosc(cname, 5, shuffle, blocksize)]


CASES: dict[str, list[Any]] = {  # codecs in encoding order
    "blosc lz4": blosc("lz4", 1),
    "blosc lz4, bits": blosc("lz4", 2),
    "blosc blosclz": blosc("blosclz", 1),
    "blosc zstd": blosc("zstd", 1),
    "blosc zlib": blosc("zlib", 0),
    "lz4": [numcodecs.LZ4()],
    "zstd": [numcodecs.Zstd(3)],
    "zstd with checksums": [numcodecs.Zstd(3, checksum=True)],
    "gzip": [numcodecs.GZip(6)],
    "shuffle and zlib": [numcodecs.Shuffle(4), numcodecs.Zlib(6)],
    "crc32c": [numcodecs.CRC32C()],
    "crc32 in lz4": [numcodecs.CRC32(), numcodecs.LZ4()],
    "fletcher32 of blosc": [numcodecs.Blosc("lz4", 5, 1, 256), numcodecs.Fletcher32()],
    "adler32": [numcodecs.Adler32()],
    "delta in lz4": [numcodecs.Delta("<i4", "<i2"), numcodecs.LZ4()],
    "packbits": [numcodecs.PackBits()],
}


def decoded_by_numcodecs(codecs: list[Any], chunk: bytes, n: int) -> Bytes | None:
    """What a chunk decodes to; None where that is refused, or of another size."""
    data: Any = chunk
    for codec in codecs[::-1]:
        if codec.codec_id == "blosc":  # which takes what memory the header asks for, and reads past the end
            says = [int.from_bytes(bytes(data[k : k + 4]), "little") for k in (4, 12)]
            if len(data) < 16 or says[0] > 1 << 20 or says[1] > len(data):
                return None
        try:
            data = codec.decode(data)
        except Exception:  # whatever it is
            return None
    decoded = as_bytes(data)
    return decoded if decoded.size == n else None


def decoded_by_us(
    engine: str, codecs: list[Any], chunks: list[bytes], dtype: np.dtype[Any], patch: pytest.MonkeyPatch
) -> tuple[Bytes, dict[int, Status]]:
    """What each chunk decodes to, and which are refused and why; nobody has a last word."""
    refused: dict[int, Status] = {}

    def last_word(request: Any, wave: Any, verdicts: dict[int, tuple[Status, str]]) -> None:
        refused.update({wave.first + i: status for i, (status, _) in verdicts.items()})
        which = list(verdicts)
        wave.located.layouts[which, t.L_ARENA] = t.FILL
        wave.final[which] = True

    patch.setattr(libraries, "last_word", last_word)
    for codec in FEWEST_STREAMS:
        patch.setitem(FEWEST_STREAMS, codec, 0)  # kernels, few as the chunks may be
    count, elements = len(chunks), N // dtype.itemsize
    named = tuple(Named(c.codec_id, c.get_config(), library=c) for c in codecs[::-1])
    with device(engine) as name:
        where = resolve(name)
        out = where.empty((count * elements,), dtype)
        run(
            Request(
                program=bind(Chain(dtype, (elements,), "C", named), where.by_library),
                plan=Plan.line(count, elements, dtype.itemsize, N),
                source=Buffers([np.frombuffer(chunk, np.uint8) for chunk in chunks]),
                engine=where,
                chunk_shape=(elements,),
                out=out,
                fill=np.zeros(dtype.itemsize, np.uint8),
                decode_on_cpu=lambda encoded: np.empty(0),
                name=lambda i: ("fuzz", str(i)),
            )
        )
        return to_host(out).view(np.uint8).reshape(count, N), refused


@pytest.mark.parametrize("engine", ["host", "twins", "cuda" if GPU else "sim"])
@pytest.mark.parametrize("name", CASES)
def test_mutated_chunks_have_numcodecs_verdict(engine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in eight is intact."""
    rng, codecs, count = np.random.default_rng(0), CASES[name], int(os.environ.get("ZARRGPU_FUZZ", COUNTS[engine]))
    dtype = np.dtype("?" if name == "packbits" else "<i4")
    originals = []
    for seed in range(64):
        chunk: Any = smooth((N // dtype.itemsize,), "<i2", seed).astype(dtype) // (1 if seed % 2 else 5)
        for codec in codecs:
            chunk = codec.encode(chunk.astype(dtype) if codec is codecs[0] else chunk)
        originals.append(bytes(as_bytes(chunk)))
    chunks = [originals[i % 64] if i % 8 == 0 else mutate(originals[int(rng.integers(64))], rng) for i in range(count)]
    got, refused = decoded_by_us(engine, codecs, chunks, dtype, monkeypatch)
    accepted = 0
    for i, chunk in enumerate(chunks):
        want = decoded_by_numcodecs(codecs, chunk, N)
        if i in refused:
            assert i % 8, f"chunk {i} is intact, but {refused[i].name}"
            # numcodecs reads past the end of a Blosc chunk that is cut, liblz4 takes what its format forbids, and
            # what has no kernel is the library's to judge
            lenient = want is None or refused[i] in (Status.CUT_SHORT, Status.UNSUPPORTED) or "lz4" in name
            assert lenient, f"chunk {i}: {refused[i].name}"
        else:
            assert want is not None, f"chunk {i} is accepted"
            assert got[i].tobytes() == want.tobytes(), f"chunk {i}"
            accepted += i % 8 > 0
    assert len(refused) > count // 8
    assert accepted or count < 1000
