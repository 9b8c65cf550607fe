"""The steps by which a warp executes Zstandard's sequences; `zarrgpu.kernels.zstd_execute` says how they fit together.

Shared memory is given as three views of all of it, ``bytes8``, ``words32`` and ``words64``; `base` is the warp's first
byte. Positions in the input and the output are uint32, relative to views of them that start at a multiple of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target
from zarrgpu.kernels.warp_block import BLOCK, RING, make_block

U = np.uint32
U64 = np.uint64

GROUP = 1024  # bytes of output of a group, 32 times the words of its bitmap

# Where a warp's shared memory holds what, in bytes. A bitmap has room for what a last block reads past it.
STARTS_AT = RING
STARTS_SIZE = GROUP // 8 + BLOCK // 4
SEQUENCES_AT = STARTS_AT + STARTS_SIZE
SHARED = SEQUENCES_AT + 8 * WARP


def make_publish(target: Target) -> tuple[Any, Any]:
    """``(clear, publish)``: a group's sequences in shared memory."""
    cuda, device = target.cuda, target.device

    @device
    def clear(lane, words32, base):
        """Empty the bitmap."""
        at = U(U(base + U(STARTS_AT)) >> U(2))
        words32[U(at + lane)] = U(0)
        if lane < U(STARTS_SIZE // 4 - WARP):
            words32[U(at + U(WARP) + lane)] = U(0)

    @device
    def publish(lane, words32, words64, base, start, literals, match, offset, length, bit):
        """Write a sequence's line and its bit.

        A line: its offset in bits 0-31, or, with bit 31 set for a match that runs into itself, in bits 0-9, with
        ceil(2**20 / offset) in bits 10-30; where in the group its match starts, 32-41; where its output starts less its
        literals, counted from the group's first, 42-63.
        """
        low = offset
        if offset < length:
            low = U(U(0x80000000) | offset | U(U(U(U(1 << 20) + offset - U(1)) // offset) << U(10)))
        high = U(match | U(U(start - literals) << U(10)))
        words64[U(U(U(base + U(SEQUENCES_AT)) >> U(3)) + lane)] = U64(low) | (U64(high) << U64(32))
        cuda.atomic.or_(words32, U(U(U(base + U(STARTS_AT)) >> U(2)) + U(bit >> U(5))), U(U(1) << U(bit & U(31))))

    return clear, publish


def make_output(target: Target, crew: Any) -> Any:
    """``write(lane, bytes8, words32, words64, base, source, to, to32, dest, size, ring_from, literals, raw)``.

    Makes the `size` bytes of a group from `dest` on, in the slot and in the ring, whose output starts at `ring_from`.
    Its literals start at `literals`, in the input if `raw`, else in the slot.
    """
    cuda, device, permute, sync, load_either = (
        target.cuda,
        target.device,
        target.permute,
        target.sync,
        target.load_either,
    )
    rank_of, follow, store = make_block(target, crew)

    @device
    def source_of(bytes8, words64, base, rank, at, size, dest, block, fresh, oldest, literals):
        """Where output byte `at` of the group comes from, its sequence being the `rank`-th.

        Returns (its value in the ring, its source, whether it is to be loaded from there, whether it is a literal,
        whether it is in this block at `fresh` or later, its place in the block then).
        """
        line = words64[U(U(U(base + U(SEQUENCES_AT)) >> U(3)) + U(rank & U(WARP - 1)))]
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
        value = U(bytes8[U(base + U(source & U(RING - 1)))])
        is_match = at < size and not is_literal
        wanted = is_literal or (is_match and source < oldest)
        return value, source, wanted, is_literal, is_match and source >= fresh, U(source - block)

    @device
    def write(lane, bytes8, words32, words64, base, source, to, to32, dest, size, ring_from, literals, raw):
        block = U(dest & U(FULL - 3))
        bits = U(U(base + U(STARTS_AT)) >> U(2))
        rank = U(FULL)  # of the byte before the group: none
        stop = U(dest + size)
        while block < stop:
            mine, k, rank = rank_of(lane, words32, bits, rank)
            fresh = max(block, dest)
            # What this block overwrites in the ring counts as older than the ring already.
            oldest = max(U(max(block, U(RING - BLOCK)) - U(RING - BLOCK)), ring_from)
            at = U(block - dest + (lane << U(2)))  # below 0, that is large, for bytes before the group
            k = U(k + U(mine & U(1)))
            v0, s0, f0, l0, u0, q0 = source_of(bytes8, words64, base, k, at, size, dest, block, fresh, oldest, literals)
            k = U(k + U((mine >> U(1)) & U(1)))
            v1, s1, f1, l1, u1, q1 = source_of(
                bytes8, words64, base, k, U(at + U(1)), size, dest, block, fresh, oldest, literals
            )
            k = U(k + U((mine >> U(2)) & U(1)))
            v2, s2, f2, l2, u2, q2 = source_of(
                bytes8, words64, base, k, U(at + U(2)), size, dest, block, fresh, oldest, literals
            )
            k = U(k + U((mine >> U(3)) & U(1)))
            v3, s3, f3, l3, u3, q3 = source_of(
                bytes8, words64, base, k, U(at + U(3)), size, dest, block, fresh, oldest, literals
            )
            v0 = load_either(to, source, l0 and raw, s0, f0, v0)
            v1 = load_either(to, source, l1 and raw, s1, f1, v1)
            v2 = load_either(to, source, l2 and raw, s2, f2, v2)
            v3 = load_either(to, source, l3 and raw, s3, f3, v3)
            value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
            if cuda.any_sync(FULL, u0 or u1 or u2 or u3):
                value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            sync()  # literals that this block overwrites have been loaded
            store(words32, base, to, to32, dest, block, lane, at, size, value)
            sync()
            block = U(block + U(BLOCK))
            bits = U(bits + U(BLOCK // 32))

    return write


def make_move(target: Target, crew: Any) -> Any:
    """``move(lane, to, to32, dest, start, n)``: bytes of a slot to a place not behind theirs, which it may overlap."""
    device, load, sync = target.device, target.load, target.sync

    @device
    def word(to32, i, wanted, shift):
        """The unaligned word at bit `shift` of word `i`; what is loaded has a wanted byte in it."""
        low = load(to32, i, wanted, U(0))
        high = load(to32, U(i + U(1)), wanted and shift != U(0), U(0))
        return U(((U64(low) | (U64(high) << U64(32))) >> U64(shift)) & U64(0xFFFFFFFF))

    @device
    def move(lane, to, to32, dest, start, n):
        """Front to back, every row loaded before it is stored."""
        if dest == start:
            return
        head = min(U((U(4) - (dest & U(3))) & U(3)), n)
        byte = load(to, U(start + lane), lane < head, U(0))
        sync()
        if lane < head:
            to[U(dest + lane)] = np.uint8(byte)
        words = U((n - head) >> U(2))
        q = U(start + head)
        i = U(q >> U(2))
        j = U((dest + head) >> U(2))
        shift = U((q & U(3)) << U(3))
        k = U(lane)
        while U(k - lane) < words:
            k1 = U(k + U(WARP))
            k2 = U(k + U(2 * WARP))
            k3 = U(k + U(3 * WARP))
            a = word(to32, U(i + k), k < words, shift)
            b = word(to32, U(i + k1), k1 < words, shift)
            c = word(to32, U(i + k2), k2 < words, shift)
            d = word(to32, U(i + k3), k3 < words, shift)
            sync()
            if k < words:
                to32[U(j + k)] = a
            if k1 < words:
                to32[U(j + k1)] = b
            if k2 < words:
                to32[U(j + k2)] = c
            if k3 < words:
                to32[U(j + k3)] = d
            sync()
            k = U(k + U(4 * WARP))
        tail = U(head + U(words << U(2)) + lane)
        byte = load(to, U(start + tail), tail < n, U(0))
        sync()
        if tail < n:
            to[U(dest + tail)] = np.uint8(byte)

    return move
