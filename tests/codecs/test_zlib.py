"""zlib chunks: every header, trailer and stream gets numcodecs' verdict and bytes."""

from __future__ import annotations

import zlib
from pathlib import Path

import numcodecs
import numpy as np
import pytest

from tests.codecs.verdict import LAX, agrees, bind, check, fixtures, fuzz, refuses, samples
from zarrgpu.codecs.zlib import Zlib
from zarrgpu.kernels.tables import Status

ZLIB, CODEC = bind(Zlib), numcodecs.Zlib()
DATA = np.cumsum(np.random.default_rng(0).integers(-3, 4, 25)).astype("<i4").tobytes()
CHUNK = zlib.compress(DATA, 6)

pytestmark = pytest.mark.usefixtures("inflater")


def make(rng: np.random.Generator) -> bytes:
    """A chunk by zlib, its settings drawn at random."""
    level, window, memory, strategy = (int(rng.integers(a, b)) for a, b in ((0, 10), (9, 16), (1, 10), (0, 5)))
    stream = zlib.compressobj(level, zlib.DEFLATED, window, memory, strategy)
    return stream.compress(samples(rng)) + stream.flush()


def with_header(method: int, flags: int) -> bytes:
    """The chunk under another header whose check bits are right."""
    flags &= 0xE0
    return bytes([method, flags | -(method << 8 | flags) % 31]) + CHUNK[2:]


def bits(*codes: str) -> bytes:
    """Bytes of bits, the first one lowest: Huffman codes as written, numbers from their lowest bit on."""
    text = "".join(codes)
    return int(text[::-1], 2).to_bytes((len(text) + 7) // 8, "little")


def test_streams_of_every_setting(inflater: str) -> None:
    """All levels, windows, memory levels and strategies."""
    assert ZLIB.on_host() == inflater
    rng = np.random.default_rng(1)
    for _ in range(200):
        check(ZLIB, CODEC, make(rng))
    check(ZLIB, CODEC, zlib.compress(b""))
    check(ZLIB, CODEC, zlib.compress(rng.bytes(200_000)))
    check(ZLIB, CODEC, zlib.compress(bytes(3_000_000)))


def test_headers() -> None:
    """Windows up to 32 KiB are all the same; another method, a larger window and a wrong check are refused."""
    for window in range(8):
        for level in range(4):
            check(ZLIB, CODEC, with_header(window << 4 | 8, level << 6))
    for method in (0x79, 0x70, 0x7F, 0x88, 0xF8):
        refuses(ZLIB, CODEC, with_header(method, 0), Status.BAD_HEADER)
    for flags in range(256):
        assert agrees(ZLIB, CODEC, b"\x78" + bytes([flags]) + CHUNK[2:], len(DATA)) == (
            flags in {0x01, 0x5E, 0x9C, 0xDA}
        )


def test_dictionaries_are_refused() -> None:
    """Zarr has nowhere to keep one."""
    stream = zlib.compressobj(zdict=DATA)
    refuses(ZLIB, CODEC, stream.compress(DATA) + stream.flush(), Status.UNSUPPORTED)
    refuses(ZLIB, CODEC, with_header(0x78, 0x20), Status.UNSUPPORTED)


def test_hostile_checksum() -> None:
    """Any other one than the data's is refused."""
    for i in range(1, 5):
        refuses(ZLIB, CODEC, CHUNK[:-i] + bytes([CHUNK[-i] ^ 1]) + CHUNK[len(CHUNK) - i + 1 :], Status.BAD_CHECKSUM)


def test_hostile_ends() -> None:
    """Cut short anywhere, a chunk is refused; what follows it is ignored, as `zlib.decompress` does."""
    for cut in range(len(CHUNK)):
        refuses(ZLIB, CODEC, CHUNK[:cut], Status.TRUNCATED)
    for more in (b"\0", b"garbage", CHUNK, bytes(100)):
        check(ZLIB, CODEC, CHUNK + more)


def test_hostile_blocks() -> None:
    """A block of the unknown type, a stored one whose length is not confirmed, a match from before the start."""
    for body in (bits("1", "11"), bits("1", "00") + b"\1\0\1\0a", bits("1", "10", "0000001", "00000", "0000000")):
        refuses(ZLIB, CODEC, b"\x78\x01" + body + bytes(4), None)


def test_hostile_illegal_codes_need_the_right_checksum(inflater: str) -> None:
    """Where we take what numcodecs refuses: libdeflate has a meaning for codes that Deflate reserves."""
    stored = bytes(range(256)) * 96 + b"\0"
    start = bits("0", "00") + len(stored).to_bytes(2, "little") + (0xFFFF ^ len(stored)).to_bytes(2, "little") + stored
    for length, distance, end in (("0000001", "11110" + "0" * 13, 3), ("11000110", "00000", 258)):
        data = stored + (stored[:end] if end == 3 else stored[-1:] * end)
        chunk = b"\x78\x01" + start + bits("1", "10", length, distance, "0000000")
        good, bad = (chunk + (zlib.adler32(data) ^ wrong).to_bytes(4, "big") for wrong in (0, 1))
        refuses(ZLIB, CODEC, bad, Status.BAD_CHECKSUM if inflater == "libdeflate" else None, len(data))
        if inflater == "libdeflate":
            with pytest.raises(AssertionError, match="numcodecs refuses"):
                agrees(ZLIB, CODEC, good, len(data))
        else:
            refuses(ZLIB, CODEC, good, None, len(data))


def test_hostile_mutations() -> None:
    """Thousands of them."""
    assert fuzz(ZLIB, CODEC, make, 2, 3000, LAX) > 100


def test_fixtures_of_numcodecs(corpus: Path) -> None:
    """Each array that numcodecs keeps."""
    count = 0
    for name, encoded, data in fixtures(corpus / "numcodecs" / "fixture" / "zlib"):
        assert CODEC.decode(encoded) == data, name
        check(ZLIB, CODEC, encoded)
        count += 1
    assert count > 40


def test_corner_cases_of_wuffs(corpus: Path) -> None:
    """The zlib files as they are, Deflate files under a header and, where the bytes beside are theirs, a checksum."""
    count = 0
    for path in sorted((corpus / "wuffs").rglob("*.zlib")):
        check(ZLIB, CODEC, path.read_bytes())
        count += 1
    for path in sorted((corpus / "wuffs").rglob("*.deflate")):
        beside = path.with_name(f"{path.name}.decompressed")
        data = (beside if beside.exists() else path.with_name(f"{path.name.split('.')[0]}.txt")).read_bytes()
        chunk = b"\x78\x01" + path.read_bytes() + zlib.adler32(data).to_bytes(4, "big")
        assert agrees(ZLIB, CODEC, chunk, len(data)) == ("distance-code-31" not in path.name), path
        count += 1
    assert count > 8
