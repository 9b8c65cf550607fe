"""Zstandard streams for the tests of its kernels: libzstd's, taken apart, others made by hand, and the verdict."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numcodecs.blosc import decompress
from numcodecs.zstd import compress

from tests import kit
from tests.kernels.test_lz4 import corpus
from zarrgpu.encoded import OnHost
from zarrgpu.kernels import tables as t
from zarrgpu.kernels import zstd
from zarrgpu.kernels.zstd_codes import counts_of
from zarrgpu.kernels.zstd_format import AS_BEFORE, DESCRIBED, MAX_LOG, MAX_SYMBOL, SINGLE, TREELESS

Stream = tuple[bytes, int]  # encoded bytes, decoded size
LANES = [*kit.LANES, f"{kit.LANES[-1]} crew"]
"""Lanes, the last one also with the other form of *execute*."""

MAGIC = b"\x28\xb5\x2f\xfd"


def libzstd(stream: bytes, want: int) -> bytes | None:
    """What ``ZSTD_decompress`` makes of a stream that is to have `want` bytes, more than 0; None if it refuses.

    It is called by c-blosc, for a container of a single stream: numcodecs' own codec looks at headers by itself.
    """
    if len(stream) == want:  # c-blosc would take it for stored
        stream += skippable(0)
    lead = struct.pack("<4B5i", 2, 1, 4 << 5 | 16, 1, want, want, 24 + len(stream), 20, len(stream))
    try:
        return bytes(decompress(lead + stream))
    except RuntimeError:
        return None


def decode(lane: str, streams: list[Stream], streaming: bool = False, filler: int = 0xFF, order: Any = None) -> Any:
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
    status = np.zeros(len(streams), np.int32)
    run(lane, source, slots.arena, table, np.arange(len(streams)) if order is None else order, status, streaming)
    slots.check_guards()
    return status, slots


def run(
    lane: str, source: Any, scratch: Any, streams: Any, order: Any, status: Any, streaming: bool = False
) -> list[zstd.Group]:
    """Decode streams by the kernels of a lane."""
    groups = scan(source, streams, np.asarray(order, np.int64), status, streaming)
    for group in groups:
        run_group(lane, group, source, scratch, streams, status)
    return groups


def scan(source: Any, streams: Any, order: Any, status: Any, streaming: bool = False) -> list[zstd.Group]:
    """The groups of the streams that are not refused at once."""
    counts = zstd.measure(OnHost(source).run, streams, order, status, streaming)
    known = (order >= 0) & (order < len(streams))
    good = np.flatnonzero(known)[status[order[known]] == t.Status.OK]
    return zstd.group(OnHost(source).run, streams, order[good], counts[good], status, streaming)


def run_group(lane: str, group: zstd.Group, source: Any, scratch: Any, streams: Any, status: Any) -> None:
    """Decode the streams of a group."""
    arenas = (source, kit.words(source), scratch, kit.words(scratch))
    tables = (group.lines, group.first, group.blocks, zstd.NUMBERS.copy())
    rooms = (
        np.zeros(max(group.sequences, 1), np.uint64),
        np.zeros(group.work if lane == "host" else 1, np.uint32),
        np.zeros(max(4 * group.n_blocks, 1), np.uint64),
    )
    where, _, form = lane.partition(" ")
    for kernel, n, args in zstd.launches(group, arenas, streams, tables, rooms, status, form or "solo"):
        kit.run(kernel, where, n, *args)


def kinds(n: int, seed: int = 0) -> dict[str, bytes]:
    """Data of `n` bytes that need every mode of a block's sections."""
    rng = np.random.default_rng(seed)
    few = {k: d for k, d in corpus(n, seed).items() if not k.startswith("period") or k[7:] in ("1", "3", "7", "20")}
    return few | {
        "skewed": np.minimum(rng.geometric(0.35, n), 255).astype(np.uint8).tobytes(),
        "nibbles": rng.integers(0, 16, n, np.uint8).tobytes(),
        "repeats": b"".join(rng.bytes(5) + b"0123456789abcdef"[: int(k)] for k in rng.integers(4, 16, n // 16)),
    }


def header(content: int | None = None, window: int = 0x58, dictionary: bytes = b"", checked: bool = False) -> bytes:
    """Of a frame, with the window's byte and perhaps its size."""
    flags = {0: 0, 1: 1, 2: 2, 4: 3}[len(dictionary)] | 4 * checked | (0 if content is None else 3 << 6)
    return MAGIC + bytes([flags, window]) + dictionary + (b"" if content is None else content.to_bytes(8, "little"))


def block(kind: int, data: bytes, size: int | None = None, last: bool = False) -> bytes:
    """Raw (0), of one byte repeated (1) or compressed (2)."""
    return (last | kind << 1 | (len(data) if size is None else size) << 3).to_bytes(3, "little") + data


def frame(blocks: Sequence[bytes], content: int | None = None, window: int = 0x58) -> bytes:
    """A frame of blocks, the last of which says so."""
    *others, last = blocks
    return header(content, window) + b"".join(others) + bytes([last[0] | 1]) + last[1:]


def skippable(size: int, magic: int = 0) -> bytes:
    """A frame of user data."""
    return bytes([0x50 + magic]) + b"\x2a\x4d\x18" + size.to_bytes(4, "little") + b"\x28" * size


def blocks_of(data: bytes, level: int) -> list[bytes]:
    """The blocks that libzstd makes of data, none of which says that it is the last."""
    encoded = bytes(compress(data, level))
    single, wide = encoded[4] >> 5 & 1, encoded[4] >> 6
    at = 5 + (not single) + (single, 2, 4, 8)[wide]
    found = []
    while at < len(encoded):
        head = int.from_bytes(encoded[at : at + 3], "little")
        size = 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        found.append(bytes([encoded[at] & 0xFE]) + encoded[at + 1 : at + size])
        at += size
    return found


def as_before(compressed: bytes) -> bytes:
    """A compressed block whose literals are Huffman's, with all of its codes as in the block before."""
    data = compressed[3:]
    form = data[0] >> 2 & 3
    width, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
    head = int.from_bytes(data[:width], "little")
    assert head & 3 == 2
    size, used = head >> 4 & (1 << bits) - 1, head >> 4 + bits
    literals, rest = data[width : width + used], data[width + used :]
    literals = literals[1 + (literals[0] if literals[0] < 128 else (literals[0] - 126) // 2) :]
    head = TREELESS | form << 2 | size << 4 | len(literals) << 4 + bits
    at = 1 if rest[0] < 128 else 2
    if rest[0] == 0:
        return block(2, head.to_bytes(width, "little") + literals + rest)
    modes, at = rest[at], at + 1
    again = rest[: at - 1] + bytes([AS_BEFORE * 0b01010100])
    for kind in range(3):
        mode = modes >> 6 - 2 * kind & 3
        if mode == DESCRIBED:
            at += counts_of(rest[at:], MAX_SYMBOL[kind], MAX_LOG[kind], t.Status.BAD_CODE)[2]
        elif mode == SINGLE:
            at += 1
    return block(2, head.to_bytes(width, "little") + literals + again + rest[at:])
