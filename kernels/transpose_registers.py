"""The transposes of `zarrgpu.kernels.transpose` on a GPU: aligned loads, byte permutations, 16-byte stores."""

from __future__ import annotations

from typing import Any

from zarrgpu._cuda import Target
from zarrgpu.kernels.transpose import U, W, make_bits8, origins


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

    # Loads of several units come before the first store, which the compiler does not move them across: with one unit at
    # a time too few bytes are in flight to keep the memory busy.
    step = ahead >> W(2)

    @device
    def planes2(data, words, a, n, out32, o, count):
        b, c = a + p0 * n, a + p1 * n
        if (b | c) & W(3) == W(0):
            i, j = b >> W(2), c >> W(2)
            while count >= 4:
                x, y, z, t = words[i], words[i + W(1)], words[j], words[j + W(1)]
                i, j = i + step, j + step
                x2, y2, z2, t2 = words[i], words[i + W(1)], words[j], words[j + W(1)]
                i, j = i + step, j + step
                x3, y3, z3, t3 = words[i], words[i + W(1)], words[j], words[j + W(1)]
                i, j = i + step, j + step
                x4, y4, z4, t4 = words[i], words[i + W(1)], words[j], words[j + W(1)]
                i, j = i + step, j + step
                store2(x, y, z, t, out32, o)
                store2(x2, y2, z2, t2, out32, o + out_ahead)
                store2(x3, y3, z3, t3, out32, o + out_ahead * W(2))
                store2(x4, y4, z4, t4, out32, o + out_ahead * W(3))
                o += out_ahead * W(4)
                count -= 4
            b, c = i << W(2), j << W(2)
        for _ in range(count):
            x, y, z, t = quad(words, b, b + W(4), c, c + W(4))
            store2(x, y, z, t, out32, o)
            b += ahead
            c += ahead
            o += out_ahead

    @device
    def planes4(data, words, a, n, out32, o, count):
        b, c, d, e = a + p0 * n, a + p1 * n, a + p2 * n, a + p3 * n
        if (b | c | d | e) & W(3) == W(0):
            i, j, k, m = b >> W(2), c >> W(2), d >> W(2), e >> W(2)
            while count >= 4:
                x, y, z, t = words[i], words[j], words[k], words[m]
                i, j, k, m = i + step, j + step, k + step, m + step
                x2, y2, z2, t2 = words[i], words[j], words[k], words[m]
                i, j, k, m = i + step, j + step, k + step, m + step
                x3, y3, z3, t3 = words[i], words[j], words[k], words[m]
                i, j, k, m = i + step, j + step, k + step, m + step
                x4, y4, z4, t4 = words[i], words[j], words[k], words[m]
                i, j, k, m = i + step, j + step, k + step, m + step
                store4(x, y, z, t, out32, o)
                store4(x2, y2, z2, t2, out32, o + out_ahead)
                store4(x3, y3, z3, t3, out32, o + out_ahead * W(2))
                store4(x4, y4, z4, t4, out32, o + out_ahead * W(3))
                o += out_ahead * W(4)
                count -= 4
            b, c, d, e = i << W(2), j << W(2), k << W(2), m << W(2)
        for _ in range(count):
            x, y, z, t = quad(words, b, c, d, e)
            store4(x, y, z, t, out32, o)
            b, c, d, e = b + ahead, c + ahead, d + ahead, e + ahead
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
