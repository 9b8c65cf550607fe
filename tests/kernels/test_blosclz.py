"""The BloscLZ decoder: what c-blosc encodes it decodes, what c-blosc refuses it refuses, all inside its slots."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, blosc

from tests import kit
from tests.kernels.test_lz4 import Stream, corpus, run
from tests.kernels.test_lz4 import decode as decode_with
from zarrgpu.kernels.blosclz import KERNEL, reference
from zarrgpu.kernels.tables import Status

decode = partial(decode_with, KERNEL)


def c_blosc(stream: bytes, want: int) -> bytes | None:
    """What c-blosc makes of a stream that is to have `want` bytes, another number than its own; None if it refuses."""
    assert len(stream) != want > 0, "c-blosc would copy it"
    header = struct.pack("<4B5i", 2, 1, 16, 1, want, want, 24 + len(stream), 20, len(stream))
    try:
        return bytes(blosc.decompress(header + stream))
    except RuntimeError:
        return None


def split(chunk: bytes) -> Iterator[Stream]:
    """The BloscLZ streams of a container, and what each decodes to; without those that are stored."""
    flags, typesize, size, block = struct.unpack_from("<BBii", chunk, 2)
    if flags & 2:
        return
    for b in range((size + block - 1) // block):
        left = min(block, size - b * block)
        is_split = not flags & 16 and typesize <= 16 and block // typesize >= 128 and left == block
        at = struct.unpack_from("<i", chunk, 16 + 4 * b)[0]
        for _ in range(typesize if is_split else 1):
            n = struct.unpack_from("<i", chunk, at)[0]
            want = left // typesize if is_split else left
            if n != want:
                yield chunk[at + 4 : at + 4 + n], want
            at += 4 + n


def encode(data: bytes, level: int = 9) -> Stream:
    """`data` as c-blosc encodes it, in one stream; as literals where it does not."""
    found = list(split(bytes(Blosc("blosclz", level, 0, blocksize=len(data)).encode(data)))) if len(data) > 127 else []
    return found[0] if found else (literals(data), len(data))


def literals(data: bytes) -> bytes:
    """Instructions of up to 32 literals."""
    parts = [data[k : k + 32] for k in range(0, len(data), 32)]
    return b"".join(bytes([len(part) - 1]) + part for part in parts)


def match(offset: int, length: int) -> bytes:
    """The instruction of a match."""
    low, tail = divmod(offset - 1, 256) if offset < 8192 else (31, 255)
    more = bytes([tail]) if offset < 8192 else b"\xff" + struct.pack(">H", offset - 8192)
    if length < 9:
        return bytes([length - 2 << 5 | low]) + more
    return bytes([7 << 5 | low]) + b"\xff" * ((length - 9) // 255) + bytes([(length - 9) % 255]) + more


def check(streams: list[Stream], status: Any, slots: kit.Slots) -> set[int]:
    """The verdict on each stream and its bytes are c-blosc's, the status the reference's; the statuses seen."""
    for i, (stream, want) in enumerate(streams):
        expected, data = reference(stream, want)
        assert status[i] == expected, (stream, want)
        if status[i] == Status.OK:
            assert slots[i].tobytes() == data
        if len(stream) != want > 0:
            assert c_blosc(stream, want) == (data if status[i] == Status.OK else None), (stream, want)
    return set(status.tolist())


@pytest.mark.parametrize("lane", kit.LANES)
def test_data_come_back(lane: str) -> None:
    """Bit for bit, all kinds of data, sizes from one byte on, streams and slots at all alignments."""
    if lane == "sim":
        large = corpus(4000)
        data = [*corpus(900).values(), *(large[kind] for kind in ("text", "ints", "runs", "far"))]
    else:
        data = [d for n in (700, 5000, 200_000) for d in corpus(n, n).values()]
    streams = [encode(d, 9 - k % 5) for k, d in enumerate(data)]
    data += [bytes(range(n)) for n in range(1, 41)]
    streams += [(literals(d), len(d)) for d in data[len(streams) :]]
    status, slots = decode(lane, streams)
    assert status.tolist() == [Status.OK] * len(data)
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d


@pytest.mark.parametrize("lane", kit.LANES)
def test_streams_of_containers(lane: str) -> None:
    """All levels and shuffles, elements of one byte to more than a block splits, as c-blosc decodes them."""
    streams: list[Stream] = []
    rng = np.random.default_rng(0)
    n = 20_000 if lane != "sim" else 160
    for dtype in ("u1", "<i2", "<f4", "<f8", "<c16", "V3", "V17"):
        values = np.cumsum(rng.integers(-1, 3, n * np.dtype(dtype).itemsize)) // 7
        array = values.astype(dtype)[:n] if dtype[0] != "V" else values.astype("u1").view(dtype)
        for level in range(1, 10, 1 if lane != "sim" else 8):
            for shuffle in (0, 1, 2):
                streams += split(bytes(Blosc("blosclz", level, shuffle).encode(array)))
    assert len(streams) > 50
    status, slots = decode(lane, streams)
    assert check(streams, status, slots) == {Status.OK}


@pytest.mark.parametrize("lane", kit.LANES)
def test_numbers_around_their_boundaries(lane: str) -> None:
    """Lengths where bytes are added to them, offsets around the escape's, literals of many instructions."""
    rng = np.random.default_rng(0)
    near, far = (1, 2, 3, 4, 31, 32, 33, 256, 257, 600), (8190, 8191, 8192, 8193, 8447, 8448, 73726, 73727)
    cases = [(offset, n) for offset in near for n in (3, 8, 9, 10, 263, 264, 265, 519, 520)]
    if lane == "sim":
        cases = [*cases[::4], (8191, 3), (8192, 300), (8193, 9)]
    else:
        cases += [(offset, n) for offset in far for n in (3, 9, 300)]
        cases += [(1, 100_000), (7, 70_001), (8192, 30_000)]
    streams = []
    for offset, n in cases:
        head, tail = rng.bytes(offset + n % 3), rng.bytes(9)
        stream = literals(head) + match(offset, n) + match(1, 3) + literals(tail)
        streams.append((stream, len(head) + n + 3 + len(tail)))
    some = [rng.bytes(32 * n + k) for n in (1, 2, 3, 4, 5, 31, 32, 33, 34, 66) for k in (0, 1, 31)]
    streams += [(literals(d), len(d)) for d in some]
    streams += [(literals(d) + match(len(d), 4) + literals(b"end"), len(d) + 7) for d in some]
    status, slots = decode(lane, streams)
    assert check(streams, status, slots) == {Status.OK}


TEN = b"0123456789"


def by_hand() -> Iterator[tuple[Status, bytes, int]]:
    """(status, stream, size): each way in which a stream can be wrong, at each place that a decoder may see it."""
    start, end = literals(TEN), literals(b"abc")
    many = literals(bytes(range(256)) * 5)  # 40 instructions: more than a warp counts
    far = literals(bytes(8300))
    yield from [
        (Status.OK, b"", 0),
        (Status.OK, b"\0a", 1),
        (Status.OK, b"\x20a", 1),  # the encoder's mark
        (Status.OK, b"\xe9" + TEN, 10),  # all that does not count
        (Status.OK, start + match(10, 7) + end, 20),
        (Status.OK, start + b"\x20\x00" + end, 16),
        (Status.OK, start + match(1, 3) + match(13, 13) + end, 29),
        (Status.OK, b"\x3f" + many[1:], 1280),
        (Status.OK, far + match(8192, 9) + end, 8312),
        (Status.TRUNCATED, b"", 9),
        (Status.TRUNCATED, start[:-1], 10),
        (Status.TRUNCATED, many[:-1], 1280),
        (Status.TRUNCATED, many[:-33] + b"\x1f", 1280),
        (Status.TRUNCATED, start + b"\x20", 20),
        (Status.TRUNCATED, start + match(3, 7), 17),  # c-blosc drops a match that nothing follows
        (Status.TRUNCATED, start + b"\xe0", 100),
        (Status.TRUNCATED, start + b"\xe0\xff\x00", 1000),
        (Status.TRUNCATED, start + match(3, 300), 310),
        (Status.TRUNCATED, start + b"\xe0" + b"\xff" * 100, 1 << 16),
        (Status.TRUNCATED, far + b"\x3f\xff\x00", 8312),
        (Status.TRUNCATED, far + match(8192, 9), 8309),
        (Status.BAD_OFFSET, start + match(11, 7) + end, 20),
        (Status.BAD_OFFSET, start + match(8192, 7) + end, 20),
        (Status.BAD_OFFSET, far + match(8301, 9) + end, 8312),
        (Status.OVERFLOW, b"\0a", 0),
        (Status.OVERFLOW, start, 9),
        (Status.OVERFLOW, many, 1279),
        (Status.OVERFLOW, start + match(10, 7) + end, 19),
        (Status.OVERFLOW, start + match(10, 7) + end, 16),
        (Status.OVERFLOW, start + match(10, 3), 10),
        (Status.OVERFLOW, start + match(1, 1 << 20) + end, 1000),
        (Status.SHORT, start, 12),
        (Status.SHORT, start + match(10, 7) + end, 21),
    ]


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_streams_made_by_hand(lane: str) -> None:
    """Get the status that says what is wrong with them and c-blosc's verdict, side by side and at the arena's end."""
    expected, streams, sizes = zip(*by_hand(), strict=True)
    pairs = list(zip(streams, sizes, strict=True))
    status, slots = decode(lane, pairs)
    assert status.tolist() == list(expected)
    check(pairs, status, slots)
    assert [decode(lane, [pair])[0][0] for pair in pairs] == list(expected)


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_streams_cut_anywhere(lane: str) -> None:
    """Every beginning of a stream is refused, as c-blosc does."""
    whole = [
        encode(corpus(700)[kind][: 700 if lane != "sim" else 150]) for kind in ("text", "runs", "bits", "period 7")
    ]
    whole.append((literals(bytes(8200)) + match(8195, 300) + match(3, 5) + literals(b"ab"), 8507))
    cuts = 300 if lane != "sim" else 20
    streams = [(stream[:n], want) for stream, want in whole for n in range(len(stream))[-cuts:]]
    status, slots = decode(lane, streams)
    assert check(streams, status, slots) == {Status.TRUNCATED, Status.SHORT}


def random_stream(rng: np.random.Generator) -> Stream:
    """Instructions at random, most of them good."""
    size = 0
    stream = b""
    for _ in range(int(rng.integers(1, 12))):
        if size == 0 or rng.random() < 0.5:
            data = rng.bytes(int(rng.integers(1, rng.choice([4, 34, 200]))))
            stream, size = stream + literals(data), size + len(data)
        else:
            length = int(rng.choice([rng.integers(3, 12), rng.integers(3, 600), rng.choice([8, 9, 263, 264, 265])]))
            offset = int(rng.choice([1, 2, rng.integers(1, size + 1), size, rng.integers(1, size + 3)]))
            stream, size = stream + match(offset, length), size + length
    return stream + (literals(rng.bytes(2)) if rng.random() < 0.9 else b""), size + 2


def hostile(count: int, size: int, seed: int) -> list[Stream]:
    """Streams: every second one intact; the others mutated, or of random instructions, or both, or of random bytes."""
    rng = np.random.default_rng(seed)
    good = [encode(d[: int(rng.integers(1, size))]) for d in corpus(size, seed).values()]
    streams = []
    for i in range(count):
        stream, want = good[int(rng.integers(0, len(good)))]
        if i % 2:
            how = int(rng.integers(0, 8))
            if how < 3:
                stream, want = random_stream(rng)
            if how == 3:
                stream = rng.bytes(len(stream))
            elif how > 0:
                stream = kit.mutate(stream, rng)
            if rng.random() < 0.2:
                want = max(want + int(rng.integers(-1, 2)), 1)
        streams.append((stream, want))
    return streams


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_streams_among_intact_ones(lane: str) -> None:
    """Verdicts are c-blosc's, nothing is written outside a slot, intact neighbours, which run first, come back."""
    count, size = (20_000, 400) if lane != "sim" else (400, 300)
    streams = hostile(count, size, 1)
    order = np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)])
    status, slots = decode(lane, streams, order)
    assert (status[::2] == Status.OK).all()
    assert check(streams, status, slots) == set(range(Status.SHORT + 1))


@pytest.mark.parametrize("lane", kit.LANES)
def test_bytes_around_a_hostile_stream_do_not_matter(lane: str) -> None:
    """The same statuses and output, whatever lies around the streams."""
    for stream in hostile(24, 300, 2):
        a, slots_a = decode(lane, [(b"", 0), stream, (b"\xff" * 9, 0)], order=[1], filler=0)
        b, slots_b = decode(lane, [(b"", 0), stream, (b"\x1f" * 9, 0)], order=[1], filler=0xFF)
        assert a[1] == b[1]
        if a[1] == Status.OK:
            assert slots_a[1].tobytes() == slots_b[1].tobytes()


@pytest.mark.parametrize("lane", kit.LANES)
def test_a_hostile_table_that_points_outside_an_arena(lane: str) -> None:
    """Gets BAD_TABLE, and nothing is read or written for it."""
    stream, want = encode(bytes(range(60)) * 3)
    n = len(stream)
    source, scratch = np.zeros(256, np.uint8), np.full(512, kit.GUARD, np.uint8)
    source[:n] = np.frombuffer(stream, np.uint8)
    starts = [(-1, n), (256 - n + 1, n), (256, 1), (0, -1), (0, 257), (0, 1 << 40), (1 << 62, 1 << 62)]
    slots = [(-1, want), (512 - want + 1, want), (0, -1), (0, 513), (-(1 << 63), want), (0, (1 << 63) - 1)]
    bad = [(*start, 0, want, 0) for start in starts] + [(0, n, *slot, 0) for slot in slots]
    table = np.array([*bad, (0, n, 0, want, 0)], np.int64)
    status = np.full(len(table), -1, np.int32)
    run(KERNEL, lane, len(bad), source, scratch, table, np.arange(len(table)), status)
    assert status.tolist() == [Status.BAD_TABLE] * len(bad) + [-1]
    assert (scratch == kit.GUARD).all()
    run(KERNEL, lane, len(table), source, scratch, table, np.arange(len(table)), status)
    assert status[-1] == Status.OK
    assert scratch[:want].tobytes() == bytes(range(60)) * 3
    status[:] = -1
    run(KERNEL, lane, 3, source, scratch, table, np.array([-1, len(table), 1 << 40]), status)
    assert (status == -1).all()


@pytest.mark.nogpu("the simulator's schedule is what is random")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lanes_in_any_order(seed: int) -> None:
    """A missing barrier would show as wrong bytes when lanes run in a random order."""
    from tests import fastsim

    streams = [encode(d) for k, d in corpus(700, seed).items() if not k.startswith("period") or k[-1] in "17"]
    with fastsim.scheduled(seed):
        status, slots = decode("sim", streams)
    assert check(streams, status, slots) == {Status.OK}
