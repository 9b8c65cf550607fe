"""Blosc-1 containers: headers and block tables -> layouts and streams. Two kernels, one item a chunk.

Format: c-blosc 1.x, README_HEADER.rst, and what its decompressor does where that text is silent::

    byte   0     format version, 2
           1     version of the inner codec's format, 1
           2     flags: 1 byte-shuffled, 2 stored (memcpyed), 4 bit-shuffled, 8 never set, 16 blocks are not split,
                 bits 5-7 the inner codec
           3     typesize, 1-255
           4-7   decoded bytes    (int32, little endian, as all below)
           8-11  block size       bytes
           12-15 encoded bytes, header included
           16-   first byte of each block, one int32 a block; nothing of the kind in a stored chunk
    block        one or `typesize` streams, each an int32 size and so many bytes; one as long as it decodes to is raw

A block is split into `typesize` streams when flag 16 is clear, the typesize is at most 16, the block is a full one and
has at least 128 bytes for each byte of the type. Chunks from before that flag follow the same rule with it clear.

`SCAN` arguments

====== ============================ ==========================================================================
source ``uint8[n]``                 source arena
chunks ``int64[c, CHUNK_COLUMNS]``  ``C_SIZE`` -1: the chunk is missing
layouts ``int64[c, LAYOUT_COLUMNS]`` written
counts ``int64[c]``                 written: streams of the chunk; 0 where nothing needs decoding
status ``int32[c]``                 written: `OK`, `CUT_SHORT`, `BAD_HEADER`, `BAD_BOUNDS`, `WRONG_SIZE`, `UNSUPPORTED`
====== ============================ ==========================================================================

`STREAMS` arguments

====== ============================ ==========================================================================
source, chunks, layouts             as above
first  ``int64[c + 1]``             lines of `streams` that belong to chunk ``i``: ``first[i]:first[i + 1]``
streams ``int64[s, STREAM_COLUMNS]`` written
status ``int32[c]``                 `BAD_BOUNDS` written where a block or a stream lies outside its chunk
====== ============================ ==========================================================================

Arrays do not overlap. Reads stay inside the chunk's bytes, which must lie inside the arena (else `BAD_TABLE`). The
streams of a chunk whose status is not `OK` must not be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.tables import (
    BITS,
    BYTES,
    C_SIZE,
    C_SLOT,
    C_START,
    C_WANT,
    FILL,
    L_ARENA,
    L_BASE,
    L_BLOCK,
    L_MODE,
    L_SIZE,
    L_TYPE,
    PLAIN,
    S_CHUNK,
    S_DEST,
    S_SIZE,
    S_START,
    S_WANT,
    SCRATCH,
    SOURCE,
    Status,
)

HEADER = 16
MAX_BLOCK = (2**31 - 1 - 4 * 255) // 3  # c-blosc's BLOSC_MAX_BLOCKSIZE
MAX_SPLITS = 16
MIN_SPLIT = 128  # bytes of a block for each byte of the type
BLOSCLZ, LZ4, ZLIB, ZSTD = 0, 1, 3, 4  # numbers of inner codecs; LZ4 is LZ4HC's too, 2 was Snappy

OK, CUT_SHORT, BAD_HEADER = int(Status.OK), int(Status.CUT_SHORT), int(Status.BAD_HEADER)
BAD_BOUNDS, WRONG_SIZE = int(Status.BAD_BOUNDS), int(Status.WRONG_SIZE)
UNSUPPORTED, BAD_TABLE = int(Status.UNSUPPORTED), int(Status.BAD_TABLE)


def _reader(target: Target) -> Any:
    @target.device
    def int32_at(source, p):
        v = (
            np.int64(source[p])
            | np.int64(source[p + 1]) << np.int64(8)
            | np.int64(source[p + 2]) << np.int64(16)
            | np.int64(source[p + 3]) << np.int64(24)
        )
        return v - np.int64(1 << 32) if v >= np.int64(1 << 31) else v

    return int32_at


def _splits(target: Target) -> Any:
    @target.device
    def splits(flags, typesize, block):
        if flags & 16 == 0 and typesize <= MAX_SPLITS and block // typesize >= MIN_SPLIT:
            return typesize
        return 1

    return splits


def make_scan(target: Target, lanes: int) -> Any:
    """The body of `SCAN`."""
    int32_at, splits = _reader(target), _splits(target)

    def body(lane, i, source, chunks, layouts, counts, status):
        start, size, want = chunks[i, C_START], chunks[i, C_SIZE], chunks[i, C_WANT]
        counts[i] = 0
        status[i] = OK
        layouts[i, L_ARENA] = FILL
        layouts[i, L_BASE] = chunks[i, C_SLOT]
        layouts[i, L_SIZE] = want
        layouts[i, L_BLOCK] = want
        layouts[i, L_TYPE] = 1
        layouts[i, L_MODE] = PLAIN
        if size == -1:
            return
        if size < -1 or start < 0 or start + size > source.size:
            status[i] = BAD_TABLE
            return
        if size < HEADER:
            status[i] = CUT_SHORT
            return
        flags, typesize = np.int64(source[start + 2]), np.int64(source[start + 3])
        nbytes, block, encoded = int32_at(source, start + 4), int32_at(source, start + 8), int32_at(source, start + 12)
        if (
            source[start] != 2
            or flags & 8
            or typesize == 0
            or block <= 0
            or block > nbytes
            or block > MAX_BLOCK
            or encoded < HEADER
        ):
            status[i] = BAD_HEADER
            return
        if encoded > size:
            status[i] = CUT_SHORT
            return
        if nbytes != want:
            status[i] = WRONG_SIZE
            return
        if flags & 2:
            if nbytes + HEADER != encoded:
                status[i] = BAD_BOUNDS
                return
            layouts[i, L_ARENA] = SOURCE
            layouts[i, L_BASE] = start + HEADER
            return
        blocks = (nbytes + block - 1) // block
        if blocks >= (encoded - HEADER) // 4:
            status[i] = BAD_BOUNDS
            return
        inner = flags >> 5
        if (inner > LZ4 and inner != ZLIB and inner != ZSTD) or source[start + 1] != 1:
            status[i] = UNSUPPORTED
            return
        full = nbytes // block
        n = splits(flags, typesize, block)
        if block % n:  # c-blosc would leave the block's last bytes undefined
            status[i] = BAD_HEADER
            return
        layouts[i, L_ARENA] = SCRATCH
        layouts[i, L_BLOCK] = block
        layouts[i, L_TYPE] = typesize
        if flags & 1 and typesize > 1:
            layouts[i, L_MODE] = BYTES
        elif flags & 4:
            layouts[i, L_MODE] = BITS
        counts[i] = full * n + (blocks - full)

    return body


def make_streams(target: Target, lanes: int) -> Any:
    """The body of `STREAMS`."""
    int32_at, splits = _reader(target), _splits(target)

    def body(lane, i, source, chunks, layouts, first, streams, status):
        row, end = first[i], first[i + 1]
        if row == end or status[i] != OK:
            return
        start, slot = chunks[i, C_START], chunks[i, C_SLOT]
        nbytes, block, typesize = layouts[i, L_SIZE], layouts[i, L_BLOCK], layouts[i, L_TYPE]
        encoded = int32_at(source, start + 12)
        flags = np.int64(source[start + 2])
        for b in range((nbytes + block - 1) // block):
            left = min(block, nbytes - b * block)
            n = splits(flags, typesize, block) if left == block else 1
            piece = left // n
            at = int32_at(source, start + HEADER + 4 * b)
            for j in range(n):
                if row >= end or at < 0 or at > encoded - 4:
                    status[i] = BAD_BOUNDS
                    return
                size = int32_at(source, start + at)
                at += 4
                if size < 0 or size > encoded - at:
                    status[i] = BAD_BOUNDS
                    return
                streams[row, S_START] = start + at
                streams[row, S_SIZE] = size
                streams[row, S_DEST] = slot + b * block + j * piece
                streams[row, S_WANT] = piece
                streams[row, S_CHUNK] = i
                at += size
                row += 1

    return body


_BYTES, _LINE, _STATUS = (
    types.Array(types.uint8, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int32, 1, "C"),
)
_TABLE = types.Array(types.int64, 2, "C")

SCAN = Kernel("blosc_scan", make_scan, (_BYTES, _TABLE, _TABLE, _LINE, _STATUS))
STREAMS = Kernel("blosc_streams", make_streams, (_BYTES, _TABLE, _TABLE, _LINE, _TABLE, _STATUS))
