"""Zstandard's literals (RFC 8878, 3.1.1.3.1) -> the end of each block's output. Raw ones stay where they are.

========= ============================ =======================================================================
source    ``uint8[n]``                 source arena, 16-byte aligned; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
scratch   ``uint8[m]``                 scratch arena, likewise, written in the streams' slots
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]``
blocks    ``uint32[]``                 as `zarrgpu.kernels.zstd_format` says, with places
work      ``uint32[]``                 on the host `WORK` words an item; 1 elsewhere
status    ``int32[s]``                 written where something is wrong
========= ============================ =======================================================================

Arrays do not overlap. An item is `BLOCKS` blocks, and a warp, alone in its thread block, with `SHARED` bytes of shared
memory: four lanes a block, which fill the code's table together and decode a bitstream each. A block whose literals are
treeless makes the earlier block's table again.

Statuses: `BAD_CODE`; `UNSUPPORTED`, left to the library: a code of 12 bits, and bitstreams that do not end where their
literals do, which libzstd takes or not; `BAD_TABLE`. Streams with a status already are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target, shared
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_DEST, S_START, Status
from zarrgpu.kernels.zstd_blocks import make_checks
from zarrgpu.kernels.zstd_headers import make_headers
from zarrgpu.kernels.zstd_huffman import ODD, SEGMENTS, make_literals, make_weights

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
H = np.uint16

WAYS = 4
BLOCKS = WARP // WAYS
# A block's shared memory in bytes: the table, in which the one for the weights is made first; then weights and counts,
# which four windows take the place of.
WEIGHTS_AT = 4096
COUNTS_AT = WEIGHTS_AT + 256
SIZE = WEIGHTS_AT + 16 * SEGMENTS * WAYS
SHARED = BLOCKS * SIZE
WORK = SIZE // 4
SYMBOLS = 256

OK, BAD_CODE, BAD_TABLE = int(Status.OK), int(Status.BAD_CODE), int(Status.BAD_TABLE)
UNSUPPORTED = int(Status.UNSUPPORTED)


def make_part(target: Target) -> tuple[Any, Any]:
    """``(part, quarter)``: where a block's bitstreams are, and what they hold."""
    device = target.device
    number, _ = make_headers(target)

    @device
    def part(source, blocks, b, way, description):
        """``position << 32 | bytes`` of bitstream `way`, behind the code's description; -1 where it has none."""
        o = I(b) * z.BLOCK_COLUMNS
        at = I(blocks[o + z.Z_LITERAL_AT]) + description
        n = I(blocks[o + z.Z_LITERAL_FROM]) - description
        if I(blocks[o + z.Z_LITERAL_WAYS]) == 1:
            return I((at << 32) | n) if n > 0 else I(-1)
        if n < 10:
            return I(-1)
        first, second, third = number(source, at, 2), number(source, at + 2, 2), number(source, at + 4, 2)
        fourth = n - 6 - first - second - third
        if first < 1 or second < 1 or third < 1 or fourth < 1:
            return I(-1)
        at += 6
        if way == 0:
            return I((at << 32) | first)
        if way == 1:
            return I(((at + first) << 32) | second)
        if way == 2:
            return I(((at + first + second) << 32) | third)
        return I(((at + first + second + third) << 32) | fourth)

    @device
    def quarter(blocks, b, way):
        """Literals in bitstream `way`, which may be less than 0 for the last."""
        o = I(b) * z.BLOCK_COLUMNS
        n = I(blocks[o + z.Z_LITERAL_SIZE])
        if I(blocks[o + z.Z_LITERAL_WAYS]) == 1:
            return n
        each = (n + 3) >> 2
        return n - 3 * each if way == 3 else each

    return part, quarter


def make_ready(target: Target) -> Any:
    """``ready(...)``: the kind of literals that a block has for this kernel, `RAW` if none, or -`BAD_TABLE`."""
    _, is_input, is_output = make_checks(target)

    @target.device
    def ready(source, scratch, streams, blocks, b, status):
        o = b * z.BLOCK_COLUMNS
        if (b + 1) * z.BLOCK_COLUMNS > blocks.size or blocks[o + z.Z_KIND] != z.COMPRESSED:
            return z.RAW
        kind = I(blocks[o + z.Z_LITERALS])
        if blocks[o] >= streams.shape[0] or status[I(blocks[o])] != OK or kind == z.RAW:
            return z.RAW
        back = I(blocks[o + z.Z_TREE])
        if not is_input(blocks, b, streams, source.size) or not is_output(blocks, b, streams, scratch.size):
            return -BAD_TABLE
        if kind == z.TREELESS:
            same = blocks[o] == blocks[(b - back) * z.BLOCK_COLUMNS]
            if not same or not is_input(blocks, b - back, streams, source.size):
                return -BAD_TABLE
        return kind

    return ready


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    cuda, device, bytes_of = target.cuda, target.device, target.bytes_of
    weigh, begin = make_weights(target)
    decode, ready = make_literals(target), make_ready(target)
    part, quarter = make_part(target)

    @device
    def describe(source, blocks, b, weights, halves, base):
        """Weigh the symbols of the code of block `b`; as `weigh`, but with the bytes of the description."""
        o = (I(b) - I(blocks[I(b) * z.BLOCK_COLUMNS + z.Z_TREE])) * z.BLOCK_COLUMNS
        at = I(blocks[o + z.Z_LITERAL_AT])
        counts = U((base + U(COUNTS_AT)) >> U(1))
        end = at + I(blocks[o + z.Z_LITERAL_FROM])
        found = weigh(source, at, end, weights, U(base + U(WEIGHTS_AT)), halves, U(base >> U(1)), halves, counts)
        if found >= 0:
            begin(weights, U(base + U(WEIGHTS_AT)), found & 0xFFF, halves, counts)
            found -= at << 20
        return found

    @device
    def literals(source, source32, blocks, b, way, found, halves, words, base, to, to32):
        """Decode bitstream `way` of block `b`, whose code `describe` has `found` and whose table is there; a status."""
        o = I(b) * z.BLOCK_COLUMNS
        description = I(0) if blocks[o + z.Z_LITERALS] == z.TREELESS else I(found >> 20)
        place, count = part(source, blocks, b, way, description), quarter(blocks, b, way)
        if place < 0 or count < 0:
            return BAD_CODE
        dest = I(blocks[o + z.Z_LITERAL_DEST]) + way * quarter(blocks, b, 0)
        at, n, log = place >> 32, place & 0xFFFFFFFF, I(found >> 12) & 255
        ring = U(U((base + U(WEIGHTS_AT)) >> U(2)) + U(way * 4 * SEGMENTS))
        if decode(source, source32, at, n, halves, U(base >> U(1)), log, to, to32, dest, count, words, ring):
            return OK
        return UNSUPPORTED

    if lanes == 1:
        halves_of = shared(target).halves_of

        def alone(lane, item, source, source32, scratch, scratch32, streams, blocks, work, status):
            words = work[item * WORK : (item + 1) * WORK]
            halves, weights = halves_of(words), bytes_of(words)
            for b in range(item * BLOCKS, (item + 1) * BLOCKS):
                kind = ready(source, scratch, streams, blocks, b, status)
                line = I(0)
                if kind != z.RAW:
                    line = I(blocks[b * z.BLOCK_COLUMNS])
                state = OK
                if kind < 0:
                    state = -kind
                elif kind != z.RAW:
                    o = b * z.BLOCK_COLUMNS
                    from32, to32 = (
                        source32[streams[line, S_START] >> 4 << 2 :],
                        scratch32[streams[line, S_DEST] >> 4 << 2 :],
                    )
                    from8, to8 = bytes_of(from32), bytes_of(to32)
                    if kind == z.REPEATED:
                        dest = I(blocks[o + z.Z_LITERAL_DEST])
                        for k in range(I(blocks[o + z.Z_LITERAL_SIZE])):
                            to8[dest + k] = from8[I(blocks[o + z.Z_LITERAL_AT])]
                    else:
                        found = describe(from8, blocks, b, weights, halves, U(0))
                        if found < 0:
                            state = UNSUPPORTED if found == ODD else BAD_CODE
                        else:
                            for symbol in range(found & 0xFFF):
                                weight = I(weights[WEIGHTS_AT + symbol])
                                if weight > 0:
                                    entry = I(halves[COUNTS_AT // 2 + weight])
                                    value = H(symbol | (((found >> 12) & 255) + 1 - weight) << 8)
                                    halves[COUNTS_AT // 2 + weight] = H(entry + (I(1) << (weight - 1)))
                                    for k in range(I(1) << (weight - 1)):
                                        halves[entry + k] = value
                            for way in range(min(I(blocks[o + z.Z_LITERAL_WAYS]), I(WAYS))):
                                if state == OK:
                                    state = literals(
                                        from8, from32, blocks, b, way, found, halves, words, U(0), to8, to32
                                    )
                if state != OK:
                    status[line] = state

        return alone

    @device
    def fill(way, good, found, weights, halves, words, base):
        """Fill the table of a code, four lanes together; every lane of the warp takes all turns."""
        symbols, log = I(found & 0xFFF), U(I(found >> 12) & 255)
        counts = I((base + U(COUNTS_AT)) >> U(1))
        for symbol in range(SYMBOLS):
            entry, many, weight = U(0), U(0), U(0)
            if good and symbol < symbols:
                weight = U(weights[I(base) + WEIGHTS_AT + symbol])
                if weight > U(0):
                    entry = U(halves[counts + I(weight)])
                    many = U(U(1) << U(weight - U(1)))
            cuda.syncwarp(FULL)
            if many > U(0):
                value = U(U(symbol) | U(U(log + U(1) - weight) << U(8)))
                if way == 0:
                    halves[counts + I(weight)] = H(entry + many)
                if many == U(1):
                    if way == 0:
                        halves[I(base >> U(1)) + I(entry)] = H(value)
                else:
                    value = U(value | U(value << U(16)))
                    k = U(way)
                    to = U(U(base >> U(2)) + U(entry >> U(1)))
                    while k < U(many >> U(1)):
                        words[U(to + k)] = value
                        k = U(k + U(WAYS))
            cuda.syncwarp(FULL)

    def together(lane, item, source, source32, scratch, scratch32, streams, blocks, work, status):
        words = cuda.shared.array(0, types.uint32)
        halves = cuda.shared.array(0, types.uint16)
        weights = cuda.shared.array(0, types.uint8)
        group, way = I(lane // WAYS), I(lane % WAYS)
        b = I(item) * BLOCKS + group
        kind = I(ready(source, scratch, streams, blocks, b, status))
        o = b * z.BLOCK_COLUMNS
        line = I(0)
        from32, to32 = source32, scratch32
        if kind > z.RAW:
            line = I(blocks[o])
            from32, to32 = source32[streams[line, S_START] >> 4 << 2 :], scratch32[streams[line, S_DEST] >> 4 << 2 :]
        from8, to8 = bytes_of(from32), bytes_of(to32)
        if kind == z.REPEATED:
            n, dest, k = U(blocks[o + z.Z_LITERAL_SIZE]), U(blocks[o + z.Z_LITERAL_DEST]), U(way)
            byte = from8[U(blocks[o + z.Z_LITERAL_AT])]
            while k < n:
                to8[U(dest + k)] = byte
                k = U(k + U(WAYS))
        base = U(group * SIZE)
        found = I(-1)
        if kind > z.REPEATED and way == 0:
            found = I(describe(from8, blocks, b, weights, halves, base))
        cuda.syncwarp(FULL)
        found = I(cuda.shfl_sync(FULL, found, np.int32(lane - way)))
        good = kind > z.REPEATED and found >= 0
        fill(way, good, found, weights, halves, words, base)
        state = OK
        if kind < 0:
            state = -kind
            line = I(blocks[o])
        elif kind > z.REPEATED and not good:
            state = UNSUPPORTED if found == ODD else BAD_CODE
        elif good and way < I(blocks[o + z.Z_LITERAL_WAYS]):
            state = literals(from8, from32, blocks, b, way, found, halves, words, base, to8, to32)
        if state != OK:
            status[line] = state

    return together


_u1, _u4, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32))
ARGUMENTS = (_u1, _u4, _u1, _u4, types.Array(types.int64, 2, "C"), _u4, _u4, _i4)

KERNEL = Kernel("zstd_literals", make, ARGUMENTS, lanes=WARP, threads=WARP, shared=SHARED)
