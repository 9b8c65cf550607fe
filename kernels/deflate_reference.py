"""The plain decoder of Deflate streams, in the order of RFC 1951, with zlib's verdict on what the RFC leaves open."""

from __future__ import annotations

from collections.abc import Sequence

from zarrgpu.kernels.tables import Status


class Fault(Exception):  # a verdict on the data, as a kernel's status is
    """Why a stream is refused: its only argument is a `Status`."""


class Bits:
    """The bits of a stream, those of a byte from the lowest one on.

    Parameters
    ----------
    data : bytes
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> int:
        """The next `n` bits, the first one lowest."""
        value = 0
        for k in range(n):
            if self.at >= 8 * len(self.data):
                raise Fault(Status.TRUNCATED)
            value |= (self.data[self.at >> 3] >> (self.at & 7) & 1) << k
            self.at += 1
        return value

    def align(self) -> None:
        """Go to the next byte."""
        self.at = -(-self.at // 8) * 8


class Code:
    """A Huffman code (3.2.2): codes of a length are in the order of symbols, and follow those that are shorter.

    Parameters
    ----------
    lengths : sequence of int
        Bits of each symbol's code, 0 for none.
    single, empty : bool
        Whether a code of a single symbol, of one bit, will do, and one of none.
    """

    def __init__(self, lengths: Sequence[int], single: bool = True, empty: bool = False) -> None:
        self.symbols: dict[tuple[int, int], int] = {}
        code, left = 0, 1 << 15
        for n in range(1, 16):
            code <<= 1
            for symbol, length in enumerate(lengths):
                if length == n:
                    self.symbols[n, code] = symbol
                    code += 1
                    left -= 1 << 15 - n
        longest = max(lengths, default=0)
        spare = (longest == 1 and single) or (longest == 0 and empty)
        if left < 0 or (left > 0 and not spare):
            raise Fault(Status.BAD_CODE)

    def take(self, bits: Bits) -> int:
        """The next symbol, whose code's first bit comes first."""
        code = 0
        for n in range(1, 16):
            code = code << 1 | bits.take(1)
            if (n, code) in self.symbols:
                return self.symbols[n, code]
        raise Fault(Status.BAD_CODE)


LENGTHS = [(k + 3, 0) for k in range(8)] + [(2**n * (4 + k) + 3, n) for n in range(1, 6) for k in range(4)]
LENGTHS[-1:] = [(227, 5), (258, 0)]
"""Of the symbols 257-285 (3.2.5): the shortest length, and how many bits are added to it."""

DISTANCES = [(k + 1, 0) for k in range(4)] + [(2**n * (2 + k) + 1, n) for n in range(1, 14) for k in range(2)]

FIXED = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8
"""Bits of the fixed code (3.2.6); that of distances has 5."""

ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)


def described(bits: Bits) -> tuple[Code, Code]:
    """The codes of a block that describes them (3.2.7)."""
    n, m, k = bits.take(5) + 257, bits.take(5) + 1, bits.take(4) + 4
    if n > 286 or m > 30:
        raise Fault(Status.BAD_CODE)
    of_lengths = [0] * 19
    for symbol in ORDER[:k]:
        of_lengths[symbol] = bits.take(3)
    code = Code(of_lengths, single=False)
    lengths: list[int] = []
    while len(lengths) < n + m:
        symbol = code.take(bits)
        if symbol < 16:
            lengths.append(symbol)
        elif symbol == 16:
            if not lengths:
                raise Fault(Status.BAD_CODE)
            lengths += [lengths[-1]] * (3 + bits.take(2))
        else:
            lengths += [0] * (3 + bits.take(3) if symbol == 17 else 11 + bits.take(7))
    if len(lengths) > n + m or lengths[256] == 0:
        raise Fault(Status.BAD_CODE)
    return Code(lengths[:n]), Code(lengths[n:], empty=True)


def decode(stream: bytes, want: int) -> tuple[bytes, int]:
    """The `want` bytes of a stream, and how many bytes it has; `Fault` where it is refused.

    Raises
    ------
    Fault
        With the `Status` that a kernel gives, but for a stream in which several things are wrong.
    """
    bits, out = Bits(stream), bytearray()
    last = 0
    while not last:
        last, kind = bits.take(1), bits.take(2)
        if kind == 0:  # stored (3.2.4)
            bits.align()
            size, check = bits.take(16), bits.take(16)
            if check != size ^ 0xFFFF:
                raise Fault(Status.BAD_HEADER)
            out += bytes(bits.take(8) for _ in range(size))
        elif kind == 3:
            raise Fault(Status.BAD_HEADER)
        else:
            codes = described(bits) if kind == 2 else (Code(FIXED), Code([5] * 32))
            inflate(bits, *codes, out, want)
        if len(out) > want:
            raise Fault(Status.OVERFLOW)
    if len(out) < want:
        raise Fault(Status.SHORT)
    bits.align()
    return bytes(out), bits.at // 8


def inflate(bits: Bits, symbols: Code, distances: Code, out: bytearray, want: int) -> None:
    """Decode a block's tokens (3.2.3) to the end of `out`."""
    while (symbol := symbols.take(bits)) != 256:
        if symbol < 256:
            out.append(symbol)
        elif symbol > 285:
            raise Fault(Status.BAD_CODE)
        else:
            shortest, n = LENGTHS[symbol - 257]
            length = shortest + bits.take(n)
            symbol = distances.take(bits)
            if symbol > 29:
                raise Fault(Status.BAD_CODE)
            nearest, n = DISTANCES[symbol]
            distance = nearest + bits.take(n)
            if distance > len(out):
                raise Fault(Status.BAD_OFFSET)
            for _ in range(length):
                out.append(out[-distance])
        if len(out) > want:
            raise Fault(Status.OVERFLOW)
