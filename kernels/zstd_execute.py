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

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.lz4_copy import make_alone, make_repeat
from zarrgpu.kernels.tables import S_DEST, S_START, Status
from zarrgpu.kernels.warp_block import make_crew
from zarrgpu.kernels.zstd_blocks import make_checks
from zarrgpu.kernels.zstd_place import make_resolve
from zarrgpu.kernels.zstd_steps import GROUP, SHARED, make_move, make_output, make_publish

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
U64 = np.uint64

OK, BAD_OFFSET, BAD_TABLE = int(Status.OK), int(Status.BAD_OFFSET), int(Status.BAD_TABLE)
UNSUPPORTED = int(Status.UNSUPPORTED)


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


def make_warp(target: Target) -> Any:
    """``run``: the sequences of a block by a warp."""
    cuda, device, sync = target.cuda, target.device, target.sync
    crew = make_crew(target)
    shuffle, _, _ = crew
    _, copy, fill, _ = make_alone(target, crew)
    clear, publish = make_publish(target)
    write, move, resolve = make_output(target, crew), make_move(target, crew), make_resolve(target)

    @device
    def copy_now(lane, to, to32, dest, source, source32, start, n):
        copy(lane, to, to32, dest, source, source32, start, n, U(0), U(0), U(0))

    repeat = make_repeat(target, WARP, copy_now)

    @device
    def line_of(sequences, first, k, n):
        """Line `k` of a block's `n`, 0 where there is none."""
        line = U64(0)
        if k < n:
            line = sequences[U(first + k)]
        return line

    @device
    def alone(lane, source, source32, to, to32, dest, literals, raw, count, offset, length):
        """One sequence; what is there before `dest` is visible to all lanes, and what it writes when it returns."""
        if count > U(0):
            if raw:
                copy_now(lane, to, to32, dest, source, source32, literals, count)
            else:
                move(lane, to, to32, dest, literals, count)
        dest = U(dest + count)
        sync()
        if offset >= length:
            copy_now(lane, to, to32, dest, to, to32, U(dest - offset), length)
        elif length > U(4 * WARP) and (offset <= U(2) or offset == U(4)):
            fill(lane, to, to32, dest, offset, length)
        else:
            repeat(lane, to, to32, dest, offset, length)
        sync()

    @device
    def run(lane, base, source, source32, to, to32, blocks, o, sequences):
        bytes8 = cuda.shared.array(0, types.uint8)
        words32 = cuda.shared.array(0, types.uint32)
        words64 = cuda.shared.array(0, types.uint64)
        kind, dest, size = U(blocks[o + z.Z_KIND]), U(blocks[o + z.Z_DEST]), U(blocks[o + z.Z_OUT])
        n = U(blocks[o + z.Z_SEQUENCES])
        if kind != U(z.COMPRESSED):
            at = U(blocks[o + z.Z_START])
            if kind == U(z.RAW):
                if size > U(0):
                    copy_now(lane, to, to32, dest, source, source32, at, size)
            else:
                byte = source[at]
                k = lane
                while k < size:
                    to[U(dest + k)] = byte
                    k = U(k + U(WARP))
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
            is_there = U(k + lane) < n
            offset = resolve(U(line & U64(0xFFFFFFF)), a, b, c)
            end, literals_end = U(line >> U64(46)), U(U(line >> U64(28)) & U(0x3FFFF))
            before = U(cuda.shfl_up_sync(FULL, np.int32(end), 1))
            literals_before = U(cuda.shfl_up_sync(FULL, np.int32(literals_end), 1))
            if lane == U(0):
                before, literals_before = made, used
            count = U(literals_end - literals_before)
            start = U(before - made)
            over = U(end - made)
            match = U(start + count)
            length = U(over - match)
            fits = is_there and over <= U(GROUP - 3)
            many = U(cuda.popc(cuda.ballot_sync(FULL, fits)))
            counts = fits or (is_there and lane == U(0))
            bad = counts and (offset == U(0) or offset > U(dest - frame + match))
            odd = counts and offset > window
            if cuda.any_sync(FULL, bad):
                status = BAD_OFFSET
            elif cuda.any_sync(FULL, odd):
                status = UNSUPPORTED
            elif many >= U(2):
                grown = shuffle(over, U(many - U(1)))
                clear(lane, words32, base)
                sync()
                if fits:
                    bit = U(start + U(dest & U(3)))
                    publish(lane, words32, words64, base, start, U(literals_before - used), match, offset, length, bit)
                from_ = U(literals + used)
                used = shuffle(literals_end, U(many - U(1)))
                made = U(made + grown)
                k = U(k + many)
                line = line_of(sequences, first, U(k + lane), n)  # on its way while the output is made
                sync()
                write(lane, bytes8, words32, words64, base, source, to, to32, dest, grown, ring_from, from_, raw)
                dest = U(dest + grown)
            else:
                count, length, offset = shuffle(count, U(0)), shuffle(length, U(0)), shuffle(offset, U(0))
                from_ = U(literals + used)
                used = U(used + count)
                made = U(made + count + length)
                k = U(k + U(1))
                line = line_of(sequences, first, U(k + lane), n)
                alone(lane, source, source32, to, to32, dest, from_, raw, count, offset, length)
                dest = U(dest + count + length)
                ring_from = dest
        if raw and status == OK:  # what follows the last sequence; other literals are there already
            rest = U(U(blocks[o + z.Z_LITERAL_SIZE]) - used)
            if rest > U(0):
                copy_now(lane, to, to32, dest, source, source32, U(literals + used), rest)
        sync()
        return status

    return run


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    bytes_of = target.bytes_of
    run = make_plain(target) if lanes == 1 else make_warp(target)
    _, is_input, is_output = make_checks(target)

    @target.device
    def execute(lane, source, scratch, streams, line, begin, end, blocks, sequences, from32, to32):
        """All blocks of a stream; a status."""
        from8, to8 = bytes_of(from32), bytes_of(to32)
        status = OK
        b = begin
        while b < end and status == OK:
            o = b * z.BLOCK_COLUMNS
            known = is_input(blocks, b, streams, source.size) and is_output(blocks, b, streams, scratch.size)
            pool = I(blocks[o + z.Z_FIRST]) + I(blocks[o + z.Z_SEQUENCES])
            if not known or I(blocks[o]) != line or pool > sequences.size:
                status = BAD_TABLE
            else:
                status = run(U(lane), U(0), from8, from32, to8, to32, blocks, o, sequences)
            b += 1
        return status

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


_u1, _u4, _u8, _i4, _i8 = (
    types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32, types.int64)
)
ARGUMENTS = (_u1, _u4, _u1, _u4, types.Array(types.int64, 2, "C"), _i8, _i8, _u4, _u8, _i4)

KERNEL = Kernel("zstd_execute", make, ARGUMENTS, lanes=WARP, threads=WARP, shared=SHARED)
