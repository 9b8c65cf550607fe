"""The planner of `zarrgpu.kernels.zstd_execute_crew`: what is to be done next for a stream, a task at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels import zstd_execute
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import Status
from zarrgpu.kernels.warp_block import make_crew
from zarrgpu.kernels.zstd_steps import make_publish, make_survey

U = np.uint32

OK, BAD_TABLE = int(Status.OK), int(Status.BAD_TABLE)

NOTHING, GROUP_OF, SEQUENCE, COPY, FILL, END = range(6)  # kinds of tasks
T_KIND, T_DEST, T_SIZE, T_FROM, T_RAW, T_RING, T_OFFSET, T_LENGTH, T_COLUMNS = range(9)
"""A task: where its output starts, bytes (of literals, for a sequence), where they come from, whether that is in the
input, output from where on is in the ring; of a sequence also its match. Of `END`, the size is a status."""


def make_planner(target: Target) -> Any:
    """``plan``: the next task of a stream, by a warp."""
    device, sync, is_known = target.device, target.sync, zstd_execute.make_is_known(target)
    crew = make_crew(target)
    shuffle, _, _ = crew
    clear, publish = make_publish(target)
    survey = make_survey(target)
    line_of = zstd_execute.make_line_of(target)

    @device
    def write(lane, words32, task, kind, dest, size, from_, raw, ring_from, offset, length):
        if lane == U(0):
            words32[U(task + U(T_KIND))] = U(kind)
            words32[U(task + U(T_DEST))] = dest
            words32[U(task + U(T_SIZE))] = size
            words32[U(task + U(T_FROM))] = from_
            words32[U(task + U(T_RAW))] = U(1) if raw else U(0)
            words32[U(task + U(T_RING))] = ring_from
            words32[U(task + U(T_OFFSET))] = offset
            words32[U(task + U(T_LENGTH))] = length

    @device
    def next_of(lane, words32, words64, task, table, blocks, sequences, o, left, line, k, made, used, dest, ring_from):
        """Write the next task of the block at `o`, of which `left` sequences and perhaps literals are to be done.

        Returns what changed: a status, and all from `left` on.
        """
        raw = U(blocks[o + z.Z_LITERALS]) == U(z.RAW)
        literals = U(blocks[o + z.Z_LITERAL_DEST])
        if raw:
            literals = U(blocks[o + z.Z_LITERAL_AT])
        a, b, c = U(blocks[o + z.Z_REPEAT]), U(blocks[o + z.Z_REPEAT + 1]), U(blocks[o + z.Z_REPEAT + 2])
        frame, window, first = U(blocks[o + z.Z_FRAME]), U(blocks[o + z.Z_WINDOW]), U(blocks[o + z.Z_FIRST])
        from_ = U(literals + used)
        status, many, fits, start, before, match, offset, length, over, literals_end = survey(
            lane, line, left, a, b, c, made, used, dest, frame, window
        )
        if status == OK and many >= U(2):
            clear(lane, words32, table)
            sync()
            if fits:
                bit = U(start + U(dest & U(3)))
                publish(lane, words32, words64, table, start, U(before - used), match, offset, length, bit)
            grown = shuffle(over, U(many - U(1)))
            write(lane, words32, task, GROUP_OF, dest, grown, from_, raw, ring_from, U(0), U(0))
            used = shuffle(literals_end, U(many - U(1)))
        elif status == OK:
            many = U(1)
            count, length, offset = shuffle(match, U(0)), shuffle(length, U(0)), shuffle(offset, U(0))
            write(lane, words32, task, SEQUENCE, dest, count, from_, raw, ring_from, offset, length)
            grown = U(count + length)
            used = U(used + count)
            ring_from = U(dest + grown)
        else:
            many, grown = left, U(0)
        k, left = U(k + many), U(left - many)
        line = line_of(sequences, first, U(k + lane), U(k + left))
        return status, left, line, k, U(made + grown), used, U(dest + grown), ring_from

    @device
    def plan(
        lane, words32, words64, task, table, source, scratch, streams, line, end, blocks, sequences,
        status, b, o, literals, left, ahead, k, made, used, dest, ring_from,
    ):  # fmt: skip
        """Write the next task of stream `line`, which has the blocks up to `end`.

        The state of the planner, which it gives back: a status; the next block, and where the line of this one is;
        whether its literals are yet to be copied, and the sequences that are left; the line of the lane's next one,
        which is that one's number; bytes made of the block, and literals used; where the output goes on, and from
        where on it is in the ring.
        """
        if status != OK:
            write(lane, words32, task, END, dest, U(status), U(0), False, dest, U(0), U(0))
        elif left > U(0):
            status, left, ahead, k, made, used, dest, ring_from = next_of(
                lane, words32, words64, task, table, blocks, sequences, o, left, ahead, k, made, used, dest, ring_from
            )
            if status != OK:
                write(lane, words32, task, END, dest, U(status), U(0), False, dest, U(0), U(0))
        elif literals:  # after the last sequence; those that are decoded are there already
            literals = False
            rest = U(U(blocks[o + z.Z_LITERAL_SIZE]) - used)
            from_ = U(U(blocks[o + z.Z_LITERAL_AT]) + used)
            write(lane, words32, task, COPY, dest, rest, from_, True, dest, U(0), U(0))
        elif b == end:
            write(lane, words32, task, END, dest, U(OK), U(0), False, dest, U(0), U(0))
        elif not is_known(source, scratch, streams, line, b, blocks, sequences):
            status = BAD_TABLE
            write(lane, words32, task, END, dest, U(status), U(0), False, dest, U(0), U(0))
        else:
            o = b * z.BLOCK_COLUMNS
            b += 1
            kind, size, at = U(blocks[o + z.Z_KIND]), U(blocks[o + z.Z_OUT]), U(blocks[o + z.Z_START])
            dest = U(blocks[o + z.Z_DEST])
            made, used, k, ring_from = U(0), U(0), U(0), dest
            what = U(NOTHING)
            if kind == U(z.COMPRESSED):
                left = U(blocks[o + z.Z_SEQUENCES])
                literals = U(blocks[o + z.Z_LITERALS]) == U(z.RAW)
                ahead = line_of(sequences, U(blocks[o + z.Z_FIRST]), lane, left)
            else:
                what = U(COPY) if kind == U(z.RAW) else U(FILL)
            write(lane, words32, task, what, dest, size, at, True, dest, U(0), U(0))
        return status, b, o, literals, left, ahead, k, made, used, dest, ring_from

    return plan
