"""Zstandard frames -> a table of their blocks. Two kernels of one body, one item a stream, one lane an item.

Format: RFC 8878, 3.1.1, Frames and Blocks, and the headers of 3.1.1.3, Compressed Blocks. ``COUNT`` walks a stream to
say how much room its blocks and sequences need; ``BLOCKS`` walks it again and writes ``blocks``, which
`zarrgpu.kernels.zstd_format` describes. They are for the host, where the bytes are in memory when streams are located.

========== ============================= =====================================================================
source     ``uint8[n]``                  source arena
streams    ``int64[s, STREAM_COLUMNS]``
order      ``int64[k]``                  lines of `streams`, none twice; one that is not there is skipped
streaming  ``int64``                     1: as libzstd decodes a stream, where frames do not all say their size
counts     ``int64[k, COUNT_COLUMNS]``   written by ``COUNT``: `N_BLOCKS`, `N_SEQUENCES`, `N_FLAGS`; else read
first      ``int64[k + 1]``              ``BLOCKS``: lines of `blocks` for item ``i`` are ``first[i]:first[i + 1]``
pool       ``int64[k]``                  ``BLOCKS``: the item's first line in the pool of sequences, below 2^32
blocks     ``uint32[]``                  ``BLOCKS``: written
status     ``int32[s]``                  written for the lines in `order`
========== ============================= =====================================================================

Arrays do not overlap. Reads stay inside the stream, which must lie inside the arena, else `BAD_TABLE`. Flags:
`UNSIZED`, a frame does not say its size; `CHECKED`, a frame has a checksum.

Statuses: `OK`. `TRUNCATED`: the stream ends inside a frame. `BAD_HEADER`, `BAD_BOUNDS`: what libzstd refuses too.
`WRONG_SIZE`: frames that say other sizes than the slot's. `OVERFLOW`: the blocks cannot but decode to more.
`BAD_TABLE`: as said, or `first` has no room. `UNSUPPORTED`: left to the library. That is a dictionary; a stream or slot
of more than `MOST` bytes; what the RFC forbids, and libzstd takes now and then: blocks larger than a frame's may be,
literals too few for their streams, reserved bits; and a stream of so many small blocks that their lines need more room
than its slot.

A match may come from anywhere in its frame, as in ``ZSTD_decompress``. In a stream, libzstd remembers a window only:
when `streaming` and a frame is `UNSIZED`, `Z_WINDOW` is set, and frames with windows over 128 MiB are `UNSUPPORTED`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT, Status
from zarrgpu.kernels.zstd_headers import make_headers

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32

N_BLOCKS, N_SEQUENCES, N_FLAGS, COUNT_COLUMNS = 0, 1, 2, 3
UNSIZED, CHECKED = 1, 2
LARGEST_WINDOW = 1 << 27  # of a stream, unless libzstd is told otherwise
MAX_WINDOW_LOG = 31
LARGE, ROOM = 4, 1 << 16  # a stream may need so many times its slot for tables, and so many bytes more

OK, TRUNCATED, OVERFLOW = int(Status.OK), int(Status.TRUNCATED), int(Status.OVERFLOW)
BAD_HEADER, BAD_TABLE = int(Status.BAD_HEADER), int(Status.BAD_TABLE)
WRONG_SIZE, UNSUPPORTED = int(Status.WRONG_SIZE), int(Status.UNSUPPORTED)


def make_walk(target: Target, put: Any) -> Any:
    """``walk(source, start, size, line, want, streaming, window_counts, pool, begin, end, blocks)``.

    Walks a stream, hands each block to `put`, and returns a status, blocks, sequences and flags. Every turn consumes
    bytes of the stream.
    """
    number, sections = make_headers(target)

    @target.device
    def walk(source, start, size, line, want, streaming, window_counts, pool, begin, end, blocks):
        origin = start >> 4 << 4
        at, stop = start, start + size
        n, sequences, flags = I(0), I(0), I(0)
        content_sum, least = I(0), I(0)
        while at < stop:
            if stop - at < 5:
                return TRUNCATED, n, sequences, flags
            magic = number(source, at, 4)
            if magic & I(0xFFFFFFF0) == z.SKIPPABLE:
                if stop - at < 8:
                    return TRUNCATED, n, sequences, flags
                skipped = number(source, at + 4, 4)
                if skipped > stop - at - 8:
                    return TRUNCATED, n, sequences, flags
                at += 8 + skipped
                continue
            if magic != z.MAGIC:
                return BAD_HEADER, n, sequences, flags
            head = I(source[at + 4])
            single, wide, numbered = (head >> 5) & 1, head >> 6, head & 3
            has_window = 1 - single
            dictionary = I(4) if numbered == 3 else numbered
            content_bytes = I(1) << wide if wide > 0 else single
            at += 5
            if stop - at < has_window + dictionary + content_bytes:
                return TRUNCATED, n, sequences, flags
            if head & 8:
                return BAD_HEADER, n, sequences, flags
            window = I(0)
            if has_window:
                w = I(source[at])
                if 10 + (w >> 3) > MAX_WINDOW_LOG:
                    return UNSUPPORTED, n, sequences, flags
                window = (I(1) << (10 + (w >> 3))) + (I(1) << (7 + (w >> 3))) * (w & 7)
                at += 1
            if number(source, at, dictionary) != 0:
                return UNSUPPORTED, n, sequences, flags
            at += dictionary
            content = number(source, at, content_bytes)
            at += content_bytes
            if content_bytes == 2:
                content += 256
            known = content_bytes > 0 and content != -1  # all bits set: not known
            if known:
                if content < 0 or content > want - content_sum:
                    return WRONG_SIZE, n, sequences, flags
                content_sum += content
            else:
                flags |= UNSIZED
            if single:
                window = content if known else I(1) << 62
            if window_counts and window > LARGEST_WINDOW:
                return UNSUPPORTED, n, sequences, flags
            most = min(window, I(z.LARGEST_BLOCK))
            reach = min(window, I(z.ANY)) if window_counts else I(z.ANY)
            ends = I(z.FIRST)
            if head & 4:
                flags |= CHECKED
                ends |= z.CHECKED
            tree, codes0, codes1, codes2 = I(-1), I(-1), I(-1), I(-1)
            last = False
            while not last:
                if stop - at < 3:
                    return TRUNCATED, n, sequences, flags
                header = number(source, at, 3)
                at += 3
                kind, length = (header >> 1) & 3, header >> 3
                last = header & 1 == 1
                used = I(1) if kind == z.REPEATED else length
                if kind > z.COMPRESSED:
                    return BAD_HEADER, n, sequences, flags
                if used > stop - at:
                    return TRUNCATED, n, sequences, flags
                if length > most:
                    return UNSUPPORTED, n, sequences, flags
                literals, literal_size, literal_at, literal_from = I(0), I(0), at, I(0)
                ways, count, codes_at, modes = I(1), I(0), at, I(0)
                size_out = length
                if kind == z.COMPRESSED:
                    fault, literals, literal_size, literal_at, literal_from, ways, count, codes_at, modes = sections(
                        source, at, at + length
                    )
                    if fault != OK:
                        return fault, n, sequences, flags
                    size_out = literal_size
                    if literals == z.COMPRESSED:
                        tree = n
                    elif literals == z.TREELESS and tree < 0:
                        return BAD_HEADER, n, sequences, flags
                    if count > 0:
                        if modes >> 6 != z.AS_BEFORE:
                            codes0 = n
                        if (modes >> 4) & 3 != z.AS_BEFORE:
                            codes1 = n
                        if (modes >> 2) & 3 != z.AS_BEFORE:
                            codes2 = n
                        if codes0 < 0 or codes1 < 0 or codes2 < 0:
                            return BAD_HEADER, n, sequences, flags
                    if literal_size + z.MIN_MATCH * count > most:
                        return UNSUPPORTED, n, sequences, flags
                least += size_out + z.MIN_MATCH * count
                if least > want:
                    return OVERFLOW, n, sequences, flags
                if last:
                    ends |= z.LAST
                if begin + n < end:
                    o = (begin + n) * z.BLOCK_COLUMNS
                    put(blocks, o, z.Z_STREAM, line)
                    put(blocks, o, z.Z_START, at - origin)
                    put(blocks, o, z.Z_SIZE, length)
                    put(blocks, o, z.Z_KIND, kind)
                    put(blocks, o, z.Z_ENDS, ends)
                    put(blocks, o, z.Z_MOST, most)
                    put(blocks, o, z.Z_WINDOW, reach)
                    put(blocks, o, z.Z_CONTENT, content if known else I(z.ANY))
                    put(blocks, o, z.Z_LITERALS, literals)
                    put(blocks, o, z.Z_LITERAL_SIZE, literal_size)
                    put(blocks, o, z.Z_LITERAL_AT, literal_at - origin)
                    put(blocks, o, z.Z_LITERAL_FROM, literal_from)
                    put(blocks, o, z.Z_LITERAL_WAYS, ways)
                    put(blocks, o, z.Z_TREE, n - max(tree, I(0)))
                    put(blocks, o, z.Z_SEQUENCES, count)
                    put(blocks, o, z.Z_FIRST, pool + sequences)
                    put(blocks, o, z.Z_CODES_AT, codes_at - origin)
                    put(blocks, o, z.Z_MODES, modes)
                    put(blocks, o, z.Z_CODES, n - max(codes0, I(0)))
                    put(blocks, o, z.Z_CODES + 1, n - max(codes1, I(0)))
                    put(blocks, o, z.Z_CODES + 2, n - max(codes2, I(0)))
                    put(blocks, o, z.Z_OUT, size_out)
                    for k in range(3):
                        put(blocks, o, z.Z_REPEAT + k, z.SYMBOLIC | k << 20)
                        put(blocks, o, z.Z_DEST + k, I(0))
                ends &= z.CHECKED
                n += 1
                sequences += count
                at += used
            if head & 4:
                if stop - at < 4:
                    return TRUNCATED, n, sequences, flags
                at += 4
        if flags & UNSIZED == 0 and content_sum != want:
            return WRONG_SIZE, n, sequences, flags
        if 4 * z.BLOCK_COLUMNS * n + 8 * sequences > LARGE * want + ROOM:
            return UNSUPPORTED, n, sequences, flags
        return OK, n, sequences, flags

    return walk


def make_count(target: Target, lanes: int) -> Any:
    """The body of `COUNT`."""
    device = target.device
    is_inside = device(inside)

    @device
    def put(blocks, o, column, value):
        return None

    walk = make_walk(target, put)

    def body(lane, item, source, streams, order, streaming, counts, status):
        line = order[item]
        for k in range(COUNT_COLUMNS):
            counts[item, k] = 0
        if line < 0 or line >= streams.shape[0]:
            return
        start, size, want = streams[line, S_START], streams[line, S_SIZE], streams[line, S_WANT]
        if not is_inside(start, size, source.size) or want < 0 or streams[line, S_DEST] < 0:
            status[line] = BAD_TABLE
            return
        if size > z.MOST or want > z.MOST:
            status[line] = UNSUPPORTED
            return
        fault, n, sequences, flags = walk(source, start, size, line, want, streaming, False, I(0), I(0), I(0), counts)
        if fault == OK and flags & UNSIZED and streaming:
            fault, n, sequences, flags = walk(
                source, start, size, line, want, streaming, True, I(0), I(0), I(0), counts
            )
        status[line] = fault
        if fault == OK:
            counts[item, N_BLOCKS], counts[item, N_SEQUENCES], counts[item, N_FLAGS] = n, sequences, flags

    return body


def make_blocks(target: Target, lanes: int) -> Any:
    """The body of `BLOCKS`."""
    device = target.device

    @device
    def put(blocks, o, column, value):
        blocks[o + column] = U(value)

    walk = make_walk(target, put)

    def body(lane, item, source, streams, order, streaming, counts, first, pool, blocks, status):
        line = order[item]
        if line < 0 or line >= streams.shape[0]:
            return
        begin, end = first[item], first[item + 1]
        if status[line] != OK or begin == end:
            return
        if begin < 0 or end * z.BLOCK_COLUMNS > blocks.size or end - begin != counts[item, N_BLOCKS]:
            status[line] = BAD_TABLE
            return
        windowed = streaming != 0 and counts[item, N_FLAGS] & UNSIZED != 0
        start, size, want = streams[line, S_START], streams[line, S_SIZE], streams[line, S_WANT]
        fault, _, _, _ = walk(source, start, size, line, want, streaming, windowed, pool[item], begin, end, blocks)
        status[line] = fault

    return body


def inside(start: int, size: int, whole: int) -> bool:
    """Whether bytes `start` to `start` + `size` lie in an arena of `whole` bytes."""
    return start >= 0 and size >= 0 and size <= whole and start <= whole - size


_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
_table = types.Array(types.int64, 2, "C")

COUNT = Kernel("zstd_count", make_count, (_u1, _table, _i8, types.int64, _table, _i4))
BLOCKS = Kernel("zstd_blocks", make_blocks, (_u1, _table, _i8, types.int64, _table, _i8, _i8, _u4, _i4))
