"""Zstandard's sequences (RFC 8878, 3.1.1.4) and its plain blocks -> output: one warp a stream, one lane on the host.

========= ============================ =======================================================================
source    ``uint8[n]``                 source arena, 16-byte aligned; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
scratch   ``uint8[m]``                 scratch arena, likewise, written in the streams' slots
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]``
order     ``int64[k]``                 lines of `streams`, longest first, none twice; one that is not there is skipped
first     ``int64[k + 1]``             lines of `blocks` of stream ``order[i]``: ``first[i]:first[i + 1]``
blocks    ``uint32[]``                 as `zarrgpu.kernels.zstd_format` says, with places; literals are in theirs
sequences ``uint64[]``                 as there
status    ``int32[s]``                 written where something is wrong
========= ============================ =======================================================================

Arrays do not overlap. One warp a thread block, with `SHARED` bytes of shared memory.

Sequences are lines of ends, so that a warp takes 32 at once without a scan. Those whose output fits `GROUP` bytes are a
*group*: shared memory gets a table of them, and a bitmap of the output bytes that one starts at. The output is made in
blocks of 128 bytes, a word a lane: the bits up to a byte's own count up to its sequence. A byte is then a literal, from
where the literals are; or from earlier output, out of a ring of the latest `RING` bytes in shared memory, or out of the
slot if older; or from the block itself, found by pointer jumping. A sequence that is too long is copied by the whole
warp. Literals that were put at the end of a block's output move down: the output never overtakes them.

Statuses: `BAD_OFFSET`: 0, or before the frame. `UNSUPPORTED`, left to the library: a match from outside the frame's
window, where that counts. `BAD_TABLE`. Streams with a status already are left out.

Bounds. In a group a match is below 2^10 bytes, and so is its offset if it runs into itself: then a position in the
match divided by the offset is its product with a 20-bit inverse, whose error is below 2^10 / 2^20.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import WARP, Kernel, Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_START, Status
from zarrgpu.kernels.warp_block import RING, make_crew
from zarrgpu.kernels.zstd_alone import make_alone
from zarrgpu.kernels.zstd_blocks import make_checks
from zarrgpu.kernels.zstd_place import make_resolve
from zarrgpu.kernels.zstd_steps import TABLE_SIZE, make_output, make_publish, make_survey

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
U64 = np.uint64

OK, BAD_OFFSET, BAD_TABLE = int(Status.OK), int(Status.BAD_OFFSET), int(Status.BAD_TABLE)
UNSUPPORTED = int(Status.UNSUPPORTED)

SHARED = RING + TABLE_SIZE


def make_plain(target: Target) -> Any:
    """``run``: the sequences of a block by one lane."""
    resolve = make_resolve(target)

    @target.device
    def run(lane, base, source, source32, to, to32, blocks, o, sequences):
        kind, dest, size = blocks[o + z.Z_KIND], I(blocks[o + z.Z_DEST]), I(blocks[o + z.Z_OUT])
        at = I(blocks[o + z.Z_START])
        if kind != z.COMPRESSED:
            for k in range(size):
                to[dest + k] = source[at + k if kind == z.RAW else at]
            return OK
        raw = blocks[o + z.Z_LITERALS] == z.RAW
        literals = I(blocks[o + z.Z_LITERAL_AT]) if raw else I(blocks[o + z.Z_LITERAL_DEST])
        a, b, c = U(blocks[o + z.Z_REPEAT]), U(blocks[o + z.Z_REPEAT + 1]), U(blocks[o + z.Z_REPEAT + 2])
        frame, window = I(blocks[o + z.Z_FRAME]), I(blocks[o + z.Z_WINDOW])
        first, used, made = I(blocks[o + z.Z_FIRST]), I(0), I(0)
        for k in range(first, first + I(blocks[o + z.Z_SEQUENCES])):
            line = sequences[k]
            end, literals_end = I(line >> U64(46)), I((line >> U64(28)) & U64(0x3FFFF))
            offset = I(resolve(U(line & U64(0xFFFFFFF)), a, b, c))
            count = literals_end - used
            q = dest + made
            for j in range(count):
                to[q + j] = source[literals + used + j] if raw else to[literals + used + j]
            q += count
            if offset == 0 or offset > q - frame:
                return BAD_OFFSET
            if offset > window:
                return UNSUPPORTED
            for j in range(end - made - count):
                to[q + j] = to[q + j - offset]
            used, made = literals_end, end
        if raw:
            for j in range(size - made):
                to[dest + made + j] = source[literals + used + j]
        return OK

    return run


def make_line_of(target: Target) -> Any:
    """``line_of(sequences, first, k, n)``: line `k` of a block's `n`, 0 where there is none."""

    @target.device
    def line_of(sequences, first, k, n):
        line = U64(0)
        if k < n:
            line = sequences[U(first + k)]
        return line

    return line_of


def make_warp(target: Target) -> Any:
    """``run``: the sequences of a block by a warp."""
    cuda, device, sync = target.cuda, target.device, target.sync
    crew = make_crew(target)
    shuffle, _, _ = crew
    copy, fill, sequence = make_alone(target, crew)
    clear, publish = make_publish(target)
    write, survey = make_output(target, crew), make_survey(target)
    line_of = make_line_of(target)

    @device
    def run(lane, base, source, source32, to, to32, blocks, o, sequences):
        bytes8 = cuda.shared.array(0, types.uint8)
        words32 = cuda.shared.array(0, types.uint32)
        words64 = cuda.shared.array(0, types.uint64)
        table = U(base + U(RING))
        kind, dest, size = U(blocks[o + z.Z_KIND]), U(blocks[o + z.Z_DEST]), U(blocks[o + z.Z_OUT])
        n = U(blocks[o + z.Z_SEQUENCES])
        if kind != U(z.COMPRESSED):
            at = U(blocks[o + z.Z_START])
            if kind == U(z.RAW):
                copy(lane, to, to32, dest, source, source32, at, size)
            else:
                fill(lane, to, dest, source[at], size)
            n = U(0)
        sync()
        raw = kind == U(z.COMPRESSED) and U(blocks[o + z.Z_LITERALS]) == U(z.RAW)
        literals = U(blocks[o + z.Z_LITERAL_DEST])
        if raw:
            literals = U(blocks[o + z.Z_LITERAL_AT])
        a, b, c = U(blocks[o + z.Z_REPEAT]), U(blocks[o + z.Z_REPEAT + 1]), U(blocks[o + z.Z_REPEAT + 2])
        frame, window, first = U(blocks[o + z.Z_FRAME]), U(blocks[o + z.Z_WINDOW]), U(blocks[o + z.Z_FIRST])
        made, used, k = U(0), U(0), U(0)  # of the block: bytes, literals, sequences
        ring_from = dest
        line = line_of(sequences, first, lane, n)
        status = OK
        while k < n and status == OK:  # a sequence a turn at least
            status, many, fits, start, before, match, offset, length, over, literals_end = survey(
                lane, line, U(n - k), a, b, c, made, used, dest, frame, window
            )
            if status == OK and many >= U(2):
                grown = shuffle(over, U(many - U(1)))
                clear(lane, words32, table)
                sync()
                if fits:
                    bit = U(start + U(dest & U(3)))
                    publish(lane, words32, words64, table, start, U(before - used), match, offset, length, bit)
                from_ = U(literals + used)
                used = shuffle(literals_end, U(many - U(1)))
                made = U(made + grown)
                k = U(k + many)
                line = line_of(sequences, first, U(k + lane), n)  # on its way while the output is made
                sync()
                write(lane, bytes8, words32, words64, base, table, source, to, to32, dest, grown, ring_from, from_, raw)
                dest = U(dest + grown)
            elif status == OK:
                count, length, offset = shuffle(match, U(0)), shuffle(length, U(0)), shuffle(offset, U(0))
                from_ = U(literals + used)
                used = U(used + count)
                made = U(made + count + length)
                k = U(k + U(1))
                line = line_of(sequences, first, U(k + lane), n)
                sequence(lane, source, source32, to, to32, dest, from_, raw, count, offset, length)
                dest = U(dest + count + length)
                ring_from = dest
        if raw and status == OK:  # what follows the last sequence; other literals are there already
            rest = U(U(blocks[o + z.Z_LITERAL_SIZE]) - used)
            copy(lane, to, to32, dest, source, source32, U(literals + used), rest)
        sync()
        return status

    return run


def make_is_known(target: Target) -> Any:
    """``is_known``: whether a block is of stream `line`, and all that its line says is inside of what there is."""
    _, is_input, is_output = make_checks(target)

    @target.device
    def is_known(source, scratch, streams, line, b, blocks, sequences):
        if not is_input(blocks, b, streams, source.size) or not is_output(blocks, b, streams, scratch.size):
            return False
        o = b * z.BLOCK_COLUMNS
        return I(blocks[o]) == line and I(blocks[o + z.Z_FIRST]) + I(blocks[o + z.Z_SEQUENCES]) <= sequences.size

    return is_known


def make_execute(target: Target, lanes: int) -> Any:
    """``execute``: all blocks of a stream; a status."""
    bytes_of, is_known = target.bytes_of, make_is_known(target)
    run = make_plain(target) if lanes == 1 else make_warp(target)

    @target.device
    def execute(lane, source, scratch, streams, line, begin, end, blocks, sequences, from32, to32):
        from8, to8 = bytes_of(from32), bytes_of(to32)
        status = OK
        b = begin
        while b < end and status == OK:
            if is_known(source, scratch, streams, line, b, blocks, sequences):
                o = b * z.BLOCK_COLUMNS
                status = run(U(lane), U(0), from8, from32, to8, to32, blocks, o, sequences)
            else:
                status = BAD_TABLE
            b += 1
        return status

    return execute


def make_body(execute: Any) -> Any:
    """The body of a kernel that executes a stream so."""

    def body(lane, item, source, source32, scratch, scratch32, streams, order, first, blocks, sequences, status):
        line = order[item]
        if line < 0 or line >= streams.shape[0] or status[line] != OK:
            return
        begin, end = first[item], first[item + 1]
        if begin == end:
            return
        start, dest = streams[line, S_START], streams[line, S_DEST]
        verdict = BAD_TABLE
        if begin >= 0 and end * z.BLOCK_COLUMNS <= blocks.size and start >= 0 and dest >= 0:
            from32, to32 = source32[start >> 4 << 2 :], scratch32[dest >> 4 << 2 :]
            verdict = execute(lane, source, scratch, streams, line, begin, end, blocks, sequences, from32, to32)
        if verdict != OK and lane == 0:
            status[line] = verdict

    return body


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    return make_body(make_execute(target, lanes))


_u1, _u4, _u8, _i4, _i8 = (
    types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32, types.int64)
)
ARGUMENTS = (_u1, _u4, _u1, _u4, types.Array(types.int64, 2, "C"), _i8, _i8, _u4, _u8, _i4)

KERNEL = Kernel("zstd_execute", make, ARGUMENTS, lanes=WARP, threads=WARP, shared=SHARED)
