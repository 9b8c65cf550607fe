"""Deflate streams for the tests of its kernels: zlib's of every setting, others made bit by bit, and zlib's verdict."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numcodecs
import numpy as np

from tests import kit
from tests.kernels.test_lz4 import corpus
from zarrgpu.kernels import deflate
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.deflate import GZIP, MEMBER_COLUMNS, RAW, ZLIB, Job
from zarrgpu.kernels.deflate_form import Form

Stream = tuple[bytes, int]  # encoded bytes, decoded size

TINY = "tiny"
deflate.FORMS[TINY] = Form(1, False, 96, 20, 3, 512, 9, 7)  # whose lists and rings are soon full
deflate.BY_NAME[TINY] = deflate.kernel(TINY, deflate.FORMS[TINY])


def oracle(stream: bytes, want: int, framing: int = RAW) -> bytes | None:
    """What zlib, and Python's gzip, make of a stream that is to have `want` bytes; None if they refuse it."""
    if framing == GZIP:
        try:
            data = bytes(numcodecs.GZip().decode(stream))
        except Exception:  # of many kinds
            return None
        return data if len(data) == want else None
    inflater = zlib.decompressobj(-15 if framing == RAW else 15)
    try:
        data = inflater.decompress(stream, want + 1)
        if len(data) == want and not inflater.eof:  # the end may come after the last byte
            data += inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib.error:
        return None
    return data if len(data) == want and inflater.eof else None


def encode(data: bytes, level: int = 6, window: int = 15, memory: int = 8, strategy: int = 0, flush: int = 0) -> bytes:
    """A bare stream; with `flush`, flushed after so many bytes, fully every second time."""
    coder = zlib.compressobj(level, zlib.DEFLATED, -window, memory, strategy)
    if not flush:
        return coder.compress(data) + coder.flush()
    parts = [
        coder.compress(data[i : i + flush]) + coder.flush((zlib.Z_FULL_FLUSH, zlib.Z_SYNC_FLUSH)[i // flush % 2])
        for i in range(0, len(data), flush)
    ]
    return b"".join(parts) + coder.flush()


def variants(data: bytes) -> Iterator[bytes]:
    """`data` by every level, strategy and window, with little memory, and with flushes."""
    for level in range(10):
        yield encode(data, level)
    for strategy in (zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FILTERED):
        yield encode(data, strategy=strategy)
    for window in range(9, 15):
        yield encode(data, window=window)
    yield encode(data, memory=1)
    yield encode(data, flush=max(len(data) // 7, 1))


def kinds(n: int, seed: int = 0) -> dict[str, bytes]:
    """Data of `n` bytes that need every kind of code and match."""
    rng = np.random.default_rng(seed)
    few = {k: d for k, d in corpus(n, seed).items() if not k.startswith("period") or k[7:] in ("1", "3", "7", "20")}
    return few | {
        "skewed": np.minimum(rng.geometric(0.6, n) - 1, 255).astype(np.uint8).tobytes(),
        "noise": (rng.normal(0, 12, n).astype(np.int32) & 255).astype(np.uint8).tobytes(),
        "sparse": (rng.random(n) < 0.02).astype(np.uint8).tobytes(),
    }


def framed(stream: bytes, data: bytes, framing: int) -> bytes:
    """A bare stream that decodes to `data` in a frame."""
    if framing == ZLIB:
        return b"\x78\x9c" + stream + zlib.adler32(data).to_bytes(4, "big")
    if framing == GZIP:
        trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
        return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + stream + trailer
    return stream


def bits(*codes: str) -> bytes:
    """Bytes of bits, the first one lowest: Huffman codes as written, numbers from their lowest bit on."""
    text = "".join(codes)
    return int(text[::-1] or "0", 2).to_bytes((len(text) + 7) // 8, "little")


def number(value: int, n: int) -> str:
    """A number of `n` bits for `bits`."""
    return f"{value:0{n}b}"[::-1] if n else ""


def described(lengths: Sequence[int], distances: Sequence[int], counts: tuple[int, int] | None = None) -> str:
    """The description of a block's codes: each length on its own, in codes of five bits for 0-15.

    `counts` replaces how many of both the description claims.
    """
    n, m = counts or (len(lengths), len(distances))
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    head = number(n - 257, 5) + number(m - 1, 5) + number(15, 4)
    head += "".join(number(4 if symbol < 16 else 0, 3) for symbol in order)
    return head + "".join(f"{length:04b}" for length in (*lengths, *distances))


def decode(
    name: str, lane: str, streams: list[Stream], framing: int = RAW, order: Any = None, filler: int = 0xFF
) -> Any:
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
    run(name, lane, source, slots.arena, table, order, status, framing)
    slots.check_guards()
    return status, slots


def run(
    name: str, lane: str, source: Any, scratch: Any, streams: Any, order: Any, status: Any, framing: int = RAW
) -> Any:
    """Decode streams by a form's kernel, and verify their checksums; the table of their members."""
    known = order[(order >= 0) & (order < len(streams))]
    sizes = streams[known, t.S_WANT]
    want = int(sizes[(sizes >= 0) & (sizes < 1 << 31)].max(initial=0))
    members: Any = None
    step = 2000 if lane == "host" else len(order)  # a twin's work would else be large
    for begin in range(0, len(order), max(step, 1)):
        part = order[begin : begin + step].copy()
        job = Job(framing, len(part), want, name)
        members = np.full((job.rows, MEMBER_COLUMNS), 77, np.int64)
        work = np.zeros(job.work if lane == "host" else 1, np.uint32)
        rooms = members, work, np.zeros(max(job.partials, 1), np.uint64)
        tables = None if job.checksum is None else job.checksum.tables
        arenas = (source, kit.words(source), scratch, kit.words(scratch))
        deflate.decode(
            lambda kernel, n, *args: kit.run(kernel, lane, n, *args), job, arenas, streams, part, tables, rooms, status
        )
    return members


def cases() -> list[tuple[str, str]]:
    """Form and lane: all forms where lanes work together, few of them on the host, where one lane does all."""
    together = [lane for lane in kit.LANES if lane != "host"]
    return [("solo", "host"), (TINY, "host")] + [(name, lane) for lane in together for name in deflate.FORMS]
