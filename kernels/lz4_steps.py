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
    """
    cuda, device, load, permute, sync = target.cuda, target.device, target.load, target.permute, target.sync
    rank_of, follow, store = make_block(target, crew)

    @device
    def source_of(bytes8, words64, base, rank, at, size, dest, block, fresh, ring_from):
        """Where output byte `at` of the group comes from, its sequence being the `rank`-th.

        Returns (its value unless one of the next two holds, its source in the slot, whether that is older than the
        ring, whether it is in this block at `fresh` or later, its place in the block then).
        """
        line = words64[U(U(U(base + U(SEQUENCES_AT)) >> U(3)) + U(rank & U(WARP - 1)))]
        low = U(line & U64(0xFFFFFFFF))
        high = U(line >> U64(32))
        offset = U(low & U(0xFFFF))
        match = U(low >> U(16))
        periods = U(U(U(at - match) * U(high & U(0xFFFFFF))) >> U(20))
        source = U(dest + at - offset - U(offset * periods))
        is_literal = at < match
        place = U(base + U(source & U(RING - 1)))
        if is_literal:
            place = U(base + U(WINDOW_AT) + U(U(at + U(high >> U(24))) & U(WINDOW - 1)))
        value = U(bytes8[place])
        is_match = at < size and not is_literal
        return value, source, is_match and source < ring_from, is_match and source >= fresh, U(source - block)

    @device
    def write(lane, bytes8, words32, words64, base, to, to32, dest, size, ring_from):
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
            v0, s0, f0, u0, q0 = source_of(bytes8, words64, base, k, at, size, dest, block, fresh, oldest)
            k = U(k + U((mine >> U(1)) & U(1)))
            v1, s1, f1, u1, q1 = source_of(bytes8, words64, base, k, U(at + U(1)), size, dest, block, fresh, oldest)
            k = U(k + U((mine >> U(2)) & U(1)))
            v2, s2, f2, u2, q2 = source_of(bytes8, words64, base, k, U(at + U(2)), size, dest, block, fresh, oldest)
            k = U(k + U((mine >> U(3)) & U(1)))
            v3, s3, f3, u3, q3 = source_of(bytes8, words64, base, k, U(at + U(3)), size, dest, block, fresh, oldest)
            v0 = load(to, s0, f0, v0)
            v1 = load(to, s1, f1, v1)
            v2 = load(to, s2, f2, v2)
            v3 = load(to, s3, f3, v3)
            value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
            if cuda.any_sync(FULL, u0 or u1 or u2 or u3):
                value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            store(words32, base, to, to32, dest, block, lane, at, size, value)
            sync()
            block = U(block + U(BLOCK))
            bits = U(bits + U(BLOCK // 32))

    return write
