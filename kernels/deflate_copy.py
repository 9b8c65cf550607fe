"""How the output of a step of the Deflate decoder is made: matches are copied, and all of it goes to its slot.

A warp makes 128 bytes at a time, four a lane. A byte's match is the last one that starts at or before it, which the
bitmap tells, if it reaches that far; it is found by its description, see `zarrgpu.kernels.deflate_step`. Its source is
in the ring if it is recent, in the slot if it is older, or in these 128 bytes themselves, to be found by pointer
jumping.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import WARP, Target
from zarrgpu.kernels.deflate_crew import make_bits, make_votes
from zarrgpu.kernels.deflate_form import Layout
from zarrgpu.kernels.warp_block import make_crew, make_follow

U = np.uint32
U64 = np.uint64


def make_copy(target: Target, layout: Layout) -> Any:
    """``copy(lane, words, bytes8, to, to32, op, size, buffer, begin)``: the `size` bytes of a step, from `op` on.

    They are whole in the ring afterwards, and in the slot, ``to`` and ``to32``; the bitmap `buffer` is empty. `begin`
    is where the stream's output started. The lanes are those of one warp. Words at the end of the step may hold bytes
    of the next one, which a crew is writing meanwhile, or, in a ring of one step, of this step's beginning: all that a
    match says lies in the step, no more is used, and such words are stored by bytes.
    """
    device, load, permute, sync = target.device, target.load, target.permute, target.sync
    lanes = min(layout.crew, WARP)
    ballot, _, shuffle = make_votes(target, lanes)
    top, _, _ = make_bits(target)
    follow = make_follow(target, make_crew(target, lanes), lanes)
    ring, ring_mask = layout.ring, layout.ring_bytes - 1
    meanwhile = (layout.buffers - 1) * layout.form.output  # bytes that a crew may be writing after the step
    starts, starts_words, ring_bytes = layout.starts, layout.starts_words, layout.ring_bytes

    @device
    def three(low, high, i):
        """The three bytes from byte `i` of two words on."""
        return U(((U64(low) | (U64(high) << U64(32))) >> U64(U(i << U(3)))) & U64(0xFFFFFF))

    @device
    def source_of(bytes8, literal, match, first, at, size, op, fresh, oldest):
        """Where the byte `at` of the step comes from.

        `match` describes the last match up to it, 0 for none, which starts at `first`. Gives the byte, if it is a
        literal or in the ring; its source; whether that is older than the ring; whether it is at `fresh` or later.
        """
        far = U(at - first)
        is_match = match != U(0) and far < U(U(match & U(255)) + U(3)) and at < size
        distance = U(U(U(match >> U(8)) & U(0x7FFF)) + U(1))
        if is_match and far >= distance:
            far = U(far % distance)
        source = U(op + first - distance + far)
        is_fresh = is_match and source >= fresh
        is_old = is_match and source < oldest
        if is_match and not is_fresh and not is_old:
            literal = U(bytes8[U(U(4 * ring) + U(source & U(ring_mask)))])
        return literal, source, is_old, is_fresh

    @device
    def store(words, bytes8, to, to32, block, lane, op, at, size, value):
        """A lane's word of the block, as bytes where it is not whole in the step."""
        if U(at + U(3)) < size and at < size:  # `at` is below 0, that is large, for bytes before the step
            words[U(U(ring) + U(U(U(block >> U(2)) + lane) & U(ring_mask >> 2)))] = value
            to32[U(U(block >> U(2)) + lane)] = value
        else:
            for k in range(4):
                i = U(at + U(k))
                if i < size:
                    byte = np.uint8(U(value >> U(8 * k)) & U(255))
                    bytes8[U(U(4 * ring) + U(U(op + i) & U(ring_mask)))] = byte
                    to[U(op + i)] = byte

    @device
    def copy(lane, words, bytes8, to, to32, op, size, buffer, begin):
        sync()
        skew = U(op & U(3))
        block = U(op - skew)
        stop = U(op + size)
        bitmap = U(U(starts) + U(buffer * U(starts_words)))
        oldest = begin  # that is in the ring
        if U(U(stop - begin) + U(meanwhile)) > U(ring_bytes):
            oldest = U(stop + U(meanwhile) - U(ring_bytes))
        open_match, open_first = U(0), U(0)  # of an earlier block, that reaches into this one
        i = lane
        below = U(U(U(1) << lane) - U(1))
        while block < stop:
            mine = U(U(words[U(bitmap + U(i >> U(3)))] >> U(U(i & U(7)) << U(2))) & U(15))
            j = U(U(block >> U(2)) + lane)
            word = U(words[U(U(ring) + U(j & U(ring_mask >> 2)))])
            after = U(words[U(U(ring) + U(U(j + U(1)) & U(ring_mask >> 2)))])
            with_match = ballot(mine != U(0))
            at = U(U(block - op) + U(lane << U(2)))
            value = word
            if with_match != U(0) or open_match != U(0):
                fresh = max(block, op)
                last = U(0)
                if mine != U(0):
                    last = top(mine)
                own_match, own_first = three(word, after, last), U(at + last)
                lower = U(with_match & below)
                giver = U(0)
                if lower != U(0):
                    giver = top(lower)
                match = shuffle(own_match, giver)
                first = shuffle(own_first, giver)
                if lower == U(0):
                    match = open_match
                    first = open_first
                if with_match != U(0):
                    giver = top(with_match)
                    open_match = shuffle(own_match, giver)
                    open_first = shuffle(own_first, giver)
                if U(U(open_match & U(255)) + U(3) + open_first) <= U(U(block - op) + U(4 * lanes)):
                    open_match = U(0)
                if mine & U(1):
                    match = three(word, after, U(0))
                    first = at
                v0, s0, f0, u0 = source_of(bytes8, U(word & U(255)), match, first, at, size, op, fresh, oldest)
                if mine & U(2):
                    match = three(word, after, U(1))
                    first = U(at + U(1))
                literal = U(U(word >> U(8)) & U(255))
                v1, s1, f1, u1 = source_of(bytes8, literal, match, first, U(at + U(1)), size, op, fresh, oldest)
                if mine & U(4):
                    match = three(word, after, U(2))
                    first = U(at + U(2))
                literal = U(U(word >> U(16)) & U(255))
                v2, s2, f2, u2 = source_of(bytes8, literal, match, first, U(at + U(2)), size, op, fresh, oldest)
                if mine & U(8):
                    match = three(word, after, U(3))
                    first = U(at + U(3))
                literal = U(word >> U(24))
                v3, s3, f3, u3 = source_of(bytes8, literal, match, first, U(at + U(3)), size, op, fresh, oldest)
                v0 = load(to, s0, f0, v0)
                v1 = load(to, s1, f1, v1)
                v2 = load(to, s2, f2, v2)
                v3 = load(to, s3, f3, v3)
                value = permute(permute(v0, v1, U(0x0040)), permute(v2, v3, U(0x0040)), U(0x5410))
                if ballot(u0 or u1 or u2 or u3) != U(0):
                    q0, q1, q2, q3 = U(s0 - block), U(s1 - block), U(s2 - block), U(s3 - block)
                    value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            sync()
            store(words, bytes8, to, to32, block, lane, op, at, size, value)
            sync()
            block = U(block + U(4 * lanes))
            i = U(i + U(lanes))
        i = lane
        while i < U(U(U(size + skew) >> U(5)) + U(1)):
            words[U(bitmap + i)] = U(0)
            i = U(i + U(lanes))
        sync()

    return copy
