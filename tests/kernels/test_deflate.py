"""The Deflate decoders: what zlib encodes they decode, what it refuses they refuse, all inside their slots."""

from __future__ import annotations

import itertools
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import kit
from tests.conftest import GPU
from tests.kernels.deflate_kit import (
    TINY,
    Stream,
    bits,
    cases,
    decode,
    described,
    encode,
    framed,
    kinds,
    number,
    oracle,
    run,
    variants,
)
from zarrgpu.kernels import checksums, deflate
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.deflate import GZIP, RAW, ZLIB
from zarrgpu.kernels.deflate_reference import Fault
from zarrgpu.kernels.deflate_reference import decode as reference
from zarrgpu.kernels.tables import Status

CASES = cases()
ONCE = [("solo", lane) for lane in kit.LANES]


def check(name: str, lane: str, streams: list[Stream], data: list[bytes], framing: int = RAW) -> None:
    """All streams decode to their data."""
    status, slots = decode(name, lane, streams, framing)
    assert Counter(status.tolist()) == {Status.OK: len(streams)}
    for i, d in enumerate(data):
        assert slots[i].tobytes() == d, i


@pytest.mark.parametrize(("name", "lane"), CASES)
def test_data_come_back(name: str, lane: str) -> None:
    """All kinds of data, levels, strategies and windows, streams and slots at all alignments."""
    sizes = (700, 5000, 70_000) if lane != "sim" else (600,)
    data = [d for n in sizes for d in kinds(n, n).values()]
    data += [bytes(range(n)) for n in (0, 1, 2, 3, 4, 5, 31)] + [b"ab" * n for n in (1, 3, 20, 133)]
    pairs = []
    for i, d in enumerate(data):
        coded = list(variants(d))
        if lane == "sim":  # a few of each
            coded = coded[i % 5 :: 5] if name == "solo" else coded[i % 11 :: 11]
        pairs += [(z, d) for z in coded]
    check(name, lane, [(z, len(d)) for z, d in pairs], [d for _, d in pairs])


@pytest.mark.parametrize(("name", "lane"), [case for case in CASES if case[1] != "sim"])
def test_large_streams(name: str, lane: str) -> None:
    """Of many blocks and windows, so that rings go round and the input's base moves on."""
    data = list(kinds(1_500_000, 4).values())
    pairs = [(encode(d, level), d) for d in data for level in (0, 1, 6, 9)]
    check(name, lane, [(z, len(d)) for z, d in pairs], [d for _, d in pairs])


def flat(n: int, seed: int) -> tuple[bytes, bytes]:
    """A stream of codes of 8 bits, a few of 9, and its data: lanes that start elsewhere hardly ever meet the others."""
    rng = np.random.default_rng(seed)
    data = np.where(rng.random(n) < 0.02, rng.integers(144, 256, n), rng.integers(0, 144, n)).astype(np.uint8).tobytes()
    return encode(data, strategy=zlib.Z_FIXED), data


@pytest.mark.parametrize(("name", "lane"), CASES)
def test_codes_that_do_not_synchronise(name: str, lane: str) -> None:
    """Intact, cut, and with bytes changed; other blocks follow."""
    n, rng = 3000 if lane == "sim" else 40_000, np.random.default_rng(0)
    pairs = [flat(n, seed) for seed in range(2)]
    check(name, lane, [(z, len(d)) for z, d in pairs], [d for _, d in pairs])
    mixed = [d + bytes(500) + e for (_, d), (_, e) in itertools.pairwise(pairs)]
    check(name, lane, [(encode(d, strategy=zlib.Z_FIXED, flush=n), len(d)) for d in mixed], mixed)
    streams = [(kit.mutate(z, rng), len(d)) for z, d in pairs for _ in range(2 if lane == "sim" else 50)]
    status, slots = decode(name, lane, streams)
    for i, (stream, want) in enumerate(streams):
        assert oracle(stream, want) == (slots[i].tobytes() if status[i] == Status.OK else None), i


@pytest.mark.parametrize(("name", "lane"), CASES)
@pytest.mark.parametrize("framing", [ZLIB, GZIP])
def test_frames(name: str, lane: str, framing: int) -> None:
    """Headers are skipped and checksums verified, of streams of no byte and of several segments."""
    data = [d for n in ((300, 40_000) if lane != "sim" else (300,)) for d in kinds(n, n).values()] + [b"", b"x"]
    data = data if lane != "sim" else [*data[::5], b""]
    good = [(framed(encode(d), d, framing), len(d)) for d in data]
    check(name, lane, good, data, framing)
    wrong = [
        (z[:-8] + bytes([z[-8] ^ 1]) + z[-7:] if framing == GZIP else z[:-1] + bytes([z[-1] ^ 1]), n) for z, n in good
    ]
    status, _ = decode(name, lane, wrong, framing)
    assert set(status.tolist()) == {Status.BAD_CHECKSUM}


FIELDS = {2: b"\x12\x34", 4: b"\x05\0a\0b\0c", 8: b"name\0", 16: b"\xff" * 50 + b"\0"}


def member(data: bytes, flags: int = 0, level: int = 6) -> bytes:
    """A member of gzip with the optional fields that the flags name."""
    plain = framed(encode(data, level), data, GZIP)
    fields = b"".join(FIELDS[flag] for flag in (4, 8, 16, 2) if flags & flag)
    return plain[:3] + bytes([flags]) + plain[4:10] + fields + plain[10:]


def chunks_of_gzip() -> Iterator[tuple[Status, bytes, bytes]]:
    """(status, chunk, data): every form that a chunk can have."""
    text = kinds(500)["text"]
    yield Status.OK, b"", b""
    for flags in range(32):
        yield Status.OK, member(text, flags), text
    yield Status.OK, member(text, 0xE1), text  # what means nothing
    for more in (b"\0", bytes(7), bytes(1000)):
        yield Status.OK, member(text) + more, text
        yield Status.OK, member(b"") + more + member(text) + more, text
        yield Status.OK, member(text[:50]) + more + member(b"") + member(text[50:], 31), text
    yield Status.OK, member(b""), b""
    yield Status.OK, b"".join(member(text[60 * k : 60 * k + 60]) for k in range(8)), text[:480]
    yield Status.UNSUPPORTED, b"".join(member(text[50 * k : 50 * k + 50]) for k in range(9)), text[:450]
    yield Status.SHORT, b"", b"x"
    yield Status.SHORT, member(text[:-1]), text
    yield Status.OVERFLOW, member(text) + member(b"x"), text
    yield Status.BAD_HEADER, member(text) + b"x", text
    yield Status.BAD_HEADER, member(text) + b"\x1f", text
    yield Status.BAD_HEADER, b"\x1f", text
    yield Status.BAD_HEADER, b"\0" + member(text), text
    yield Status.BAD_HEADER, b"\x1f\x8b\x07" + member(text)[3:], text
    yield Status.BAD_CHECKSUM, member(text)[:-1] + b"\1", text  # the size
    yield Status.BAD_CHECKSUM, member(text[:9]) + member(text[9:])[:-8] + bytes(4) + member(text[9:])[-4:], text
    for cut in (2, 9, 10, 11, 12, 17, 20, 80, 90, 150):
        yield Status.TRUNCATED, member(text, 31)[:cut], text
    for cut in range(1, 9):
        yield Status.TRUNCATED, member(text)[:-cut], text


@pytest.mark.parametrize(("name", "lane"), ONCE)
def test_members_of_gzip(name: str, lane: str) -> None:
    """Several, empty ones among them, with fields before and zeros after; and each way in which they can be wrong."""
    expected, chunks, data = zip(*chunks_of_gzip(), strict=True)
    status, slots = decode(name, lane, [(z, len(d)) for z, d in zip(chunks, data, strict=True)], GZIP)
    assert [Status(s).name for s in status] == [s.name for s in expected]
    for i, (verdict, chunk, d) in enumerate(zip(expected, chunks, data, strict=True)):
        if verdict is Status.OK:
            assert slots[i].tobytes() == d
        if verdict is not Status.UNSUPPORTED:
            assert oracle(chunk, len(d), GZIP) == (d if verdict is Status.OK else None), i


@pytest.mark.parametrize(("name", "lane"), ONCE)
def test_headers_of_zlib(name: str, lane: str) -> None:
    """All of two bytes; what follows the checksum is ignored."""
    text = kinds(100)["text"]
    plain = framed(encode(text), text, ZLIB)
    heads = [bytes([m, f]) for m in (0x78, 0x08, 0x68, 0x79, 0x88, 0x70) for f in range(256)]
    heads = heads if lane != "sim" else heads[::7]
    streams = [(head + plain[2:], len(text)) for head in heads]
    streams += [(plain + more, len(text)) for more in (b"\0", b"more", plain)]
    streams += [(plain[:cut], len(text)) for cut in range(len(plain)) if lane != "sim" or cut % 9 == 1]
    status, _ = decode(name, lane, streams, ZLIB)
    for (stream, want), verdict in zip(streams, status.tolist(), strict=True):
        assert (verdict == Status.OK) == (oracle(stream, want, ZLIB) == text), stream[:2].hex()
        dictionary = len(stream) > 1 and stream[1] & 0x20
        assert verdict != Status.UNSUPPORTED or dictionary


EMPTY = bits("1", "00") + b"\0\0\xff\xff"
FIXED_END = "0000000"


def by_hand() -> Iterator[tuple[Status, bytes, int]]:
    """(status, stream, size): each way in which a stream can be wrong, and what is right but rare."""
    one = [0] * 256 + [1]
    yield Status.OK, bits("1", "10", FIXED_END), 0
    yield Status.OK, EMPTY, 0
    yield Status.OK, bits("0", "00") + b"\0\0\xff\xff" + EMPTY, 0
    yield Status.OK, bits("1", "00") + b"\3\0\xfc\xffabc" + b"more", 3
    literal = f"{0x30 + 97:08b}"
    match = "0000001" + "00000"  # three bytes from the one before
    yield Status.OK, bits("1", "10", literal, match, FIXED_END), 4
    yield Status.OK, bits("0", "10", literal, FIXED_END, "1", "10", match, FIXED_END), 4  # from an earlier block
    yield Status.OK, bits("1", "10", literal, "11000101", "00000", FIXED_END), 259
    yield Status.OK, bits("1", "01", described(one, [0]), "0"), 0  # a code of one symbol, and none of distances
    yield Status.OK, bits("1", "01", described([1] + [0] * 255 + [1], [0]), "0001"), 3
    yield Status.OK, bits("1", "01", described([2, *[0] * 255, 2, 1], [1]), "10", "0", "0", "11"), 4
    yield Status.TRUNCATED, b"", 0
    yield Status.TRUNCATED, bits("1", "10", literal), 1
    yield Status.TRUNCATED, bits("0", "10", literal, FIXED_END), 1
    yield Status.TRUNCATED, bits("1", "00") + b"\3\0\xfc\xffab", 3
    yield Status.TRUNCATED, bits("1", "00") + b"\3\0\xfc", 3
    yield Status.TRUNCATED, bits("1", "01", described(one, [0]))[:-30], 0
    yield Status.BAD_HEADER, bits("1", "11") + bytes(8), 0
    yield Status.BAD_HEADER, bits("1", "00") + b"\3\0\xfd\xffabc", 3
    yield Status.BAD_CODE, bits("1", "10", "11000110") + bytes(9), 5  # symbol 286
    yield Status.BAD_CODE, bits("1", "10", literal, "0000001", "11110") + bytes(9), 5  # distance symbol 30
    yield Status.BAD_CODE, bits("1", "01", described(one, [0], (287, 1))) + bytes(99), 0
    yield Status.BAD_CODE, bits("1", "01", described(one, [0], (257, 31))) + bytes(99), 0
    yield Status.BAD_CODE, bits("1", "01", described([0] * 257, [0])) + bytes(9), 0  # no end
    yield Status.BAD_CODE, bits("1", "01", described([1, 1] + [0] * 254 + [1], [0])) + bytes(9), 0  # too many
    yield Status.BAD_CODE, bits("1", "01", described([2] + [0] * 255 + [2], [0])) + bytes(9), 0  # too few
    yield Status.BAD_CODE, bits("1", "01", described(one, [2])) + bytes(9), 0
    yield Status.BAD_CODE, bits("1", "01", described(one, [1, 1, 1])) + bytes(9), 0
    yield Status.BAD_CODE, bits("1", "01", described(one, [0]), "1") + bytes(9), 0  # the half that is no code
    yield Status.BAD_CODE, bits("1", "01", described([2, *[0] * 255, 2, 1], [1]), "10", "0", "1") + bytes(9), 4
    yield Status.BAD_CODE, bits("1", "01", described([2, *[0] * 255, 2, 1], [0]), "10", "0", "0") + bytes(9), 4
    lengths = number(0, 5) + number(0, 5) + number(0, 4)  # four lengths: of 16, 17, 18, 0
    yield Status.BAD_CODE, bits("1", "01", lengths, *[number(0, 3)] * 4) + bytes(9), 0
    yield Status.BAD_CODE, bits("1", "01", lengths, *[number(1, 3)] * 4) + bytes(9), 0
    yield Status.BAD_CODE, bits("1", "01", lengths, number(1, 3), *[number(0, 3)] * 3) + bytes(9), 0
    yield Status.BAD_CODE, bits("1", "01", lengths, *[number(2, 3)] * 4, "01") + bytes(9), 0  # repeats nothing
    yield Status.BAD_CODE, bits("1", "01", lengths, *[number(2, 3)] * 4, *["11" + "1" * 7] * 2, "111111111"), 0
    yield Status.BAD_OFFSET, bits("1", "10", match, FIXED_END), 3
    yield Status.BAD_OFFSET, bits("1", "10", literal, "0000001", "00001", FIXED_END), 4
    yield Status.BAD_OFFSET, bits("0", "00") + b"\3\0\xfc\xffabc" + bits("1", "10", "0000001", "00011", FIXED_END), 6
    yield Status.OVERFLOW, bits("1", "10", literal, match, FIXED_END), 3
    yield Status.OVERFLOW, bits("1", "00") + b"\3\0\xfc\xffabc", 2
    yield Status.SHORT, bits("1", "10", literal, match, FIXED_END), 5
    yield Status.SHORT, bits("1", "00") + b"\3\0\xfc\xffabc", 4


@pytest.mark.parametrize(("name", "lane"), CASES)
def test_each_status(name: str, lane: str) -> None:
    """Streams made by hand get the status that says what is wrong with them."""
    expected, streams, sizes = zip(*by_hand(), strict=True)
    status, slots = decode(name, lane, list(zip(streams, sizes, strict=True)))
    assert [(i, Status(s).name) for i, s in enumerate(status)] == [(i, s.name) for i, s in enumerate(expected)]
    for i, (verdict, stream, want) in enumerate(zip(expected, streams, sizes, strict=True)):
        if verdict is Status.OK:
            assert slots[i].tobytes() == oracle(stream, want)


def by_reference(stream: bytes, want: int) -> bytes | Status:
    """The bytes that the reference makes of a stream, or why it refuses it."""
    try:
        return reference(stream, want)[0]
    except Fault as fault:
        return Status(fault.args[0])


def test_the_verdict_on_them_is_zlib_s_and_the_reference_s() -> None:
    """The reference gives the same status, and zlib takes what is `OK` and nothing else."""
    for i, (expected, stream, want) in enumerate(by_hand()):
        ours, theirs = by_reference(stream, want), oracle(stream, want)
        assert (ours == theirs) if expected is Status.OK else (ours is expected and theirs is None), i


def test_the_reference_has_zlib_s_verdict() -> None:
    """On mutated streams too."""
    streams, _ = hostile(600, 120, 9)
    for stream, want in streams:
        ours, theirs = by_reference(stream, want), oracle(stream, want)
        assert isinstance(ours, Status) if theirs is None else ours == theirs


def hostile(count: int, size: int, seed: int, framing: int = RAW) -> tuple[list[Stream], list[bytes]]:
    """Streams, every second one intact, the others mutated; and the data of the intact ones."""
    rng = np.random.default_rng(seed)
    good = []
    for d in kinds(size, seed).values():
        part = d[: int(rng.integers(1, size))]
        good += [(framed(z, part, framing), part) for z in variants(part)]
    streams, intact = [], []
    for i in range(count):
        stream, data = good[int(rng.integers(0, len(good)))]
        want = len(data)
        if i % 2:
            if rng.integers(0, 3) == 0:  # a bit where the codes are described
                b = bytearray(stream)
                b[int(rng.integers(0, min(len(b), 90)))] ^= 1 << int(rng.integers(0, 8))
                stream = bytes(b)
            else:
                stream = kit.mutate(stream, rng)
            want = max(want + (int(rng.integers(-1, 2)) if i % 3 == 0 else 0), 0)
        streams.append((stream, want))
        intact.append(data)
    return streams, intact


def seen(streams: list[Stream], intact: list[bytes], status: Any, slots: kit.Slots, framing: int) -> Counter[Status]:
    """How often each verdict was given, all of them being zlib's."""
    for i, (stream, want) in enumerate(streams):
        got = slots[i].tobytes()
        if i % 2 == 0:
            assert status[i] == Status.OK, i
            assert got == intact[i], i
        elif status[i] == Status.OK:
            assert got == oracle(stream, want, framing), (i, stream.hex())
        elif status[i] != Status.UNSUPPORTED:
            assert oracle(stream, want, framing) is None, (i, Status(status[i]), want, stream.hex())
    return Counter(Status(s) for s in status[1::2])


@pytest.mark.parametrize("framing", [RAW, ZLIB, GZIP])
@pytest.mark.parametrize(("name", "lane"), CASES)
def test_hostile_streams_among_intact_ones(name: str, lane: str, framing: int) -> None:
    """Verdicts are zlib's, nothing is written outside a slot, intact neighbours, which run first, come back.

    ``ZARRGPU_FUZZ=N`` makes N mutated streams.
    """
    count, size = (4000, 900) if lane != "sim" else (60 if framing == RAW else 16, 300)
    count = 2 * int(os.environ.get("ZARRGPU_FUZZ", count // 2))
    found: Counter[Status] = Counter()
    for seed, begin in enumerate(range(0, count, 4000)):
        streams, intact = hostile(min(4000, count - begin), size, seed, framing)
        order = [*range(0, len(streams), 2), *range(1, len(streams), 2)]
        status, slots = decode(name, lane, streams, framing, order)
        found += seen(streams, intact, status, slots, framing)
    if lane != "sim":
        refused = {Status.TRUNCATED, Status.BAD_CODE, Status.BAD_HEADER, Status.BAD_OFFSET, Status.OVERFLOW}
        assert found.keys() >= refused | {Status.OK if framing == RAW else Status.BAD_CHECKSUM}
        assert found.keys() >= ({Status.SHORT} if framing != GZIP else set())


@pytest.mark.parametrize(("name", "lane"), ONCE)
def test_bytes_around_a_stream_do_not_matter(name: str, lane: str) -> None:
    """The same statuses and output, whatever lies around the streams."""
    streams, _ = hostile(60 if lane != "sim" else 12, 150, 2)
    for stream in streams:
        a, slots_a = decode(name, lane, [(b"", 0), stream, (b"\xff" * 9, 0)], order=[1], filler=0)
        b, slots_b = decode(name, lane, [(b"", 0), stream, (b"\x11" * 9, 0)], order=[1], filler=0xFF)
        assert a[1] == b[1]
        if a[1] == Status.OK:
            assert slots_a[1].tobytes() == slots_b[1].tobytes()


@pytest.mark.parametrize(("name", "lane"), ONCE)
def test_slots_side_by_side(name: str, lane: str) -> None:
    """With not a byte between the slots, at all alignments, streams that fail leave their neighbours alone."""
    streams, intact = hostile(400 if lane != "sim" else 24, 200, 3)
    encoded = b"".join(s for s, _ in streams)
    source = np.frombuffer(encoded.ljust((len(encoded) + 15) // 16 * 16, b"\xff"), np.uint8).copy()
    n = len(streams)
    table = np.zeros((n, t.STREAM_COLUMNS), np.int64)
    table[:, t.S_SIZE], table[:, t.S_WANT] = zip(*[(len(s), w) for s, w in streams], strict=True)
    table[:, t.S_START] = np.cumsum(table[:, t.S_SIZE]) - table[:, t.S_SIZE]
    table[:, t.S_DEST] = np.cumsum(table[:, t.S_WANT]) - table[:, t.S_WANT]
    scratch = np.zeros((int(table[:, t.S_WANT].sum()) + 15) // 16 * 16, np.uint8)
    status = np.full(n, -1, np.int32)
    run(name, lane, source, scratch, table, np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)]), status)
    for i in range(0, n, 2):
        assert status[i] == Status.OK
        assert scratch[table[i, t.S_DEST] :][: table[i, t.S_WANT]].tobytes() == intact[i]


@pytest.mark.parametrize(("name", "lane"), CASES)
def test_a_table_that_points_outside_an_arena(name: str, lane: str) -> None:
    """Gets BAD_TABLE, and nothing is read or written for it."""
    data = bytes(range(60)) * 2
    stream, want = encode(data), len(data)
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
    members = run(name, lane, source, scratch, table, np.arange(len(bad)), status)
    assert status.tolist() == [Status.BAD_TABLE] * len(bad) + [-1]
    assert (scratch == kit.GUARD).all()
    assert (members[:, checksums.K_ARENA] == -1).all()
    run(name, lane, source, scratch, table, np.arange(len(table)), status)
    assert status[-1] == Status.OK
    status[:] = -1
    members = run(name, lane, source, scratch, table, np.array([-1, len(table), 1 << 40]), status)
    assert (status == -1).all()
    assert (members[:, checksums.K_ARENA] == -1).all()


@pytest.mark.parametrize(("name", "lane"), ONCE)
def test_arenas_larger_than_4_gib(name: str, lane: str) -> None:
    """Streams and slots beyond what 32 bits can address."""
    data = [kinds(800)["text"], kinds(800)["ints"]]
    source, scratch = np.zeros((1 << 32) + 4096, np.uint8), np.zeros((1 << 32) + 4096, np.uint8)
    table = np.zeros((2, t.STREAM_COLUMNS), np.int64)
    for i, d in enumerate(data):
        stream = framed(encode(d), d, ZLIB)
        start, dest = (1 << 32) - 77 + 2000 * i, (1 << 32) - 33 + 1001 * i
        source[start : start + len(stream)] = np.frombuffer(stream, np.uint8)
        table[i] = (start, len(stream), dest, len(d), 0)
    status = np.full(2, -1, np.int32)
    run(name, lane, source, scratch, table, np.arange(2), status, ZLIB)
    assert status.tolist() == [Status.OK] * 2
    for line, d in zip(table, data, strict=True):
        assert scratch[line[t.S_DEST] : line[t.S_DEST] + len(d)].tobytes() == d


@pytest.mark.nogpu("the simulator's schedule is what is random")
@pytest.mark.parametrize("name", list(deflate.FORMS))
@pytest.mark.parametrize("seed", [1, 2])
def test_lanes_in_any_order(name: str, seed: int) -> None:
    """A missing barrier would show as wrong bytes when lanes run in a random order."""
    if GPU:
        pytest.skip("no simulator here")
    from tests import fastsim

    data = [d for k, d in kinds(1500, seed).items() if not k.startswith("period")]
    with fastsim.scheduled(seed):
        check(name, "sim", [(framed(encode(d, flush=500), d, ZLIB), len(d)) for d in data], data, ZLIB)
        stream, d = flat(1500, seed)
        check(name, "sim", [(stream, len(d))], [d])


@pytest.mark.parametrize(("name", "lane"), [("solo", "host"), (TINY, "host"), *[c for c in CASES if c[1] == "cuda"]])
def test_files_of_others(name: str, lane: str, corpus: Path) -> None:
    """Those of wuffs, its corner cases among them, are what lies beside them, or zlib refuses them too."""
    folder = corpus / "wuffs" / "test" / "data"
    count = 0
    for framing, suffix in ((RAW, "deflate"), (ZLIB, "zlib"), (GZIP, "gz")):
        for path in sorted(folder.rglob(f"*.{suffix}")):
            stream = path.read_bytes()
            data = zlib.decompressobj({RAW: -15, ZLIB: 15, GZIP: 31}[framing])
            try:
                want = len(data.decompress(stream))
            except zlib.error:
                want = 1000
            status, slots = decode(name, lane, [(stream, want)], framing)
            expected = oracle(stream, want, framing)
            assert (status[0] == Status.OK) == (expected is not None), path.name
            if expected is not None:
                assert slots[0].tobytes() == expected
                beside = path.with_name(path.name + ".decompressed") if framing == RAW else path.with_suffix("")
                assert not beside.exists() or beside.read_bytes() == expected
                count += 1
    assert count > 12
    bad = (corpus / "klauspost-compress" / "gzip" / "testdata" / "issue6550.gz").read_bytes()
    for size in (0, 1000, 1_000_000):
        assert decode(name, lane, [(bad, size)], GZIP)[0][0] != Status.OK


@pytest.mark.parametrize(("name", "lane"), ONCE[:1] if not GPU else ONCE)
@pytest.mark.parametrize("codec", ["zlib", "gzip"])
def test_fixtures_of_numcodecs(name: str, lane: str, codec: str, corpus: Path) -> None:
    """Each array that numcodecs keeps."""
    from tests.codecs.verdict import fixtures

    found = [(encoded, data) for _, encoded, data in fixtures(corpus / "numcodecs" / "fixture" / codec)]
    assert len(found) > 40
    check(name, lane, [(z, len(d)) for z, d in found], [d for _, d in found], ZLIB if codec == "zlib" else GZIP)


def test_forms_are_chosen_by_the_number_of_streams() -> None:
    """Each of them by some number, the one that is best for few streams first."""
    chosen = list(dict.fromkeys(deflate.choose(n) for n in range(1, 5000)))
    assert chosen == ["crew", "long", "solo"]
