"""What kernels check of a line of ``blocks``, of `zarrgpu.kernels.zstd_format`, before they follow it."""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT

I = np.int64  # noqa: E741  # as U for uint32 elsewhere


def fits(start: int, size: int, whole: int) -> bool:
    """Whether bytes `start` to `start` + `size` lie in an arena of `whole` bytes, and are not more than `MOST`."""
    return start >= 0 and size >= 0 and size <= z.MOST and size <= whole and start <= whole - size


def make_checks(target: Target) -> tuple[Any, Any, Any]:
    """``(is_stream, is_input, is_output)``, each of ``(blocks, b, streams, bytes of the arena)``.

    Whether the block's stream is in the table; whether what its line says of the input lies in the stream, and that in
    the source arena; whether what it says of the output lies in the slot, and that in the scratch arena.
    """
    device = target.device
    is_inside = device(fits)

    @device
    def is_stream(blocks, b, streams):
        return b >= 0 and (b + 1) * z.BLOCK_COLUMNS <= blocks.size and blocks[b * z.BLOCK_COLUMNS] < streams.shape[0]

    @device
    def is_input(blocks, b, streams, arena):
        if not is_stream(blocks, b, streams):
            return False
        o = b * z.BLOCK_COLUMNS
        line = I(blocks[o + z.Z_STREAM])
        start, size = streams[line, S_START], streams[line, S_SIZE]
        at = I(blocks[o + z.Z_START])
        content = I(1) if blocks[o + z.Z_KIND] == z.REPEATED else I(blocks[o + z.Z_SIZE])
        end = at + content
        literals = I(blocks[o + z.Z_LITERAL_AT])
        codes = I(blocks[o + z.Z_CODES_AT])
        # A bitstream starts at byte 8 of the view or later: a frame's and a block's header are 9 bytes.
        if not is_inside(start, size, arena) or at < (start & 15) + 8 or end > (start & 15) + size:
            return False
        if blocks[o + z.Z_KIND] == z.RAW and blocks[o + z.Z_OUT] > blocks[o + z.Z_SIZE]:
            return False
        if blocks[o + z.Z_LITERALS] == z.RAW and blocks[o + z.Z_LITERAL_SIZE] > blocks[o + z.Z_LITERAL_FROM]:
            return False
        if literals < at or literals + I(blocks[o + z.Z_LITERAL_FROM]) > end or codes < at or codes > end:
            return False
        back = max(
            max(I(blocks[o + z.Z_TREE]), I(blocks[o + z.Z_CODES])),
            max(I(blocks[o + z.Z_CODES + 1]), I(blocks[o + z.Z_CODES + 2])),
        )
        return back <= b

    @device
    def is_output(blocks, b, streams, arena):
        if not is_stream(blocks, b, streams):
            return False
        o = b * z.BLOCK_COLUMNS
        line = I(blocks[o + z.Z_STREAM])
        start, want = streams[line, S_DEST], streams[line, S_WANT]
        at, size = I(blocks[o + z.Z_DEST]), I(blocks[o + z.Z_OUT])
        literals, frame = I(blocks[o + z.Z_LITERAL_DEST]), I(blocks[o + z.Z_FRAME])
        return (
            is_inside(start, want, arena)
            and frame >= start & 15
            and frame <= at
            and at <= literals
            and literals + I(blocks[o + z.Z_LITERAL_SIZE]) <= at + size
            and at + size <= (start & 15) + want
        )

    return is_stream, is_input, is_output
