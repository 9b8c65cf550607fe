"""The Huffman codes of a Deflate block: from code lengths to tables, built by all lanes of a crew.

An entry of a table says what the bits mean that it is indexed by: 0 for a longer code, or none; else the bits of the
code (4), those after it that add to the value (4), the value (16, of which a length keeps 8), and then ::

    literals   0: the value is a byte; 1: a length - 3; 2: the end of the block; 3: a symbol that must not occur
    distances  0: the value is a distance - 1; 1: a symbol that must not occur

from bit `KIND` of a literal's entry and from bit `FORBIDDEN` of a distance's on. Longer codes are found by the limits
of each length: with the first bit of a code highest, and codes of 15 bits made by adding zeros, codes of a length are
below its limit, and at its limit or above start those of the next one. Their entries are in the order of the codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import WARP, Target
from zarrgpu.kernels.deflate_crew import Crew, make_bits, make_votes
from zarrgpu.kernels.deflate_form import CODE_SYMBOLS, Layout
from zarrgpu.kernels.deflate_input import Input
from zarrgpu.kernels.tables import Status

U = np.uint32
U64 = np.uint64
S = np.int32
OK, BAD_CODE = int(Status.OK), int(Status.BAD_CODE)

LITERALS, DISTANCES, LENGTHS = 0, 1, 2  # the three codes, the last one that of code lengths
KIND, FORBIDDEN = 16, 24
LENGTH_BITS = 7  # of a code of the code of code lengths, at most
LENGTH_SYMBOLS = 19
MOST_LITERALS, MOST_DISTANCES = 286, 30


def make_entry(target: Target) -> Any:
    """``entry(code, symbol, bits) -> uint32``: of a symbol whose code has so many bits."""

    @target.device
    def entry(code, symbol, bits):
        if code == U(LITERALS):
            if symbol < U(256):
                return U(bits | U(symbol << U(8)))
            if symbol == U(256):
                return U(bits | U(2 << KIND))
            if symbol < U(265):
                return U(bits | U(U(symbol - U(257)) << U(8)) | U(1 << KIND))
            if symbol < U(285):
                k = U(symbol - U(265))
                extra = U(U(k >> U(2)) + U(1))
                return U(bits | U(extra << U(4)) | U(U(U(4) + U(k & U(3))) << U(extra + U(8))) | U(1 << KIND))
            if symbol == U(285):
                return U(bits | U(255 << 8) | U(1 << KIND))
            return U(bits | U(3 << KIND))
        if code == U(DISTANCES):
            if symbol < U(4):
                return U(bits | U(symbol << U(8)))
            if symbol < U(30):
                extra = U(U(symbol >> U(1)) - U(1))
                return U(bits | U(extra << U(4)) | U(U(U(2) + U(symbol & U(1))) << U(extra + U(8))))
            return U(bits | U(1 << FORBIDDEN))
        return U(bits | U(symbol << U(8)))

    return entry


def make_build(target: Target, layout: Layout, crew: Crew) -> Any:
    """``build(lane, words, bytes8, first, n, code, table, table_bits, sorted_at, limits_at) -> bool``.

    Makes the tables of a code out of the `n` lengths ``bytes8[first:first + n]``; whether zlib takes them: it refuses
    those of more codes than there are, and of fewer, unless it is a single code of one bit, or no distance at all.
    """
    device, sync = target.device, target.sync
    entry = make_entry(target)
    _, reverse, count = make_bits(target)
    width = min(layout.crew, WARP)  # lanes that count and sort: one warp
    _, alike, _ = make_votes(target, width)
    lanes, counts = layout.crew, layout.counts
    team_sync = crew.sync

    @device
    def length(bytes8, first, n, i):
        return U(bytes8[U(first + i)]) if i < n else U(0)

    @device
    def build(lane, words, bytes8, first, n, code, table, table_bits, sorted_at, limits_at):
        below = U(U(U(1) << U(lane & U(31))) - U(1))
        if lane < U(width):
            i = lane
            while i < U(16):
                words[U(U(counts) + i)] = U(0)
                i = U(i + U(width))
            sync()
            at = U(0)
            while at < n:
                bits = length(bytes8, first, n, U(at + lane))
                same = alike(bits)
                if bits > U(0) and U(same & below) == U(0):
                    words[U(U(counts) + bits)] = U(words[U(U(counts) + bits)] + count(same))
                sync()
                at = U(at + U(width))
        team_sync()
        left = S(1)  # codes of this length that are not taken
        next_code, offset, longest = U(0), U(0), U(0)
        good = True
        for k in range(1, 16):
            many = U(words[U(counts + k)])
            left = S(S(left * S(2)) - S(many))
            if left < S(0):
                good = False
                left = S(0)
            next_code = U(next_code << U(1))
            if lane == U(0):
                words[U(limits_at + U(k))] = U(U(next_code + many) << U(15 - k))
                words[U(limits_at + U(16 + k))] = U(offset - next_code)
                words[U(counts + 16 + k)] = offset
            next_code = U(next_code + many)
            offset = U(offset + many)
            if many > U(0):
                longest = U(k)
        if left > S(0) and longest > U(0) and (code == U(LENGTHS) or longest != U(1)):
            good = False
        if longest == U(0) and code != U(DISTANCES):
            good = False
        team_sync()
        if good:
            if lane < U(width):
                at = U(0)
                while at < n:
                    bits = length(bytes8, first, n, U(at + lane))
                    same = alike(bits)
                    rank = count(U(same & below))
                    start = U(words[U(U(counts + 16) + bits)])
                    if bits > U(0):
                        words[U(sorted_at + U(start + rank))] = entry(code, U(at + lane), bits)
                    sync()
                    if bits > U(0) and rank == U(0):
                        words[U(U(counts + 16) + bits)] = U(start + count(same))
                    sync()
                    at = U(at + U(width))
            team_sync()
            i = lane
            while i < U(U(1) << table_bits):
                bits15 = U(reverse(i) >> U(17))
                shorter = U(0)  # the longest length whose limit, and so all shorter codes', is not above
                step = U(8)
                while step > U(0):
                    k = U(shorter + step)
                    if k <= table_bits and bits15 >= U(words[U(limits_at + k)]):
                        shorter = k
                    step = U(step >> U(1))
                bits = U(shorter + U(1))
                value = U(0)
                if bits <= table_bits:
                    rank = U(U(bits15 >> U(U(15) - bits)) + words[U(limits_at + U(16) + bits)])
                    value = U(words[U(sorted_at + rank)])
                words[U(table + i)] = value
                i = U(i + U(lanes))
        team_sync()
        return good

    return build


def make_codes(target: Target, layout: Layout, crew: Crew, source: Input) -> tuple[Any, Any]:
    """``(fixed, dynamic)``: the codes of a block of that kind.

    ``fixed(lane, words, bytes8)`` makes those of RFC 1951, 3.2.6; ``dynamic(lane, words, bytes8, pos)`` those that are
    described from bit `pos` on, and gives a status and where that ends. The description is in the ring.
    """
    device, peek, start = target.device, source.peek, source.start
    build, team_sync = make_build(target, layout, crew), crew.sync
    word = source.word
    lanes, lengths = layout.crew, 4 * layout.lengths
    literals, distances, sorted_at, limits = layout.literals, layout.distances, layout.sorted, layout.limits
    literal_bits, distance_bits = layout.form.literal_bits, layout.form.distance_bits

    @device
    def both(lane, words, bytes8, n, m):
        first = build(
            lane, words, bytes8, U(lengths), n, U(LITERALS), U(literals), U(literal_bits), U(sorted_at), U(limits)
        )
        second = build(
            lane,
            words,
            bytes8,
            U(U(lengths) + n),
            m,
            U(DISTANCES),
            U(distances),
            U(distance_bits),
            U(sorted_at + CODE_SYMBOLS),
            U(limits + 32),
        )
        return first and second

    @device
    def fixed(lane, words, bytes8):
        i = lane
        while i < U(CODE_SYMBOLS + 32):
            bits = U(8)
            if i >= U(CODE_SYMBOLS):
                bits = U(5)
            elif i >= U(144) and i < U(256):
                bits = U(9)
            elif i >= U(256) and i < U(280):
                bits = U(7)
            bytes8[U(U(lengths) + i)] = np.uint8(bits)
            i = U(i + U(lanes))
        team_sync()
        both(lane, words, bytes8, U(CODE_SYMBOLS), U(32))

    @device
    def place(i):
        """The symbol whose length comes as number `i`: 16, 17, 18, 0, 8, 7, 9, 6, 10, ..."""
        if i < U(3):
            return U(U(16) + i)
        if i == U(3):
            return U(0)
        if i & U(1):
            return U(U(7) - U(U(i - U(5)) >> U(1)))
        return U(U(8) + U(U(i - U(4)) >> U(1)))

    @device
    def dynamic(lane, words, bytes8, pos):
        head = peek(words, pos)
        n = U(U(head & U(31)) + U(257))
        m = U(U(U(head >> U(5)) & U(31)) + U(1))
        described = U(U(U(head >> U(10)) & U(15)) + U(4))
        pos = U(pos + U(14))
        good = n <= U(MOST_LITERALS) and m <= U(MOST_DISTANCES)
        i = lane
        while i < U(LENGTH_SYMBOLS):
            three = U(0)
            if i < described:
                three = U(peek(words, U(pos + U(i * U(3)))) & U(7))
            bytes8[U(U(lengths + 320) + place(i))] = np.uint8(three)
            i = U(i + U(lanes))
        pos = U(pos + U(described * U(3)))
        team_sync()
        built = build(
            lane,
            words,
            bytes8,
            U(lengths + 320),
            U(LENGTH_SYMBOLS),
            U(LENGTHS),
            U(distances),
            U(LENGTH_BITS),
            U(sorted_at + CODE_SYMBOLS),
            U(limits + 32),
        )
        good = good and built
        i, before, whole = U(0), U(0), U(n + m)
        bits, have, following, after = start(words, pos)
        while i < whole and good:  # a length or a repetition a turn, by all lanes alike
            found = U(words[U(U(distances) + U(bits & U64(127)))])
            symbol = U(found >> U(8))
            used = U(found & U(15))
            more = U(U(bits & U64(0xFFFFFFFF)) >> used)
            times = U(1)
            if symbol < U(16):
                before = symbol
            elif symbol == U(16):
                times = U(U(3) + U(more & U(3)))
                used = U(used + U(2))
            elif symbol == U(17):
                times = U(U(3) + U(more & U(7)))
                used = U(used + U(3))
                before = U(0)
            else:
                times = U(U(11) + U(more & U(127)))
                used = U(used + U(7))
                before = U(0)
            if found == U(0) or times > U(whole - i) or (symbol == U(16) and i == U(0)):
                good = False
            else:
                k = lane
                while k < times:
                    bytes8[U(U(lengths) + i + k)] = np.uint8(before)
                    k = U(k + U(lanes))
                i = U(i + times)
                pos = U(pos + used)
                bits = bits >> U64(used)
                have = U(have - used)
                if have < U(33):
                    bits = bits | (U64(following) << U64(have))
                    have = U(have + U(32))
                    following = word(words, after)
                    after = U(after + U(1))
        team_sync()
        if good:
            good = bytes8[U(lengths + 256)] != 0  # a block must be able to end
        if good:
            good = both(lane, words, bytes8, n, m)
        return S(OK) if good else S(BAD_CODE), pos

    return fixed, dynamic
