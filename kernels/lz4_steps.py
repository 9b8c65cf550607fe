"""The steps by which a warp decodes a group of LZ4 sequences; `zarrgpu.kernels.lz4_group` says how they fit together.

Shared memory is given as three views of all of it, ``bytes8``, ``words32`` and ``words64``; `base` is the warp's first
byte, `window` that of its window. Positions in input and output are uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target
from zarrgpu.kernels.lz4 import MIN_MATCH
from zarrgpu.kernels.warp_block import BLOCK, RING, make_block

U = np.uint32
U64 = np.uint64

GROUP = 1024  # bytes of output of a group, 32 times the words of its bitmap
WINDOW = 128  # bytes of input in a warp's registers, four a lane
NONE = 127  # in place of a position in the window: no token there that a group can use

# Where a warp's shared memory holds what, in bytes.
WINDOW_AT = RING
STARTS_AT = WINDOW_AT + WINDOW
SEQUENCES_AT = STARTS_AT + GROUP // 8
SHARED = SEQUENCES_AT + 8 * WARP

LITERAL, LOADED, FRESH = 1, 1 << 4, 1 << 8  # where a byte of output comes from; shifted by its place in a lane's four


def make_group(target: Target, crew: Any) -> Any:
    """Steps 1 to 3: ``(find, sequence, total, publish)``."""
    cuda, device = target.cuda, target.device
    _, pick, pick_four = crew

    @device
    def next_token(bytes8, window, token, first_length, at, left):
        """Where the token after the one at `at` in the window starts, or `NONE`.

        `first_length` is the byte after the token; `left` bytes of the input are in the window or after it.
        """
        literals = U(token >> U(4))
        after = U(at + U(3) + literals)
        unfit = False
        if literals == U(15):
            after = U(after + U(1) + first_length)
            unfit = first_length == U(255)
        if U(token & U(15)) == U(15):
            byte = U(bytes8[U(window + min(after, U(WINDOW - 1)))])
            after = U(after + U(1))
            unfit = unfit or byte == U(255)
        if unfit or after >= U(NONE) or after >= left:
            after = U(NONE)
        return after

    @device
    def find(lane, bytes8, window, word, first, left):
        """Lane ``k``: the positions of the ``k``-th token from the one at `first` on, and of the one after it."""
        after = U(cuda.shfl_down_sync(FULL, np.int32(word), 1))
        at = U(lane << U(2))
        a, b, c, d = U(word & U(255)), U((word >> U(8)) & U(255)), U((word >> U(16)) & U(255)), U(word >> U(24))
        n0 = next_token(bytes8, window, a, b, at, left)
        n1 = next_token(bytes8, window, b, c, U(at + U(1)), left)
        n2 = next_token(bytes8, window, c, d, U(at + U(2)), left)
        n3 = next_token(bytes8, window, d, U(after & U(255)), U(at + U(3)), left)
        if lane == U(WARP - 1):
            n3 = U(NONE)  # its next byte is not in the window; and from here on there is nowhere to go
        one = U(n0 | U(n1 << U(8)) | U(n2 << U(16)) | U(n3 << U(24)))
        hops = one  # a jump over 1, 2, 4, 8, 16 tokens from each byte
        place = first
        for bit in range(5):
            there = pick(hops, place)
            if lane & U(1 << bit):
                place = there
            if bit < 4:
                hops = pick_four(hops, hops)
        return place, pick(one, place)

    @device
    def sequence(bytes8, window, at, fits):
        """(where the literals start in the window, how many, the match's offset, its length) of the token at `at`.

        Zeros but for the first where it does not fit. Those that do end at 126 at most, so that all is in the window.
        """
        token = U(bytes8[U(window + at)])
        literals = U(token >> U(4))
        start = U(at + U(1))
        if literals == U(15):
            literals = U(literals + U(bytes8[U(window + U(start & U(WINDOW - 1)))]))
            start = U(start + U(1))
        offset = U(0)
        length = U(0)
        if fits:
            p = U(window + start + literals)
            offset = U(U(bytes8[p]) | U(U(bytes8[U(p + U(1))]) << U(8)))
            length = U(U(token & U(15)) + U(MIN_MATCH))
            if length == U(15 + MIN_MATCH):
                length = U(length + U(bytes8[U(p + U(2))]))
        else:
            literals = U(0)
        return start, literals, offset, length

    @device
    def total(lane, value):
        """The sum of `value` over the lanes up to this one."""
        for bit in range(5):
            other = U(cuda.shfl_up_sync(FULL, np.int32(value), 1 << bit))
            if lane >= U(1 << bit):
                value = U(value + other)
        return value

    @device
    def publish(lane, words32, words64, base, start, match, offset, length, literals_at, bit):
        """Write a sequence's line and its bit.

        A line: offset in bits 0-15; where in the group its match starts, 16-31; ceil(2**20 / offset) if the match runs
        into itself, else 0, 32-55; what to add to a position in the group to get its literal's in the window, 56-63.
        """
        inverse = U(0)
        if offset < length:
            inverse = U(U(U(1 << 20) + offset - U(1)) // offset)
        low = U(offset | U(match << U(16)))
        high = U(inverse | U(U(U(literals_at - start) & U(WINDOW - 1)) << U(24)))
        words64[U(U(U(base + U(SEQUENCES_AT)) >> U(3)) + lane)] = U64(low) | (U64(high) << U64(32))
        cuda.atomic.or_(words32, U(U(U(base + U(STARTS_AT)) >> U(2)) + U(bit >> U(5))), U(U(1) << U(bit & U(31))))

    return find, sequence, total, publish


def make_output(target: Target, crew: Any) -> Any:
    """Step 4: ``write(lane, bytes8, words32, words64, base, to, to32, dest, size, ring_from)``.

    Makes the `size` bytes of a group from `dest` on, in the slot and in the ring, whose output starts at `ring_from`.
    What a block takes from the slot is loaded while the block before it is made: a load takes longer than that.
    """
    cuda, device, load, permute, sync = target.cuda, target.device, target.load, target.permute, target.sync
    rank_of, follow, store = make_block(target, crew)

    @device
    def source_of(words64, base, rank, at, size, dest, fresh, oldest, k):
        """Where output byte `at` of the group comes from, its sequence being the `rank`-th; it is a lane's `k`-th.

        Returns (its place in the window if it is a literal, else in the output; its bits of `plan`'s ``kinds``).
        """
        line = words64[U(U(U(base + U(SEQUENCES_AT)) >> U(3)) + U(rank & U(WARP - 1)))]
        low = U(line & U64(0xFFFFFFFF))
        high = U(line >> U64(32))
        offset = U(low & U(0xFFFF))
        match = U(low >> U(16))
        periods = U(U(U(at - match) * U(high & U(0xFFFFFF))) >> U(20))
        source = U(dest + at - offset - U(offset * periods))
        kind = U(0)
        if at < match:
            source = U(U(at + U(high >> U(24))) & U(WINDOW - 1))
            kind = U(U(LITERAL) << k)
        elif at < size and source < oldest:
            kind = U(U(LOADED) << k)
        elif at < size and source >= fresh:
            kind = U(U(FRESH) << k)
        return source, kind

    @device
    def plan(lane, words32, words64, base, dest, size, block, rank, ring_from):
        """Where the four bytes of each lane come from in a block.

        Returns (four places, kinds, the rank of the block's last byte); of the bits in ``kinds``, each for four bytes,
        `LITERAL` are in the window, `LOADED` in the slot, `FRESH` in this block, others in the ring.
        """
        bits = U(U(U(base + U(STARTS_AT)) >> U(2)) + U(U(block - (dest & U(FULL - 3))) >> U(5)))
        mine, k, last = rank_of(lane, words32, bits, rank)
        fresh = max(block, dest)
        # What this block overwrites in the ring counts as older than the ring already.
        oldest = max(U(max(block, U(RING - BLOCK)) - U(RING - BLOCK)), ring_from)
        at = U(block - dest + (lane << U(2)))  # below 0, that is large, for bytes before the group
        k = U(k + U(mine & U(1)))
        s0, k0 = source_of(words64, base, k, at, size, dest, fresh, oldest, U(0))
        k = U(k + U((mine >> U(1)) & U(1)))
        s1, k1 = source_of(words64, base, k, U(at + U(1)), size, dest, fresh, oldest, U(1))
        k = U(k + U((mine >> U(2)) & U(1)))
        s2, k2 = source_of(words64, base, k, U(at + U(2)), size, dest, fresh, oldest, U(2))
        k = U(k + U((mine >> U(3)) & U(1)))
        s3, k3 = source_of(words64, base, k, U(at + U(3)), size, dest, fresh, oldest, U(3))
        return s0, s1, s2, s3, U(k0 | k1 | k2 | k3), last

    @device
    def older(to, s, kinds, k):
        """The byte at `s`, if it is to be loaded."""
        return load(to, s, U(kinds & U(U(LOADED) << k)) != U(0), U(0))

    @device
    def byte_of(bytes8, base, s, kinds, k, loaded):
        """The byte that was loaded, or the window's, or the ring's."""
        place = U(base + U(s & U(RING - 1)))
        if U(kinds & U(U(LITERAL) << k)) != U(0):
            place = U(base + U(WINDOW_AT) + s)
        value = U(bytes8[place])
        if U(kinds & U(U(LOADED) << k)) != U(0):
            value = loaded
        return value

    @device
    def write(lane, bytes8, words32, words64, base, to, to32, dest, size, ring_from):
        block = U(dest & U(FULL - 3))
        stop = U(dest + size)
        # The byte before the group has no rank.
        s0, s1, s2, s3, kinds, rank = plan(lane, words32, words64, base, dest, size, block, U(FULL), ring_from)
        v0, v1 = older(to, s0, kinds, U(0)), older(to, s1, kinds, U(1))
        v2, v3 = older(to, s2, kinds, U(2)), older(to, s3, kinds, U(3))
        while block < stop:
            then = U(block + U(BLOCK))
            n0, n1, n2, n3, then_kinds, w0, w1, w2, w3 = U(0), U(0), U(0), U(0), U(0), U(0), U(0), U(0), U(0)
            if then < stop:
                n0, n1, n2, n3, then_kinds, rank = plan(lane, words32, words64, base, dest, size, then, rank, ring_from)
                w0, w1 = older(to, n0, then_kinds, U(0)), older(to, n1, then_kinds, U(1))
                w2, w3 = older(to, n2, then_kinds, U(2)), older(to, n3, then_kinds, U(3))
            v0, v1 = byte_of(bytes8, base, s0, kinds, U(0), v0), byte_of(bytes8, base, s1, kinds, U(1), v1)
            v2, v3 = byte_of(bytes8, base, s2, kinds, U(2), v2), byte_of(bytes8, base, s3, kinds, U(3), v3)
            value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
            if cuda.any_sync(FULL, U(kinds & U(15 * FRESH)) != U(0)):
                u0, u1 = U(kinds & U(FRESH)) != U(0), U(kinds & U(2 * FRESH)) != U(0)
                u2, u3 = U(kinds & U(4 * FRESH)) != U(0), U(kinds & U(8 * FRESH)) != U(0)
                q0, q1, q2, q3 = U(s0 - block), U(s1 - block), U(s2 - block), U(s3 - block)
                value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            at = U(block - dest + (lane << U(2)))
            store(words32, base, to, to32, dest, block, lane, at, size, value)
            sync()
            block, kinds = then, then_kinds
            s0, s1, s2, s3 = n0, n1, n2, n3
            v0, v1, v2, v3 = w0, w1, w2, w3

    return write
