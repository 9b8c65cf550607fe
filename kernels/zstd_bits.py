"""Zstandard's bitstreams, which are read backwards (RFC 8878, 4.1), by many lanes of a GPU at once.

A bitstream is the bytes ``at`` to ``end`` of a view of words; ``bits`` counts its bits that are left, plus the 0-24
bits of the word that it starts in which lie before it. So the word with the next bits is ``at / 4 - 1 + ceil(bits /
32)``.

On a GPU each lane has a window of the words below, segments of 16 bytes in shared memory, word ``i`` at ``i`` modulo
the window's length. Each step of a decoder may start to fetch one more segment, and uses it `LATE` + 1 steps later at
the earliest, so that no lane waits for memory, and none makes the others wait. A step consumes at most 85 bits of
sequences or 44 of literals: a window of 16 or 8 segments is then never empty. On the host words come straight from the
input.

Whatever the bits are, every access is in range: words outside the window's reach are never fetched, what is read of
them is whatever the window holds, and the decoder sees in the end that it took more bits than there were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target, shared

U = np.uint32
U64 = np.uint64
S = np.int32


def make_top_bit(target: Target) -> Any:
    """``top_bit(x)``: the index of the highest set bit of a uint32 that is not 0."""
    if target.cuda is None:

        @target.device
        def top_bit(x):
            n = U(0)
            for shift in (16, 8, 4, 2, 1):
                if U(x) >> U(shift):
                    n = U(n + U(shift))
                    x = U(U(x) >> U(shift))
            return n

        return top_bit
    cuda = target.cuda

    @target.device
    def top_bit_by_clz(x):
        return U(U(31) - U(cuda.clz(U(x))))

    return top_bit_by_clz


def make_window(target: Target, segments: int) -> tuple[Any, Any, Any]:
    """``(start, advance, word)`` of a window of `segments` segments, a power of two.

    ``start(words, ring, at, top, lowest)`` fills the window from word `top` down and gives the next segment to fetch;
    `ring` is an array of uint32 in shared memory, `at` the window's first element, `lowest` the bitstream's first word,
    2 at least. ``advance(words, ring, address, top, lowest, segment)`` is due once a step and gives the next segment.
    ``word(words, ring, address, i)`` gives a word.
    """
    device = target.device
    if target.cuda is None:

        @device
        def nowhere(words, ring, at, top, lowest):
            return S(0)

        @device
        def nothing(words, ring, address, top, lowest, segment):
            return segment

        @device
        def direct(words, ring, address, i):
            value = U(0)
            if i < U(words.size):
                value = U(words[i])
            return value

        return nowhere, nothing, direct

    memory = shared(target)
    address_of, fetch16, get, close, settle = memory.address, memory.fetch16, memory.get, memory.advance, memory.settle
    mask = 4 * segments - 1

    @device
    def start(words, ring, at, top, lowest):
        address = address_of(ring, at)
        segment, least = S(top >> U(2)), S(S(lowest >> U(2)) - S(1))
        for _ in range(segments):
            i = U(U(segment & 0x3FFFFFFF) << U(2))
            there = segment >= least and segment >= 0 and U(i + U(3)) < U(words.size)
            fetch16(ring, address, U(i & U(mask)), words, i, there)
            segment = S(segment - 1)
        settle()
        return segment

    @device
    def advance(words, ring, address, top, lowest, segment):
        least = S(S(lowest >> U(2)) - S(1))
        i = U(U(segment & 0x3FFFFFFF) << U(2))
        there = segment >= max(least, S(0)) and U(i + U(4 * segments)) > top
        fetch16(ring, address, U(i & U(mask)), words, i, there)
        if there:
            segment = S(segment - 1)
        close()
        return segment

    @device
    def word(words, ring, address, i):
        return get(ring, address, U(i & U(mask)))

    return start, advance, word


def make_view(target: Target, word: Any) -> tuple[Any, Any]:
    """``(view, field)``: 63 bits of a bitstream at a time, in a register."""
    device = target.device

    @device
    def view(words, ring, address, top, bits):
        """The next 63 bits below bit `bits`, of which word `top` holds the first, as a number."""
        shift = U64(U(U(32) - U(bits & U(31))) & U(31))
        high = U64(word(words, ring, address, top))
        middle = U64(word(words, ring, address, U(top - U(1))))
        low = U64(word(words, ring, address, U(top - U(2))))
        upper = U(((((high << U64(32)) | middle) << shift) >> U64(32)) & U64(0xFFFFFFFF))
        lower = U(((((middle << U64(32)) | low) << shift) >> U64(32)) & U64(0xFFFFFFFF))
        return U64(((U64(upper) << U64(32)) | U64(lower)) >> U64(1))

    @device
    def field(seen, end, n):
        """The `n` bits that end `end` bits below the first of a view, 63 at most."""
        return U(U((seen >> U64(U(63) - end)) & U64(0xFFFFFFFF)) & U(U(U(1) << n) - U(1)))

    return view, field
