"""The LZ4 decoders: what liblz4 encodes they decode, what it refuses they refuse, all inside their slots."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4

from tests import kit
from tests.conftest import GPU
from zarrgpu._cuda import Kernel
from zarrgpu.kernels import lz4, lz4_group
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status

KERNELS = {"one": lz4.KERNEL, "group": lz4_group.KERNEL}
CASES = [
    pytest.param(kernel, lane, id=f"{name}-{lane}")
    for name, kernel in KERNELS.items()
    for lane in kit.LANES
    if kernel.on_host or lane != "host"
]

Stream = tuple[bytes, int]  # encoded bytes, decoded size


def encode(data: bytes) -> Stream:
    """`data` as liblz4 encodes it, without the header that numcodecs puts before it."""
    return (bytes(LZ4().encode(data))[4:] if data else b"\0"), len(data)


def liblz4(stream: bytes, want: int) -> bytes | None:
    """What ``LZ4_decompress_safe`` makes of a stream that is to have `want` bytes, more than 0; None if it refuses."""
    try:
        return bytes(LZ4().decode(struct.pack("<i", want) + stream))
    except RuntimeError:
        return None


def decode(kernel: Kernel, lane: str, streams: list[Stream], order: Any = None, filler: int = 0xFF) -> Any:
    """Statuses and `Slots` of streams that lie one after the other, the last one up to the arena's end."""
    encoded = b"".join(s for s, _ in streams)
    source = np.full((len(encoded) + 31) // 16 * 16, filler, np.uint8)
    lead = source.size - len(encoded)
    source[lead:] = np.frombuffer(encoded, np.uint8)
    slots = kit.Slots([want for _, want in streams])
    table = np.zeros((len(streams), t.STREAM_COLUMNS), np.int64)
    table[:, t.S_SIZE] = [len(s) for s, _ in streams]
    table[:, t.S_START] = lead + np.cumsum(table[:, t.S_SIZE]) - table[:, t.S_SIZE]
    table[:, t.S_DEST], table[:, t.S_WANT] = slots.starts, slots.sizes
    status = np.full(len(streams), -1, np.int32)
    order = np.arange(len(streams)) if order is None else np.asarray(order, np.int64)
    run(kernel, lane, len(order), source, slots.arena, table, order, status)
    slots.check_guards()
    return status, slots


def run(kernel: Kernel, lane: str, n: int, source: Any, scratch: Any, *rest: Any) -> None:
    """`kit.run` with the arenas' words beside their bytes."""
    kit.run(kernel, lane, n, source, kit.words(source), scratch, kit.words(scratch), *rest)


def corpus(n: int, seed: int = 0) -> dict[str, bytes]:
    """Data of `n` bytes of the kinds that exercise a decoder: long and short literals and matches, near and far."""
    rng = np.random.default_rng(seed)
    floats = (np.sin(np.linspace(0, 20, n // 4)) * 100 + rng.normal(0, 0.05, n // 4)).astype("<f4")
    ints = np.cumsum(rng.integers(-3, 4, n // 4)).astype("<i4")
    words = [rng.integers(97, 123, k, np.uint8).tobytes() for k in rng.integers(2, 9, 100)]
    far = rng.bytes(n // 3)
    data = {
        "random": rng.bytes(n),
        "zeros": bytes(n),
        "runs": np.repeat(rng.integers(0, 4, n, np.uint8), rng.geometric(0.02, n))[:n].tobytes(),
        "floats shuffled": floats.view(np.uint8).reshape(-1, 4).T.tobytes(),
        "ints": ints.tobytes(),
        "text": b" ".join(words[k % 100] for k in rng.zipf(1.3, n // 3))[:n],
        "far": far + bytes(n // 3) + far,
        "bits": rng.integers(0, 2, n, np.uint8).tobytes(),
    }
    for period in range(1, 21):
        data[f"period {period}"] = (rng.bytes(period) * (n // period + 1))[:n]
    return data


def sequence(literals: bytes, offset: int | None = None, length: int = 4) -> bytes:
    """A sequence; without a match when `offset` is None."""

    def parts(n: int) -> tuple[int, bytes]:
        return (n, b"") if n < 15 else (15, b"\xff" * ((n - 15) // 255) + bytes([(n - 15) % 255]))

    high, more = parts(len(literals))
    if offset is None:
        return bytes([high << 4]) + more + literals
    low, longer = parts(length - 4)
    return bytes([high << 4 | low]) + more + literals + struct.pack("<H", offset) + longer


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_data_come_back(kernel: Kernel, lane: str) -> None:
    """Bit for bit, all kinds of data, sizes from nothing on, streams and slots at all alignments."""
    if lane == "sim":
        large = corpus(4000)
        data = [*corpus(900).values(), *(large[kind] for kind in ("text", "ints", "runs", "far"))]
    else:
        data = [d for n in (700, 5000, 70000) for d in corpus(n, n).values()]
    data += [bytes(range(n)) for n in range(21)] + [b"ab" * (n // 2) for n in range(0, 80, 7)]
    status, slots = decode(kernel, lane, [encode(d) for d in data])
    assert status.tolist() == [Status.OK] * len(data)
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_lengths_around_their_bytes_boundaries(kernel: Kernel, lane: str) -> None:
    """Literals and matches of lengths around 15 and multiples of 255, offsets around those and a warp's widths."""
    lengths = [4, 18, 19, 20, 33, 273, 274, 275, 529, 1030]
    if lane != "sim":
        lengths += [128, 129, 131, 18 + 255 * 40, 65536]
    rng = np.random.default_rng(0)
    streams, data = [], []
    for k, length in enumerate(lengths):
        for offset in (1, 2, 3, 4, 5, 8, 31, 100, 127, 128, 129, 300, 600)[k % 2 :: 1 if lane != "sim" else 3]:
            literals = rng.bytes(max(offset, (0, 14, 15, 269, 270, 271, 525)[(k + offset) % 7]))
            tail = rng.bytes(8 + length % 9)
            stream = sequence(literals, offset, length) + sequence(b"", 1, 4) + sequence(tail)
            want = len(literals) + length + 4 + len(tail)
            expected = liblz4(stream, want)
            assert expected is not None
            streams.append((stream, want))
            data.append(expected)
    status, slots = decode(kernel, lane, streams)
    assert status.tolist() == [Status.OK] * len(streams)
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d


TEN, EIGHT = b"0123456789", b"abcdefgh"


def by_hand() -> Iterator[tuple[Status, bytes, int]]:
    """(status, stream, size): each way in which a stream can be wrong, at each place that a decoder may see it."""
    good = sequence(TEN, 3, 7) + sequence(EIGHT)
    long = sequence(TEN * 30, 300, 600) + sequence(EIGHT)
    many = sequence(TEN, 10, 4) + sequence(b"x", 2, 4) * 9 + sequence(EIGHT)
    many_size = 14 + 9 * 5 + 8
    yield from [
        (Status.OK, b"\0", 0),
        (Status.OVERFLOW, b"\x05", 0),
        (Status.OVERFLOW, sequence(b"a"), 0),
        (Status.OK, sequence(TEN), 10),
        (Status.OK, b"\xaf" + TEN, 10),  # the low bits of the last token mean nothing
        (Status.OK, good, 25),
        (Status.OK, long, 908),
        (Status.OK, many, many_size),
        (Status.TRUNCATED, b"", 0),
        (Status.TRUNCATED, b"", 9),
        (Status.TRUNCATED, b"\xf0", 100),
        (Status.TRUNCATED, b"\xf0\xff\xff", 1000),
        (Status.TRUNCATED, b"\xf0" + b"\xff" * 100, 1 << 16),
        (Status.TRUNCATED, sequence(TEN)[:-1], 10),
        (Status.TRUNCATED, b"\xf0\x10" + TEN, 100),
        (Status.TRUNCATED, sequence(TEN, 3, 7)[:-1], 30),
        (Status.TRUNCATED, sequence(TEN, 3, 7), 30),
        (Status.TRUNCATED, sequence(TEN, 3, 400)[:-1], 1000),
        (Status.TRUNCATED, sequence(TEN, 3, 400), 1000),
        (Status.TRUNCATED, sequence(TEN, 3, 19 + 255 * 70)[:-1], 100_000),
        (Status.TRUNCATED, many[:-1], many_size),
        (Status.BAD_OFFSET, sequence(TEN, 0, 7) + sequence(EIGHT), 25),
        (Status.BAD_OFFSET, sequence(TEN, 11, 7) + sequence(EIGHT), 25),
        (Status.BAD_OFFSET, sequence(b"", 1, 7) + sequence(EIGHT), 15),
        (Status.BAD_OFFSET, sequence(TEN * 30, 301, 600) + sequence(EIGHT), 908),
        (Status.BAD_OFFSET, sequence(TEN, 10, 4) + sequence(b"x", 16, 4) * 9 + sequence(EIGHT), many_size),
        (Status.BAD_OFFSET, many.replace(b"x\2", b"x\0"), many_size),
        (Status.OVERFLOW, sequence(TEN), 9),
        (Status.OVERFLOW, good, 24),
        (Status.OVERFLOW, long, 907),
        (Status.OVERFLOW, many, many_size - 1),
        (Status.OVERFLOW, sequence(TEN, 3, 7) + sequence(b"abcd"), 21),  # a match in the last 5 bytes
        (Status.OVERFLOW, sequence(TEN, 3, 4) + sequence(b"abcdefg"), 21),  # one that starts in the last 12
        (Status.OVERFLOW, sequence(TEN, 1, 1 << 20) + sequence(EIGHT), 1000),
        (Status.SHORT, sequence(TEN), 11),
        (Status.SHORT, good, 26),
        (Status.SHORT, long, 909),
        (Status.SHORT, many, many_size + 1),
    ]
    yield Status.OVERFLOW, sequence(b"0123456789abcd", 8, 18) + b"\0", 32  # liblz4's shortcut takes it


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_each_status(kernel: Kernel, lane: str) -> None:
    """Streams made by hand get the status that says what is wrong with them."""
    expected, streams, sizes = zip(*by_hand(), strict=True)
    status, _ = decode(kernel, lane, list(zip(streams, sizes, strict=True)))
    assert status.tolist() == list(expected)


def test_reference_gives_the_same_status() -> None:
    """And the bytes, where liblz4 has some."""
    for expected, stream, want in by_hand():
        status, data = lz4.reference(stream, want)
        assert status is expected
        if status is Status.OK and want:
            assert data == liblz4(stream, want)


def is_forbidden(stream: bytes, want: int) -> bool:
    """Whether a stream that liblz4 accepts has an offset of 0, or a match in the last 5 bytes."""
    at = size = 0

    def number(low: int) -> int:
        nonlocal at
        while low == 15 or (low > 15 and stream[at - 1] == 255):
            low += stream[at] + (low == 15) * 1000
            at += 1
        return low if low < 15 else low - 1000

    while True:
        token = stream[at]
        at += 1
        literals = number(token >> 4)
        at, size = at + literals, size + literals
        if at == len(stream):
            return False
        offset = stream[at] | stream[at + 1] << 8
        at += 2
        size += number(token & 15) + 4
        if offset == 0 or size > want - 5:
            return True


def hostile(count: int, size: int, seed: int) -> tuple[list[Stream], list[bytes]]:
    """Streams, every second one intact, the others mutated; and the data of the intact ones."""
    rng = np.random.default_rng(seed)
    data = [d[: int(rng.integers(1, size))] for d in corpus(size, seed).values()]
    good = [encode(d) for d in data]
    streams, intact = [], []
    for i in range(count):
        k = int(rng.integers(0, len(good)))
        stream, want = good[k]
        if i % 2:
            other = int(rng.integers(-1, 2)) if i % 3 == 0 else 0
            stream, want = kit.mutate(stream, rng), max(want + other, 1)
        streams.append((stream, want))
        intact.append(data[k])
    return streams, intact


def check_hostile(streams: list[Stream], intact: list[bytes], status: Any, slots: kit.Slots) -> set[int]:
    """The verdict on each stream is liblz4's, the status the reference's; the statuses that were seen."""
    for i, (stream, want) in enumerate(streams):
        got = slots[i].tobytes()
        if i % 2 == 0:
            assert status[i] == Status.OK
            assert got == intact[i]
            continue
        expected = liblz4(stream, want)
        assert status[i] == lz4.reference(stream, want)[0]
        if status[i] == Status.OK:
            assert got == expected
        else:
            assert expected is None or is_forbidden(stream, want)
    return set(status.tolist())


ALL = {Status.OK, Status.TRUNCATED, Status.BAD_OFFSET, Status.OVERFLOW, Status.SHORT}


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_hostile_streams_among_intact_ones(kernel: Kernel, lane: str) -> None:
    """Verdicts are liblz4's, nothing is written outside a slot, intact neighbours, which run first, come back.

    ``ZARRGPU_FUZZ=N`` makes N mutated streams.
    """
    count, size = (20_000, 400) if lane != "sim" else (400, 300)
    count = 2 * int(os.environ.get("ZARRGPU_FUZZ", count // 2))
    seen: set[int] = set()
    for seed, begin in enumerate(range(0, count, 20_000), 1):
        streams, intact = hostile(min(20_000, count - begin), size, seed)
        order = np.concatenate([np.arange(0, len(streams), 2), np.arange(1, len(streams), 2)])
        status, slots = decode(kernel, lane, streams, order)
        seen |= check_hostile(streams, intact, status, slots)
    assert seen == ALL


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_bytes_around_a_stream_do_not_matter(kernel: Kernel, lane: str) -> None:
    """The same statuses and output, whatever lies around the streams."""
    streams, _ = hostile(16, 300, 2)
    for stream in streams:
        a, slots_a = decode(kernel, lane, [(b"", 0), stream, (b"\xff" * 9, 0)], order=[1], filler=0)
        b, slots_b = decode(kernel, lane, [(b"", 0), stream, (b"\x11" * 9, 0)], order=[1], filler=0xFF)
        assert a[1] == b[1]
        if a[1] == Status.OK:
            assert slots_a[1].tobytes() == slots_b[1].tobytes()


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_slots_side_by_side(kernel: Kernel, lane: str) -> None:
    """With not a byte between the slots, at all alignments, streams that fail leave their neighbours alone."""
    streams, intact = hostile(48, 200, 3)
    encoded = b"".join(s for s, _ in streams)
    source = np.frombuffer(encoded.ljust((len(encoded) + 15) // 16 * 16, b"\xff"), np.uint8).copy()
    table = np.zeros((len(streams), t.STREAM_COLUMNS), np.int64)
    table[:, t.S_SIZE], table[:, t.S_WANT] = zip(*[(len(s), w) for s, w in streams], strict=True)
    table[:, t.S_START] = np.cumsum(table[:, t.S_SIZE]) - table[:, t.S_SIZE]
    table[:, t.S_DEST] = np.cumsum(table[:, t.S_WANT]) - table[:, t.S_WANT]
    scratch = np.zeros((int(table[:, t.S_WANT].sum()) + 15) // 16 * 16, np.uint8)
    order = np.concatenate([np.arange(0, 48, 2), np.arange(1, 48, 2)])
    status = np.full(48, -1, np.int32)
    run(kernel, lane, 48, source, scratch, table, order, status)
    for i in range(0, 48, 2):
        assert status[i] == Status.OK
        assert scratch[table[i, t.S_DEST] :][: table[i, t.S_WANT]].tobytes() == intact[i]


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_a_table_that_points_outside_an_arena(kernel: Kernel, lane: str) -> None:
    """Gets BAD_TABLE, and nothing is read or written for it."""
    stream, want = encode(bytes(range(60)) * 2)
    source = np.zeros(256, np.uint8)
    source[: len(stream)] = np.frombuffer(stream, np.uint8)
    scratch = np.full(512, kit.GUARD, np.uint8)
    good, n = (0, len(stream), 0, want, 0), len(stream)
    bad = [
        (-1, n, 0, want, 0),
        (256 - n + 1, n, 0, want, 0),
        (256, 1, 0, want, 0),
        (0, -1, 0, want, 0),
        (0, 257, 0, want, 0),
        (0, 1 << 40, 0, want, 0),
        (1 << 62, 1 << 62, 0, want, 0),
        (0, n, -1, want, 0),
        (0, n, 512 - want + 1, want, 0),
        (0, n, 0, -1, 0),
        (0, n, 0, 513, 0),
        (0, n, -(1 << 63), want, 0),
        (0, n, 0, (1 << 63) - 1, 0),
    ]
    table = np.array([*bad, good], np.int64)
    status = np.full(len(table), -1, np.int32)
    args = (source, scratch, table, np.arange(len(table)), status)
    run(kernel, lane, len(bad), *args)
    assert status.tolist() == [Status.BAD_TABLE] * len(bad) + [-1]
    assert (scratch == kit.GUARD).all()
    run(kernel, lane, len(table), *args)
    assert status[-1] == Status.OK
    status[:] = -1
    run(kernel, lane, 3, source, scratch, table, np.array([-1, len(table), 1 << 40]), status)
    assert (status == -1).all()


@pytest.mark.parametrize(("kernel", "lane"), CASES)
def test_arenas_larger_than_4_gib(kernel: Kernel, lane: str) -> None:
    """Streams and slots beyond what 32 bits can address."""
    data = [corpus(800)["text"], corpus(800)["ints"]]
    encoded = [encode(d) for d in data]
    source, scratch = np.zeros((1 << 32) + 4096, np.uint8), np.zeros((1 << 32) + 4096, np.uint8)
    table = np.zeros((2, t.STREAM_COLUMNS), np.int64)
    for i, (stream, want) in enumerate(encoded):
        start, dest = (1 << 32) - 77 + 2000 * i, (1 << 32) - 33 + 1001 * i
        source[start : start + len(stream)] = np.frombuffer(stream, np.uint8)
        table[i] = (start, len(stream), dest, want, 0)
    status = np.full(2, -1, np.int32)
    run(kernel, lane, 2, source, scratch, table, np.arange(2), status)
    assert status.tolist() == [Status.OK] * 2
    for line, d in zip(table, data, strict=True):
        assert scratch[line[t.S_DEST] : line[t.S_DEST] + len(d)].tobytes() == d


@pytest.mark.nogpu("the simulator's schedule is what is random")
@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("seed", [1, 2])
def test_lanes_in_any_order(name: str, seed: int) -> None:
    """A missing barrier would show as wrong bytes when lanes run in a random order."""
    if GPU:
        pytest.skip("no simulator here")
    from tests import fastsim

    data = [d for k, d in corpus(700, seed).items() if not k.startswith("period") or k[-1] in "17"]
    with fastsim.scheduled(seed):
        status, slots = decode(KERNELS[name], "sim", [encode(d) for d in data])
    assert status.tolist() == [Status.OK] * len(data)
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d
