"""LZ4 raw blocks, up to 32 sequences at a time: the decoder for GPUs.

Arguments, statuses, limits, format and reference are those of `zarrgpu.kernels.lz4`; the two kernels are
interchangeable, and give the same status to every stream. A warp for each stream, 4 warps a block, `SHARED` bytes of
shared memory a warp. There is no host twin.

The steps and `GROUP` are in `zarrgpu.kernels.lz4_steps`, `RING` in `zarrgpu.kernels.warp_block`, the copies in
`zarrgpu.kernels.lz4_copy`.

A sequence at a time, a decoder waits for one memory access after another. Here a warp takes a window of 128 bytes of
the input, a word a lane, and decodes the sequences that start and end in it together, a *group*:

1. each lane assumes that a token starts at each of its four bytes, and finds where the next one would start;
2. by pointer jumping, lane ``k`` gets the position of the group's ``k``-th token, and reads its sequence;
3. a prefix sum of the lengths says where each sequence's output starts; all are checked; shared memory gets a table of
   the sequences, and a bitmap of the output bytes that one starts at;
4. the output is made in blocks of 128 bytes, a word a lane: the bits up to a byte's own count up to its sequence. A
   byte is then a literal, from the window; or from earlier output, out of a ring of the latest `RING` bytes in shared
   memory, or out of the slot if older; or from the block itself, found by pointer jumping.

A sequence that does not fit (long literals, a match of 274 bytes or more, the last one) is copied by the whole warp,
and so are, without asking, the `ALONE` sequences after a group of less than three. A short match copied that way stays
in registers, and is stored when the next sequence's loads are on their way.

Bounds. A group's sequences end in the window, their output in `GROUP` bytes: 16 bits hold any position in it. A match
in a group is at most 4 + 15 + 254 = 273 bytes, so that a position in it can be divided by its offset with a 20-bit
inverse: the quotient's error is below 273 / 2**20, less than 1 / 273. All positions are relative to views that start at
most 15 bytes before the stream or slot; they are below `MOST` plus a few thousand and fit 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels import lz4
from zarrgpu.kernels.lz4 import (
    BAD_OFFSET,
    BAD_TABLE,
    LAST_LITERALS,
    MATCH_LIMIT,
    MIN_MATCH,
    OK,
    OVERFLOW,
    SHORT,
    TRUNCATED,
)
from zarrgpu.kernels.lz4_copy import make_alone, make_repeat
from zarrgpu.kernels.lz4_steps import (
    GROUP,
    NONE,
    SHARED,
    STARTS_AT,
    WINDOW,
    WINDOW_AT,
    make_group,
    make_output,
)
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT
from zarrgpu.kernels.warp_block import make_crew

U = np.uint32

LONG = 40  # a first sequence of more encoded bytes is not worth a group
ALONE = 16  # sequences taken one by one after a group of less than three
RUNNING = -1  # in place of a status: the stream goes on


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    cuda, device, load, prefetch, sync = target.cuda, target.device, target.load, target.prefetch, target.sync
    is_inside, bytes_of = device(lz4.inside), target.bytes_of
    crew = make_crew(target)
    shuffle, pick, _ = crew
    find, sequence, total, publish = make_group(target, crew)
    write = make_output(target, crew)
    extended, copy, fill, joined = make_alone(target, crew)

    @device
    def copy_now(lane, to, to32, dest, source, source32, start, n):
        copy(lane, to, to32, dest, source, source32, start, n, U(0), U(0), U(0))

    repeat = make_repeat(target, lanes, copy_now)

    @device
    def window_at(lane, source32, origin, end):
        """The lane's word of the window at `origin`, a multiple of four; zero when it starts past the stream."""
        p = U(origin + U(lane << U(2)))
        return load(source32, U(p >> U(2)), p < end, U(0))

    @device
    def is_worth_a_group(word, first, token, left):
        """Whether the sequence at `first` in the window fits, with a token after it, and is not `LONG`."""
        literals = U(token >> U(4))
        after = U(first + U(3) + literals)
        if literals == U(15):
            after = U(after + U(1) + pick(word, U(first + U(1))))
        if after > U(120) or U(after + U(1)) >= left or U(after - first) > U(LONG):
            return False
        if U(token & U(15)) == U(15):
            return pick(word, after) != U(255)
        return True

    @device
    def decode(lane, base, source, source32, at, size, to, to32, begin, want):
        """As in `zarrgpu.kernels.lz4`; `base` is where the warp's shared memory starts.

        Each turn consumes a byte of the input at least.
        """
        bytes8 = cuda.shared.array(0, types.uint8)
        words32 = cuda.shared.array(0, types.uint32)
        words64 = cuda.shared.array(0, types.uint64)
        window = U(base + U(WINDOW_AT))
        end = U(at + size)
        stop = U(begin + want)
        dest = begin
        ring_from = begin  # output from here on is in the ring
        late, late_at, late_n = U(0), U(0), U(0)  # a short match, a byte a lane: loaded, but not stored yet
        alone = U(0)  # sequences to take one by one
        status = RUNNING if size > U(0) else TRUNCATED
        origin = U(at & U(FULL - 3))  # where the window starts
        word = window_at(lane, source32, origin, end)
        while status == RUNNING:
            first = U(at - origin)
            if first > U(24):
                origin = U(at & U(FULL - 3))
                first = U(at & U(3))
                word = window_at(lane, source32, origin, end)
            left = U(end - origin)
            token = pick(word, first)
            if alone == U(0) and is_worth_a_group(word, first, token, left):
                if lane < late_n:
                    to[U(late_at + lane)] = np.uint8(late)
                late, late_at, late_n = U(0), U(0), U(0)
                # The group before has left the shared memory: `write` ends with a sync.
                words32[U(U(window >> U(2)) + lane)] = word
                words32[U(U(U(base + U(STARTS_AT)) >> U(2)) + lane)] = U(0)
                sync()  # the window is there, and so is all output before `dest`
                place, after = find(lane, bytes8, window, word, first, left)
                fits = after != U(NONE)
                literals_at, literals, offset, length = sequence(bytes8, window, place, fits)
                over = total(lane, U(literals + length))
                # In words: dest's 0-3 bytes, then the group's.
                skew = U(dest & U(3))
                fits = fits and over <= U(GROUP - 3)
                n = U(cuda.popc(cuda.ballot_sync(FULL, fits)))  # at least 1, lanes 0 to n - 1
                grown = shuffle(over, U(n - U(1)))
                if n < U(3):
                    alone = U(ALONE)
                start = U(over - literals - length)
                match = U(start + literals)
                room = U(stop - dest)
                fault = OK
                if fits:
                    if U(match + U(MATCH_LIMIT)) > room:
                        fault = OVERFLOW
                    elif offset == U(0) or offset > U(dest - begin + match):
                        fault = BAD_OFFSET
                    elif U(over + U(LAST_LITERALS)) > room:
                        fault = OVERFLOW
                faults = U(cuda.ballot_sync(FULL, fault != OK))
                if faults != U(0):
                    status = np.int32(shuffle(U(fault), U(cuda.ffs(faults) - 1)))
                else:
                    if fits:
                        bit = U(start + skew)
                        publish(lane, words32, words64, base, start, match, offset, length, literals_at, bit)
                    at = U(origin + shuffle(after, U(n - U(1))))
                    origin = U(at & U(FULL - 3))
                    word = window_at(lane, source32, origin, end)  # on its way while the output is made
                    sync()
                    write(lane, bytes8, words32, words64, base, to, to32, dest, grown, ring_from)
                    dest = U(dest + grown)
            else:
                if alone > U(0):
                    alone = U(alone - U(1))
                at = U(at + U(1))
                literals = U(token >> U(4))
                if literals == U(15):
                    byte = pick(word, U(first + U(1)))
                    literals = U(literals + byte)
                    at = U(at + U(1))
                    if byte == U(255) and at <= end:
                        at, literals = extended(lane, source, at, end, literals, end)
                if at > end or literals > U(end - at):
                    status = TRUNCATED
                elif literals > U(stop - dest):
                    status = OVERFLOW
                else:
                    at, from_ = U(at + literals), at
                    # The offset, and the first byte of a long length, with the next window behind it.
                    i = U(at >> U(2))
                    low = load(source32, i, at < end, U(0))
                    high = load(source32, U(i + U(1)), U((at & U(FULL - 3)) + U(4)) < end, U(0))
                    shift = U((at & U(3)) << U(3))
                    origin = U(U(at + U(2)) & U(FULL - 3))
                    word = window_at(lane, source32, origin, end)
                    p = U(at + U(4 * WINDOW) + U(lane << U(7)))
                    prefetch(source, p, lane < U(8) and p < end)
                    copy(lane, to, to32, dest, source, source32, from_, literals, late, late_at, late_n)
                    late_n = U(0)
                    dest = U(dest + literals)
                    if at == end:
                        status = OK if dest == stop else SHORT
                        if stop == begin and token != U(0):
                            status = OVERFLOW
                    elif U(stop - dest) < U(MATCH_LIMIT):
                        status = OVERFLOW
                    elif U(end - at) < U(3):
                        status = TRUNCATED
                    else:
                        head = joined(low, high, shift)
                        offset = U(head & U(0xFFFF))
                        length = U(token & U(15))
                        at = U(at + U(2))
                        if length == U(15):
                            byte = U((head >> U(16)) & U(255))
                            length = U(length + byte)
                            at = U(at + U(1))
                            if byte == U(255):
                                at, length = extended(lane, source, at, end, length, U(stop - begin))
                        if offset == U(0) or offset > U(dest - begin):
                            status = BAD_OFFSET
                        elif length > U(stop - begin):
                            status = OVERFLOW
                        elif at >= end:
                            status = TRUNCATED
                        elif U(length + U(MIN_MATCH + LAST_LITERALS)) > U(stop - dest):
                            status = OVERFLOW
                        else:
                            length = U(length + U(MIN_MATCH))
                            sync()  # the literals can be seen
                            if offset >= length and length <= U(WARP):
                                late = load(to, U(dest - offset + lane), lane < length, U(0))
                                late_at = dest
                                late_n = length
                            elif length > U(4 * WARP) and (offset <= U(2) or offset == U(4)):
                                fill(lane, to, to32, dest, offset, length)
                                sync()
                            else:
                                repeat(lane, to, to32, dest, offset, length)
                            dest = U(dest + length)
                            ring_from = dest
        if lane < late_n:
            to[U(late_at + lane)] = np.uint8(late)
        return status

    def body(lane, item, source, source32, scratch, scratch32, streams, order, status):
        line = order[item]
        if line < 0 or line >= streams.shape[0]:
            return
        start, size = streams[line, S_START], streams[line, S_SIZE]
        dest, want = streams[line, S_DEST], streams[line, S_WANT]
        verdict = BAD_TABLE
        if is_inside(start, size, source.size) and is_inside(dest, want, scratch.size):
            # Views from the 16-byte boundary below, so that positions fit 32 bits in arenas of any size. Those of bytes
            # are made from those of words: the compiler then keeps one address for both.
            from32, to32 = source32[start >> 4 << 2 :], scratch32[dest >> 4 << 2 :]
            verdict = decode(
                U(lane),
                U(cuda.threadIdx.x // WARP * SHARED),
                bytes_of(from32),
                from32,
                U(start & 15),
                U(size),
                bytes_of(to32),
                to32,
                U(dest & 15),
                U(want),
            )
        if lane == 0:
            status[line] = verdict

    return body


KERNEL = Kernel("lz4_group", make, lz4.ARGUMENTS, lanes=WARP, threads=4 * WARP, shared=SHARED, on_host=False)
