"""The steps by which warps execute groups of sequences of Zstandard; `zarrgpu.kernels.zstd_execute` has the whole.

Shared memory is given as three views of all of it, ``bytes8``, ``words32`` and ``words64``; `base` is the first byte of
the ring, `table` that of a group's table. Positions in the input and the output are uint32, relative to views of them
that start at a multiple of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target
from zarrgpu.kernels.tables import Status
from zarrgpu.kernels.warp_block import BLOCK, RING, make_block
from zarrgpu.kernels.zstd_place import make_resolve

U = np.uint32
U64 = np.uint64

OK, BAD_OFFSET, UNSUPPORTED = int(Status.OK), int(Status.BAD_OFFSET), int(Status.UNSUPPORTED)

GROUP = 1024  # bytes of output of a group, 32 times the words of its bitmap

# A group's table, in bytes: a bitmap, which has room for what a last block reads past it, and lines.
STARTS_SIZE = GROUP // 8 + BLOCK // 4
TABLE_SIZE = STARTS_SIZE + 8 * WARP


def make_publish(target: Target) -> tuple[Any, Any]:
    """``(clear, publish)``: a group's sequences in shared memory."""
    cuda, device = target.cuda, target.device

    @device
    def clear(lane, words32, table):
        """Empty the bitmap."""
        at = U(table >> U(2))
        words32[U(at + lane)] = U(0)
        if lane < U(STARTS_SIZE // 4 - WARP):
            words32[U(at + U(WARP) + lane)] = U(0)

    @device
    def publish(lane, words32, words64, table, start, literals, match, offset, length, bit):
        """Write a sequence's line and its bit.

        A line: its offset in bits 0-31, or, with bit 31 set for a match that runs into itself, in bits 0-9, with
        ceil(2**20 / offset) in bits 10-30; where in the group its match starts, 32-41; where its output starts less its
        literals, counted from the group's first, 42-63.
        """
        low = offset
        if offset < length:
            low = U(U(0x80000000) | offset | U(U(U(U(1 << 20) + offset - U(1)) // offset) << U(10)))
        high = U(match | U(U(start - literals) << U(10)))
        words64[U(U(U(table + U(STARTS_SIZE)) >> U(3)) + lane)] = U64(low) | (U64(high) << U64(32))
        cuda.atomic.or_(words32, U(U(table >> U(2)) + U(bit >> U(5))), U(U(1) << U(bit & U(31))))

    return clear, publish


def make_source(target: Target, ring: int = RING) -> Any:
    """``source_of``: where a byte of a group comes from."""

    @target.device
    def source_of(bytes8, words64, base, table, rank, at, size, dest, fresh, oldest, literals):
        """Where output byte `at` of the group comes from, its sequence being the `rank`-th.

        Returns (its value in the ring, its source, whether it is to be loaded from there, whether it is a literal,
        whether it is output at `fresh` or later).
        """
        line = words64[U(U(U(table + U(STARTS_SIZE)) >> U(3)) + U(rank & U(WARP - 1)))]
        low = U(line & U64(0xFFFFFFFF))
        high = U(line >> U64(32))
        match = U(high & U(1023))
        offset = low
        inverse = U(0)
        if low >= U(0x80000000):
            offset = U(low & U(1023))
            inverse = U(U(low >> U(10)) & U(0x1FFFFF))
        periods = U(U(U(at - match) * inverse) >> U(20))
        source = U(dest + at - offset - U(offset * periods))
        is_literal = at < match
        if is_literal:
            source = U(literals + at - U(high >> U(10)))
        value = U(bytes8[U(base + U(source & U(ring - 1)))])
        is_match = at < size and not is_literal
        wanted = is_literal or (is_match and source < oldest)
        return value, source, wanted, is_literal, is_match and source >= fresh

    return source_of


def make_values(target: Target, ring: int = RING) -> Any:
    """``values``: the four bytes of a lane in a block."""
    device, permute, load_either = target.device, target.permute, target.load_either
    source_of = make_source(target, ring)

    @device
    def values(
        lane, bytes8, words64, base, table, mine, k, source, to, dest, size, block, fresh, oldest, literals, raw
    ):
        """The word of a lane, its sequences being those of bits `mine` from the `k`-th on.

        Bytes whose source is output at `fresh` or later have any value, all others are loaded. Returns (the word,
        whether each of its bytes is fresh, the source of each).
        """
        at = U(block - dest + (lane << U(2)))  # below 0, that is large, for bytes before the group
        k = U(k + U(mine & U(1)))
        v0, s0, f0, l0, u0 = source_of(bytes8, words64, base, table, k, at, size, dest, fresh, oldest, literals)
        k = U(k + U((mine >> U(1)) & U(1)))
        at = U(at + U(1))
        v1, s1, f1, l1, u1 = source_of(bytes8, words64, base, table, k, at, size, dest, fresh, oldest, literals)
        k = U(k + U((mine >> U(2)) & U(1)))
        at = U(at + U(1))
        v2, s2, f2, l2, u2 = source_of(bytes8, words64, base, table, k, at, size, dest, fresh, oldest, literals)
        k = U(k + U((mine >> U(3)) & U(1)))
        at = U(at + U(1))
        v3, s3, f3, l3, u3 = source_of(bytes8, words64, base, table, k, at, size, dest, fresh, oldest, literals)
        v0 = load_either(to, source, l0 and raw, s0, f0, v0)
        v1 = load_either(to, source, l1 and raw, s1, f1, v1)
        v2 = load_either(to, source, l2 and raw, s2, f2, v2)
        v3 = load_either(to, source, l3 and raw, s3, f3, v3)
        value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
        return value, u0, u1, u2, u3, s0, s1, s2, s3

    return values


def make_output(target: Target, crew: Any) -> Any:
    """``write(lane, bytes8, words32, words64, base, table, source, to, to32, dest, size, ring_from, literals, raw)``.

    Makes the `size` bytes of a group from `dest` on, in the slot and in the ring, whose output starts at `ring_from`.
    Its literals start at `literals`, in the input if `raw`, else in the slot.
    """
    cuda, device, sync = target.cuda, target.device, target.sync
    rank_of, follow, store = make_block(target, crew)
    values = make_values(target)

    @device
    def write(lane, bytes8, words32, words64, base, table, source, to, to32, dest, size, ring_from, literals, raw):
        block = U(dest & U(FULL - 3))
        bits = U(table >> U(2))
        rank = U(FULL)  # of the byte before the group: none
        stop = U(dest + size)
        while block < stop:
            mine, k, rank = rank_of(lane, words32, bits, rank)
            fresh = max(block, dest)
            # What this block overwrites in the ring counts as older than the ring already.
            oldest = max(U(max(block, U(RING - BLOCK)) - U(RING - BLOCK)), ring_from)
            value, u0, u1, u2, u3, s0, s1, s2, s3 = values(
                lane, bytes8, words64, base, table, mine, k, source, to, dest, size, block, fresh, oldest, literals, raw
            )
            if cuda.any_sync(FULL, u0 or u1 or u2 or u3):
                q0, q1, q2, q3 = U(s0 - block), U(s1 - block), U(s2 - block), U(s3 - block)
                value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            sync()  # literals that this block overwrites have been loaded
            store(words32, base, to, to32, dest, block, lane, U(block - dest + (lane << U(2))), size, value)
            sync()
            block = U(block + U(BLOCK))
            bits = U(bits + U(BLOCK // 32))

    return write


def make_survey(target: Target) -> Any:
    """``survey``: which of the next sequences make a group."""
    cuda, device = target.cuda, target.device
    resolve = make_resolve(target)

    @device
    def survey(lane, line, left, a, b, c, made, used, dest, frame, window):
        """What a lane's sequence is, of the `left` that a block has after `made` bytes and `used` literals.

        Returns (a status, how many sequences are a group; whether this one is of it; its start, literals before it,
        where its match starts, offset, length, end and literals up to its end). Bytes count from `dest`, but literals
        from the block's first.
        """
        is_there = lane < left
        offset = resolve(U(line & U64(0xFFFFFFF)), a, b, c)
        end, literals_end = U(line >> U64(46)), U(U(line >> U64(28)) & U(0x3FFFF))
        before = U(cuda.shfl_up_sync(FULL, np.int32(end), 1))
        literals = U(cuda.shfl_up_sync(FULL, np.int32(literals_end), 1))
        if lane == U(0):
            before, literals = made, used
        start = U(before - made)
        over = U(end - made)
        match = U(start + U(literals_end - literals))
        length = U(over - match)
        fits = is_there and over <= U(GROUP - 3)
        many = U(cuda.popc(cuda.ballot_sync(FULL, fits)))
        counts = fits or (is_there and lane == U(0))
        bad = counts and (offset == U(0) or offset > U(dest - frame + match))
        status = OK
        if cuda.any_sync(FULL, bad):
            status = BAD_OFFSET
        elif cuda.any_sync(FULL, counts and offset > window):
            status = UNSUPPORTED
        return status, many, fits, start, literals, match, offset, length, over, literals_end

    return survey
