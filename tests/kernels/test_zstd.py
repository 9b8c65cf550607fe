"""Zstandard's kernels: what libzstd encodes they decode, what it refuses they refuse, all inside their slots."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from numcodecs.zstd import compress

from tests import kit
from tests.conftest import GPU
from tests.kernels.zstd_kit import (
    LANES,
    MAGIC,
    Stream,
    as_before,
    block,
    blocks_of,
    decode,
    frame,
    header,
    kinds,
    libzstd,
    run,
    run_group,
    scan,
    skippable,
)
from zarrgpu.kernels import tables as t
from zarrgpu.kernels import zstd
from zarrgpu.kernels.tables import Status
from zarrgpu.kernels.zstd_codes import Fault
from zarrgpu.kernels.zstd_format import BLOCK_COLUMNS, Z_LITERALS, Z_MODES, Z_SEQUENCES
from zarrgpu.kernels.zstd_reference import decode as reference

LEVELS = (-5, 1, 3, 9, 19)


def by_reference(stream: bytes, want: int) -> Status | bytes:
    """The bytes that the reference makes of a stream, or why it refuses it."""
    try:
        return reference(stream, want)
    except Fault as fault:
        return Status(fault.args[0])


def check(lane: str, streams: list[Stream], data: list[bytes]) -> None:
    """All streams decode to their data."""
    status, slots = decode(lane, streams)
    assert Counter(status.tolist()) == {Status.OK: len(streams)}
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d, i


@pytest.mark.parametrize("lane", LANES)
def test_data_come_back(lane: str) -> None:
    """All kinds of data and levels, from a byte on, streams and slots at all alignments, with and without checksums."""
    sizes, levels = ((700, 5000, 70_000), LEVELS) if not lane.startswith("sim") else ((300,), (1, 19))
    data = [d for n in sizes for d in kinds(n, n).values()] + [bytes(range(n)) for n in range(1, 40, 7)]
    data = [d for d in data for _ in levels[: 1 if lane.startswith("sim") else None]]
    check(lane, [(bytes(compress(d, levels[k % len(levels)], k % 3 == 0)), len(d)) for k, d in enumerate(data)], data)


@pytest.mark.parametrize("lane", [lane for lane in LANES if not lane.startswith("sim")])
def test_large_frames(lane: str) -> None:
    """Of many blocks, which use what earlier ones described."""
    data = [d for d in kinds(400_000, 4).values() for _ in LEVELS]
    check(lane, [(bytes(compress(d, LEVELS[k % 5], k % 2 == 0)), len(d)) for k, d in enumerate(data)], data)


@pytest.mark.parametrize("lane", LANES[1:])
@pytest.mark.parametrize("level", [3, 19])
def test_groups_and_long_sequences_in_turn(lane: str, level: int) -> None:
    """Sources in the ring, before it, and in what is made at the same time; literals of all lengths."""
    rng = np.random.default_rng(5)
    fields = np.cumsum(rng.normal(size=2000)).astype("f4").round(1).tobytes()
    text = kinds(3000)["text"]
    parts = [fields, bytes(3000), rng.bytes(2500), fields[1000:5000], b"ab" * 900, text, fields, text[:2000] + fields]
    data = [b"".join(parts), b"".join(parts[::-1])]
    check(lane, [(bytes(compress(d, level)), len(d)) for d in data], data)


def joined() -> Iterator[Stream]:
    """Frames of unknown size of blocks that use the codes and offsets of those before, and of every kind of block."""
    between, between_size = [block(0, b"raw"), block(1, b"r", 300), block(0, b"")], 303
    for name in ("text", "ints", "skewed", "repeats", "floats shuffled", "nibbles"):
        for level in (1, 19):
            first, second = kinds(900, 1)[name], kinds(900, 2)[name]
            (one,), (two,) = blocks_of(first, level), blocks_of(second, level)
            yield frame([one, *between, two, one]), 2 * len(first) + len(second) + between_size
            if one[3] & 3 == 2:
                again = [one, as_before(one), two, *between, as_before(two), as_before(two)]
                yield frame(again), 2 * len(first) + 3 * len(second) + between_size


@pytest.mark.parametrize("lane", LANES)
def test_codes_and_offsets_of_earlier_blocks(lane: str) -> None:
    """Treeless literals, sequences whose three codes are those before, repeat offsets across blocks of other kinds."""
    streams = list(joined())
    data = [libzstd(*stream) for stream in streams]
    assert len(data) > 18
    good = [(stream, d) for stream, d in zip(streams, data, strict=True) if d is not None]
    assert len(good) == len(data)
    check(lane, *map(list, zip(*good, strict=True)))


TEXT = kinds(600)["text"]


def by_hand() -> Iterator[tuple[Status, bytes, int]]:
    """(status, stream, size): each way in which a stream can be wrong, and what is right but rare."""
    plain, checked, n = bytes(compress(TEXT, 3)), bytes(compress(TEXT, 3, True)), len(TEXT)
    (coded,) = blocks_of(TEXT, 3)
    last_of_coded = coded[:-1] + b"\0"
    yield from [
        (Status.OK, plain, n),
        (Status.OK, frame([coded]), n),
        (Status.OK, frame([coded], n, window=0), n),
        (Status.OK, plain + skippable(5) + checked, 2 * n),
        (Status.OK, skippable(0, 15) + plain, n),
        (Status.OK, plain + bytes(compress(b"")) + plain, 2 * n),
        (Status.OK, frame([block(0, b"raw"), block(1, b"r", 500), block(0, b""), block(0, b"end")]), 506),
        (Status.OK, header(2**64 - 1) + block(0, b"ab", last=True), 2),  # a size that is not known
        (Status.OK, header(2, dictionary=b"\0\0\0\0") + block(0, b"ab", last=True), 2),
        (Status.OK, frame([block(2, b"\x18abc\0")]), 3),  # raw literals and nothing else
        (Status.OK, frame([block(2, b"\x19a\0")]), 3),  # and one of them repeated
        (Status.WRONG_SIZE, b"", 5),
        (Status.WRONG_SIZE, skippable(5), 5),
        (Status.SHORT, frame([block(0, b"abc")]), 4),
        (Status.TRUNCATED, plain[:4], n),
        (Status.TRUNCATED, plain[:6], n),
        (Status.TRUNCATED, plain[:-1], n),
        (Status.TRUNCATED, checked[:-1], n),
        (Status.TRUNCATED, plain + b"\x28", n),
        (Status.TRUNCATED, skippable(5)[:-1], n),
        (Status.TRUNCATED, skippable(5)[:7], n),
        (Status.TRUNCATED, header(3) + block(0, b"abc"), 3),  # no block says that it is the last
        (Status.BAD_HEADER, b"nothing", n),
        (Status.BAD_HEADER, plain + b"nothing", n),
        (Status.BAD_HEADER, MAGIC + bytes([plain[4] | 8]) + plain[5:], n),
        (Status.BAD_HEADER, frame([block(3, b"abc")]), 3),
        (Status.BAD_HEADER, frame([block(2, b"\0")]), 3),
        (Status.BAD_HEADER, frame([block(2, b"\0\1")]), 3),
        (Status.BAD_HEADER, frame([as_before(coded)]), n),
        (Status.BAD_HEADER, frame([block(2, b"\x18abc\x00\x00")]), 3),  # a byte after no sequences
        (Status.BAD_BOUNDS, frame([block(2, b"\xf8abcde")]), 31),
        (Status.WRONG_SIZE, plain, n + 1),
        (Status.WRONG_SIZE, plain, n - 1),
        (Status.WRONG_SIZE, header(4) + block(0, b"abc", last=True), 4),
        (Status.WRONG_SIZE, header(2**63) + block(0, b"abc", last=True), 3),
        (Status.OVERFLOW, frame([block(0, b"abc")]), 2),
        (Status.OVERFLOW, frame([coded]), n - 1),
        (Status.BAD_CODE, frame([last_of_coded]), n),
        (Status.BAD_CHECKSUM, checked[:-1] + bytes([checked[-1] ^ 1]), n),
        (Status.UNSUPPORTED, header(2, dictionary=b"\1") + block(0, b"ab", last=True), 2),
        (Status.UNSUPPORTED, header(1 << 18) + block(1, b"r", 1 << 18, last=True), 1 << 18),
        (Status.UNSUPPORTED, frame([coded], window=0xFF), n),
        (Status.UNSUPPORTED, frame([block(0, b"")] * 2000 + [block(0, b"ab")]), 2),  # tables of more than their worth
    ]
    match = (
        b"\x08r\x01\x54"  # a literal r, a sequence, its three codes of a single symbol each: then those, and the bits
    )
    yield from [
        (Status.OK, frame([block(2, match + b"\1\0\0" + b"\1")]), 4),
        (Status.BAD_OFFSET, frame([block(2, match + b"\1\2\0" + b"\6")]), 4),  # 3 bytes before the only one
        (Status.BAD_CODE, frame([block(2, match + b"\2\0\0" + b"\1")]), 5),  # more literals than there are
        (Status.BAD_CODE, frame([block(2, match + b"\1\0\0" + b"\2")]), 4),  # a bit too many
        (Status.BAD_CODE, frame([block(2, match + b"\1\0\0" + b"\0")]), 4),  # no end
        (Status.BAD_CODE, frame([block(2, match + b"\x24\0\0" + b"\1")]), 4),  # no such code
        (Status.BAD_CODE, frame([block(2, match + b"\1\0\x35" + b"\1")]), 4),
        (Status.BAD_CODE, frame([block(2, match + b"\1\x20\0" + b"\1")]), 4),
        (Status.UNSUPPORTED, frame([block(2, match + b"\1\x1b\0" + b"\0\0\0\x08")]), 4),  # an offset of 2^27
        (Status.UNSUPPORTED, frame([block(2, match + b"\1\0\x34" + b"\xff\xff\1")]), 131_075),  # a large block
        (Status.UNSUPPORTED, frame([block(2, match[:3] + b"\x55\1\0\0" + b"\1")]), 4),  # a reserved bit
    ]


@pytest.mark.parametrize("lane", LANES)
def test_each_status(lane: str) -> None:
    """Streams made by hand get the status that says what is wrong with them."""
    expected, streams, sizes = zip(*by_hand(), strict=True)
    status, _ = decode(lane, list(zip(streams, sizes, strict=True)))
    got = [Status(s).name for s in status]
    assert got == [s.name for s in expected]


def test_the_verdict_on_them_is_libzstd_s() -> None:
    """And the reference's; `UNSUPPORTED` ones may be good or not."""
    for i, (expected, stream, want) in enumerate(by_hand()):
        ours, theirs = by_reference(stream, want), libzstd(stream, want)
        if expected is Status.OK:
            assert ours == theirs, i
        elif expected is not Status.UNSUPPORTED:
            assert theirs is None, i
            assert isinstance(ours, Status), i


def hostile(count: int, size: int, seed: int) -> tuple[list[Stream], list[bytes]]:
    """Streams, every second one intact, the others mutated; and the data of the intact ones."""
    rng = np.random.default_rng(seed)
    good: list[Stream] = [*joined()] if size > 500 else []
    for d in kinds(size, seed).values():
        part = d[: int(rng.integers(1, size))]
        good += [(bytes(compress(part, level, level > 3)), len(part)) for level in LEVELS]
        good += [(frame(blocks_of(part, 5)), len(part)), (2 * bytes(compress(part, 3)), 2 * len(part))]
    streams, intact = [], []
    for i in range(count):
        stream, want = good[int(rng.integers(0, len(good)))]
        data = libzstd(stream, want)
        assert data is not None
        if i % 2:
            stream, want = kit.mutate(stream, rng), max(want + (int(rng.integers(-1, 2)) if i % 3 == 0 else 0), 1)
        streams.append((stream, want))
        intact.append(data)
    return streams, intact


def seen(streams: list[Stream], intact: list[bytes], status: np.ndarray, slots: kit.Slots) -> Counter[Status]:
    """How often each verdict was given, all of them being libzstd's, but for what is left to it."""
    for i, (stream, want) in enumerate(streams):
        got = slots[i].tobytes()
        if i % 2 == 0:
            assert status[i] == Status.OK, i
            assert got == intact[i], i
        elif status[i] == Status.OK:
            assert got == libzstd(stream, want), i
        elif status[i] != Status.UNSUPPORTED:
            assert libzstd(stream, want) is None, (i, Status(status[i]), stream.hex())
    return Counter(Status(s) for s in status[1::2])


@pytest.mark.parametrize("lane", LANES)
def test_hostile_streams_among_intact_ones(lane: str) -> None:
    """Verdicts are libzstd's, nothing is written outside a slot, intact neighbours come back.

    ``ZARRGPU_FUZZ=N`` makes N mutated streams.
    """
    count, size = (4000, 600) if not lane.startswith("sim") else (120, 200)
    count = 2 * int(os.environ.get("ZARRGPU_FUZZ", count // 2))
    found: Counter[Status] = Counter()
    for seed, begin in enumerate(range(0, count, 4000)):
        streams, intact = hostile(min(4000, count - begin), size, seed)
        order = [*range(0, len(streams), 2), *range(1, len(streams), 2)]
        found += seen(streams, intact, *decode(lane, streams, order=order))
    assert found[Status.UNSUPPORTED] < 0.2 * found.total()
    if not lane.startswith("sim"):
        refused = {Status.TRUNCATED, Status.BAD_CODE, Status.BAD_HEADER, Status.BAD_CHECKSUM}
        assert found.keys() >= refused | {Status.OK, Status.UNSUPPORTED, Status.WRONG_SIZE}
        assert found[Status.OK] > 20


@pytest.mark.parametrize("lane", LANES)
def test_bytes_around_a_stream_do_not_matter(lane: str) -> None:
    """The same statuses and output, whatever lies around the streams."""
    streams, _ = hostile(24 if not lane.startswith("sim") else 8, 150, 2)
    for stream in streams:
        a, slots_a = decode(lane, [(b"", 0), stream, (b"\xff" * 9, 0)], order=[1], filler=0)
        b, slots_b = decode(lane, [(b"", 0), stream, (b"\x11" * 9, 0)], order=[1], filler=0xFF)
        assert a[1] == b[1]
        if a[1] == Status.OK:
            assert slots_a[1].tobytes() == slots_b[1].tobytes()


@pytest.mark.parametrize("lane", LANES)
def test_slots_side_by_side(lane: str) -> None:
    """With not a byte between the slots, at all alignments, streams that fail leave their neighbours alone."""
    streams, intact = hostile(48 if not lane.startswith("sim") else 24, 200, 3)
    encoded = b"".join(s for s, _ in streams)
    source = np.frombuffer(encoded.ljust((len(encoded) + 15) // 16 * 16, b"\xff"), np.uint8).copy()
    n = len(streams)
    table = np.zeros((n, t.STREAM_COLUMNS), np.int64)
    table[:, t.S_SIZE], table[:, t.S_WANT] = zip(*[(len(s), w) for s, w in streams], strict=True)
    table[:, t.S_START] = np.cumsum(table[:, t.S_SIZE]) - table[:, t.S_SIZE]
    table[:, t.S_DEST] = np.cumsum(table[:, t.S_WANT]) - table[:, t.S_WANT]
    scratch = np.zeros((int(table[:, t.S_WANT].sum()) + 15) // 16 * 16, np.uint8)
    status = np.zeros(n, np.int32)
    run(lane, source, scratch, table, np.argsort(-table[:, t.S_SIZE]), status)
    for i in range(0, n, 2):
        assert status[i] == Status.OK
        assert scratch[table[i, t.S_DEST] :][: table[i, t.S_WANT]].tobytes() == intact[i]


@pytest.mark.parametrize("lane", LANES)
def test_groups_share_what_room_there_is(lane: str) -> None:
    """Streams whose tables are larger than what they decode to are decoded some at a time."""
    data = [b"ab%d" % i for i in range(12)]
    streams = [(frame([block(0, b"")] * 3 + [block(0, d)]), len(d)) for d in data]
    encoded = b"".join(s for s, _ in streams)
    source = np.frombuffer(encoded.ljust((len(encoded) + 15) // 16 * 16), np.uint8).copy()
    table = np.zeros((12, t.STREAM_COLUMNS), np.int64)
    table[:, t.S_SIZE], table[:, t.S_WANT] = zip(*[(len(s), w) for s, w in streams], strict=True)
    table[:, t.S_START] = np.cumsum(table[:, t.S_SIZE]) - table[:, t.S_SIZE]
    table[:, t.S_DEST] = 16 * np.arange(12)
    scratch, status = np.full(192, kit.GUARD, np.uint8), np.zeros(12, np.int32)
    groups = run(lane, source, scratch, table, np.arange(12), status)
    assert [len(group.lines) for group in groups] == [1] * 12
    assert not status.any()
    assert b"".join(scratch[16 * i :][: len(d)].tobytes() for i, d in enumerate(data)) == b"".join(data)
    assert (scratch == kit.GUARD).sum() == 192 - sum(map(len, data))


@pytest.mark.parametrize("lane", LANES)
def test_hostile_tables(lane: str) -> None:
    """Lines that point outside an arena, the pool, the stream or the slot get BAD_TABLE, and nothing is touched."""
    stream, want = bytes(compress(TEXT, 19, True)), len(TEXT)
    source = np.zeros((len(stream) + 31) // 16 * 16, np.uint8)
    source[: len(stream)] = np.frombuffer(stream, np.uint8)
    scratch = np.full(1024, kit.GUARD, np.uint8)
    good = (0, len(stream), 16, want, 0)
    bad = [(-1, *good[1:]), (64, *good[1:]), (0, -1, *good[2:]), (1 << 62, 1 << 62, *good[2:]), (*good[:3], -1, 0)]
    table, status = np.array(bad, np.int64), np.zeros(len(bad), np.int32)
    assert not run(lane, source, scratch, table, np.arange(len(bad)), status)
    assert status.tolist() == [Status.BAD_TABLE] * len(bad)
    status = np.full(1, -1, np.int32)
    assert not run(lane, source, scratch, table[:1], [-1, 1, 1 << 40], status)
    assert status.tolist() == [-1]
    table, status = np.array([good], np.int64), np.zeros(1, np.int32)
    (group,) = scan(source, table, np.arange(1), status)
    assert group.blocks[Z_LITERALS] == 2
    assert group.blocks[Z_SEQUENCES] > 0
    assert group.blocks.size == BLOCK_COLUMNS
    for column in range(BLOCK_COLUMNS):  # whatever a line says, no byte outside the slot is written
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF) if not lane.startswith("sim") else (0xFFFFFFFF,):
            blocks = group.blocks.copy()
            blocks[column] = value
            broken = zstd.Group(group.lines, group.first, blocks, group.sequences, group.checked)
            status[:] = 0
            scratch[:] = kit.GUARD
            run_group(lane, broken, source, scratch, table, status)
            assert (scratch[:16] == kit.GUARD).all()
            assert (scratch[16 + want :] == kit.GUARD).all()
    for dest in (-16, 1024, 1024 - want + 1, 1 << 62):
        table[0, t.S_DEST] = dest
        scratch[:], status[:] = kit.GUARD, 0
        run_group(lane, group, source, scratch, table, status)
        assert status[0] == Status.BAD_TABLE
        assert (scratch == kit.GUARD).all()
    assert group.blocks[Z_MODES] < 256


@pytest.mark.parametrize("lane", kit.LANES)
def test_arenas_larger_than_4_gib(lane: str) -> None:
    """Streams and slots beyond what 32 bits can address."""
    data = [kinds(400)["text"], kinds(400)["ints"]]
    source, scratch = np.zeros((1 << 32) + 4096, np.uint8), np.zeros((1 << 32) + 4096, np.uint8)
    table = np.zeros((2, t.STREAM_COLUMNS), np.int64)
    for i, d in enumerate(data):
        stream = bytes(compress(d, 3, True))
        start, dest = (1 << 32) - 77 + 2000 * i, (1 << 32) - 33 + 1001 * i
        source[start : start + len(stream)] = np.frombuffer(stream, np.uint8)
        table[i] = (start, len(stream), dest, len(d), 0)
    status = np.zeros(2, np.int32)
    run(lane, source, scratch, table, np.arange(2), status)
    assert status.tolist() == [Status.OK] * 2
    for line, d in zip(table, data, strict=True):
        assert scratch[line[t.S_DEST] : line[t.S_DEST] + len(d)].tobytes() == d


@pytest.mark.parametrize("lane", LANES)
def test_matches_from_outside_the_window(lane: str) -> None:
    """In a frame without a size, libzstd may have forgotten them, as a stream; in one call it has not."""
    (coded,) = blocks_of(np.random.default_rng(0).bytes(500) * 2, 9)
    pieces, want = [coded, *[block(0, bytes(800))] * 2, as_far(1000 + 1600)], 1000 + 1600 + 4
    small, large, sized = frame(pieces, window=0), frame(pieces), frame(pieces, want, window=0)
    assert libzstd(small, want) == libzstd(large, want)
    for streaming in (False, True):
        status, slots = decode(lane, [(small, want), (large, want), (sized, want)], streaming)
        assert status.tolist() == [Status.UNSUPPORTED if streaming else Status.OK, Status.OK, Status.OK]
        assert slots[1].tobytes() == slots[2].tobytes() == libzstd(large, want)


def as_far(back: int) -> bytes:
    """A block of a literal and a match of three bytes, from `back` bytes before the block."""
    code = (back + 1 + 3).bit_length() - 1
    extra = back + 1 + 3 - (1 << code)
    bits = (1 << code | extra).to_bytes(code // 8 + 1, "little")
    return block(2, b"\x08r\x01\x54\1" + bytes([code]) + b"\0" + bits)


@pytest.mark.nogpu("the simulator's schedule is what is random")
@pytest.mark.parametrize("lane", ["sim", "sim crew"])
@pytest.mark.parametrize("seed", [1, 2])
def test_lanes_in_any_order(lane: str, seed: int) -> None:
    """A missing barrier would show as wrong bytes when lanes run in a random order."""
    if GPU:
        pytest.skip("no simulator here")
    from tests import fastsim

    data = [d for k, d in kinds(300, seed).items() if not k.startswith("period")]
    with fastsim.scheduled(seed):
        check(lane, [(bytes(compress(d, 9, True)), len(d)) for d in data], data)
