"""gzip chunks: every header, trailer and sequence of members gets numcodecs' verdict and bytes."""

from __future__ import annotations

import zlib
from itertools import product
from pathlib import Path

import numcodecs
import numpy as np
import pytest

from tests.codecs.verdict import LAX, agrees, bind, check, decoded, fixtures, fuzz, refuses, samples
from zarrgpu.codecs.gzip import GZip
from zarrgpu.kernels.tables import Status

GZIP, CODEC = bind(GZip), numcodecs.GZip()
DATA = np.cumsum(np.random.default_rng(0).integers(-3, 4, 25)).astype("<i4").tobytes()
FIELDS = {2: b"\x12\x34", 4: b"\x05\0a\0b\0c", 8: b"name\0", 16: b"\xff\n comment\0"}  # FHCRC, FEXTRA, FNAME, FCOMMENT

pytestmark = pytest.mark.usefixtures("inflater")


def member(data: bytes = DATA, flags: int = 0, level: int = 6, magic: bytes = b"\x1f\x8b\x08") -> bytes:
    """A member with the optional fields that the flags name."""
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = stream.compress(data) + stream.flush()
    fields = b"".join(FIELDS[flag] for flag in (4, 8, 16, 2) if flags & flag)
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return magic + bytes([flags]) + bytes(6) + fields + body + trailer


def make(rng: np.random.Generator) -> bytes:
    """One to three members with fields and padding drawn at random."""
    parts = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        data = samples(rng) if rng.integers(0, 4) else b""
        parts.append(member(data, int(rng.integers(0, 32)) * int(rng.integers(0, 2)), int(rng.integers(0, 10))))
        parts.append(bytes(int(rng.choice([0, 0, 0, 1, 9]))))
    return b"".join(parts)


def test_members(inflater: str) -> None:
    """One, several, empty ones among them, with zeros between and after; no member at all is no byte."""
    assert GZIP.on_host() == inflater
    rng = np.random.default_rng(1)
    for _ in range(150):
        check(GZIP, CODEC, make(rng))
    for parts in product((b"", DATA, b"other"), repeat=3):
        check(GZIP, CODEC, b"".join(map(member, parts)))
        check(GZIP, CODEC, b"\0\0\0".join(map(member, parts)) + bytes(1000))
    check(GZIP, CODEC, member() * 500)
    check(GZIP, CODEC, member(bytes(3_000_000)) + member(rng.bytes(100_000)))
    check(GZIP, CODEC, CODEC.encode(DATA))
    check(GZIP, CODEC, b"")


def test_headers() -> None:
    """Optional fields are skipped, checksum of the header included; text and reserved flags mean nothing."""
    for flags in range(256):
        check(GZIP, CODEC, member(flags=flags))
    for i in range(4, 10):  # time, flags of the method, system
        check(GZIP, CODEC, member()[:i] + b"\xff" + member()[i + 1 :])


def test_hostile_headers() -> None:
    """Another magic number or method."""
    for magic in (b"\x1f\x8c\x08", b"\x1e\x8b\x08", b"\x1f\x8b\x07", b"\x1f\x8b\0", b"\0\0\0", b"BZh"):
        refuses(GZIP, CODEC, member(magic=magic), Status.BAD_HEADER)
        refuses(
            GZIP,
            CODEC,
            member(DATA[:50]) + member(DATA[50:], magic=magic)[magic == b"\0\0\0" and 9 :],
            Status.BAD_HEADER,
        )
    refuses(GZIP, CODEC, b"\0" + member(), Status.BAD_HEADER)


def test_hostile_trailers() -> None:
    """A wrong checksum or size, in whichever member."""
    for chunk in (member(), member(DATA[:40]) + member(DATA[40:])):
        ends = [len(chunk)] if chunk == member() else [len(member(DATA[:40])), len(chunk)]
        for end, i in product(ends, range(1, 9)):
            bad = bytearray(chunk)
            bad[end - i] ^= 1
            refuses(GZIP, CODEC, bytes(bad), Status.BAD_CHECKSUM)


def test_hostile_ends() -> None:
    """Cut short anywhere, a chunk is refused, as is what follows unless it is zeros or a member."""
    for flags in (0, 31):
        chunk = member(flags=flags)
        for cut in range(1, len(chunk)):
            refuses(GZIP, CODEC, chunk[:cut], Status.BAD_HEADER if cut == 1 else Status.TRUNCATED)
            refuses(GZIP, CODEC, member(b"") + chunk[:cut], Status.BAD_HEADER if cut == 1 else Status.TRUNCATED)
    for more in (b"\x1f", b"garbage", b"\0\0\0garbage", member()[-8:], b"\xff" + member()):
        refuses(GZIP, CODEC, member() + more, Status.BAD_HEADER)


def test_hostile_end_of_stream_before_the_trailer() -> None:
    """The last eight bytes are the right trailer, but belong to nothing: the stream ends earlier."""
    chunk = member()
    refuses(GZIP, CODEC, chunk + chunk, Status.WRONG_SIZE)
    refuses(GZIP, CODEC, chunk[:-8] + b"more" + chunk[-8:], Status.BAD_CHECKSUM)


def test_hostile_mutations() -> None:
    """Thousands of them."""
    assert fuzz(GZIP, CODEC, make, 2, 3000, LAX) > 100


def test_fixtures_of_numcodecs(corpus: Path) -> None:
    """Each array that numcodecs keeps."""
    count = 0
    for name, encoded, data in fixtures(corpus / "numcodecs" / "fixture" / "gzip"):
        assert CODEC.decode(encoded) == data, name
        check(GZIP, CODEC, encoded)
        count += 1
    assert count > 40


def test_files_of_others(corpus: Path) -> None:
    """Those of wuffs are what lies beside them; the one of klauspost is corrupt."""
    good = sorted((corpus / "wuffs").rglob("*.gz"))
    assert len(good) > 3
    for path in good:
        check(GZIP, CODEC, path.read_bytes())
        beside = path.with_suffix("")
        assert not beside.exists() or decoded(CODEC, path.read_bytes()) == beside.read_bytes()
    bad = (corpus / "klauspost-compress" / "gzip" / "testdata" / "issue6550.gz").read_bytes()
    for size in (0, 1000, 10_000_000):
        assert not agrees(GZIP, CODEC, bad, size)
