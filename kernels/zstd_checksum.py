"""XXH64 of Zstandard's frames: the low four bytes of it may follow a frame's blocks (RFC 8878, 3.1.1).

Format: the XXH64 of xxHash's specification, with seed 0. An item is a block; those that are not the last of a frame
with a checksum have nothing to do. ``DIGEST``, four lanes an item, makes the four accumulators, each of which takes
every fourth group of eight bytes, one after the other; ``VERIFY``, one lane an item, combines them with what remains.

========= ============================ =======================================================================
source    ``uint8[n]``                 ``VERIFY``: source arena, where the checksums are
scratch   ``uint8[m]``                 scratch arena, 16-byte aligned, decoded; `m` is a multiple of 16
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]``
blocks    ``uint32[]``                 as `zarrgpu.kernels.zstd_format` says
digests   ``uint64[4 b]``              of the `b` blocks: written by ``DIGEST``, read by ``VERIFY``
status    ``int32[s]``                 written by ``VERIFY`` where something is wrong
========= ============================ =======================================================================

Arrays do not overlap; no shared memory. Statuses: `BAD_CHECKSUM`, `BAD_TABLE`. Streams with a status already are left
out. The arithmetic is modulo 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, Status
from zarrgpu.kernels.zstd_blocks import make_checks

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
W = np.uint64

P1, P2, P3, P4, P5 = (
    W(p) for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
SEEDS = tuple(W(s) for s in ((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % 2**64, int(P2), 0, 2**64 - int(P1)))
STRIPE = 32  # bytes that the accumulators take together

OK, BAD_TABLE, BAD_CHECKSUM = int(Status.OK), int(Status.BAD_TABLE), int(Status.BAD_CHECKSUM)


def make_arithmetic(target: Target) -> tuple[Any, Any]:
    """``(rotated, mixed)``."""
    device = target.device

    @device
    def rotated(x, n):
        return W((x << W(n)) | (x >> W(64 - n)))

    @device
    def mixed(accumulator, word):
        return W(rotated(W(accumulator + W(word * P2)), 31) * P1)

    return rotated, mixed


def make_frame(target: Target) -> Any:
    """``frame(blocks, b, streams, arena, status)``: 1 if a checksum follows block `b`, 0 if not, -1 for a bad line."""
    is_stream, _, is_output = make_checks(target)

    @target.device
    def frame(blocks, b, streams, arena, status):
        if not is_stream(blocks, b, streams):
            return 0
        o = b * z.BLOCK_COLUMNS
        ends = I(blocks[o + z.Z_ENDS])
        if ends & z.LAST == 0 or ends & z.CHECKED == 0 or status[I(blocks[o])] != OK:
            return 0
        return 1 if is_output(blocks, b, streams, arena) else -1

    return frame


def make_digest(target: Target, lanes: int) -> Any:
    """The body of `DIGEST`."""
    device = target.device
    _, mixed = make_arithmetic(target)
    frame = make_frame(target)
    seed_0, seed_1, seed_2, seed_3 = SEEDS

    @device
    def word(words, i, shift):
        """Eight bytes from bit `shift` of word `i` on."""
        low = W(words[i]) | W(words[i + W(1)]) << W(32)
        if shift != W(0):
            low = (low >> shift) | W(words[i + W(2)]) << (W(64) - shift)
        return W(low)

    @device
    def accumulate(words, at, stripes, accumulator):
        """Take the eight bytes at `at`, and those a stripe further, and so on."""
        i, shift, step = W(at >> 2), W(8 * (at & 3)), W(STRIPE // 4)
        while stripes >= 4:  # four loads on their way at once
            a, b = word(words, i, shift), word(words, i + step, shift)
            c, d = word(words, i + W(2) * step, shift), word(words, i + W(3) * step, shift)
            accumulator = mixed(mixed(mixed(mixed(accumulator, a), b), c), d)
            i += W(4) * step
            stripes -= 4
        while stripes > 0:
            accumulator = mixed(accumulator, word(words, i, shift))
            i += step
            stripes -= 1
        return accumulator

    def body(lane, item, scratch, scratch32, streams, blocks, digests, status):
        if frame(blocks, item, streams, scratch.size, status) != 1 or 4 * item + 3 >= digests.size:
            return
        o = item * z.BLOCK_COLUMNS
        base = streams[I(blocks[o]), S_DEST] >> 4 << 4
        first, end = I(blocks[o + z.Z_FRAME]), I(blocks[o + z.Z_DEST]) + I(blocks[o + z.Z_OUT])
        stripes = (end - first) // STRIPE
        for k in range(lane, 4, lanes):
            accumulator = seed_0
            if k == 1:
                accumulator = seed_1
            elif k == 2:
                accumulator = seed_2
            elif k == 3:
                accumulator = seed_3
            digests[4 * item + k] = accumulate(scratch32, base + first + 8 * k, stripes, accumulator)

    return body


def make_verify(target: Target, lanes: int) -> Any:
    """The body of `VERIFY`."""
    device = target.device
    rotated, mixed = make_arithmetic(target)
    frame = make_frame(target)

    @device
    def number(data, at, n):
        """`n` bytes, little endian."""
        value = W(0)
        for i in range(n):
            value |= W(data[at + i]) << W(8 * i)
        return value

    @device
    def merged(h, accumulator):
        return W(W(h ^ mixed(W(0), accumulator)) * P1 + P4)

    @device
    def finish(data, at, n, a, b, c, d):
        """The hash of ``data[at:at + n]``, whose accumulators are given."""
        end = at + n
        h = P5
        if n >= STRIPE:
            h = W(rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18))
            h = merged(merged(merged(merged(h, a), b), c), d)
            at += n // STRIPE * STRIPE
        h = W(h + W(n))
        while end - at >= 8:
            h = W(rotated(W(h ^ mixed(W(0), number(data, at, 8))), 27) * P1 + P4)
            at += 8
        if end - at >= 4:
            h = W(rotated(W(h ^ W(number(data, at, 4) * P1)), 23) * P2 + P3)
            at += 4
        while at < end:
            h = W(rotated(W(h ^ W(W(data[at]) * P5)), 11) * P1)
            at += 1
        h = W(W(h ^ (h >> W(33))) * P2)
        h = W(W(h ^ (h >> W(29))) * P3)
        return W(h ^ (h >> W(32)))

    def body(lane, item, source, scratch, streams, blocks, digests, status):
        found = frame(blocks, item, streams, scratch.size, status)
        if found == 0:
            return
        o = item * z.BLOCK_COLUMNS
        line = I(blocks[o])
        start, size = streams[line, S_START], streams[line, S_SIZE]
        content = I(1) if blocks[o + z.Z_KIND] == z.REPEATED else I(blocks[o + z.Z_SIZE])
        stored = (start >> 4 << 4) + I(blocks[o + z.Z_START]) + content
        if found < 0 or start < 0 or stored + 4 > min(start + size, source.size) or 4 * item + 3 >= digests.size:
            status[line] = BAD_TABLE
            return
        base = streams[line, S_DEST] >> 4 << 4
        first, end = I(blocks[o + z.Z_FRAME]), I(blocks[o + z.Z_DEST]) + I(blocks[o + z.Z_OUT])
        a, b, c, d = digests[4 * item], digests[4 * item + 1], digests[4 * item + 2], digests[4 * item + 3]
        h = finish(scratch, base + first, end - first, a, b, c, d)
        if h & W(0xFFFFFFFF) != number(source, stored, 4):
            status[line] = BAD_CHECKSUM

    return body


_u1, _u4, _u8, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32))
_table = types.Array(types.int64, 2, "C")

DIGEST = Kernel("zstd_digest", make_digest, (_u1, _u4, _table, _u4, _u8, _i4), lanes=4)
VERIFY = Kernel("zstd_verify", make_verify, (_u1, _u1, _table, _u4, _u8, _i4))
