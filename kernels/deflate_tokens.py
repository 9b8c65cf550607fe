"""Tokens of a Deflate block: literals and matches, decoded by each lane into a list of its own.

A lane decodes the segment of the input that it is given, from a bit at which it supposes a token to start, up to the
first token that starts behind the segment. Whether its start is right is known only once the lane before has come to
its end. Then it decodes again from where that ended, but only until it meets a token of its list: from there on all is
the same. Huffman codes soon do so, they synchronise themselves.

A list has slots of 16 bits, `crew` slots of other lanes between two of them::

    literal    byte | bits << 8
    match      length - 3 | bits << 8 | 1 << 15, then distance - 1

where *bits* is how many the token has, 48 at most. A list ends at a bit, its *exit*: the next token's first, with one
of the flags `TRUNCATED` (the list is full), `BROKEN` (no token) and `ENDS` (the end of the block is before it).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.deflate_codes import FORBIDDEN, KIND
from zarrgpu.kernels.deflate_crew import make_bits
from zarrgpu.kernels.deflate_form import CODE_SYMBOLS, Layout
from zarrgpu.kernels.deflate_input import Input

U = np.uint32
U64 = np.uint64
H = np.uint16

ENDS, BROKEN, TRUNCATED = 1 << 31, 1 << 30, 1 << 29
MATCH = 1 << 23  # in a record


def make_token(target: Target, layout: Layout, source: Input) -> tuple[Any, Any]:
    """``(limits, token)``: what a lane keeps in registers of the codes, and the next token."""
    device, word = target.device, source.word
    _, reverse, _ = make_bits(target)
    literals, distances, sorted_at, limits_at = layout.literals, layout.distances, layout.sorted, layout.limits
    more, longer = layout.form.literal_bits + 1, layout.form.distance_bits + 1

    def places(first, begin, n):
        """Where the limits are of `n` lengths from one on, of the last one again where there are no more."""
        return tuple(first + min(begin + k, 15) for k in range(n))

    a, b, c, d, e, f = places(limits_at, more, 6)
    g, h, i, j, k, l, m, n = places(limits_at + 32, longer, 8)  # noqa: E741  # the twelfth letter

    @device
    def limits(words):
        """Of the codes that are longer than what the tables are indexed by."""
        return (
            (words[U(a)], words[U(b)], words[U(c)], words[U(d)], words[U(e)], words[U(f)]),
            (
                words[U(g)],
                words[U(h)],
                words[U(i)],
                words[U(j)],
                words[U(k)],
                words[U(l)],
                words[U(m)],
                words[U(n)],
            ),
        )

    @device
    def over(value, limit):
        return U(1) if value >= limit else U(0)

    @device
    def long_entry(words, bits15, length, sorted_at, limits_at):
        """The entry of a code of this length; 0 where that is more than 15, so that there is no such code."""
        if length > U(15):
            return U(0)
        rank = U(U(bits15 >> U(U(15) - length)) + words[U(limits_at + U(16) + length)])
        return U(words[U(sorted_at + rank)])

    @device
    def token(words, bits, have, following, after, known):
        """The token at the reader's bit.

        Gives a record of it, its bits, 0 or a flag, and the reader behind it. The record: a byte, or length - 3, bits
        0-7; distance - 1, 8-22; `MATCH`; bits, from 26 on.
        """
        low = U(bits & U64(0xFFFFFFFF))
        entry = U(words[U(U(literals) + U(low & U((1 << (more - 1)) - 1)))])
        if entry == U(0):
            first = known[0]
            bits15 = U(reverse(low) >> U(17))
            length = U(U(more) + over(bits15, first[0]) + over(bits15, first[1]) + over(bits15, first[2]))
            length = U(length + over(bits15, first[3]) + over(bits15, first[4]) + over(bits15, first[5]))
            entry = long_entry(words, bits15, length, U(sorted_at), U(limits_at))
        used = U(entry & U(15))
        flag = U(0)
        record = U(U(entry >> U(8)) & U(255))
        kind = U(U(entry >> U(KIND)) & U(3))
        if kind == U(1):
            extra = U(U(entry >> U(4)) & U(15))
            record = U(record + U(U(low >> used) & U(U(U(1) << extra) - U(1))))
            used = U(used + extra)
            bits = bits >> U64(used)
            have = U(have - used)
            if have < U(33):
                bits = bits | (U64(following) << U64(have))
                have = U(have + U(32))
                following = word(words, after)
                after = U(after + U(1))
            low = U(bits & U64(0xFFFFFFFF))
            entry = U(words[U(U(distances) + U(low & U((1 << (longer - 1)) - 1)))])
            if entry == U(0):
                second = known[1]
                bits15 = U(reverse(low) >> U(17))
                length = U(U(longer) + over(bits15, second[0]) + over(bits15, second[1]) + over(bits15, second[2]))
                length = U(length + over(bits15, second[3]) + over(bits15, second[4]) + over(bits15, second[5]))
                length = U(length + over(bits15, second[6]) + over(bits15, second[7]))
                entry = long_entry(words, bits15, length, U(sorted_at + CODE_SYMBOLS), U(limits_at + 32))
            far = U(entry & U(15))
            extra = U(U(entry >> U(4)) & U(15))
            distance = U(U(U(entry >> U(8)) & U(0x7FFF)) + U(U(low >> far) & U(U(U(1) << extra) - U(1))))
            far = U(far + extra)
            bits = bits >> U64(far)
            have = U(have - far)
            used = U(used + far)
            record = U(record | U(U(distance & U(0x7FFF)) << U(8)) | U(MATCH))
            if entry == U(0) or entry >= U(1 << FORBIDDEN):
                flag = U(BROKEN)
        else:
            bits = bits >> U64(used)
            have = U(have - used)
            if kind == U(2):
                flag = U(ENDS)
            elif kind == U(3) or entry == U(0):
                flag = U(BROKEN)
        if have < U(33):
            bits = bits | (U64(following) << U64(have))
            have = U(have + U(32))
            following = word(words, after)
            after = U(after + U(1))
        return U(record | U(used << U(26))), used, flag, bits, have, following, after

    return limits, token


def make_lists(target: Target, layout: Layout, source: Input) -> tuple[Any, Any, Any, Any]:
    """``(limits, run, mend, made)``: decode a segment into a list; from another start; bytes of a first slot."""
    device, start = target.device, source.start
    limits, token = make_token(target, layout, source)
    lists, lanes = 2 * layout.lists, layout.crew
    slots, spare = layout.form.slots, layout.form.spare

    @device
    def put(halves, i, record):
        """Write a token to slot `i` and, a match, to the lane's next one; how many slots it took."""
        match = U(U(record >> U(23)) & U(1))
        halves[i] = H(U(record & U(255)) | U(U(record >> U(26)) << U(8)) | U(match << U(15)))
        if match != U(0):
            halves[U(i + U(lanes))] = H(U(record >> U(8)) & U(0x7FFF))
        return U(match + U(1))

    @device
    def made(slot):
        return U(U(slot & U(255)) + U(3)) if slot >= U(0x8000) else U(1)

    @device
    def made_by(record):
        return U(U(record & U(255)) + U(3)) if record & U(MATCH) else U(1)

    @device
    def run(lane, words, halves, pos, end, known):
        """Decode from bit `pos` to the segment's end: how many slots, from slot `spare` on; bytes of output; exit."""
        n, size, flag = U(0), U(0), U(0)
        i = U(U(lists + spare * lanes) + lane)
        bits, have, following, after = start(words, pos)
        while pos < end and flag == U(0):
            if n >= U(slots - 1):
                flag = U(TRUNCATED)
            else:
                record, used, flag, bits, have, following, after = token(words, bits, have, following, after, known)
                pos = U(pos + used)
                if flag == U(0):
                    used = put(halves, i, record)
                    i = U(i + U(used * U(lanes)))
                    n = U(n + used)
                    size = U(size + made_by(record))
        return n, size, U(pos | flag)

    @device
    def mend(lane, words, halves, pos, end, old, first, n, size, exit_, known):
        """Make of the list from bit `old` on, `n` slots from slot `first` on, the list from bit `pos` on.

        New tokens go to the slots from 0 on, until one of them starts where one of the list does; then they are moved
        to right before that. Gives the first slot, slots, bytes of output, exit, and whether there was no room for it:
        the list is broken then.
        """
        full = n > U(slots)
        if first < U(spare // 2) and not full:  # what is written must not overtake what is read
            i = n
            while i > U(0):
                i = U(i - U(1))
                value = halves[U(U(lists) + U(U(first + i) * U(lanes)) + lane)]
                halves[U(U(lists) + U(U(U(spare) + i) * U(lanes)) + lane)] = value
            first = U(spare)
        fresh, read, skipped, added, end_at = U(0), U(0), U(0), U(0), U(0)
        going = not full
        i = U(U(lists) + U(first * U(lanes)) + lane)
        o = U(U(lists) + lane)
        slot = U(0)
        if read < n:
            slot = U(halves[i])
        bits, have, following, after = start(words, pos)
        while going:  # a token of the list or a new one a turn
            if old < pos and read < n:
                old = U(old + U(U(slot >> U(8)) & U(63)))
                skipped = U(skipped + made(slot))
                used = U(U(1) + U(slot >> U(15)))
                read = U(read + used)
                i = U(i + U(used * U(lanes)))
                if read < n:
                    slot = U(halves[i])
            if old == pos:
                end_at = exit_
                added = U(added + size - skipped)
                going = False
            elif pos >= end:
                end_at = pos
                read = n
                going = False
            elif old > pos or read == n:
                if U(o + U(lanes)) >= i:
                    full = True
                    going = False
                else:
                    record, used, flag, bits, have, following, after = token(words, bits, have, following, after, known)
                    pos = U(pos + used)
                    if flag != U(0):
                        end_at = U(pos | flag)
                        read = n
                        going = False
                    else:
                        used = put(halves, o, record)
                        o = U(o + U(used * U(lanes)))
                        fresh = U(fresh + used)
                        added = U(added + made_by(record))
        place = U(0)
        if fresh == U(0):
            place = U(first + read)
        elif read < n and not full:
            place = U(first + read - fresh)
            j = fresh if place > U(0) else U(0)
            while j > U(0):
                j = U(j - U(1))
                value = halves[U(U(lists) + U(j * U(lanes)) + lane)]
                halves[U(U(lists) + U(U(place + j) * U(lanes)) + lane)] = value
        return place, U(fresh + n - read), added, end_at, full

    return limits, run, mend, made
