"""BloscLZ streams, one instruction at a time: the inner codec 0 of Blosc-1, a relative of FastLZ.

Format: no text describes it; this is what ``blosclz_decompress`` of c-blosc 1.21 (blosclz.c) does. A stream is
instructions::

    control      below 32: the number of literals - 1; else a match, and its high three bits are the match's length - 2
    literals     1 to 32 bytes, copied to the output
    length+      if the high three bits are 7: a byte to add, and another while the byte before was 255
    code         of a match: its offset - 1 is this byte below the low five bits of the control byte
    offset       2 bytes, big endian, if those 13 bits are all set: the offset is 8192 + this number

The offset says how far before the output's end the match starts. Of the first control byte only the low five bits
count: a stream starts with literals. It ends with literals too: c-blosc drops a match after which the input ends, and
then finds the slot not full.

Arguments, as those of `zarrgpu.kernels.lz4`

========= ============================ =====================================================================
source    ``uint8[n]``                 source arena; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
scratch   ``uint8[m]``                 scratch arena, written in the streams' slots; `m` is a multiple of 16
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]`` bytes; starts have any alignment, sizes are at most `lz4.MOST`
order     ``int64[k]``                 lines of `streams`, longest first, none twice; one that is not there is skipped
status    ``int32[s]``                 written for the lines in `order`
========= ============================ =====================================================================

Both arenas start at a multiple of 16 bytes, may be larger than 4 GiB and do not overlap. Slots do not overlap. Item
``i`` decodes stream ``order[i]``: a warp for each (one lane on the host), 4 warps a block, no shared memory.

Nothing outside a stream's slot is written, and nothing outside the stream influences what is written. Loads of whole
words may touch up to 3 bytes on either side of the stream, never past the arena; stores of words stay inside the slot.

Statuses: `OK` only when the stream's last byte fills the slot's last. `TRUNCATED`: the input ends inside an instruction
or after a match. `BAD_OFFSET`: before the slot. `OVERFLOW`: more bytes than the slot has. `SHORT`: fewer bytes.
`BAD_TABLE`: the line points outside an arena, nothing is touched. The slot of a stream that is not `OK` holds anything.
An empty slot takes the empty stream and no other.

A container keeps a stream as long as its slot unencoded: such streams are for `zarrgpu.kernels.stored`, not for here.
What c-blosc accepts is accepted, with the same bytes; what it refuses is refused. So is what it leaves undefined: a
match whose length does not fit its int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels.lz4 import ARGUMENTS, BAD_OFFSET, OK, OVERFLOW, SHORT, TRUNCATED, make_body, make_reader
from zarrgpu.kernels.lz4_copy import make_byte_copy, make_repeat, make_word_copy
from zarrgpu.kernels.tables import Status

U = np.uint32

RUN = 32  # literals of one instruction, at most; a control byte that is not less is a match's
LONG = 7  # high three bits of a match with bytes that add to its length
FAR = 8192  # the offset that the escape for larger ones would be, and what is added to those


def reference(stream: bytes, want: int) -> tuple[Status, bytes]:
    """What the kernel decodes, in the order of the format: a status, and the bytes decoded by then."""
    out = bytearray()
    at, end = 1, len(stream)
    if end == 0:
        return Status.TRUNCATED if want else Status.OK, b""
    control = stream[0] & 31
    while True:
        room = want - len(out)
        if control < RUN:
            literals = control + 1
            if literals > room:
                return Status.OVERFLOW, bytes(out)
            if literals > end - at:
                return Status.TRUNCATED, bytes(out)
            out += stream[at : at + literals]
            at += literals
            if at == end:
                return Status.OK if len(out) == want else Status.SHORT, bytes(out)
        else:
            length = (control >> 5) + 2
            byte = 255 if control >> 5 == LONG else 0
            while byte == 255 and length <= room:
                if at == end:
                    return Status.TRUNCATED, bytes(out)
                byte = stream[at]
                at += 1
                length += byte
            if length > room:
                return Status.OVERFLOW, bytes(out)
            if end - at < 2:
                return Status.TRUNCATED, bytes(out)  # the code, and a control byte at least
            offset = (control & 31) * 256 + stream[at] + 1
            at += 1
            if offset == FAR:
                if end - at < 3:
                    return Status.TRUNCATED, bytes(out)
                offset += stream[at] * 256 + stream[at + 1]
                at += 2
            if offset > len(out):
                return Status.BAD_OFFSET, bytes(out)
            for _ in range(length):
                out.append(out[-offset])
        control = stream[at]
        at += 1


def make_literals(target: Target) -> tuple[Any, Any]:
    """What one lane does with literals, an instruction at a time: ``(count, copy)``, as those of `make_runs`."""
    device = target.device
    copy_bytes = make_byte_copy(target)

    @device
    def count(lane, source, at, end, room):
        return U(1)

    @device
    def copy(lane, to, to32, dest, source, source32, at, literals, runs):
        copy_bytes(lane, to, to32, dest, source, source32, U(at + U(1)), literals)

    return count, copy


def make_runs(target: Target) -> tuple[Any, Any]:
    """What a warp does with literals, which come `RUN` at a time when there are many: ``(count, copy)``.

    `count` finds such instructions in a row, so that they do not wait for each other's control bytes; `copy` moves a
    byte a lane, which is why `RUN` may not exceed `WARP`.
    """
    cuda, device, load = target.cuda, target.device, target.load

    @device
    def count(lane, source, at, end, room):
        """How many instructions of `RUN` literals follow each other from `at` on, where there is one; up to 32.

        Only 1 when not all of them fit the input and the `room` in the slot: the next turns find the one that does not.
        """
        after = U(at + U(U(lane + U(1)) * U(RUN + 1)))  # control byte of the instruction lane + 1
        others = U(cuda.ballot_sync(FULL, load(source, after, after < end, U(0)) != U(RUN - 1)))
        runs = U(cuda.ffs(others)) if others != U(0) else U(WARP)
        fits = U(runs * U(RUN + 1)) <= U(end - at) and U(runs * U(RUN)) <= room
        return runs if fits else U(1)

    @device
    def copy(lane, to, to32, dest, source, source32, at, literals, runs):
        """The literals of `runs` instructions from the one at `at` on; each has `literals`, several have `RUN`."""
        p = U(at + U(1) + lane)
        q = U(dest + lane)
        is_there = lane < literals
        k = U(0)
        while k < runs:  # four loads in flight
            has_b, has_c, has_d = U(k + U(1)) < runs, U(k + U(2)) < runs, U(k + U(3)) < runs
            a = load(source, p, is_there, U(0))
            b = load(source, U(p + U(RUN + 1)), has_b, U(0))
            c = load(source, U(p + U(2 * (RUN + 1))), has_c, U(0))
            d = load(source, U(p + U(3 * (RUN + 1))), has_d, U(0))
            if is_there:
                to[q] = np.uint8(a)
            if has_b:
                to[U(q + U(RUN))] = np.uint8(b)
            if has_c:
                to[U(q + U(2 * RUN))] = np.uint8(c)
            if has_d:
                to[U(q + U(3 * RUN))] = np.uint8(d)
            k = U(k + U(4))
            p = U(p + U(4 * (RUN + 1)))
            q = U(q + U(4 * RUN))

    return count, copy


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    device, sync = target.device, target.sync
    extended, word_at = make_reader(target)
    count, copy = make_runs(target) if lanes > 1 else make_literals(target)
    repeat = make_repeat(target, lanes, make_word_copy(target, lanes) if lanes > 1 else make_byte_copy(target))

    @device
    def decode(lane, source, source32, at, size, to, to32, begin, want):
        """Decode ``source[at:at + size]`` to ``to[begin:begin + want]``; a status. All lanes take the same branches.

        Each turn consumes a byte of the input at least. It starts with a control byte at `at`, before `end`, and in
        `word` the four bytes from there on, of which those before `end` count.
        """
        end = U(at + size)
        stop = U(begin + want)
        dest = begin
        if size == U(0):
            return OK if want == U(0) else TRUNCATED
        word = word_at(source32, at, end)
        control = U(word & U(31))
        while True:
            room = U(stop - dest)
            if control < U(RUN):
                literals = U(control + U(1))
                if literals > room:
                    return OVERFLOW
                if literals >= U(end - at):
                    return TRUNCATED
                runs = U(1)
                if literals == U(RUN):
                    runs = count(lane, source, at, end, room)
                after = U(at + U(runs * U(literals + U(1))))
                word = word_at(source32, after, end)  # on its way while the literals are copied
                copy(lane, to, to32, dest, source, source32, at, literals, runs)
                dest = U(dest + U(runs * literals))
                at = after
                if at == end:
                    return OK if dest == stop else SHORT
            else:
                length = U((control >> U(5)) + U(2))
                p = U(at + U(1))
                if length == U(LONG + 2):
                    p, length = extended(source, p, end, length, room)
                    word = word_at(source32, U(p - U(1)), end)  # so that its second byte is the code again
                if length > room:
                    return OVERFLOW
                if U(p + U(2)) > end:
                    return TRUNCATED
                offset = U(U(U(control & U(31)) << U(8)) + U(U(word >> U(8)) & U(255)) + U(1))
                p = U(p + U(1))
                if offset == U(FAR):
                    if U(p + U(3)) > end:
                        return TRUNCATED
                    offset = U(offset + U(U(U(word >> U(16)) & U(255)) << U(8)) + U(word >> U(24)))
                    p = U(p + U(2))
                if offset > U(dest - begin):
                    return BAD_OFFSET
                at = p
                word = word_at(source32, at, end)  # on its way while the match is copied
                sync()  # the literals can be seen
                repeat(lane, to, to32, dest, offset, length)
                dest = U(dest + length)
            control = U(word & U(255))

    return make_body(target, decode)


KERNEL = Kernel("blosclz", make, ARGUMENTS, lanes=WARP, threads=4 * WARP)
