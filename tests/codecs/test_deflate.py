"""Raw Deflate streams: bytes, end and verdict are zlib's; in what libdeflate takes more is pinned here."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.codecs.verdict import LAX, samples, source
from tests.kit import Slots
from zarrgpu.codecs import _deflate
from zarrgpu.codecs.base import Refused
from zarrgpu.kernels.tables import Status


def raw(data: bytes, rng: np.random.Generator) -> bytes:
    """A stream of one or more blocks, of any kind that zlib makes."""
    level, memory, strategy = int(rng.integers(0, 10)), int(rng.integers(1, 10)), int(rng.integers(0, 5))
    stream = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
    half = len(data) // 2
    flush = (zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH)[rng.integers(0, 3)]
    return stream.compress(data[:half]) + stream.flush(flush) + stream.compress(data[half:]) + stream.flush()


def by_zlib(encoded: bytes, size: int) -> tuple[bytes, int] | str:
    """What the stream decodes to in at most `size` bytes, and its length; or what zlib says against it."""
    stream = zlib.decompressobj(-15)
    try:
        decoded = stream.decompress(encoded, size + 1)
    except zlib.error as error:
        return str(error)
    if len(decoded) > size or not stream.eof:
        return "too long or cut short"
    return decoded, len(encoded) - len(stream.unused_data)


def ours(encoded: bytes, size: int) -> tuple[bytes, int] | str:
    """The same by `inflate`, between guard bytes."""
    slots = Slots([size])
    try:
        used, made = _deflate.inflate(source(encoded), slots[0])
    except (zlib.error, Refused) as error:
        return str(error)
    finally:
        slots.check_guards()
    return slots[0][:made].tobytes(), used


def test_streams_and_what_follows_them(inflater: str) -> None:
    """The end of a stream is found whatever follows, and room to spare is left alone."""
    rng = np.random.default_rng(1)
    assert _deflate.library() == inflater
    for i in range(300):
        data = samples(rng) if i else b""
        encoded = raw(data, rng)
        for more in (b"", b"\0", rng.bytes(20), encoded):
            assert ours(encoded + more, len(data)) == ours(encoded + more, len(data) + 400) == (data, len(encoded))


def test_hostile_streams_against_zlib(inflater: str) -> None:
    """Of mutated streams none is refused that zlib takes; what is taken beyond that is of the documented kinds."""
    rng = np.random.default_rng(2)
    taken, count = 0, 6000
    for i in range(count):
        if i % 20 == 0:
            data = samples(rng)
            sound = raw(data, rng)
        bad = bytearray(sound)
        for _ in range(int(rng.integers(1, 4))):
            bad[rng.integers(0, min(len(bad), 40) if rng.integers(0, 2) else len(bad))] ^= 1 << int(rng.integers(0, 8))
        size = 2 * len(data) + 300
        want, got = by_zlib(bytes(bad), size), ours(bytes(bad), size)
        if not isinstance(want, str):
            assert got == want
            taken += 1
        elif not isinstance(got, str):
            assert inflater == "libdeflate"
            assert LAX.search(want), want
    assert count / 10 < taken < count * 9 / 10


def test_truncated_streams_are_refused(inflater: str) -> None:
    """Every proper beginning of a stream is, and a buffer that is too small."""
    rng = np.random.default_rng(3)
    for data in (bytes(300), rng.bytes(100), b"abc" * 100):
        encoded = raw(data, rng)
        for cut in range(len(encoded)):
            assert ours(encoded[:cut], len(data)) == Status.TRUNCATED.name
        for size in (0, 1, len(data) - 1):
            assert ours(encoded, size) == Status.WRONG_SIZE.name


def test_checksums(inflater: str) -> None:
    """Both are zlib's, over bytes of any length and alignment."""
    data = np.random.default_rng(4).integers(0, 256, 1000, np.uint8)
    for size in (0, 1, 7, 64, 999):
        assert _deflate.crc32(data[1 : 1 + size]) == zlib.crc32(data[1 : 1 + size])
        assert _deflate.adler32(data[1 : 1 + size]) == zlib.adler32(data[1 : 1 + size])


def test_without_the_library(tmp_path: object) -> None:
    """A shared object that is missing, or exports nothing of libdeflate, is no library."""
    import _ctypes

    assert _deflate.load(f"{tmp_path}/nothing.so") is None
    assert _deflate.load(_ctypes.__file__) is None


def test_no_memory_for_a_decompressor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The null pointer is not handed on."""
    monkeypatch.setattr(_deflate.LIBRARY, "alloc", lambda: None)
    with pytest.raises(MemoryError):
        _deflate.inflate(source(b"\x03\x00"), np.empty(0, np.uint8))
