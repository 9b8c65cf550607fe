"""Transposes of planes, for `zarrgpu.kernels.assemble_words`: in registers on a GPU, in loops on the host.

Both makers give three device functions for elements of `itemsize` 1, 2, 4 or 8 bytes of which every `swap` are
reversed. Addresses ``a`` are uint64 bytes from the start of the arena, of which ``data`` is the bytes and ``words``
the words; they may have any alignment. ``o`` is the uint64 word of ``out32`` to write from, a multiple of four. The
caller has checked every byte that an argument names, and that the arena's words cover it.

``plain(data, words, a, out32, o, count, windows)``
    A unit is 16 * `windows` bytes as they lie.
``planes(data, words, a, n, out32, o, count)``
    A unit is max(4, 16 // itemsize) elements, byte ``y`` of which is at ``a + y * n`` and after it.
``bits(data, a, m, k, out, out32, o, count)``
    A unit is max(8, 16 // itemsize) elements, bit ``b`` of byte ``y`` of which is bit ``k`` of the byte at
    ``a + (8 * y + b) * m`` and the bits after it; ``k`` is uint32, below eight.

Each makes `count` units: the first and every `lanes`-th after it; but `bits` in registers makes the first alone, since
a loop there would take too many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target

U = np.uint32
W = np.uint64


def origins(swap: int) -> list[int]:
    """For each of eight bytes of the output the byte of the chunk that becomes it."""
    unit = max(swap, 1)
    return [y // unit * unit + unit - 1 - y % unit for y in range(8)]


def make_bits8(target: Target) -> tuple[Any, Any]:
    """Device functions ``four(data, a, b, c, d)``, a word of four bytes, and ``bits8(data, a, m, k)``.

    `bits8` gives the bytes of eight elements as two words: bit ``b`` of each is in the plane of bytes at ``a + b *
    m``, from bit `k` on. It is an 8x8 bit transpose in three steps, of two words.
    """
    device = target.device

    @device
    def four(data, a, b, c, d):
        return U(U(data[a]) | U(data[b]) << U(8) | U(data[c]) << U(16) | U(data[d]) << U(24))

    @device
    def mixed(x, y, k):
        """In each byte: its bits of `x` from bit `k`, then bits of `y`."""
        kept = U(U(0x01010101) * (U(255) >> k))
        return U((x >> k & kept) | (y << (U(8) - k) & ~kept))

    @device
    def turned(x):
        t = U((x ^ x >> U(7)) & U(0x00AA00AA))
        x = U(x ^ t ^ t << U(7))
        t = U((x ^ x >> U(14)) & U(0x0000CCCC))
        return U(x ^ t ^ t << U(14))

    @device
    def bits8(data, a, m, k):
        b = a + W(4) * m
        x, y = four(data, a, a + m, a + W(2) * m, a + W(3) * m), four(data, b, b + m, b + W(2) * m, b + W(3) * m)
        if k != U(0):
            a += W(1)
            b += W(1)
            x = mixed(x, four(data, a, a + m, a + W(2) * m, a + W(3) * m), k)
            y = mixed(y, four(data, b, b + m, b + W(2) * m, b + W(3) * m), k)
        x, y = turned(x), turned(y)
        t = U((x ^ y << U(4)) & U(0xF0F0F0F0))
        return U(x ^ t), U(y ^ t >> U(4))

    return four, bits8


def make_loops(target: Target, itemsize: int, swap: int) -> tuple[Any, Any, Any]:
    """The functions as plain loops over bytes, which the host's compiler turns into vector instructions."""
    device = target.device
    four, bits8 = make_bits8(target)
    p0, p1, p2, p3, p4, p5, p6, p7 = (W(p) for p in origins(swap))
    order = tuple(origins(swap)[:itemsize])
    octets = max(8, 16 // itemsize) // 8

    @device
    def plain(data, words, a, out32, o, count, windows):
        for i in range(2 * count * windows):
            b, c = a + W(8) * W(i), o + W(2) * W(i)
            out32[c] = four(data, b + p0, b + p1, b + p2, b + p3)
            out32[c + W(1)] = four(data, b + p4, b + p5, b + p6, b + p7)

    @device
    def planes1(data, words, a, n, out32, o, count):
        plain(data, words, a, out32, o, count, 1)

    @device
    def planes2(data, words, a, n, out32, o, count):
        b, c = a + p0 * n, a + p1 * n
        for i in range(4 * count):
            k = W(2) * W(i)
            out32[o + W(i)] = four(data, b + k, c + k, b + k + W(1), c + k + W(1))

    @device
    def planes4(data, words, a, n, out32, o, count):
        b, c, d, e = a + p0 * n, a + p1 * n, a + p2 * n, a + p3 * n
        for i in range(4 * count):
            k = W(i)
            out32[o + k] = four(data, b + k, c + k, d + k, e + k)

    @device
    def planes8(data, words, a, n, out32, o, count):
        b, c, d, e = a + p0 * n, a + p1 * n, a + p2 * n, a + p3 * n
        f, g, h, j = a + p4 * n, a + p5 * n, a + p6 * n, a + p7 * n
        for i in range(4 * count):
            k = W(i)
            out32[o + W(2) * k] = four(data, b + k, c + k, d + k, e + k)
            out32[o + W(2) * k + W(1)] = four(data, f + k, g + k, h + k, j + k)

    @device
    def bits(data, a, m, k, out, out32, o, count):
        for y in range(itemsize):
            plane = a + W(8 * order[y]) * m
            for i in range(count * octets):
                low, high = bits8(data, plane + W(i), m, k)
                d = W(4) * o + W(8 * i * itemsize + y)
                for j in range(4):
                    out[d + W(j * itemsize)] = np.uint8(low >> U(8 * j) & U(255))
                    out[d + W((j + 4) * itemsize)] = np.uint8(high >> U(8 * j) & U(255))

    return plain, {1: planes1, 2: planes2, 4: planes4, 8: planes8}[itemsize], bits
