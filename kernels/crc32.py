"""crc32: whether ranges of bytes have the CRC-32 of zlib, or the CRC-32C of RFC 3720, that is stored for them.

Arguments, grid, statuses and limits: `zarrgpu.kernels.checksums`. The two CRCs share their kernels and differ in
``tables``, which `tables_of` makes.

Source: RFC 1952, section 8, and RFC 3720, appendix B.4. Both CRCs are reflected: the first bit of a message is the low
bit of its first byte; a register starts with ones and is inverted at the end.

A register of 32 bits is a polynomial over GF(2) modulo the CRC's, bit 31 being 1 and bit 0 being x^31. To take a word
in means ``register = (register + word) x^32``, so that the words ``w[0]`` to ``w[n - 1]`` leave the sum of
``w[i] x^(32 (n - i))``, and the ones at the start count as if the message's first 32 bits were inverted. Leading zeros
change nothing, and all of it is linear: any part of the words can be summed alone. A lane has four registers, and each
takes every 128th word of a segment by Horner's rule. A step of it multiplies by a fixed power of x, which takes four
look-ups, one for each byte of the register; the registers meet at the end.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import FULL, WARP, Target
from zarrgpu.kernels.checksums import SEGMENT, SHORT, Checksum, kernels, make_head, make_total

U = np.uint32
W = np.uint64

ZLIB: Final = 0xEDB88320
CASTAGNOLI: Final = 0x82F63B78

CHAINS: Final = 4  # registers of a lane, so that one need not wait for another

# Where `tables` holds what. An operator multiplies a register by a power of x: entry 256 k + b is the product of byte k
# being b. A lane of the host has no others beside it, so that its powers differ.
OPERATOR: Final = 4 * 256
STEP_AT: Final = 0  # over CHAINS * WARP words; on the host, over CHAINS words
CHAIN_AT: Final = 2 * OPERATOR  # over WARP words; one word
SEGMENTS_AT: Final = 4 * OPERATOR  # over WARP segments; one segment
WORD_AT: Final = 6 * OPERATOR  # x^(32 (WARP - lane)) for each lane
SEGMENT_AT: Final = WORD_AT + WARP  # x^(8 SEGMENT (WARP - 1 - lane)) for each lane
POLYNOMIAL_AT: Final = SEGMENT_AT + WARP
ENTRIES: Final = POLYNOMIAL_AT + 1


def reference(data: bytes, polynomial: int) -> int:
    """The CRC bit by bit."""
    register = FULL
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (polynomial if register & 1 else 0)
    return register ^ FULL


def product(a: int, b: int, polynomial: int) -> int:
    """`a` times `b`, as polynomials."""
    total = 0
    for k in range(31, -1, -1):
        total ^= a if b >> k & 1 else 0
        a = a >> 1 ^ (polynomial if a & 1 else 0)
    return total


def power(n: int, polynomial: int) -> int:
    """X to the power of `n`."""
    result, square = 1 << 31, 1 << 30
    while n:
        if n & 1:
            result = product(result, square, polynomial)
        square = product(square, square, polynomial)
        n >>= 1
    return result


def tables_of(polynomial: int) -> npt.NDArray[np.uint32]:
    """The argument ``tables`` for a CRC."""
    table = np.zeros(ENTRIES, U)
    words = (CHAINS * WARP, CHAINS, WARP, 1, WARP * SEGMENT // 4, SEGMENT // 4)
    for operator, bytes_ in zip(table[:WORD_AT].reshape(-1, 4, 256), words):
        factor = power(32 * bytes_, polynomial)
        for k in range(32):  # bit k of the register, with all that is known of the bits of its byte below
            bit = 1 << k % 8
            operator[k // 8, bit : 2 * bit] = operator[k // 8, :bit] ^ U(product(1 << k, factor, polynomial))
    table[WORD_AT:SEGMENT_AT] = [power(32 * (WARP - lane), polynomial) for lane in range(WARP)]
    table[SEGMENT_AT:POLYNOMIAL_AT] = [power(8 * SEGMENT * (WARP - 1 - lane), polynomial) for lane in range(WARP)]
    table[POLYNOMIAL_AT] = polynomial
    return table


def make_algebra(target: Target, lanes: int) -> Any:
    """Device functions ``(advance, multiply, total)``."""

    @target.device
    def advance(tables, operator, register):
        """The register by an operator. All indexes are below ``operator + OPERATOR``, all of which `tables` has."""
        a = tables[W(operator) + W(register & U(255))]
        b = tables[W(operator + 256) + W((register >> U(8)) & U(255))]
        c = tables[W(operator + 512) + W((register >> U(16)) & U(255))]
        d = tables[W(operator + 768) + W(register >> U(24))]
        return U(U(a ^ b) ^ U(c ^ d))

    @target.device
    def multiply(a, b, polynomial):
        """As `product`."""
        result = U(0)
        for _ in range(32):
            result = U(result ^ U(a * U(b >> U(31))))
            a = U(U(a >> U(1)) ^ U(polynomial * U(a & U(1))))
            b = U(b << U(1))
        return result

    return advance, multiply, make_total(target, lanes, lambda a, b: a ^ b)


def make_digest(target: Target, lanes: int) -> Any:
    """The sum of a segment's words, each times its power of x, with x^32 for the last."""
    advance, multiply, total = make_algebra(target, lanes)
    head = make_head(target, ones=FULL)
    stride = CHAINS * lanes
    step = STEP_AT if lanes > 1 else STEP_AT + OPERATOR
    chain = CHAIN_AT if lanes > 1 else CHAIN_AT + OPERATOR

    @target.device
    def digest(lane, tables, words, start, begin, end, skew):
        a, b, c, d = U(0), U(0), U(0), U(0)
        # Whole strides back from the end: the first may begin before the payload, all lie before the end.
        at = end - (end - begin + stride - 1) // stride * stride + lane
        while at < 2 and at < end:
            a = U(advance(tables, step, a) ^ head(words, start, at, skew))
            b = U(advance(tables, step, b) ^ head(words, start, at + lanes, skew))
            c = U(advance(tables, step, c) ^ head(words, start, at + 2 * lanes, skew))
            d = U(advance(tables, step, d) ^ head(words, start, at + 3 * lanes, skew))
            at += stride
        i, last, n = W(start + at), W(start + end), W(lanes)
        while i + W(7) * n < last:  # eight words on their way at once
            e, f, g, h = words[i], words[i + n], words[i + W(2) * n], words[i + W(3) * n]
            i += W(stride)
            o, p, q, r = words[i], words[i + n], words[i + W(2) * n], words[i + W(3) * n]
            i += W(stride)
            a, b = U(advance(tables, step, a) ^ e), U(advance(tables, step, b) ^ f)
            c, d = U(advance(tables, step, c) ^ g), U(advance(tables, step, d) ^ h)
            a, b = U(advance(tables, step, a) ^ o), U(advance(tables, step, b) ^ p)
            c, d = U(advance(tables, step, c) ^ q), U(advance(tables, step, d) ^ r)
        while i + W(3) * n < last:
            a, b = U(advance(tables, step, a) ^ words[i]), U(advance(tables, step, b) ^ words[i + n])
            c = U(advance(tables, step, c) ^ words[i + W(2) * n])
            d = U(advance(tables, step, d) ^ words[i + W(3) * n])
            i += W(stride)
        b = U(b ^ advance(tables, chain, a))
        c = U(c ^ advance(tables, chain, b))
        d = U(d ^ advance(tables, chain, c))
        factor = tables[W(WORD_AT + WARP - lanes + lane)]
        return W(total(multiply(d, factor, tables[W(POLYNOMIAL_AT)])))

    return digest


def make_conclude(target: Target, lanes: int) -> Any:
    """The CRC: a lane sums every `lanes`-th segment, then the bytes of the tail go in one by one."""
    advance, multiply, total = make_algebra(target, lanes)
    operator = SEGMENTS_AT if lanes > 1 else SEGMENTS_AT + OPERATOR

    @target.device
    def conclude(lane, tables, partial, base, segments, arena, first, size, tail):
        polynomial = U(tables[W(POLYNOMIAL_AT)])
        register = U(0)
        at = segments - (segments + lanes - 1) // lanes * lanes + lane
        while at < segments:
            register = advance(tables, operator, register)
            if at >= 0:
                register = U(register ^ U(partial[W(base + at)]))
            at += lanes
        register = total(multiply(register, tables[W(SEGMENT_AT + WARP - lanes + lane)], polynomial))
        if size < SHORT:
            register = U(FULL)  # all is tail, the start too
        for i in range(tail, first + size):
            register = U(register ^ U(arena[W(i)]))
            for _ in range(8):
                register = U(U(register >> U(1)) ^ U(polynomial * U(register & U(1))))
        return U(register ^ U(FULL))

    return conclude


PARTIAL, VERDICT, COMPARE = kernels("crc32", ENTRIES, make_digest, make_conclude)

CRC32 = Checksum("crc32", PARTIAL, VERDICT, COMPARE, tables_of(ZLIB))
CRC32C = Checksum("crc32c", PARTIAL, VERDICT, COMPARE, tables_of(CASTAGNOLI))
