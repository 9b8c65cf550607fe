"""FSE codes (RFC 8878, 4.1): their descriptions, and their tables, made by one lane each.

A table has ``1 << log`` entries of 16 bits, one a state: the symbol in bits 0-5, ``x`` in bits 6-15. From there the
next state is ``(x << n) - (1 << log)`` plus the next ``n`` bits, where ``n`` is ``log`` less the index of the highest
bit of ``x``. A code of a single symbol has log 0, and 1 for ``x``.

Arrays are given with the position at which a lane's part of them starts: ``counts`` is ``uint16[]``, 13 to 53 of a
lane, -1 as 65535; ``table`` is ``uint16[]``. Positions in the input are int64, relative to a view of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.zstd_bits import make_top_bit

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
H = np.uint16

BAD, TOO_MANY = -1, -2  # in place of a result: the description is wrong; it has more symbols than there may be


def make_peek(target: Target) -> Any:
    """``peek(source, at, end, bit)``: 24 bits from bit `bit` of ``source[at:end]`` on, zeros where it has ended."""

    @target.device
    def peek(source, at, end, bit):
        p = I(at + (bit >> 3))
        value = I(0)
        for i in range(4):
            if p + i < end:
                value |= I(source[p + i]) << I(8 * i)
        return I((value >> I(bit & 7)) & I(0xFFFFFF))

    return peek


def make_fse(target: Target) -> tuple[Any, Any]:
    """``(describe, build)``: from a description to counts, and from those to a table."""
    device = target.device
    top_bit, peek = make_top_bit(target), make_peek(target)

    @device
    def describe(source, at, end, most, most_log, counts, to):
        """Counts of symbols 0 to `most` out of ``source[at:end]``: ``position after << 4 | log``, `BAD` or `TOO_MANY`.

        Each turn consumes a bit at least.
        """
        if at >= end:
            return I(BAD)
        log = I((I(source[at]) & 15) + 5)
        if log > most_log:
            return I(BAD)
        bit, last = I(4), I((end - at) * 8)
        left = I(1) << log
        symbol = I(0)
        while left > 0:
            if symbol > most:
                return I(TOO_MANY)
            width = I(I(top_bit(U(left + 1))) + 1)
            value = I(peek(source, at, end, bit) & ((I(1) << width) - 1))
            low = I((I(1) << (width - 1)) - 1)
            short = I((I(1) << width) - 2 - left)
            if (value & low) < short:
                bit = I(bit + width - 1)
                value = I(value & low)
            else:
                bit = I(bit + width)
                if value > low:
                    value = I(value - short)
            value = I(value - 1)
            left = I(left - abs(value))
            counts[to + symbol] = H(value & I(0xFFFF))
            symbol = I(symbol + 1)
            if value == 0:
                more = I(3)
                while more == 3:
                    more = I(peek(source, at, end, bit) & 3)
                    bit = I(bit + 2)
                    if bit > last:
                        return I(BAD)
                    if symbol + more > most + 1:
                        return I(TOO_MANY)
                    for _ in range(more):
                        counts[to + symbol] = H(0)
                        symbol = I(symbol + 1)
            if bit > last:
                return I(BAD)
        while symbol <= most:
            counts[to + symbol] = H(0)
            symbol = I(symbol + 1)
        return I(((at + ((bit + 7) >> 3)) << 4) | log)

    @device
    def build(counts, first, symbols, log, table, to):
        """The table of a code of so many `symbols`; the counts are used up."""
        size = U(U(1) << U(log))
        mask = U(size - U(1))
        high = mask
        for i in range(symbols):
            if U(counts[first + i]) == U(0xFFFF):
                table[U(U(to) + high)] = H(i)
                high = U(high - U(1))
        step = U(U(size >> U(1)) + U(size >> U(3)) + U(3))
        at = U(0)
        for i in range(symbols):
            count = U(counts[first + i])
            if count == U(0xFFFF):
                counts[first + i] = H(1)
            else:
                k = U(0)
                while k < count:
                    table[U(U(to) + at)] = H(i)
                    at = U(U(at + step) & mask)
                    while at > high:
                        at = U(U(at + step) & mask)
                    k = U(k + U(1))
        k = U(0)
        while k < size:
            symbol = U(U(table[U(U(to) + k)]) & U(63))
            x = U(counts[U(U(first) + symbol)])
            counts[U(U(first) + symbol)] = H(x + U(1))
            table[U(U(to) + k)] = H(symbol | U(x << U(6)))
            k = U(k + U(1))

    return describe, build


def make_codes(target: Target) -> Any:
    """``code(source, blocks, b, kind, numbers, table, to, counts, first)``: the table of one of a block's three codes.

    `kind` is 0 for literals' lengths, 1 for offsets, 2 for matches' lengths. Gives ``position after the descriptions of
    the codes up to this one << 4 | log``, or less than 0.
    """
    device = target.device
    describe, build = make_fse(target)
    log_0, log_1, log_2 = z.DEFAULT_LOG
    at_0, at_1, at_2 = z.DEFAULTS_AT
    known_0, known_1, known_2 = (len(counts) for counts in z.DEFAULTS)
    most_0, most_1, most_2 = z.MAX_SYMBOL
    max_0, max_1, max_2 = z.MAX_LOG

    @device
    def choose(kind, a, b, c):
        return I(a) if kind == 0 else I(b) if kind == 1 else I(c)

    @device
    def read(source, at, end, mode, kind, numbers, counts, first):
        """Counts of a code given by `mode`; as `describe`, log 0 for a single symbol, which is then in `counts`."""
        most = choose(kind, most_0, most_1, most_2)
        if mode == z.DESCRIBED:
            return describe(source, at, end, most, choose(kind, max_0, max_1, max_2), counts, first)
        if mode == z.SINGLE:
            if at >= end or I(source[at]) > most:
                return I(BAD)
            counts[first] = H(source[at])
            return I((I(at) + 1) << 4)
        if mode == z.PREDEFINED:
            base, known = choose(kind, at_0, at_1, at_2), choose(kind, known_0, known_1, known_2)
            for i in range(most + 1):
                count = U(0)
                if i < known:
                    count = U(numbers[base + i])
                counts[first + i] = H(count & U(0xFFFF))
            return I((I(at) << 4) | choose(kind, log_0, log_1, log_2))
        return I(I(at) << 4)

    @device
    def counts_of(source, blocks, b, kind, numbers, counts, first):
        """Counts of code `kind` of block `b`, out of the descriptions there; as `read`."""
        o = I(b) * z.BLOCK_COLUMNS
        at = I(blocks[o + z.Z_CODES_AT])
        end = I(blocks[o + z.Z_START]) + I(blocks[o + z.Z_SIZE])
        modes = I(blocks[o + z.Z_MODES])
        found = I(at) << 4
        for k in range(kind + 1):
            if found >= 0:
                found = read(source, I(found >> 4), end, (modes >> (6 - 2 * k)) & 3, k, numbers, counts, first)
        return found

    @device
    def code(source, blocks, b, kind, numbers, table, to, counts, first):
        o = I(b) * z.BLOCK_COLUMNS
        found = counts_of(source, blocks, b, kind, numbers, counts, first)
        if found < 0:
            return found
        back = I(blocks[o + z.Z_CODES + kind])
        if back > 0:
            earlier = counts_of(source, blocks, b - back, kind, numbers, counts, first)
            if earlier < 0:
                return earlier
            found = I((found >> 4 << 4) | (earlier & 15))
        log = I(found & 15)
        if log == 0:
            table[to] = H(U(counts[first]) | U(64))
        else:
            build(counts, first, choose(kind, most_0, most_1, most_2) + 1, log, table, to)
        return found

    return code
