"""Where the output of Zstandard's blocks goes, and which repeat offsets they start with: one lane a stream.

========= ============================ =======================================================================
scratch   ``uint8[m]``                 scratch arena, of which only the size is looked at
streams   ``int64[s, STREAM_COLUMNS]``
order     ``int64[k]``                 lines of `streams`, none twice; one that is not there is skipped
first     ``int64[k + 1]``             lines of `blocks` of stream ``order[i]``: ``first[i]:first[i + 1]``
blocks    ``uint32[]``                 as `zarrgpu.kernels.zstd_format` says, `Z_OUT` and `Z_REPEAT` as decoded
status    ``int32[s]``                 written where something is wrong
========= ============================ =======================================================================

Arrays do not overlap; no shared memory. Writes `Z_REPEAT`, `Z_DEST`, `Z_LITERAL_DEST` and `Z_FRAME`. Literals go to the
end of their block's output: what is decoded from its start on never overtakes them (RFC 8878, 3.1.1.4).

Statuses: `OVERFLOW`: more bytes than the slot has. `SHORT`: fewer. `WRONG_SIZE`: a frame's content is not what it says.
`BAD_TABLE`: a line points outside. Streams with a status already are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_WANT, Status
from zarrgpu.kernels.zstd_blocks import fits

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32

OK, BAD_TABLE = int(Status.OK), int(Status.BAD_TABLE)
OVERFLOW, SHORT, WRONG_SIZE = int(Status.OVERFLOW), int(Status.SHORT), int(Status.WRONG_SIZE)


def make_resolve(target: Target) -> Any:
    """``resolve(offset, a, b, c)``: an offset that may depend on the repeat offsets before; 0 if it is none."""

    @target.device
    def resolve(offset, a, b, c):
        if offset >= U(z.SYMBOLIC):
            which = U(U(offset >> U(20)) & U(3))
            before = a
            if which == U(1):
                before = b
            elif which == U(2):
                before = c
            less = U(offset & U(0xFFFFF))
            offset = U(0)
            if before > less:
                offset = U(before - less)
        return offset

    return resolve


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    device = target.device
    resolve, is_inside = make_resolve(target), device(fits)

    @device
    def place(blocks, begin, end, dest, want):
        """Lines `begin` to `end` of a stream whose slot starts at `dest`; a status."""
        at, frame, stop = dest, dest, dest + want
        a, b, c = U(z.FIRST_REPEATS[0]), U(z.FIRST_REPEATS[1]), U(z.FIRST_REPEATS[2])
        for k in range(begin, end):
            o = k * z.BLOCK_COLUMNS
            ends = U(blocks[o + z.Z_ENDS])
            if ends & U(z.FIRST):
                frame = at
                a, b, c = U(z.FIRST_REPEATS[0]), U(z.FIRST_REPEATS[1]), U(z.FIRST_REPEATS[2])
            after_a = resolve(U(blocks[o + z.Z_REPEAT]), a, b, c)
            after_b = resolve(U(blocks[o + z.Z_REPEAT + 1]), a, b, c)
            after_c = resolve(U(blocks[o + z.Z_REPEAT + 2]), a, b, c)
            blocks[o + z.Z_REPEAT], blocks[o + z.Z_REPEAT + 1], blocks[o + z.Z_REPEAT + 2] = a, b, c
            a, b, c = after_a, after_b, after_c
            size = I(blocks[o + z.Z_OUT])
            if size > stop - at:
                return OVERFLOW
            blocks[o + z.Z_DEST], blocks[o + z.Z_FRAME] = U(at), U(frame)
            at += size
            blocks[o + z.Z_LITERAL_DEST] = U(at - I(blocks[o + z.Z_LITERAL_SIZE]))
            content = U(blocks[o + z.Z_CONTENT])
            if ends & U(z.LAST) and content != U(z.ANY) and I(content) != at - frame:
                return WRONG_SIZE
        return OK if at == stop else SHORT

    def body(lane, item, scratch, streams, order, first, blocks, status):
        line = order[item]
        if line < 0 or line >= streams.shape[0] or status[line] != OK:
            return
        dest, want, begin, end = streams[line, S_DEST], streams[line, S_WANT], first[item], first[item + 1]
        if not is_inside(dest, want, scratch.size) or begin < 0 or end * z.BLOCK_COLUMNS > blocks.size:
            status[line] = BAD_TABLE
            return
        verdict = place(blocks, begin, end, dest & 15, want)
        if verdict != OK:
            status[line] = verdict

    return body


_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))

KERNEL = Kernel("zstd_place", make, (_u1, types.Array(types.int64, 2, "C"), _i8, _i8, _u4, _i4), threads=64)
