"""Blosc containers: `SCAN` and `STREAMS` find what c-blosc decodes, and refuse the damaged headers that it refuses."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, blosc

from tests import kit
from tests.engines import smooth
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.blosc import SCAN, STREAMS
from zarrgpu.kernels.lz4 import reference
from zarrgpu.kernels.tables import Status


def locate(lane: str, chunks: list[bytes | None], want: list[int]) -> tuple[Any, Any, Any, bytes]:
    """Layouts, streams, statuses and the arena of encoded chunks that lie one after the other."""
    arena = b"".join(c or b"" for c in chunks)
    table = np.zeros((len(chunks), t.CHUNK_COLUMNS), np.int64)
    at = slot = 0
    for i, (c, n) in enumerate(zip(chunks, want, strict=True)):
        table[i] = (at, -1 if c is None else len(c), slot, n)
        at, slot = at + len(c or b""), slot + n
    source = np.frombuffer(arena.ljust(16, b"\0"), np.uint8).copy()
    layouts, counts = np.zeros((len(chunks), t.LAYOUT_COLUMNS), np.int64), np.zeros(len(chunks), np.int64)
    status = np.zeros(len(chunks), np.int32)
    kit.run(SCAN, lane, len(chunks), source, table, layouts, counts, status)
    first = np.concatenate([[0], np.cumsum(counts)])
    streams = np.zeros((int(first[-1]), t.STREAM_COLUMNS), np.int64)
    kit.run(STREAMS, lane, len(chunks), source, table, layouts, first, streams, status)
    return layouts, streams, status, arena


def unpack(layout: Any, streams: Any, arena: bytes) -> bytes:
    """A chunk's bytes by the references: streams decoded, blocks unshuffled."""
    from zarrgpu.kernels.assemble import unshuffled

    size, block = int(layout[t.L_SIZE]), int(layout[t.L_BLOCK])
    if layout[t.L_ARENA] == t.SOURCE:
        return arena[layout[t.L_BASE] : layout[t.L_BASE] + size]
    data = bytearray(size)
    for s in streams:
        encoded, at = arena[s[t.S_START] : s[t.S_START] + s[t.S_SIZE]], s[t.S_DEST] - layout[t.L_BASE]
        if s[t.S_SIZE] == s[t.S_WANT]:
            decoded = encoded
        else:
            status, decoded = reference(encoded, int(s[t.S_WANT]))
            assert status is Status.OK
        data[at : at + s[t.S_WANT]] = decoded
    blocks = [np.frombuffer(bytes(data[a : a + block]), np.uint8) for a in range(0, size, block)]
    return b"".join(unshuffled(b, int(layout[t.L_TYPE]), int(layout[t.L_MODE])).tobytes() for b in blocks)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("typesize", [1, 2, 4, 7, 17])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_streams_are_where_c_blosc_put_them(lane: str, typesize: int, shuffle: int) -> None:
    """Split and unsplit, stored and short last blocks; the header's typesize counts, several chunks at once."""
    rng = np.random.default_rng(typesize)
    mixed, short = rng.bytes(700) + bytes(700), b"short and stored " * 2
    values = [smooth((400,), "u1").tobytes() * 3, mixed, bytes(128 * typesize + 3), short]
    chunks: list[bytes | None] = []
    for data in values:
        array = np.frombuffer(data[: len(data) // typesize * typesize], f"V{typesize}")
        chunks.append(bytes(Blosc("lz4", 5, shuffle, blocksize=256 if len(data) > 500 else 0).encode(array)))
    values = [data[: len(data) // typesize * typesize] for data in values]
    layouts, streams, status, arena = locate(lane, [*chunks, None], [len(v) for v in values] + [8])
    assert status.tolist() == [Status.OK] * (len(values) + 1)
    assert layouts[-1, t.L_ARENA] == t.FILL
    for i, data in enumerate(values):
        assert unpack(layouts[i], streams[streams[:, t.S_CHUNK] == i], arena) == data


def damaged(good: bytes, at: int, value: int, size: int = 4) -> bytes:
    """`good` with a little-endian number overwritten."""
    return good[:at] + value.to_bytes(size, "little", signed=value < 0) + good[at + size :]


def cases() -> list[tuple[str, bytes, Status]]:
    """Names, chunks and what is wrong with them, all meant to be 4000 bytes of 4-byte elements in blocks of 1024."""
    good = bytes(Blosc("lz4", 5, 1, blocksize=1024).encode(np.arange(1000, dtype="<i4")))
    raw = bytes(Blosc("lz4", 0, 1).encode(np.arange(1000, dtype="<i4")))
    start = struct.unpack_from("<i", good, 16)[0]
    return [
        ("good", good, Status.OK),
        ("trailing bytes", good + b"xyz", Status.OK),
        ("stored", raw, Status.OK),
        ("stored, trailing bytes", raw + b"x", Status.OK),
        ("empty", b"", Status.CUT_SHORT),
        ("header cut", good[:15], Status.CUT_SHORT),
        ("body cut", good[:-1], Status.CUT_SHORT),
        ("stored, cut", raw[:-1], Status.CUT_SHORT),
        ("version", damaged(good, 0, 3, 1), Status.BAD_HEADER),
        ("version of the inner format", damaged(good, 1, 2, 1), Status.UNSUPPORTED),
        ("reserved flag", damaged(good, 2, good[2] | 8, 1), Status.BAD_HEADER),
        ("inner codec", damaged(good, 2, good[2] & 31 | 2 << 5, 1), Status.UNSUPPORTED),
        ("typesize zero", damaged(good, 3, 0, 1), Status.BAD_HEADER),
        ("typesize that does not divide a block", damaged(good, 3, 3, 1), Status.BAD_HEADER),
        ("decoded size", damaged(good, 4, 4004), Status.WRONG_SIZE),
        ("decoded size negative", damaged(good, 4, -1), Status.BAD_HEADER),
        ("block size zero", damaged(good, 8, 0), Status.BAD_HEADER),
        ("block size negative", damaged(good, 8, -1024), Status.BAD_HEADER),
        ("block size over the chunk's", damaged(good, 8, 4004), Status.BAD_HEADER),
        ("block size tiny", damaged(good, 8, 1), Status.BAD_BOUNDS),
        ("encoded size", damaged(good, 12, len(good) - 1), Status.BAD_BOUNDS),
        ("encoded size of a header", damaged(good, 12, 15), Status.BAD_HEADER),
        ("stored with another size", damaged(raw, 12, len(raw) - 1), Status.BAD_BOUNDS),
        ("block start negative", damaged(good, 16, -4), Status.BAD_BOUNDS),
        ("block start outside", damaged(good, 20, len(good) - 3), Status.BAD_BOUNDS),
        ("stream size negative", damaged(good, start, -1), Status.BAD_BOUNDS),
        ("stream size outside", damaged(good, start, len(good)), Status.BAD_BOUNDS),
    ]


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_headers(lane: str) -> None:
    """Each fault of a header is named, and its neighbours are not touched by it."""
    names, chunks, want = zip(*cases(), strict=True)
    _, _, status, _ = locate(lane, list(chunks), [4000] * len(chunks))
    got = {name: Status(s).name for name, s in zip(names, status, strict=True)}
    assert got == {name: s.name for name, s in zip(names, want, strict=True)}


@pytest.mark.parametrize(
    ("name", "chunk", "status"), [c for c in cases() if c[2] not in (Status.CUT_SHORT, Status.UNSUPPORTED)]
)
def test_the_verdict_is_c_blosc_s(name: str, chunk: bytes, status: Status) -> None:
    """Numcodecs refuses what `SCAN` and `STREAMS` refuse, other than what it reads past the end of."""
    if status is Status.OK:
        assert len(blosc.decompress(chunk)) == 4000
    elif status is not Status.WRONG_SIZE:
        with pytest.raises((RuntimeError, SystemError)):  # the latter for a negative size
            blosc.decompress(chunk)


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_tables_outside_the_arena(lane: str) -> None:
    """A line that points outside the arena is the caller's fault, and is not followed."""
    source = np.zeros(64, np.uint8)
    chunks = np.array([[-1, 16, 0, 4], [60, 16, 0, 4], [0, 65, 0, 4], [0, -2, 0, 4]], np.int64)
    layouts, counts, status = np.zeros((4, t.LAYOUT_COLUMNS), np.int64), np.zeros(4, np.int64), np.zeros(4, np.int32)
    kit.run(SCAN, lane, 4, source, chunks, layouts, counts, status)
    assert status.tolist() == [Status.BAD_TABLE] * 4
    assert counts.tolist() == [0] * 4


def test_random_damage_stays_inside() -> None:
    """Mutated containers: every stream that is found lies inside its chunk and its slot."""
    rng = np.random.default_rng(1)
    good = bytes(Blosc("lz4", 5, 1, blocksize=256).encode(smooth((500,), "i4")))
    chunks: list[bytes | None] = [kit.mutate(good[:60], rng) + good[60:] for _ in range(5000)]
    _, streams, status, _ = locate("host", chunks, [2000] * len(chunks))
    ends = np.cumsum([len(c or b"") for c in chunks])
    starts = ends - [len(c or b"") for c in chunks]
    usable = status[streams[:, t.S_CHUNK]] == Status.OK
    s, chunk = streams[usable], streams[usable, t.S_CHUNK]
    assert 0 < len(s) < 5000 * 40
    assert (s[:, t.S_START] >= starts[chunk]).all()
    assert (s[:, t.S_START] + s[:, t.S_SIZE] <= ends[chunk]).all()
    assert (s[:, t.S_DEST] >= 2000 * chunk).all()
    assert (s[:, t.S_DEST] + s[:, t.S_WANT] <= 2000 * (chunk + 1)).all()
