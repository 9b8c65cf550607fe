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

LITERAL, LOADED, FRESH = 1, 1 << 4, 1 << 8  # where a byte of output comes from; shifted by its place in a lane's four


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

    What a block takes from the input or the slot is loaded while the block before it is made: a load takes longer than
    that. It is there by then, since the slot is read for what is older than the ring only, and literals from where the
    output has not come yet.
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
    def source_of(words64, base, rank, at, size, dest, fresh, oldest, literals, k):
        """Where output byte `at` of the group comes from, its sequence being the `rank`-th; it is a lane's `k`-th.

        Returns (its source, its bits of `plan`'s ``kinds``).
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
        kind = U(0)
        if at < match:
            source = U(literals + at - U(high >> U(10)))
            kind = U(U(LITERAL | LOADED) << k)
        elif at < size and source < oldest:
            kind = U(U(LOADED) << k)
        elif at < size and source >= fresh:
            kind = U(U(FRESH) << k)
        return source, kind

    @device
    def plan(lane, words32, words64, base, dest, size, block, rank, ring_from, literals):
        """Where the four bytes of each lane come from in a block.

        Returns (four sources, kinds, the rank of the block's last byte); of the bits in ``kinds``, each for four
        bytes, `LITERAL` are literals, `LOADED` are in the input or the slot, `FRESH` in this block, others in the ring.
        """
        bits = U(U(U(base + U(STARTS_AT)) >> U(2)) + U(U(block - (dest & U(FULL - 3))) >> U(5)))
        mine, k, last = rank_of(lane, words32, bits, rank)
        fresh = max(block, dest)
        # What this block overwrites in the ring counts as older than the ring already.
        oldest = max(U(max(block, U(RING - BLOCK)) - U(RING - BLOCK)), ring_from)
        at = U(block - dest + (lane << U(2)))  # below 0, that is large, for bytes before the group
        k = U(k + U(mine & U(1)))
        s0, k0 = source_of(words64, base, k, at, size, dest, fresh, oldest, literals, U(0))
        k = U(k + U((mine >> U(1)) & U(1)))
        s1, k1 = source_of(words64, base, k, U(at + U(1)), size, dest, fresh, oldest, literals, U(1))
        k = U(k + U((mine >> U(2)) & U(1)))
        s2, k2 = source_of(words64, base, k, U(at + U(2)), size, dest, fresh, oldest, literals, U(2))
        k = U(k + U((mine >> U(3)) & U(1)))
        s3, k3 = source_of(words64, base, k, U(at + U(3)), size, dest, fresh, oldest, literals, U(3))
        return s0, s1, s2, s3, U(k0 | k1 | k2 | k3), last

    @device
    def load(source, to, raw, s, kinds, k):
        """The byte at `s`, if it is to be loaded."""
        literal = U(kinds & U(U(LITERAL) << k)) != U(0)
        return load_either(to, source, literal and raw, s, U(kinds & U(U(LOADED) << k)) != U(0), U(0))

    @device
    def byte_of(bytes8, base, s, kinds, k, loaded):
        """The byte that was loaded, or the ring's."""
        value = U(bytes8[U(base + U(s & U(RING - 1)))])
        if U(kinds & U(U(LOADED) << k)) != U(0):
            value = loaded
        return value

    @device
    def write(lane, bytes8, words32, words64, base, source, to, to32, dest, size, ring_from, literals, raw):
        block = U(dest & U(FULL - 3))
        stop = U(dest + size)
        # The byte before the group has no rank.
        s0, s1, s2, s3, kinds, rank = plan(
            lane, words32, words64, base, dest, size, block, U(FULL), ring_from, literals
        )
        v0, v1 = load(source, to, raw, s0, kinds, U(0)), load(source, to, raw, s1, kinds, U(1))
        v2, v3 = load(source, to, raw, s2, kinds, U(2)), load(source, to, raw, s3, kinds, U(3))
        while block < stop:
            then = U(block + U(BLOCK))
            n0, n1, n2, n3, then_kinds, w0, w1, w2, w3 = U(0), U(0), U(0), U(0), U(0), U(0), U(0), U(0), U(0)
            if then < stop:
                n0, n1, n2, n3, then_kinds, rank = plan(
                    lane, words32, words64, base, dest, size, then, rank, ring_from, literals
                )
                w0, w1 = load(source, to, raw, n0, then_kinds, U(0)), load(source, to, raw, n1, then_kinds, U(1))
                w2, w3 = load(source, to, raw, n2, then_kinds, U(2)), load(source, to, raw, n3, then_kinds, U(3))
            v0, v1 = byte_of(bytes8, base, s0, kinds, U(0), v0), byte_of(bytes8, base, s1, kinds, U(1), v1)
            v2, v3 = byte_of(bytes8, base, s2, kinds, U(2), v2), byte_of(bytes8, base, s3, kinds, U(3), v3)
            value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
            if cuda.any_sync(FULL, U(kinds & U(15 * FRESH)) != U(0)):
                u0, u1 = U(kinds & U(FRESH)) != U(0), U(kinds & U(2 * FRESH)) != U(0)
                u2, u3 = U(kinds & U(4 * FRESH)) != U(0), U(kinds & U(8 * FRESH)) != U(0)
                q0, q1, q2, q3 = U(s0 - block), U(s1 - block), U(s2 - block), U(s3 - block)
                value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            at = U(block - dest + (lane << U(2)))
            sync()  # literals that this block overwrites have been loaded
            store(words32, base, to, to32, dest, block, lane, at, size, value)
            sync()
            block, kinds = then, then_kinds
            s0, s1, s2, s3 = n0, n1, n2, n3
            v0, v1, v2, v3 = w0, w1, w2, w3

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
