"""adler32: whether ranges of bytes have the Adler-32 that is stored for them.

Arguments, grid, statuses and limits: `zarrgpu.kernels.checksums`; how sums are made of segments, and their bounds:
`zarrgpu.kernels.weighted_sums`.

Source: RFC 1950, sections 2.2 and 8.2. ``s1`` is 1 plus the sum of the bytes, ``s2`` the sum of all values that ``s1``
takes after a byte, both modulo 65521; the checksum is ``s2 * 65536 + s1``. Of ``n`` bytes, byte ``i`` is part of
``n - i`` such values and the 1 is part of ``n``, so that ``s2`` is ``n`` plus the sum of ``(n - i) byte[i]``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from zarrgpu.kernels.weighted_sums import weighted_sums

U = np.uint32
W = np.uint64
MODULUS: Final = 65521


def reference(data: bytes) -> int:
    """The checksum byte by byte."""
    s1, s2 = 1, 0
    for byte in data:
        s1 = (s1 + byte) % MODULUS
        s2 = (s2 + s1) % MODULUS
    return s2 << 16 | s1


def split(word, skew):
    """A word is four bytes, of weights 4, 3, 2, 1, wherever the payload starts."""
    a, b = U(word & U(255)), U(U(word >> U(8)) & U(255))
    c, d = U(U(word >> U(16)) & U(255)), U(word >> U(24))
    x = U(U(a + b) + U(c + d))
    return x, U(U(x + U(U(3) * a)) + U(U(U(2) * b) + c))


def rest(first, size, tail):
    """Bytes from the tail on."""
    return first + size - tail


def single(byte, i, size):
    """A byte is a value."""
    return U(byte), U(U(byte) * U(size - i))


def finish(a, b, size):
    """With the 1 added that the first sum starts with."""
    m = W(MODULUS)
    return (b + size % m) % m << W(16) | (a + W(1)) % m


ADLER32 = weighted_sums("adler32", 4, MODULUS, split, rest, single, finish)
PARTIAL, VERDICT, COMPARE = ADLER32.partial, ADLER32.verdict, ADLER32.compare
