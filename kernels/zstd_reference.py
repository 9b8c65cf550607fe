"""Zstandard (RFC 8878) in plain Python, in the order of the RFC: what the kernels `zarrgpu.kernels.zstd` compute.

`decode` gives the bytes of the frames of a stream, or raises `Fault`. Dictionaries and offsets of 2^27 and more are not
done here, and what the RFC forbids and libzstd takes now and then is left to it: Huffman codes of 12 bits, bitstreams
of literals that do not end where those do, blocks that decode to more than a frame's blocks may. All that is
`UNSUPPORTED`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from zarrgpu.kernels.tables import Status
from zarrgpu.kernels.zstd_codes import Bits, Code, counts_of, fse, huffman, need, number, tree_of, xxh64
from zarrgpu.kernels.zstd_format import (
    AS_BEFORE,
    COMPRESSED,
    DEFAULT_LOG,
    DEFAULTS,
    DESCRIBED,
    FIRST_REPEATS,
    LARGEST_BLOCK,
    LITERAL_BITS,
    MAGIC,
    MATCH_BITS,
    MAX_LOG,
    MAX_OFFSET_CODE,
    MAX_SYMBOL,
    MIN_MATCH,
    RAW,
    REPEATED,
    SINGLE,
    SKIPPABLE,
    bases,
)


@dataclass
class State:
    """What a frame's blocks hand on (3.1.1.3.2.2, "Repeat offsets", and the codes that are used again)."""

    out: bytearray
    frame: int
    repeats: list[int] = field(default_factory=lambda: list(FIRST_REPEATS))
    tree: list[tuple[int, int]] | None = None
    codes: list[Code | None] = field(default_factory=lambda: [None] * 3)


# 3.1.1 Frames


def decode(stream: bytes, want: int) -> bytes:
    """All frames of a stream, one after the other; `want` bytes."""
    out, at = bytearray(), 0
    while at < len(stream):
        need(len(stream) - at >= 5, Status.TRUNCATED)
        magic = number(stream[at : at + 4])
        if magic & ~15 == SKIPPABLE:
            need(len(stream) - at >= 8, Status.TRUNCATED)
            at += 8 + number(stream[at + 4 : at + 8])
            need(at <= len(stream), Status.TRUNCATED)
            continue
        need(magic == MAGIC, Status.BAD_HEADER)
        at = frame(stream, at + 4, out, want)
    need(len(out) == want, Status.SHORT)
    return bytes(out)


def frame(stream: bytes, at: int, out: bytearray, want: int) -> int:
    """A frame from its descriptor on, added to `out`; gives where it ends."""
    flags = stream[at]
    single, checked = flags >> 5 & 1, flags >> 2 & 1
    sizes = (1 - single, (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6])
    need(flags & 8 == 0, Status.BAD_HEADER)
    need(len(stream) - at > sum(sizes), Status.TRUNCATED)
    fields, at = [], at + 1
    for size in sizes:
        fields.append(number(stream[at : at + size]))
        at += size
    window, dictionary, content = fields
    need(dictionary == 0, Status.UNSUPPORTED)
    content += 256 if sizes[2] == 2 else 0
    known = sizes[2] > 0 and content != 2**64 - 1
    need(not known or content <= want - len(out), Status.WRONG_SIZE)
    window = content if single else (1 << 10 + (window >> 3)) // 8 * (8 + (window & 7))
    state, last = State(out, len(out)), 0
    while not last:  # 3.1.1.2 Blocks
        need(len(stream) - at >= 3, Status.TRUNCATED)
        header = number(stream[at : at + 3])
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        need(kind <= COMPRESSED, Status.BAD_HEADER)
        data = stream[at + 3 : at + 3 + (1 if kind == REPEATED else size)]
        at += 3 + (1 if kind == REPEATED else size)
        need(at <= len(stream), Status.TRUNCATED)
        need(size <= min(window, LARGEST_BLOCK), Status.UNSUPPORTED)
        before = len(out)
        if kind == RAW:
            out += data
        elif kind == REPEATED:
            out += data * size
        else:
            block(data, state, want)
        need(len(out) - before <= min(window, LARGEST_BLOCK), Status.UNSUPPORTED)
        need(len(out) <= want, Status.OVERFLOW)
    need(not known or len(out) - state.frame == content, Status.WRONG_SIZE)
    if checked:
        need(len(stream) - at >= 4, Status.TRUNCATED)
        need(number(stream[at : at + 4]) == xxh64(bytes(out[state.frame :])) & 0xFFFFFFFF, Status.BAD_CHECKSUM)
        at += 4
    return at


def block(data: bytes, state: State, want: int) -> None:
    """3.1.1.3 Compressed blocks: literals, then sequences, which 3.1.1.4 executes."""
    literals, at = literals_section(data, state)
    at, sequences = sequences_section(data, at, state)
    out, used = state.out, 0
    for count, offset, length in sequences:
        need(used + count <= len(literals), Status.BAD_CODE)
        need(len(out) + count + length <= want, Status.OVERFLOW)
        out += literals[used : used + count]
        used += count
        need(0 < offset <= len(out) - state.frame, Status.BAD_OFFSET)
        for _ in range(length):
            out.append(out[-offset])
    out += literals[used:]


# 3.1.1.3.1 Literals


def literals_section(data: bytes, state: State) -> tuple[bytes, int]:
    """The literals of a block, and where its sequences start."""
    need(len(data) >= 2, Status.BAD_HEADER)
    kind, form = data[0] & 3, data[0] >> 2 & 3
    if kind in (RAW, REPEATED):
        width = (1, 2, 1, 3)[form]
        size = number(data[:width]) >> (4 if form & 1 else 3)
        end = width + (1 if kind == REPEATED else size)
        need(end <= len(data), Status.BAD_BOUNDS)
        return (data[width:end] * size if kind == REPEATED else data[width:end]), end
    width, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
    need(width <= len(data), Status.BAD_BOUNDS)
    header = number(data[:width]) >> 4
    size, used = header & (1 << bits) - 1, header >> bits
    need(size >= (1 if form == 0 else 6), Status.UNSUPPORTED)
    need(width + used <= len(data), Status.BAD_BOUNDS)
    part = data[width : width + used]
    if kind == COMPRESSED:
        state.tree, part = tree_of(part)
    need(state.tree is not None, Status.BAD_HEADER)
    assert state.tree is not None
    if form == 0:
        return huffman(part, size, state.tree), width + used
    need(len(part) >= 10, Status.BAD_CODE)
    lengths = [number(part[2 * k : 2 * k + 2]) for k in range(3)]
    ends = [6 + sum(lengths[:k]) for k in range(4)] + [len(part)]
    quarter = (size + 3) // 4
    sizes = [quarter, quarter, quarter, size - 3 * quarter]
    need(sizes[3] >= 0 and all(a < b for a, b in pairwise(ends)), Status.BAD_CODE)
    streams = [huffman(part[ends[k] : ends[k + 1]], sizes[k], state.tree) for k in range(4)]
    return b"".join(streams), width + used


# 3.1.1.3.2 Sequences


def sequences_section(data: bytes, at: int, state: State) -> tuple[int, list[tuple[int, int, int]]]:
    """(literals, offset, match) of each sequence of a block."""
    need(at < len(data), Status.BAD_HEADER)
    count, at = data[at], at + 1
    if count >= 128:
        width = 1 if count < 255 else 2
        need(at + width <= len(data), Status.BAD_HEADER)
        count = (count - 128 << 8) + data[at] if count < 255 else number(data[at : at + 2]) + 0x7F00
        at += width
    if count == 0:
        need(at == len(data), Status.BAD_HEADER)
        return at, []
    need(at < len(data), Status.BAD_HEADER)
    modes, at = data[at], at + 1
    need(modes & 3 == 0, Status.BAD_HEADER)
    for kind in range(3):
        at = code_of(data, at, modes >> 6 - 2 * kind & 3, kind, state)
    literal_code, offset_code, match_code = (code for code in state.codes if code is not None)
    need(at < len(data) and data[-1] > 0, Status.BAD_CODE)
    bits = Bits(data[at:])
    states = [bits.read(len(code).bit_length() - 1) for code in (literal_code, offset_code, match_code)]
    literal_bases, match_bases = bases(LITERAL_BITS, 0), bases(MATCH_BITS, MIN_MATCH)
    found = []
    for k in range(count):
        literal, offset, match = literal_code[states[0]], offset_code[states[1]], match_code[states[2]]
        need(offset[0] <= MAX_OFFSET_CODE, Status.UNSUPPORTED)
        value = (1 << offset[0]) + bits.read(offset[0])
        length = match_bases[match[0]] + bits.read(MATCH_BITS[match[0]])
        literals = literal_bases[literal[0]] + bits.read(LITERAL_BITS[literal[0]])
        found.append((literals, resolved(value, literals, state.repeats), length))
        if k + 1 < count:
            for i, (_, base, width) in ((0, literal), (2, match), (1, offset)):
                states[i] = base + bits.read(width)
        need(bits.left >= 0, Status.BAD_CODE)
    need(bits.left == 0, Status.BAD_CODE)
    return len(data), found


def resolved(value: int, literals: int, repeats: list[int]) -> int:
    """3.1.1.5 The offset that a value stands for; keeps the repeat offsets up to date."""
    if value > 3:
        which, offset = 2, value - 3
    else:
        which = value - 1 + (literals == 0)
        offset = repeats[0] - 1 if which == 3 else repeats[which]
    repeats[:] = [offset, *(r for i, r in enumerate(repeats) if i != min(which, 2))]
    return offset


def code_of(data: bytes, at: int, mode: int, kind: int, state: State) -> int:
    """3.1.1.3.2.1 Set a code of sequences as its mode says; gives where its description ends."""
    if mode == AS_BEFORE:
        need(state.codes[kind] is not None, Status.BAD_HEADER)
        return at
    if mode == DESCRIBED:
        log, counts, size = counts_of(data[at:], MAX_SYMBOL[kind], MAX_LOG[kind], Status.BAD_CODE)
        state.codes[kind] = fse(counts, log)
        return at + size
    if mode == SINGLE:
        need(at < len(data) and data[at] <= MAX_SYMBOL[kind], Status.BAD_CODE)
        state.codes[kind] = [(data[at], 0, 0)]
        return at + 1
    state.codes[kind] = fse(DEFAULTS[kind], DEFAULT_LOG[kind])
    return at
