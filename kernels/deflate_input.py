"""The input of the Deflate decoder: a ring of words in shared memory that is filled ahead of what is decoded.

Positions in the stream are bits from a *base*, a word of the source; the ring holds word ``i`` from the base on at
``i`` modulo its size. The base moves on with the decoder, by multiples of that size, so that bits fit 32 bits in
streams of any length. Bytes from the stream's end on read as zeros.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.deflate_form import Layout

U = np.uint32
U64 = np.uint64
FULL = 0xFFFFFFFF


class Input(NamedTuple):
    """How words and bits of the input are read; `words` is the stream's shared memory, ``uint32[]``.

    Attributes
    ----------
    joined : callable
        ``joined(low, high, shift) -> uint32``: the 32 bits from bit `shift` of two words on.
    fetch : callable
        ``fetch(lane, source32, at, end) -> 4 uint32``: this lane's words of the next ones from word `at` on.
    refill : callable
        ``refill(lane, source32, words, end, base, pos, loaded, a, b, c, d)``: see there.
    word : callable
        ``word(words, i) -> uint32``: word `i` from the base on.
    peek : callable
        ``peek(words, pos) -> uint32``: the 32 bits from bit `pos` on.
    start : callable
        ``start(words, pos)``: a reader at bit `pos`, which is the next bits, uint64; how many of them count, 33 or
        more; the word that follows them; and the index of the one after that.
    """

    joined: Any
    fetch: Any
    refill: Any
    word: Any
    peek: Any
    start: Any


def make_input(target: Target, layout: Layout, sync: Any) -> Input:
    """The input of a stream; `end` is the position of its end in the source, in bytes, `at` is in words."""
    device, load, prefetch = target.device, target.load, target.prefetch
    lanes, ring, window, mask = layout.crew, layout.input, layout.window, layout.input_words - 1

    @device
    def joined(low, high, shift):
        return U(((U64(low) | (U64(high) << U64(32))) >> U64(shift)) & U64(FULL))

    @device
    def part(source32, at, end):
        value = load(source32, at, at < U(U(end + U(3)) >> U(2)), U(0))
        if U(at) == U(end >> U(2)):  # the last word, if the end is inside one
            value = U(value & U(U(U(1) << U(U(end & U(3)) << U(3))) - U(1)))
        return value

    @device
    def fetch(lane, source32, at, end):
        at = U(at + lane)
        return (
            part(source32, at, end),
            part(source32, U(at + U(lanes)), end),
            part(source32, U(at + U(2 * lanes)), end),
            part(source32, U(at + U(3 * lanes)), end),
        )

    @device
    def refill(lane, source32, words, end, base, pos, loaded, a, b, c, d):
        """Have the words that a step at `pos` may look at in the ring; the next ones come into registers.

        The first `loaded` words from the base on have been in the ring, those of `fetch` come next. Gives base, pos,
        loaded and the four words of `fetch` anew.
        """
        past = U(U(pos >> U(5)) & U(FULL - mask))
        base = U(base + past)
        pos = U(pos - U(past << U(5)))
        loaded = U(loaded - past)
        need = U(U(pos >> U(5)) + U(window))
        sync()  # nobody reads what is overwritten
        while loaded < need:
            n = U(need - loaded)
            at = U(loaded + lane)
            if lane < n:
                words[U(U(ring) + U(at & U(mask)))] = a
            if U(lane + U(lanes)) < n:
                words[U(U(ring) + U(U(at + U(lanes)) & U(mask)))] = b
            if U(lane + U(2 * lanes)) < n:
                words[U(U(ring) + U(U(at + U(2 * lanes)) & U(mask)))] = c
            if U(lane + U(3 * lanes)) < n:
                words[U(U(ring) + U(U(at + U(3 * lanes)) & U(mask)))] = d
            loaded = U(loaded + min(n, U(4 * lanes)))
            a, b, c, d = fetch(lane, source32, U(base + loaded), end)
        at = U(base + loaded + U(4 * lanes) + U(lane << U(5)))
        prefetch(source32, at, lane < U(U(window) >> U(5)) and at < U(end >> U(2)))
        sync()
        return base, pos, loaded, a, b, c, d

    @device
    def word(words, i):
        return U(words[U(U(ring) + U(i & U(mask)))])

    @device
    def peek(words, pos):
        i = U(pos >> U(5))
        return joined(word(words, i), word(words, U(i + U(1))), U(pos & U(31)))

    @device
    def start(words, pos):
        i = U(pos >> U(5))
        bits = (U64(word(words, i)) | (U64(word(words, U(i + U(1)))) << U64(32))) >> U64(pos & U(31))
        return bits, U(U(64) - U(pos & U(31))), word(words, U(i + U(2))), U(i + U(3))

    return Input(joined, fetch, refill, word, peek, start)
