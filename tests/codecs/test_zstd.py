"""Zstandard chunks: frames of every kind, alone and in sequence, get numcodecs' verdict and bytes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from zipfile import ZipFile

import numcodecs
import numpy as np
import pytest
from numcodecs.zstd import compress, decompress

from tests.codecs.verdict import agrees, bind, check, decoded, fixtures, fuzz, refuses, samples, source
from zarrgpu.codecs.base import Refused
from zarrgpu.codecs.zstd import Zstd
from zarrgpu.kernels.tables import Status


class Oracle:
    """numcodecs, but for the chunks from which it never returns: frames of unknown size, then half a header."""

    room = np.empty(16_000_000, np.uint8)

    def decode(self, chunk: bytes) -> bytes:
        try:
            decompress(chunk, self.room)
        except RuntimeError as error:
            if "Src size is incorrect" in str(
                error
            ):  # libzstd's word, into a buffer, for what does not end with a frame
                raise
        return bytes(numcodecs.Zstd().decode(chunk))


ZSTD, CODEC = bind(Zstd), Oracle()
MAGIC = b"\x28\xb5\x2f\xfd"
DATA = np.cumsum(np.random.default_rng(0).integers(-3, 4, 1000)).astype("<i4").tobytes()
LARGE = np.cumsum(np.random.default_rng(0).integers(-3, 4, 100_000)).astype("<i4").tobytes()
EMPTY_BLOCK, LAST = b"\0\0\0", b"\1\0\0"


def header(
    content: int | None = None, window: int = 0x58, width: int = 3, dictionary: bytes = b"", more: int = 0
) -> bytes:
    """Of a frame: the window's byte, unless it is below 0, and a content size, if any, in ``2**width`` bytes."""
    single = content is not None and window < 0
    flags = {0: 0, 1: 1, 2: 2, 4: 3}[len(dictionary)] | single << 5 | (width << 6 if content is not None else 0) | more
    says = b"" if content is None else (content - 256 * (width == 1)).to_bytes(2**width, "little")
    return MAGIC + bytes([flags]) + (b"" if single else bytes([window])) + dictionary + says


def body(data: bytes, level: int = 3, checksum: bool = False) -> bytes:
    """What follows the header of a frame that libzstd makes."""
    frame = bytes(compress(data, level, checksum))
    return frame[5 + (not frame[4] & 0x20) + (frame[4] >> 5 & 1, 2, 4, 8)[frame[4] >> 6] :]


def block(kind: int, data: bytes, size: int, last: bool) -> bytes:
    """Raw (0), of one byte repeated (1) or compressed (2)."""
    return (last | kind << 1 | size << 3).to_bytes(3, "little") + data


def skippable(size: int, magic: int = 0) -> bytes:
    """A frame of user data."""
    return bytes([0x50 + magic]) + b"\x2a\x4d\x18" + size.to_bytes(4, "little") + b"\x28" * size


def make(rng: np.random.Generator) -> bytes:
    """One frame, rarely several, with or without sizes and checksums."""
    frames = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        data, level, checksum = samples(rng), int(rng.integers(-5, 10)), bool(rng.integers(0, 2))
        kind = rng.integers(0, 6)
        if kind < 3:
            frames.append(compress(data, level, checksum))
        elif kind < 5:
            frames.append(header(window=int(rng.integers(0, 0x60)), more=4 * checksum) + body(data, level, checksum))
        else:
            frames.append(skippable(int(rng.integers(0, 20))))
    return b"".join(frames)


def test_frames_of_every_level() -> None:
    """Alone, with and without a checksum."""
    assert ZSTD.on_host() == "libzstd"
    for level, checksum in product((-100, -1, 1, 3, 9, 19, 22), (False, True)):
        for data in (DATA, b"\0", bytes(300), bytes(3_000_000), np.random.default_rng(0).bytes(200_000)):
            check(ZSTD, CODEC, compress(data, level, checksum))


@pytest.mark.parametrize("checksum", [False, True])
def test_frames_without_content_size(checksum: bool) -> None:
    """Taken as without a buffer: not those with a window of over 128 MiB, whether that is needed or not."""
    data = DATA[:1000]
    for window in range(256):
        frame = header(window=window, more=4 * checksum) + body(data, 3, checksum)
        taken = agrees(ZSTD, CODEC, frame, len(data))
        assert taken == (10 + window / 8 <= 27)
    for data in (DATA, LARGE, bytes(100), b"a"):
        check(ZSTD, CODEC, header(more=4 * checksum) + body(data, 3, checksum))


def test_window_smaller_than_the_content() -> None:
    """A chunk may be larger than its frame's window; what becomes of matches from beyond it is libzstd's decision."""
    for data, window in product((LARGE, LARGE * 4, bytes(1_000_000)), range(0x20, 0x60, 4)):
        frame = header(window=window) + body(data, 9)
        assert agrees(ZSTD, CODEC, frame, len(data)) == (decoded(CODEC, frame) == data)
        assert agrees(ZSTD, CODEC, header(len(data), window=window) + body(data, 9), len(data)) or window < 0x38


def test_headers() -> None:
    """Content sizes and dictionary numbers of every width; a number of 0 means no dictionary."""
    for width, window, dictionary in product(range(4), (-1, 0x58), (b"", b"\0", b"\0\0", b"\0\0\0\0")):
        if width or window < 0:
            data = DATA[:255] if not width else DATA
            check(ZSTD, CODEC, header(len(data), window, width, dictionary) + body(data))
    for flags in range(256):  # whatever the descriptor makes of the bytes after it
        agrees(ZSTD, CODEC, MAGIC + bytes([flags]) + header(len(DATA))[5:] + body(DATA), len(DATA))
    check(ZSTD, CODEC, header(2**64 - 1) + body(DATA))
    assert not agrees(ZSTD, CODEC, header(2**64 - 1, -1) + body(DATA), len(DATA))


def test_hostile_content_sizes() -> None:
    """One that is wrong, by a little or by all that the field holds, or where the sum wraps around to the right one."""
    for size in (len(DATA) - 1, len(DATA) + 1, 2**40, 2**64 - 2, 2**64 - len(DATA)):
        for window in (-1, 0x58):
            for out in (len(DATA), min(size, 10_000)):
                assert not agrees(ZSTD, CODEC, header(size, window) + body(DATA), out)
    for first in (2**64 - 5, 2**63, len(DATA)):
        rest = header((len(DATA) - first) % 2**64) + LAST
        assert agrees(ZSTD, CODEC, header(first) + body(DATA) + rest, len(DATA)) == (first == len(DATA))
    wrapped = header(len(DATA)) + body(DATA) + 2 * (header(2**63) + LAST)
    assert not agrees(ZSTD, CODEC, wrapped, len(DATA))


def test_dictionaries_are_refused() -> None:
    """Zarr has nowhere to keep one."""
    for dictionary, content in product((b"\1", b"\0\1", b"\0\0\0\1"), (None, len(DATA))):
        refuses(ZSTD, CODEC, header(content, dictionary=dictionary) + body(DATA), Status.UNSUPPORTED, len(DATA))
        assert not agrees(ZSTD, CODEC, skippable(3) + header(content, dictionary=dictionary) + body(DATA), len(DATA))


def test_raw_and_repeated_blocks() -> None:
    """Blocks that are not compressed, empty ones and ones of the largest size among them."""
    for content in (None, 3 + 128 * 1024 + 5):
        blocks = (
            block(0, b"raw", 3, False) + block(1, b"r", 128 * 1024, False) + EMPTY_BLOCK + block(0, b"ended", 5, True)
        )
        check(ZSTD, CODEC, header(content) + blocks)
    refuses(ZSTD, CODEC, header() + block(3, b"r", 1, True), None, 1)


def test_hostile_large_blocks() -> None:
    """Where we take what numcodecs refuses, if not given a buffer: blocks of over 128 KiB in frames of unknown size."""
    size = 128 * 1024 + 1
    sequence = bytes([0x08, ord("r"), 1, 0x54, 1, 0, 52]) + (size - 1 - 65539).to_bytes(2, "little") + b"\1"
    for last in (block(1, b"r", size, True), block(2, sequence, len(sequence), True)):
        check(ZSTD, CODEC, header(size) + last)
        with pytest.raises(AssertionError, match="numcodecs refuses"):
            agrees(ZSTD, CODEC, header() + last, size)
        assert bytes(numcodecs.Zstd().decode(header() + last, np.empty(size, np.uint8))) == b"r" * size
        assert not agrees(ZSTD, CODEC, header(window=0x30) + last, size)  # larger than the window


def test_many_blocks() -> None:
    """Thousands in a frame, each looked at to find its end."""
    for count in (1, 10, 5000):
        check(ZSTD, CODEC, header() + count * EMPTY_BLOCK + block(0, b"data", 4, True))
        check(ZSTD, CODEC, header() + count * block(0, b"d", 1, False) + LAST)


def test_sequences_of_frames() -> None:
    """Of known and of unknown size, skippable and empty ones, in any order."""
    kinds = [
        compress(DATA),
        compress(DATA, checksum=True),
        header() + body(DATA),
        header(window=0xF8) + body(DATA),
        skippable(0),
        skippable(100, 15),
        compress(b""),
        header() + LAST,
    ]
    for frames in (*product(kinds), *product(kinds, kinds), *product(kinds, kinds, kinds)):
        chunk = b"".join(frames)
        size = len(DATA) * sum(frame in kinds[:4] for frame in frames)
        agrees(ZSTD, CODEC, chunk, size)
        assert not agrees(ZSTD, CODEC, chunk, size + 1)
        assert not agrees(ZSTD, CODEC, chunk, len(DATA) * (size == 0))
        assert agrees(ZSTD, CODEC, chunk, size) == (decoded(CODEC, chunk) is not None)


def test_decoded_size_by_the_headers() -> None:
    """The sum over all frames; not told by one of unknown size, nor by a chunk that does not end with a frame."""
    frame = compress(DATA)
    for chunk, size in (
        (frame, len(DATA)),
        (skippable(3) + frame + compress(b"") + frame, 2 * len(DATA)),
        (frame + header() + LAST, None),
        (frame[:-1], None),
        (frame + b"\0", None),
    ):
        assert ZSTD.decoded_nbytes(source(chunk)) == size


def test_empty_chunks() -> None:
    """Refused when every frame says so, as numcodecs does, and taken when one does not."""
    for chunk in (b"", compress(b""), skippable(4), header(0, -1, 0) + LAST):
        refuses(ZSTD, CODEC, chunk, None, 0)
    check(ZSTD, CODEC, header() + LAST)


def test_hostile_checksum() -> None:
    """Any other one than the content's, in a frame that says its size or not, the only one or not."""
    for i, content, more in product(range(1, 5), (None, len(DATA)), (b"", compress(DATA))):
        frame = bytearray(header(content, more=4) + body(DATA, 3, True))
        frame[-i] ^= 1
        refuses(ZSTD, CODEC, bytes(frame) + more, None, len(DATA + more and DATA) * (1 + bool(more)))


def test_hostile_ends() -> None:
    """Cut short anywhere, and followed by anything but a frame; half a header, from which numcodecs never returns."""
    data = DATA[:200]
    for content, checksum in product((None, len(data)), (False, True)):
        frame = header(content, more=4 * checksum) + body(data, 3, checksum)
        for cut in range(1, len(frame)):
            refuses(ZSTD, CODEC, frame[:cut], Status.CUT_SHORT, len(data))
            refuses(ZSTD, CODEC, frame + frame[:cut], Status.CUT_SHORT, len(data))
            with pytest.raises(Refused, match="CUT_SHORT"):
                ZSTD.decode(source(frame + frame[:cut]))
        for cut in range(4, 13):
            refuses(ZSTD, CODEC, frame + skippable(5)[:cut], Status.CUT_SHORT, len(data))
        for more in (b"\0", bytes(10), b"\x27\xb5\x2f\xfd" + bytes(20), b"\x60" + skippable(5)[1:], b"\x50\x2a\x4d"):
            refuses(ZSTD, CODEC, frame + more, Status.BAD_HEADER, len(data))


def test_hostile_mutations() -> None:
    """Thousands of them."""
    assert fuzz(ZSTD, CODEC, make, 2, 3000) > 100


def test_fixtures_of_numcodecs(corpus: Path) -> None:
    """Each array that numcodecs keeps, by each of its levels."""
    count = 0
    for name, encoded, data in fixtures(corpus / "numcodecs" / "fixture" / "zstd"):
        assert CODEC.decode(encoded) == data, name
        check(ZSTD, CODEC, encoded)
        count += 1
    assert count > 90


def test_files_of_others(corpus: Path) -> None:
    """Of zstd, klauspost and wuffs: what lies beside them, or refused, as numcodecs does."""
    files = {str(p): p.read_bytes() for p in sorted(corpus.rglob("*.zst")) if "zarr" not in str(p)}
    for path in sorted((corpus / "klauspost-compress" / "zstd").rglob("*.zip")):
        with ZipFile(path) as archive:
            files |= {f"{path}/{name}": archive.read(name) for name in archive.namelist()}
    good = 0
    for name, chunk in files.items():
        want = decoded(CODEC, chunk)
        if want is None:
            for size in (0, 1000, len(files.get(name.removesuffix(".zst"), b""))):
                assert not agrees(ZSTD, CODEC, chunk, size), name
            continue
        check(ZSTD, CODEC, chunk)
        assert want == files.get(name.removesuffix(".zst"), want), name
        assert "/bad.zip/" not in name
        good += 1
    assert good > 15
    for path in sorted((corpus / "zstd" / "tests" / "golden-compression").iterdir()):
        check(ZSTD, CODEC, compress(path.read_bytes()))
