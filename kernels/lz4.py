"""LZ4 raw blocks, one sequence at a time: the plain decoder, and the host twin of `zarrgpu.kernels.lz4_group`.

Format: lz4_Block_format.md of the LZ4 project. A stream is sequences; a sequence is::

    token        high four bits: literals; low four bits: length of the match - 4; 15 means that further bytes are added
    literals+    while the byte before was 15 (in the token) or 255: a byte to add
    literals     copied to the output
    offset       2 bytes, little endian: how far before the output's end the match starts; 0 is not allowed
    length+      as literals+

The last sequence ends after its literals. A match starts at least 12 bytes before the end of the output and ends at
least 5 before it; a stream in which one does not is refused, as liblz4's ``LZ4_decompress_safe`` does.

Arguments

========= ============================ =====================================================================
source    ``uint8[n]``                 source arena; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
scratch   ``uint8[m]``                 scratch arena, written in the streams' slots; `m` is a multiple of 16
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]`` bytes; starts have any alignment, sizes are at most `MOST`
order     ``int64[k]``                 lines of `streams`, longest first, none twice; one that is not there is skipped
status    ``int32[s]``                 written for the lines in `order`
========= ============================ =====================================================================

Both arenas start at a multiple of 16 bytes, may be larger than 4 GiB and do not overlap. Slots do not overlap. Item
``i`` decodes stream ``order[i]``: a warp for each (one lane on the host), 4 warps a block, no shared memory.

Nothing outside a stream's slot is written, and nothing outside the stream influences what is written. Loads of whole
words may touch up to 3 bytes on either side of the stream, never past the arena; stores of words stay inside the slot.

Statuses: `OK` only when the stream's last byte fills the slot's last. `TRUNCATED`: the input ends inside a sequence or
after a match. `BAD_OFFSET`: 0, or before the slot. `OVERFLOW`: more bytes than the slot has, or a match too close to
its end. `SHORT`: fewer bytes. `BAD_TABLE`: the line points outside an arena, nothing is touched. The slot of a stream
that is not `OK` holds anything. An empty slot takes the stream of one byte 0.

What ``LZ4_decompress_safe`` refuses when it is asked for exactly `S_WANT` bytes is refused. Of what it accepts, two
kinds of stream that the format forbids are refused here: those with an offset of 0 (it writes zeros), and those with a
match in the last 5 bytes (its shortcut for short sequences lets some through).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels.lz4_copy import make_byte_copy, make_repeat, make_word_copy
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT, Status

U = np.uint32
U64 = np.uint64

MOST = (1 << 31) - 64  # bytes of a stream, encoded or decoded: positions, and what is added to them, fit 32 bits
MIN_MATCH = 4
LAST_LITERALS = 5  # a match ends so many bytes before the output does, or more
MATCH_LIMIT = 12  # and starts so many before, or more

OK, TRUNCATED, BAD_OFFSET = int(Status.OK), int(Status.TRUNCATED), int(Status.BAD_OFFSET)
OVERFLOW, SHORT, BAD_TABLE = int(Status.OVERFLOW), int(Status.SHORT), int(Status.BAD_TABLE)


def reference(stream: bytes, want: int) -> tuple[Status, bytes]:
    """What the kernels decode, in the order of the format: a status, and the bytes decoded by then."""
    out = bytearray()
    at, end = 0, len(stream)
    if end == 0:
        return Status.TRUNCATED, b""
    while True:
        token = stream[at]
        at += 1
        literals = token >> 4
        if literals == 15:
            at, literals = _extended(stream, at, literals, end)
        if literals > end - at:
            return Status.TRUNCATED, bytes(out)
        if literals > want - len(out):
            return Status.OVERFLOW, bytes(out)
        out += stream[at : at + literals]
        at += literals
        if at == end:
            if want == 0 and token != 0:
                return Status.OVERFLOW, b""  # an empty slot takes the stream 00 and no other
            return Status.OK if len(out) == want else Status.SHORT, bytes(out)
        if len(out) + MATCH_LIMIT > want:
            return Status.OVERFLOW, bytes(out)
        if end - at < 3:
            return Status.TRUNCATED, bytes(out)  # an offset, and the next token at least
        offset = stream[at] | stream[at + 1] << 8
        at += 2
        if not 0 < offset <= len(out):
            return Status.BAD_OFFSET, bytes(out)
        length = token & 15
        if length == 15:
            at, length = _extended(stream, at, length, want)
        if length > want:
            return Status.OVERFLOW, bytes(out)
        if at >= end:
            return Status.TRUNCATED, bytes(out)
        length += MIN_MATCH
        if len(out) + length + LAST_LITERALS > want:
            return Status.OVERFLOW, bytes(out)
        for _ in range(length):
            out.append(out[-offset])


def _extended(stream: bytes, at: int, length: int, most: int) -> tuple[int, int]:
    """The position after a length's further bytes, which are added to `length`.

    Reading stops early when the length exceeds `most`; the position is one past the end when the stream ends first.
    """
    while length <= most:
        if at == len(stream):
            return at + 1, length
        byte = stream[at]
        at += 1
        length += byte
        if byte < 255:
            break
    return at, length


def inside(start: int, size: int, whole: int) -> bool:
    """Whether bytes `start` to `start` + `size` lie in an arena of `whole` bytes, and are not more than `MOST`."""
    return start >= 0 and size >= 0 and size <= MOST and size <= whole and start <= whole - size


def make_reader(target: Target) -> tuple[Any, Any]:
    """How a stream is read: ``(extended, word_at)``, with positions as in `decode`."""
    device, load = target.device, target.load

    @device
    def extended(source, at, end, length, most):
        """As `_extended`."""
        while length <= most:
            if at >= end:
                return U(at + U(1)), length
            byte = U(source[at])
            at = U(at + U(1))
            length = U(length + byte)
            if byte < U(255):
                break
        return at, length

    @device
    def word_at(source32, at, end):
        """Four bytes at any alignment, little endian; zeros instead of words that start at `end` or later."""
        i = U(at >> U(2))
        low = U64(load(source32, i, at < end, U(0)))
        high = U64(load(source32, U(i + U(1)), U((at & U(FULL - 3)) + U(4)) < end, U(0)))
        return U(((low | (high << U64(32))) >> U64((at & U(3)) << U(3))) & U64(0xFFFFFFFF))

    return extended, word_at


def make_body(target: Target, decode: Any) -> Any:
    """The body of a kernel with `ARGUMENTS`, around the function that decodes one stream; its checks of the table."""
    is_inside = target.device(inside)

    def body(lane, item, source, source32, scratch, scratch32, streams, order, status):
        line = order[item]
        if line < 0 or line >= streams.shape[0]:
            return
        start, size = streams[line, S_START], streams[line, S_SIZE]
        dest, want = streams[line, S_DEST], streams[line, S_WANT]
        verdict = BAD_TABLE
        if is_inside(start, size, source.size) and is_inside(dest, want, scratch.size):
            # Views from the 16-byte boundary below, so that positions fit 32 bits in arenas of any size.
            first, slot = start >> 4, dest >> 4
            verdict = decode(
                U(lane),
                source[first << 4 :],
                source32[first << 2 :],
                U(start & 15),
                U(size),
                scratch[slot << 4 :],
                scratch32[slot << 2 :],
                U(dest & 15),
                U(want),
            )
        if lane == 0:
            status[line] = verdict

    return body


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    device, sync = target.device, target.sync
    extended, word_at = make_reader(target)
    copy = make_word_copy(target, lanes) if lanes > 1 else make_byte_copy(target)
    repeat = make_repeat(target, lanes, copy)

    @device
    def decode(lane, source, source32, at, size, to, to32, begin, want):
        """Decode ``source[at:at + size]`` to ``to[begin:begin + want]``; a status. All lanes take the same branches.

        Each turn consumes a byte of the input at least.
        """
        end = U(at + size)
        stop = U(begin + want)
        dest = begin
        if size == U(0):
            return TRUNCATED
        token = U(source[at])
        at = U(at + U(1))
        while True:
            literals = U(token >> U(4))
            if literals == U(15):
                at, literals = extended(source, at, end, literals, size)
            if at > end or literals > U(end - at):
                return TRUNCATED
            if literals > U(stop - dest):
                return OVERFLOW
            after = U(at + literals)
            # The offset and perhaps the next token: on their way while the literals are copied.
            word = word_at(source32, after, end)
            copy(lane, to, to32, dest, source, source32, at, literals)
            dest = U(dest + literals)
            if after == end:
                if want == U(0) and token != U(0):
                    return OVERFLOW
                return OK if dest == stop else SHORT
            if U(stop - dest) < U(MATCH_LIMIT):
                return OVERFLOW
            if U(end - after) < U(3):
                return TRUNCATED
            offset = U(word & U(0xFFFF))
            if offset == U(0) or offset > U(dest - begin):
                return BAD_OFFSET
            at = U(after + U(2))
            length = U(token & U(15))
            if length == U(15):
                at, length = extended(source, at, end, length, want)
                if length > want:
                    return OVERFLOW
                if at >= end:
                    return TRUNCATED
                token = U(source[at])
            else:
                token = U((word >> U(16)) & U(255))
            at = U(at + U(1))
            length = U(length + U(MIN_MATCH))
            if U(length + U(LAST_LITERALS)) > U(stop - dest):
                return OVERFLOW
            sync()  # the literals can be seen
            repeat(lane, to, to32, dest, offset, length)
            dest = U(dest + length)

    return make_body(target, decode)


_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
ARGUMENTS = (_u1, _u4, _u1, _u4, types.Array(types.int64, 2, "C"), _i8, _i4)

KERNEL = Kernel("lz4", make, ARGUMENTS, lanes=WARP, threads=4 * WARP)
