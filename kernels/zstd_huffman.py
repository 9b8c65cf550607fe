"""Zstandard's Huffman codes (RFC 8878, 4.2): their descriptions, and bitstreams of literals, each by one lane.

A code's table has ``1 << log`` entries of 16 bits, looked up with the next `log` bits: the symbol in bits 0-7, how many
bits it takes in bits 8-11.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target, shared
from zarrgpu.kernels.zstd_bits import make_top_bit, make_window
from zarrgpu.kernels.zstd_fse import TOO_MANY, make_fse, make_peek

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
U64 = np.uint64
H = np.uint16

SEGMENTS = 8  # of a bitstream's window
MAX_LOG = 11
MAX_WEIGHT = 12  # of codes that libzstd takes, with tables of twice the size
WEIGHTS_LOG, WEIGHT_SYMBOLS = 6, 13
MOST_WEIGHTS = 253  # that may have been decoded before two more are
BAD, ODD = -1, -2  # in place of a result: the description is wrong; it is the library's to judge


def make_weights(target: Target) -> tuple[Any, Any]:
    """``(weigh, begin)``: from a description to weights, and from those to where each weight's entries start."""
    device = target.device
    top_bit, peek = make_top_bit(target), make_peek(target)
    describe, build = make_fse(target)

    @device
    def unpack(source, at, end, weights, to, table, table_at, counts, first):
        """Weights coded by FSE in ``source[at:end]``: how many, or less than 0; `table` and `counts` are room."""
        found = describe(source, at, end, I(WEIGHT_SYMBOLS - 1), I(WEIGHTS_LOG), counts, first)
        if found < 0:
            return I(ODD) if found == TOO_MANY else I(BAD)
        log, start = I(found & 15), I(found >> 4)
        if start >= end or source[end - 1] == 0:
            return I(BAD)
        build(counts, first, WEIGHT_SYMBOLS, log, table, table_at)
        bits = I((end - start - 1) * 8 + I(top_bit(U(source[end - 1]))))
        if bits < 2 * log:
            return I(ODD)
        bits = I(bits - log)
        one = I(peek(source, start, end, bits) & ((I(1) << log) - 1))
        bits = I(bits - log)
        two = I(peek(source, start, end, bits) & ((I(1) << log) - 1))
        n = I(0)
        going = True
        while going:  # a weight a turn, of which there are at most `MOST_WEIGHTS` + 1
            if n > MOST_WEIGHTS:
                return I(BAD)
            entry = U(table[table_at + one])
            weights[to + n] = np.uint8(entry & U(63))
            n = I(n + 1)
            x = U(entry >> U(6))
            width = I(log - I(top_bit(x)))
            if width > bits:
                going = False
            else:
                bits = I(bits - width)
                one = I((I(x) << width) - (I(1) << log) + (peek(source, start, end, bits) & ((I(1) << width) - 1)))
            one, two = two, one
        weights[to + n] = np.uint8(U(table[table_at + one]) & U(63))
        return I(n + 1)

    @device
    def weigh(source, at, end, weights, to, table, table_at, counts, first):
        """Weights of the symbols, a byte each.

        Gives ``position after the description << 20 | log << 12 | symbols``, or less than 0.
        """
        if at >= end:
            return I(BAD)
        head = I(source[at])
        at = I(at + 1)
        if head >= 128:
            n = I(head - 127)
            size = I((n + 1) >> 1)
            if size > end - at:
                return I(BAD)
            for i in range(n):
                value = I(source[at + (i >> 1)])
                if i & 1:
                    value = I(value & 15)
                else:
                    value = I(value >> 4)
                weights[to + i] = np.uint8(value)
            at = I(at + size)
        else:
            if head == 0 or head > end - at:
                return I(BAD)
            n = I(unpack(source, at, I(at + head), weights, to, table, table_at, counts, first))
            if n < 0:
                return n
            at = I(at + head)
        total, ones = I(0), I(0)
        for i in range(n):
            value = I(weights[to + i])
            if value > MAX_WEIGHT:
                return I(BAD)
            if value > 0:
                total = I(total + (I(1) << (value - 1)))
            if value == 1:
                ones = I(ones + 1)
        if total == 0:
            return I(BAD)
        log = I(I(top_bit(U(total))) + 1)
        rest = I((I(1) << log) - total)
        value = I(top_bit(U(rest)))
        if log > MAX_WEIGHT or rest != I(1) << value:
            return I(BAD)
        if value == 0:
            ones = I(ones + 1)
        if ones < 2:
            return I(BAD)
        if log > MAX_LOG:
            return I(ODD)
        weights[to + n] = np.uint8(value + 1)
        return I((at << 20) | (log << 12) | (n + 1))

    @device
    def begin(weights, to, n, counts, first):
        """The first entry of each weight's symbols, to ``counts[first + 1:first + 13]``."""
        for i in range(WEIGHT_SYMBOLS):
            counts[first + i] = H(0)
        for i in range(n):
            weight = U(weights[to + i])
            counts[U(U(first) + weight)] = H(U(counts[U(U(first) + weight)]) + U(1))
        entry = U(0)
        for i in range(1, WEIGHT_SYMBOLS):
            many = U(counts[first + i])
            counts[first + i] = H(entry)
            entry = U(entry + U(many << U(i - 1)))

    return weigh, begin


def make_literals(target: Target) -> Any:
    """``decode(source, words, at, n, table, table_at, log, to, to32, dest, count, ring, ring_at)``: a bitstream.

    ``source[at:at + n]``, n > 0, to ``to[dest:dest + count]``. Gives whether it ends where the literals do. There is no
    early exit: `count` steps at most, every access in range, `good` is kept to the end.
    """
    device, memory = target.device, shared(target)
    address_of, get = memory.address, memory.get
    top_bit = make_top_bit(target)
    start, advance, word = make_window(target, SEGMENTS)

    @device
    def shifted(high, low, shift):
        """The word `shift` bits below the first of two."""
        return U(((((U64(high) << U64(32)) | U64(low)) << U64(shift)) >> U64(32)) & U64(0xFFFFFFFF))

    @device
    def decode(source, words, at, n, table, table_at, log, to, to32, dest, count, ring, ring_at):
        if source[at + n - 1] == 0:
            return False
        low = U(U(at & 3) << U(3))
        bits = U(low + U(U(n - 1) << U(3)) + U(top_bit(U(source[at + n - 1]))))
        lowest = U(U(at >> 2) - U(1))
        top = U(lowest + U(U(bits + U(31)) >> U(5)))
        shift = U(U(U(32) - U(bits & U(31))) & U(31))
        segment = start(words, ring, ring_at, top, lowest)
        window, code = address_of(ring, ring_at), address_of(table, table_at)
        a = U(word(words, ring, window, top))
        b = U(word(words, ring, window, U(top - U(1))))
        c = U(word(words, ring, window, U(top - U(2))))
        q = U(dest)
        end = U(q + U(count))
        drop = U(U(32) - U(log))
        good = True
        while q < end:
            d = U(word(words, ring, window, U(top - U(3))))  # the words after the next 96 bits
            e = U(word(words, ring, window, U(top - U(4))))
            seen = (U64(shifted(a, b, shift)) << U64(32)) | U64(shifted(b, c, shift))
            segment = advance(words, ring, window, top, lowest, segment)
            used = U(0)
            if U(q & U(3)) == U(0) and U(end - q) >= U(4):
                four = U(0)
                for k in range(4):
                    entry = U(get(table, code, U(U(seen >> U64(32)) >> drop)))
                    width = U(entry >> U(8))
                    seen = seen << U64(width)
                    four = U(four | U(U(entry & U(255)) << U(8 * k)))
                    used = U(used + width)
                to32[U(q >> U(2))] = four
                q = U(q + U(4))
            else:
                entry = U(get(table, code, U(U(seen >> U64(32)) >> drop)))
                used = U(entry >> U(8))
                to[q] = np.uint8(entry & U(255))
                q = U(q + U(1))
            good = good and bits >= U(low + used)
            bits = U(bits - used)
            shift = U(shift + used)
            whole = U(shift >> U(5))
            shift = U(shift & U(31))
            top = U(top - whole)
            if whole == U(1):
                a = b
                b = c
                c = d
            if whole == U(2):
                a = c
                b = d
                c = e
        return good and bits == low

    return decode
