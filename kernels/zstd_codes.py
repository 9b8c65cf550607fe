"""The codes of Zstandard (RFC 8878, 4) and XXH64 in plain Python: what `zarrgpu.kernels.zstd_reference` reads with."""

from __future__ import annotations

from zarrgpu.kernels.tables import Status

Code = list[tuple[int, int, int]]
"""Of each state of an FSE code: the symbol, and the next state less the bits read, and how many those are."""


class Fault(Exception):
    """Why a stream is refused: ``args[0]`` is a `Status`."""


def need(holds: bool, status: Status) -> None:
    """Refuse unless something holds."""
    if not holds:
        raise Fault(status)


def number(data: bytes) -> int:
    """Little endian."""
    return int.from_bytes(data, "little")


class Bits:
    """A bitstream that is read from its end, which a set bit marks (4.1); before its start there are zeros."""

    def __init__(self, data: bytes) -> None:
        need(len(data) > 0 and data[-1] > 0, Status.BAD_CODE)
        self.left = 8 * len(data) - 9 + data[-1].bit_length()
        self.bits = number(data)

    def peek(self, n: int) -> int:
        """The next bits."""
        at = self.left - n
        return (self.bits >> at if at >= 0 else self.bits << -at) & (1 << n) - 1

    def skip(self, n: int) -> None:
        """Read them."""
        self.left -= n

    def read(self, n: int) -> int:
        """The next bits, read."""
        value = self.peek(n)
        self.left -= n
        return value


# 4.1 FSE


def counts_of(data: bytes, most: int, most_log: int, too_many: Status) -> tuple[int, list[int], int]:
    """4.1.1 The log of a code's states, how many of them each symbol has, and bytes of the description."""
    need(len(data) > 0, Status.BAD_CODE)
    bits, at = number(data), 4
    log = (data[0] & 15) + 5
    need(log <= most_log, Status.BAD_CODE)
    left, counts = 1 << log, list[int]()
    while left > 0:
        need(len(counts) <= most, too_many)
        width = (left + 1).bit_length()
        value, short = bits >> at & (1 << width) - 1, (1 << width) - 2 - left
        if value & (1 << width - 1) - 1 < short:
            value, at = value & (1 << width - 1) - 1, at + width - 1
        else:
            value, at = (value - short if value >= 1 << width - 1 else value), at + width
        counts.append(value - 1)
        left -= abs(value - 1)
        if value == 1:
            more = 3
            while more == 3:
                more = bits >> at & 3
                at += 2
                counts += [0] * more
                need(at <= 8 * len(data), Status.BAD_CODE)
                need(len(counts) <= most + 1, too_many)
        need(at <= 8 * len(data), Status.BAD_CODE)
    return log, counts, (at + 7) // 8


def fse(counts: list[int], log: int) -> Code:
    """The states of a code."""
    size = 1 << log
    symbols, high = [-1] * size, size - 1
    for symbol, count in enumerate(counts):
        if count == -1:
            symbols[high] = symbol
            high -= 1
    at = 0
    for symbol, count in enumerate(counts):
        for _ in range(count):
            symbols[at] = symbol
            at = at + (size >> 1) + (size >> 3) + 3 & size - 1
            while at > high:
                at = at + (size >> 1) + (size >> 3) + 3 & size - 1
    following, code = [max(c, 1) for c in counts], []
    for symbol in symbols:
        width = log + 1 - following[symbol].bit_length()
        code.append((symbol, (following[symbol] << width) - size, width))
        following[symbol] += 1
    return code


# 4.2 Huffman


def huffman(data: bytes, size: int, tree: list[tuple[int, int]]) -> bytes:
    """4.2 A bitstream of a prefix code, whose table is looked up with its longest code's bits."""
    need(len(data) > 0, Status.BAD_CODE)
    need(data[-1] > 0, Status.UNSUPPORTED)
    bits = Bits(data)
    longest = len(tree).bit_length() - 1
    out = bytearray()
    for _ in range(size):
        symbol, length = tree[bits.peek(longest)]
        out.append(symbol)
        bits.skip(length)
    need(bits.left == 0, Status.UNSUPPORTED)
    return bytes(out)


def tree_of(data: bytes) -> tuple[list[tuple[int, int]], bytes]:
    """4.2.1 The code that a description gives, (symbol, length) by the next bits, and what follows the description."""
    need(len(data) > 0, Status.BAD_CODE)
    head, data = data[0], data[1:]
    if head >= 128:
        n = head - 127
        used = (n + 1) // 2
        need(used <= len(data), Status.BAD_CODE)
        weights = [data[i // 2] >> (4 if i % 2 == 0 else 0) & 15 for i in range(n)]
    else:
        used = head
        need(0 < used <= len(data), Status.BAD_CODE)
        log, counts, start = counts_of(data[:used], 12, 6, Status.UNSUPPORTED)
        code, bits = fse(counts, log), Bits(data[start:used])
        need(bits.left >= 2 * log, Status.UNSUPPORTED)
        states, weights = [bits.read(log), bits.read(log)], []
        while True:
            need(len(weights) <= 253, Status.BAD_CODE)
            symbol, base, width = code[states[0]]
            weights.append(symbol)
            if width > bits.left:
                weights.append(code[states[1]][0])
                break
            states = [states[1], base + bits.read(width)]
    need(max(weights) <= 12, Status.BAD_CODE)
    total = sum(1 << w - 1 for w in weights if w)
    need(total > 0, Status.BAD_CODE)
    longest = total.bit_length()
    rest = (1 << longest) - total
    need(rest & rest - 1 == 0, Status.BAD_CODE)
    weights.append(rest.bit_length())
    need(weights.count(1) >= 2 and longest <= 12, Status.BAD_CODE)
    need(longest <= 11, Status.UNSUPPORTED)
    tree = []
    for weight in range(1, longest + 1):
        for symbol, w in enumerate(weights):
            if w == weight:
                tree += [(symbol, longest + 1 - weight)] * (1 << weight - 1)
    return tree, data[used:]


# 3.1.1 Content_Checksum


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0."""
    p1, p2, p3, p4, p5 = PRIMES
    mask = 2**64 - 1

    def rotated(x: int, n: int) -> int:
        return (x << n | x >> 64 - n) & mask

    def mixed(acc: int, lane: int) -> int:
        return rotated((acc + lane * p2) & mask, 31) * p1 & mask

    at, h = 0, p5
    if len(data) >= 32:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while len(data) - at >= 32:
            lanes = [mixed(lane, number(data[at + 8 * k : at + 8 * k + 8])) for k, lane in enumerate(lanes)]
            at += 32
        h = sum(rotated(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            h = ((h ^ mixed(0, lane)) * p1 + p4) & mask
    h = (h + len(data)) & mask
    while len(data) - at >= 8:
        h = (rotated(h ^ mixed(0, number(data[at : at + 8])), 27) * p1 + p4) & mask
        at += 8
    if len(data) - at >= 4:
        h = (rotated(h ^ number(data[at : at + 4]) * p1 & mask, 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        h = rotated(h ^ byte * p5 & mask, 11) * p1 & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32


PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
