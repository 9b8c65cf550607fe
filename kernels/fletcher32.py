"""fletcher32: whether ranges of bytes have the Fletcher-32 that is stored for them, as HDF5 and numcodecs compute it.

Arguments, grid, statuses and limits: `zarrgpu.kernels.checksums`; how sums are made of segments, and their bounds:
`zarrgpu.kernels.weighted_sums`.

Source: HDF5, ``H5_checksum_fletcher32`` in ``H5checksum.c``, which numcodecs has in ``fletcher32.pyx``. The payload is
pairs of bytes, big endian; a last single byte is the high one of a pair. ``sum1`` is the sum of the pairs, ``sum2``
that of all values that ``sum1`` takes after a pair, in which pair ``k`` of ``n`` counts ``n - k`` times. Sums are kept
short by adding what is above 16 bits to what is below: that is modulo 65535, but gives 65535 instead of 0, except for
a sum of zeros alone. The checksum is ``sum2 * 65536 + sum1``, and 0 for no bytes, which numcodecs refuses.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from zarrgpu.kernels.weighted_sums import weighted_sums

U = np.uint32
W = np.uint64
MODULUS: Final = 65535


def reference(data: bytes) -> int:
    """The checksum pair by pair."""
    sum1 = sum2 = 0
    for i in range(0, len(data), 2):
        sum1 += int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big")
        sum1 = (sum1 & 0xFFFF) + (sum1 >> 16)
        sum2 += sum1
        sum2 = (sum2 & 0xFFFF) + (sum2 >> 16)
    return sum2 << 16 | sum1


def split(word, skew):
    """A word of the arena is two pairs, of weights 2 and 1.

    When the payload starts at an odd address, the word's bytes are the low one of a pair that began in the word before,
    a pair, and the high one of a pair that ends in the word after. Of the last word of a segment, that pair has weight
    1; the others then have 2 and 3.
    """
    a, b = U(word & U(255)), U(U(word >> U(8)) & U(255))
    c, d = U(U(word >> U(16)) & U(255)), U(word >> U(24))
    if skew & 1 == 0:
        first, second = U(U(a << U(8)) | b), U(U(c << U(8)) | d)
        return U(first + second), U(U(first << U(1)) + second)
    pair = U(U(b << U(8)) | c)
    high = U(d << U(8))
    return U(U(a + pair) + high), U(U(U(U(3) * a) + U(pair << U(1))) + high)


def rest(first, size, tail):
    """Pairs after the one of the byte before `tail`, which is a multiple of 4.

    That byte is ``tail - 1 - first`` of the payload, so half that is its pair; there are ``(size + 1) >> 1``.
    """
    return ((size + 1) >> 1) - ((tail - 1 - first) >> 1) - 1


def single(byte, i, size):
    """The high or the low byte of a pair."""
    value = U(U(byte) << U(8)) if i & 1 == 0 else U(byte)
    return value, U(value * U(((size + 1) >> 1) - (i >> 1)))


def finish(a, b, size):
    """From 1 to the modulus each, or 0 for zeros alone."""
    m = W(MODULUS)
    if a == W(0):
        return W(0)
    return ((b + m - W(1)) % m + W(1)) << W(16) | ((a - W(1)) % m + W(1))


FLETCHER32 = weighted_sums("fletcher32", 2, MODULUS, split, rest, single, finish)
PARTIAL, VERDICT = FLETCHER32.partial, FLETCHER32.verdict
