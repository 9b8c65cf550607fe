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


def make_registers(target: Target, lanes: int, itemsize: int, swap: int) -> tuple[Any, Any, Any]:
    """The functions as aligned loads, byte permutations and 16-byte stores."""
    device, permute, store16 = target.device, target.permute, target.store16
    _, bits8 = make_bits8(target)
    unit = max(swap, 1)
    p0, p1, p2, p3, p4, p5, p6, p7 = (W(p) for p in origins(swap))
    reversed_bytes = {1: 0x3210, 2: 0x2301, 4: 0x0123, 8: 0x0123}[unit]

    @device
    def cut(words, a):
        """Four bytes at `a`; the word behind is loaded only if it holds one of them."""
        i = a >> W(2)
        value = W(words[i])
        if a & W(3) != W(0):
            value = (value | W(words[i + W(1)]) << W(32)) >> (a & W(3)) * W(8)
        return U(value & W(0xFFFFFFFF))

    @device
    def quad(words, a, b, c, d):
        """Four words at four addresses."""
        if (a | b | c | d) & W(3) == W(0):
            return words[a >> W(2)], words[b >> W(2)], words[c >> W(2)], words[d >> W(2)]
        return cut(words, a), cut(words, b), cut(words, c), cut(words, d)

    @device
    def pairs(a, b):
        """Bytes of `a` and `b` in turn: two words of two 2-byte elements."""
        return permute(a, b, U(0x5140)), permute(a, b, U(0x7362))

    @device
    def store2(a, a2, b, b2, out32, o):
        x, y = pairs(a, b)
        z, t = pairs(a2, b2)
        store16(out32, o, x, y, z, t)

    @device
    def square(a, b, c, d):
        """A 4x4 transpose: four 4-byte elements of four planes."""
        ab, ab2 = pairs(a, b)
        cd, cd2 = pairs(c, d)
        low, high = U(0x5410), U(0x7632)
        return permute(ab, cd, low), permute(ab, cd, high), permute(ab2, cd2, low), permute(ab2, cd2, high)

    @device
    def store4(a, b, c, d, out32, o):
        x, y, z, t = square(a, b, c, d)
        store16(out32, o, x, y, z, t)

    @device
    def store8(a, b, c, d, e, f, g, h, out32, o):
        x, y, z, t = square(a, b, c, d)
        x2, y2, z2, t2 = square(e, f, g, h)
        store16(out32, o, x, x2, y, y2)
        store16(out32, o + W(4), z, z2, t, t2)

    # From one unit of a lane to the next: bytes of a plane, words of the output.
    ahead, out_ahead = W(lanes * max(4, 16 // itemsize)), W(lanes * max(itemsize, 4))

    @device
    def plain(data, words, a, out32, o, count, windows):
        for _ in range(count):
            for w in range(windows):
                b = a + W(16 * w)
                x, y, z, t = quad(words, b, b + W(4), b + W(8), b + W(12))
                if unit > 1:
                    order = U(reversed_bytes)
                    x, y, z, t = permute(x, x, order), permute(y, y, order), permute(z, z, order), permute(t, t, order)
                if unit == 8:
                    x, y, z, t = y, x, t, z
                store16(out32, o + W(4 * w), x, y, z, t)
            a += W(16 * lanes * windows)
            o += W(4 * lanes * windows)

    @device
    def planes1(data, words, a, n, out32, o, count):
        plain(data, words, a, out32, o, count, 1)

    @device
    def planes2(data, words, a, n, out32, o, count):
        b, c = a + p0 * n, a + p1 * n
        for _ in range(count):
            x, y, z, t = quad(words, b, b + W(4), c, c + W(4))
            store2(x, y, z, t, out32, o)
            b += ahead
            c += ahead
            o += out_ahead

    @device
    def planes4(data, words, a, n, out32, o, count):
        for _ in range(count):
            x, y, z, t = quad(words, a + p0 * n, a + p1 * n, a + p2 * n, a + p3 * n)
            store4(x, y, z, t, out32, o)
            a += ahead
            o += out_ahead

    @device
    def planes8(data, words, a, n, out32, o, count):
        for _ in range(count):
            x, y, z, t = quad(words, a + p0 * n, a + p1 * n, a + p2 * n, a + p3 * n)
            x2, y2, z2, t2 = quad(words, a + p4 * n, a + p5 * n, a + p6 * n, a + p7 * n)
            store8(x, y, z, t, x2, y2, z2, t2, out32, o)
            a += ahead
            o += out_ahead

    @device
    def bits_1(data, a, m, k, out, out32, o, count):
        x, y = bits8(data, a, m, k)
        z, t = bits8(data, a + W(1), m, k)
        store16(out32, o, x, y, z, t)

    @device
    def bits_2(data, a, m, k, out, out32, o, count):
        m8 = W(8) * m
        x, y = bits8(data, a + p0 * m8, m, k)
        z, t = bits8(data, a + p1 * m8, m, k)
        store2(x, y, z, t, out32, o)

    @device
    def bits_4(data, a, m, k, out, out32, o, count):
        m8 = W(8) * m
        x, x2 = bits8(data, a + p0 * m8, m, k)
        y, y2 = bits8(data, a + p1 * m8, m, k)
        z, z2 = bits8(data, a + p2 * m8, m, k)
        t, t2 = bits8(data, a + p3 * m8, m, k)
        store4(x, y, z, t, out32, o)
        store4(x2, y2, z2, t2, out32, o + W(4))

    @device
    def bits_8(data, a, m, k, out, out32, o, count):
        m8 = W(8) * m
        x, x2 = bits8(data, a + p0 * m8, m, k)
        y, y2 = bits8(data, a + p1 * m8, m, k)
        z, z2 = bits8(data, a + p2 * m8, m, k)
        t, t2 = bits8(data, a + p3 * m8, m, k)
        e, e2 = bits8(data, a + p4 * m8, m, k)
        f, f2 = bits8(data, a + p5 * m8, m, k)
        g, g2 = bits8(data, a + p6 * m8, m, k)
        h, h2 = bits8(data, a + p7 * m8, m, k)
        store8(x, y, z, t, e, f, g, h, out32, o)
        store8(x2, y2, z2, t2, e2, f2, g2, h2, out32, o + W(8))

    planes = {1: planes1, 2: planes2, 4: planes4, 8: planes8}[itemsize]
    bits = {1: bits_1, 2: bits_2, 4: bits_4, 8: bits_8}[itemsize]
    return plain, planes, bits
