"""Checksums of ranges are those of zlib, google_crc32c and numcodecs, wherever the ranges lie; nothing else passes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import google_crc32c
import numpy as np
import pytest
from numcodecs.fletcher32 import Fletcher32

from tests import kit
from tests.conftest import GPU
from tests.kit import Array
from zarrgpu.kernels import adler32, checksums, crc32, fletcher32
from zarrgpu.kernels.checksums import K_ARENA, K_FIRST, K_SIZE, K_STORED, SEGMENT, Checksum
from zarrgpu.kernels.tables import FILL, SCRATCH, SOURCE, Status

OK, BAD_CHECKSUM, BAD_TABLE = Status.OK, Status.BAD_CHECKSUM, Status.BAD_TABLE


def fletcher(data: bytes) -> int:
    """What numcodecs appends; it takes no empty payload, of which HDF5 makes 0."""
    return int.from_bytes(bytes(Fletcher32().encode(np.frombuffer(data, np.uint8)))[-4:], "little") if data else 0


ORACLES: dict[Checksum, Callable[[bytes], int]] = {
    crc32.CRC32: zlib.crc32,
    crc32.CRC32C: google_crc32c.value,
    adler32.ADLER32: zlib.adler32,
    fletcher32.FLETCHER32: fletcher,
}
every = pytest.mark.parametrize("checksum", ORACLES, ids=lambda checksum: checksum.name)
everywhere = pytest.mark.parametrize("lane", kit.LANES)


class Range(NamedTuple):
    """A payload, how many bytes after a multiple of four it starts, its arena, where and what is stored for it."""

    payload: bytes
    skew: int = 0
    arena: int = SOURCE
    before: bool = False
    stored: int | None = None


def lay_out(checksum: Checksum, ranges: Iterable[Range]) -> tuple[Array, Array, Array]:
    """The two arenas, with other bytes between the ranges and none after the last one, and the table."""
    arenas = (bytearray(b"\x5a" * 4), bytearray(b"\xa5" * 8))
    checks = []
    for payload, skew, arena, before, stored in ranges:
        memory = arenas[arena]
        value = (ORACLES[checksum](payload) if stored is None else stored).to_bytes(4, "little")
        if before:
            at = len(memory)
            memory += value
        memory += bytes(range(1, 5))[: (skew - len(memory)) % 4]
        first = len(memory)
        memory += payload
        if not before:
            at = len(memory)
            memory += value
        checks.append((arena, first, len(payload), at))
    source, scratch = (np.frombuffer(memory, np.uint8).copy() for memory in arenas)
    return source, scratch, np.array(checks, np.int64)


def verify(
    checksum: Checksum, lane: str, source: Array, scratch: Array, checks: Array, groups: int | None = None
) -> list[int]:
    """Statuses of `checks`, which are alone in what is written."""
    groups = checksum.groups(checks) if groups is None else groups
    n = len(checks)
    guard = np.uint64(0xA5A5A5A5A5A5A5A5)
    partial = np.full(n * groups + 4, guard)
    tables = checksum.tables
    status = np.full(n + 4, -1, np.int32)
    views = [a[: a.size & ~3].view(np.uint32) for a in (source, scratch)]
    kit.run(checksum.partial, lane, n * groups, groups, source, views[0], scratch, views[1], checks, tables, partial)
    assert (partial[-4:] == guard).all()
    kit.run(checksum.verdict, lane, n, groups, source, scratch, checks, tables, partial, status)
    assert (status[-4:] == -1).all()
    bad = np.flatnonzero(status[:n] == BAD_TABLE)
    assert (partial[:-4].reshape(n, groups)[bad] == guard).all(), "a bad line of the table left something"
    return [int(s) for s in status[:n]]


def noise(n: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(n)


@every
def test_references_say_what_the_oracles_say(checksum: Checksum) -> None:
    polynomials = {crc32.CRC32: crc32.ZLIB, crc32.CRC32C: crc32.CASTAGNOLI}
    for data in [b"", b"123456789", bytes(9), noise(1001), b"\xff" * 1000, noise(SEGMENT + 77)]:
        if checksum in polynomials:
            assert crc32.reference(data, polynomials[checksum]) == ORACLES[checksum](data)
        else:
            module = {adler32.ADLER32: adler32, fletcher32.FLETCHER32: fletcher32}[checksum]
            assert module.reference(data) == ORACLES[checksum](data)


@every
@everywhere
def test_short_payloads_at_every_alignment(lane: str, checksum: Checksum) -> None:
    """Of 0 to 70 bytes, in either arena, with what is stored on either side, all in one launch."""
    ranges = [
        Range(noise(size, size), skew, (SOURCE, SCRATCH)[size + skew & 1], bool(size + (skew >> 1) & 2))
        for size in range(71)
        for skew in range(4)
        if lane != "sim" or size < 14 or skew == size // 3 % 4
    ]
    assert verify(checksum, lane, *lay_out(checksum, ranges)) == [OK] * len(ranges)


@every
@everywhere
def test_payloads_around_the_borders_of_segments(lane: str, checksum: Checksum) -> None:
    """The first segment has from a few bytes to all of them; ranges of all sizes share a launch."""
    sizes = [n * SEGMENT + extra for n in (1, 2, 3) for extra in (-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 130, 4000)]
    if lane == "sim":
        sizes = [SEGMENT, SEGMENT + 1, SEGMENT + 5]
    skews = {size: (size & 3,) if lane == "sim" else range(4) for size in sizes}
    ranges = [Range(noise(size, size), skew, skew & 1) for size in sizes for skew in skews[size]]
    ranges += [Range(b""), Range(b"abc", 3, SCRATCH), Range(noise(300), 1, SOURCE, before=True)]
    assert verify(checksum, lane, *lay_out(checksum, ranges)) == [OK] * len(ranges)


BYTES = {"noise": None, "ones": b"\xff", "zeros": b"\0", "sums_of_0": b"\0\0\xff\xff", "turns": b"\xff\0\0"}


@every
@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("lane", [lane for lane in kit.LANES if lane != "sim"])
def test_payloads_of_megabytes(lane: str, checksum: Checksum, kind: str) -> None:
    """More segments than a warp has lanes; the largest sums that there can be."""
    fill = BYTES[kind]
    ranges = []
    for n, size in enumerate((33 * SEGMENT + 9, 5_000_003, 20 << 20)):
        payload = noise(size) if fill is None else (fill * size)[:size]
        ranges += [Range(payload, n + 1, n & 1), Range(payload, n, SOURCE, stored=ORACLES[checksum](payload) ^ 1 << n)]
    statuses = verify(checksum, lane, *lay_out(checksum, ranges))
    assert statuses == [OK, BAD_CHECKSUM] * 3


@every
def test_the_lanes_of_a_warp_share_many_segments(checksum: Checksum) -> None:
    """The simulator combines what the host's twin made of each segment, which is all that a partial depends on."""
    if GPU:
        pytest.skip("no simulator here")
    ranges = [Range(payload, 3) for payload in (noise(32 * SEGMENT), b"\xff" * (67 * SEGMENT + 11), noise(SEGMENT))]
    source, scratch, checks = lay_out(checksum, ranges)
    groups = checksum.groups(checks)
    partial, status = np.zeros(checksum.partials(checks), np.uint64), np.full(3, -1, np.int32)
    words = source[: source.size & ~3].view(np.uint32)
    kit.run(
        checksum.partial, "host", partial.size, groups,
        source, words, scratch, kit.words(scratch), checks, checksum.tables, partial,
    )  # fmt: skip
    again = partial.copy()
    kit.run(checksum.verdict, "sim", 3, groups, source, scratch, checks, checksum.tables, partial, status)
    assert status.tolist() == [OK] * 3
    kit.run(
        checksum.partial, "sim", 2, groups,
        source, words, scratch, kit.words(scratch), checks, checksum.tables, again,
    )  # fmt: skip
    np.testing.assert_array_equal(partial[:2], again[:2])


@pytest.mark.parametrize("seed", range(3))
@every
def test_the_order_of_lanes_does_not_matter(checksum: Checksum, seed: int) -> None:
    if GPU:
        pytest.skip("no simulator here")
    from tests import fastsim

    ranges = [Range(noise(size, size), size & 3, size & 1) for size in (3, 9, 700, 2050)]
    with fastsim.scheduled(seed):
        assert verify(checksum, "sim", *lay_out(checksum, ranges)) == [OK] * len(ranges)


@every
@everywhere
def test_every_flipped_bit_is_found(lane: str, checksum: Checksum) -> None:
    """Of the payload, and of what is stored."""
    size = 9 if lane == "sim" else 45
    payload = noise(size)
    right = ORACLES[checksum](payload)
    ranges = [Range(payload)]
    for bit in range(0, 8 * size, 3 if lane == "sim" else 1):
        wrong = (int.from_bytes(payload, "little") ^ 1 << bit).to_bytes(size, "little")
        ranges.append(Range(wrong, bit & 3, bit >> 2 & 1, bool(bit >> 3 & 1), stored=right))
    ranges += [Range(payload, bit & 3, stored=right ^ 1 << bit) for bit in range(32)]
    statuses = verify(checksum, lane, *lay_out(checksum, ranges))
    assert statuses == [OK] + [BAD_CHECKSUM] * (len(ranges) - 1)


@every
@everywhere
def test_exchanged_words_and_lost_ends_are_found(lane: str, checksum: Checksum) -> None:
    """What has the same bytes in another order, or fewer of them, is told from the payload."""
    payload = noise(400)
    right = ORACLES[checksum](payload)
    wrong = [
        payload[4:8] + payload[:4] + payload[8:],
        payload[128:256] + payload[:128] + payload[256:],
        payload[:-4] + payload[-2:] + payload[-4:-2],
        payload[1:],
        payload[:-1],
        payload + b"\0",
        b"\0" + payload,
    ]
    ranges = [Range(payload, 2), *(Range(data, 2, stored=right) for data in wrong)]
    assert verify(checksum, lane, *lay_out(checksum, ranges)) == [OK] + [BAD_CHECKSUM] * len(wrong)


@every
@pytest.mark.parametrize("lane", [lane for lane in kit.LANES if lane != "cuda"])
def test_ranges_beyond_4_gib(lane: str, checksum: Checksum) -> None:
    """An arena of zeros takes no memory where it is not written to; a GPU's would be filled from here."""
    size = 200 if lane == "sim" else 5 * SEGMENT
    first = (1 << 32) - size // 2 + 1
    source, payload = np.zeros(first + size + 5, np.uint8), noise(size)
    source[first : first + size] = np.frombuffer(payload, np.uint8)
    source[-4:] = np.array([ORACLES[checksum](payload)], "<u4").view(np.uint8)
    checks = np.array([[SOURCE, first, size, source.size - 4], [SOURCE, first - 1, size, source.size - 4]])
    assert verify(checksum, lane, source, np.zeros(4, np.uint8), checks) == [OK, BAD_CHECKSUM]


@everywhere
def test_fletcher_has_two_zeros(lane: str) -> None:
    """A sum of zeros is 0, any other that is 0 modulo 65535 is 65535, as in HDF5."""
    pairs = [(0,), (65535,), (1, 65534), (1, 65533), (0, 0, 65535, 0), (65535,) * 40, (0,) * 40, (32768, 32767) * 30]
    payloads = [np.array(pair, ">u2").tobytes() for pair in pairs]
    ranges = [Range(payload, skew) for payload in payloads for skew in (0, 1)]
    checksum = fletcher32.FLETCHER32
    assert verify(checksum, lane, *lay_out(checksum, ranges)) == [OK] * len(ranges)
    zeros = [*(Range(payload, 1, stored=fletcher(payload) ^ 0xFFFF) for payload in payloads)]
    assert verify(checksum, lane, *lay_out(checksum, zeros)) == [BAD_CHECKSUM] * len(zeros)


HUGE = 1 << 62
FAULTS = {
    "arena_before_the_first": {K_ARENA: -1},
    "arena_of_missing_chunks": {K_ARENA: FILL},
    "arena_far_beyond": {K_ARENA: (1 << 32) + SOURCE},
    "before_the_arena": {K_FIRST: -1},
    "far_before_the_arena": {K_FIRST: -HUGE},
    "end_beyond_the_arena": {K_SIZE: 1 << 20},
    "start_beyond_the_arena": {K_FIRST: HUGE},
    "last_of_all_starts": {K_FIRST: (1 << 63) - 1},
    "negative_size": {K_SIZE: -1},
    "least_size": {K_SIZE: -(1 << 63)},
    "huge_size": {K_SIZE: HUGE - 3},
    "largest_size": {K_SIZE: (1 << 63) - 1},
    "start_and_size_that_overflow": {K_FIRST: HUGE, K_SIZE: HUGE},
    "negative_size_far_on": {K_FIRST: 100, K_SIZE: -90},
    "stored_before_the_arena": {K_STORED: -4},
    "stored_half_before_the_arena": {K_STORED: -2},
    "stored_far_beyond_the_arena": {K_STORED: HUGE},
    "last_of_all_stored": {K_STORED: (1 << 63) - 1},
}


@everywhere
@every
@pytest.mark.parametrize("fault", FAULTS)
def test_hostile_tables_are_reported_and_harm_nothing(lane: str, checksum: Checksum, fault: str) -> None:
    payload = noise(100)
    source, scratch, checks = lay_out(checksum, [Range(payload, 1), Range(payload, 2), Range(payload, 3)])
    for column, value in FAULTS[fault].items():
        checks[1, column] = value
    assert verify(checksum, lane, source, scratch, checks, groups=2) == [OK, BAD_TABLE, OK]


@everywhere
@every
def test_hostile_ranges_one_byte_too_long(lane: str, checksum: Checksum) -> None:
    """The payload or what is stored ends at the arena's last byte, or one after it; arenas end inside a word."""
    for extra in range(4):
        for before in (False, True):
            source, scratch, checks = lay_out(checksum, [Range(noise(40 + extra), 0, SCRATCH, before)])
            assert scratch.size & 3 == extra
            checks = np.repeat(checks, 2, axis=0)
            checks[1, K_SIZE if before else K_STORED] += 1
            assert verify(checksum, lane, source, scratch, checks) == [OK, BAD_TABLE]


@everywhere
@every
def test_hostile_arenas_that_hold_nothing(lane: str, checksum: Checksum) -> None:
    """No four bytes to read a stored value from: not even an empty payload can be checked."""
    for size in range(4):
        arena = np.zeros(size, np.uint8)
        checks = np.array([[SOURCE, 0, 0, 0], [SCRATCH, size, 0, 0], [SOURCE, 0, size, size - 4]], np.int64)
        assert verify(checksum, lane, arena, arena.copy(), checks, groups=1) == [BAD_TABLE] * 3


@everywhere
@every
def test_hostile_launches_with_too_little_room(lane: str, checksum: Checksum) -> None:
    """Fewer groups than a range has segments, a short `partial`, short tables: reported, never read past."""
    ranges = [Range(noise(SEGMENT + 100)), Range(noise(50))]
    source, scratch, checks = lay_out(checksum, ranges)
    assert checksum.groups(checks) == 2
    assert checksum.partials(checks) == 2 * 2
    assert verify(checksum, lane, source, scratch, checks) == [OK, OK]
    assert verify(checksum, lane, source, scratch, checks, groups=1) == [BAD_TABLE, OK]

    def statuses(groups: int, room: int, tables: Array) -> list[int]:
        partial, status = np.zeros(room, np.uint64), np.full(2, -1, np.int32)
        views = [a[: a.size & ~3].view(np.uint32) for a in (source, scratch)]
        kit.run(
            checksum.partial, lane, 2 * min(groups, 2), groups,
            source, views[0], scratch, views[1], checks, tables, partial,
        )  # fmt: skip
        kit.run(checksum.verdict, lane, 2, groups, source, scratch, checks, tables, partial, status)
        return status.tolist()

    assert statuses(2, 3, checksum.tables)[1] == BAD_TABLE
    assert statuses(HUGE, 4, checksum.tables) == [BAD_TABLE, BAD_TABLE]
    assert statuses(-1, 4, checksum.tables) == [BAD_TABLE, BAD_TABLE]
    if checksum in (crc32.CRC32, crc32.CRC32C):  # the others look nothing up
        assert statuses(2, 4, checksum.tables[:-1].copy()) == [BAD_TABLE, BAD_TABLE]


def test_groups_follow_the_segments() -> None:
    """Words that a payload touches, not its bytes, decide; a table without ranges needs nothing."""
    table = np.zeros((1, checksums.CHECK_COLUMNS), np.int64)
    checksum = adler32.ADLER32
    for first, size, groups in [
        (0, 0, 0), (0, SEGMENT, 1), (3, SEGMENT, 1), (3, SEGMENT + 1, 2), (0, SEGMENT + 3, 1), (0, SEGMENT + 4, 2),
        (1, 40 * SEGMENT, 40), (0, -5, 0),
    ]:  # fmt: skip
        table[0, K_FIRST], table[0, K_SIZE] = first, size
        assert checksum.groups(table) == groups
    assert checksum.groups(table[:0]) == 0
    assert checksum.partials(table[:0]) == 0


@every
@everywhere
def test_several_ranges_of_a_stream_are_compared_with_their_values(checksum: Checksum, lane: str) -> None:
    """The first wrong one decides; lines after one that is none, and streams that were refused, are not looked at."""
    rng = np.random.default_rng(0)
    scratch = rng.integers(0, 256, 3 * SEGMENT, np.uint8)
    source = np.zeros(16, np.uint8)
    ranges = [(0, 50), (51, 3), (60, 0), (1001, SEGMENT + 9), (5, 2 * SEGMENT), (7, 100)]
    good = [(SCRATCH, a, n, 0, ORACLES[checksum](scratch[a : a + n].tobytes()) & 0xFFFFFFFF) for a, n in ranges]
    wrong, none = [(*line[:4], line[4] ^ 1) for line in good], (-1, 7, 7, 7, 7)
    cases = [
        (OK, [good[0], good[1], good[2]]),
        (OK, [good[3], good[4], none]),
        (OK, [good[3], none, wrong[4]]),
        (BAD_CHECKSUM, [good[0], wrong[1], good[2]]),
        (BAD_CHECKSUM, [wrong[4], none, none]),
        (BAD_TABLE, [good[0], (SCRATCH, 3 * SEGMENT - 5, 6, 0, 0), wrong[1]]),
        (BAD_TABLE, [(FILL, 0, 5, 0, 0), none, none]),
    ]
    order = np.array([6, 5, 4, 3, 2, 1, 0, -1, 99], np.int64)
    table = np.array([line for s in order for line in (cases[s][1] if 0 <= s < 7 else [none] * 3)], np.int64)
    for groups in (checksum.groups(table[:, :4]), 1):
        partial = np.zeros(len(table) * groups, np.uint64)
        status = np.zeros(9, np.int32)
        status[7] = Status.SHORT  # not in the order
        arenas = source, kit.words(source), scratch, kit.words(scratch)
        kit.run(checksum.partial, lane, len(table) * groups, groups, *arenas, table, checksum.tables, partial)
        rest = (table, checksum.tables, partial, order, status)
        kit.run(checksum.compare, lane, len(order), groups, source, scratch, *rest)
        want = [case[0] for case in cases]
        if groups == 1:  # too few for what is longer
            want[1] = want[2] = want[4] = BAD_TABLE
        assert status.tolist() == [*want, Status.SHORT, 0]
    status = np.full(9, Status.OVERFLOW, np.int32)
    kit.run(checksum.compare, lane, len(order), 1, source, scratch, table, checksum.tables, partial, order, status)
    assert (status == Status.OVERFLOW).all()
