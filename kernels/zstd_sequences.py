"""Zstandard's sequences (RFC 8878, 3.1.1.3.2): the three codes of each block, then its bitstream -> ``sequences``.

========= ============================ =======================================================================
source    ``uint8[n]``                 source arena, 16-byte aligned; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]``
blocks    ``uint32[]``                 as `zarrgpu.kernels.zstd_format` says; `Z_OUT` and `Z_REPEAT` are written
numbers   ``uint32[320]``              `NUMBERS`
sequences ``uint64[]``                 written from each block's `Z_FIRST` on
work      ``uint32[]``                 on the host `WORK` words an item; 1 elsewhere
status    ``int32[s]``                 written where something is wrong
========= ============================ =======================================================================

Arrays do not overlap. An item is `BLOCKS` blocks, and a warp, alone in its thread block, with `SHARED` bytes of shared
memory. Two lanes make a block's tables, one of them decodes its sequences: each has its own window of the bitstream.
Blocks do not wait for each other, even where one uses an earlier one's code: that is made again from its description.

Statuses: `BAD_CODE`; `UNSUPPORTED`: an offset of 2^27 or more, or a block that decodes to more than it may;
`BAD_TABLE`: a line of `blocks` points outside. Streams with a status already are left out.

Bounds. All tables are full: a state of ``log`` bits is below its table's ``1 << log`` entries. A step takes 26 + 16 +
16 bits of lengths and offset and 9 + 9 + 8 of states, 84; more than 63 are taken in two views.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target, shared
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import S_START, Status
from zarrgpu.kernels.zstd_bits import make_top_bit, make_view, make_window
from zarrgpu.kernels.zstd_blocks import make_checks
from zarrgpu.kernels.zstd_fse import make_codes

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
U64 = np.uint64

BLOCKS = 16
LANES_OF_BLOCK = WARP // BLOCKS
SEGMENTS = 16  # of a window
# A block's shared memory in halves of a word: counts, which the window then takes the place of; tables; and 8 more, so
# that different blocks' tables start in different banks.
COUNTS = 8 * SEGMENTS
OFFSETS_AT, MATCHES_AT = COUNTS + (1 << z.MAX_LOG[0]), COUNTS + (1 << z.MAX_LOG[0]) + (1 << z.MAX_LOG[1])
HALVES = MATCHES_AT + (1 << z.MAX_LOG[2]) + 8
NUMBERS_SIZE = len(z.NUMBERS)
WORK = NUMBERS_SIZE + BLOCKS * HALVES // 2
SHARED = 4 * WORK
MATCH_COUNTS = 72  # where the counts of matches' lengths start; 36 are enough for each of the others

OK, BAD_CODE, BAD_TABLE = int(Status.OK), int(Status.BAD_CODE), int(Status.BAD_TABLE)
UNSUPPORTED = int(Status.UNSUPPORTED)


def make_bitstream(target: Target) -> Any:
    """``decode``: all sequences of a block, by one lane."""
    device, memory = target.device, shared(target)
    address_of, get = memory.address, memory.get
    top_bit = make_top_bit(target)
    start, advance, word = make_window(target, SEGMENTS)
    view, field = make_view(target, word)

    @device
    def decode(source, words, blocks, b, logs, at, numbers, tables, to, sequences, ring, ring_at):
        """Decode the bitstream from `at` to the block's end, with codes of so many `logs`; a status.

        Those are of literals' lengths, of offsets << 4, of matches' lengths << 8. There are no early exits, for lanes
        to stay together: every access is in range whatever the bits are, and `bad` is kept to the end.
        """
        o = I(b) * z.BLOCK_COLUMNS
        end = I(blocks[o + z.Z_START]) + I(blocks[o + z.Z_SIZE])
        log_l, log_o, log_m = U(U(logs) & U(15)), U(U(U(logs) >> U(4)) & U(15)), U(U(U(logs) >> U(8)) & U(15))
        n = I(end - at)
        if n < 1 or source[end - 1] == 0:
            return BAD_CODE
        low = U((at & 3) * 8)
        bits = U(I(low) + (n - 1) * 8 + I(top_bit(U(source[end - 1]))))
        states = U(log_l + log_o + log_m)
        if bits < U(low + states):
            return BAD_CODE
        lowest = U(U(at >> 2) - U(1))
        top = U(lowest + U(U(bits + U(31)) >> U(5)))
        segment = start(words, ring, ring_at, top, lowest)
        window, lengths = address_of(ring, ring_at), address_of(numbers, U(0))
        table_l = address_of(tables, to)
        table_o, table_m = (
            address_of(tables, U(to + U(OFFSETS_AT - COUNTS))),
            address_of(tables, U(to + U(MATCHES_AT - COUNTS))),
        )
        size_l, size_o, size_m = U(U(1) << log_l), U(U(1) << log_o), U(U(1) << log_m)
        seen = view(words, ring, window, top, bits)
        entry_l = U(get(tables, table_l, field(seen, log_l, log_l)))
        entry_o = U(get(tables, table_o, field(seen, U(log_l + log_o), log_o)))
        entry_m = U(get(tables, table_m, field(seen, states, log_m)))
        bits = U(bits - states)
        top = U(lowest + U(U(bits + U(31)) >> U(5)))
        seen = view(words, ring, window, top, bits)
        k = U(blocks[o + z.Z_FIRST])
        last = U(k + U(blocks[o + z.Z_SEQUENCES]))
        literals, most = U(blocks[o + z.Z_LITERAL_SIZE]), U(blocks[o + z.Z_MOST])
        r1, r2, r3 = U(z.SYMBOLIC), U(z.SYMBOLIC | 1 << 20), U(z.SYMBOLIC | 2 << 20)
        if U(blocks[o + z.Z_ENDS]) & U(z.FIRST):
            r1, r2, r3 = U(z.FIRST_REPEATS[0]), U(z.FIRST_REPEATS[1]), U(z.FIRST_REPEATS[2])
        made, used = U(0), U(0)
        bad, odd = False, False
        while k < last:
            length_l = U(get(numbers, lengths, U(entry_l & U(63))))
            length_m = U(get(numbers, lengths, U(U(z.MATCHES_AT) + U(entry_m & U(63)))))
            n_o, n_m, n_l = U(entry_o & U(63)), U(length_m >> U(24)), U(length_l >> U(24))
            x_l, x_o, x_m = U(entry_l >> U(6)), U(entry_o >> U(6)), U(entry_m >> U(6))
            bits_l, bits_o, bits_m = U(log_l - top_bit(x_l)), U(log_o - top_bit(x_o)), U(log_m - top_bit(x_m))
            to_m = U(n_o + n_m)
            to_l = U(to_m + n_l)
            extra_o, extra_m, extra_l = field(seen, n_o, n_o), field(seen, to_m, n_m), field(seen, to_l, n_l)
            if U(to_l + U(bits_l + bits_o + bits_m)) > U(63):  # rare: the states are in the next view
                bad = bad or bits < U(low + to_l)
                bits = U(bits - to_l)
                top = U(lowest + U(U(bits + U(31)) >> U(5)))
                seen = view(words, ring, window, top, bits)
                to_l = U(0)
            end_l = U(to_l + bits_l)
            end_m = U(end_l + bits_m)
            end_o = U(end_m + bits_o)
            state_l = U(U(U(x_l << bits_l) - size_l) + field(seen, end_l, bits_l))
            state_m = U(U(U(x_m << bits_m) - size_m) + field(seen, end_m, bits_m))
            state_o = U(U(U(x_o << bits_o) - size_o) + field(seen, end_o, bits_o))
            if U(k + U(1)) == last:  # no states follow the last sequence
                end_o = to_l
            bad = bad or bits < U(low + end_o)
            odd = odd or n_o > U(z.MAX_OFFSET_CODE)
            bits = U(bits - end_o)
            # The next sequence's loads are on their way while this one is finished.
            entry_l = U(get(tables, table_l, state_l))
            entry_o = U(get(tables, table_o, state_o))
            entry_m = U(get(tables, table_m, state_m))
            top = U(lowest + U(U(bits + U(31)) >> U(5)))
            seen = view(words, ring, window, top, bits)
            segment = advance(words, ring, window, top, lowest, segment)
            run = U(U(length_l & U(0xFFFFFF)) + extra_l)
            match = U(U(length_m & U(0xFFFFFF)) + extra_m)
            value = U(U(U(1) << n_o) + extra_o)
            which = value  # 1, 2, 3: that repeat offset; 4: the first one less 1; 5: a new one
            if run == U(0):
                which = U(which + U(1))
            if value > U(3):
                which = U(5)
            offset = U(value - U(3))
            less = U(r1 - U(1))
            if r1 >= U(z.SYMBOLIC):
                less = U(r1 + U(1))
            if which == U(4):
                offset = less
            if which == U(3):
                offset = r3
            if which == U(2):
                offset = r2
            if which == U(1):
                offset = r1
            if which > U(2):
                r3 = r2
            if which > U(1):
                r2 = r1
            r1 = offset
            used = U(used + run)
            made = U(made + U(run + match))
            bad = bad or used > literals
            odd = odd or made > most
            sequences[k] = (U64(made) << U64(46)) | (U64(used) << U64(28)) | U64(offset & U(0xFFFFFFF))
            k = U(k + U(1))
        if odd:
            return UNSUPPORTED
        if bad or bits != low:
            return BAD_CODE
        made = U(made + U(literals - used))
        if made > most:
            return UNSUPPORTED
        blocks[o + z.Z_OUT] = made
        blocks[o + z.Z_REPEAT], blocks[o + z.Z_REPEAT + 1], blocks[o + z.Z_REPEAT + 2] = r1, r2, r3
        return OK

    return decode


def make_ready(target: Target) -> Any:
    """``ready(...)``: whether a block has sequences to decode, and all that its line points to is there."""
    _, is_input, _ = make_checks(target)

    @target.device
    def ready(source, streams, blocks, b, sequences, status):
        """`OK`, 1 where there is nothing to do, or `BAD_TABLE`, negative."""
        o = b * z.BLOCK_COLUMNS
        if (b + 1) * z.BLOCK_COLUMNS > blocks.size or blocks[o + z.Z_SEQUENCES] == 0:
            return 1
        if blocks[o + z.Z_STREAM] >= streams.shape[0] or status[I(blocks[o + z.Z_STREAM])] != OK:
            return 1
        if not is_input(blocks, b, streams, source.size):
            return -BAD_TABLE
        for kind in range(3):
            back = I(blocks[o + z.Z_CODES + kind])
            if back > 0:
                same = blocks[o + z.Z_STREAM] == blocks[(b - back) * z.BLOCK_COLUMNS + z.Z_STREAM]
                if not same or not is_input(blocks, b - back, streams, source.size):
                    return -BAD_TABLE
        if I(blocks[o + z.Z_FIRST]) + I(blocks[o + z.Z_SEQUENCES]) > sequences.size:
            return -BAD_TABLE
        return 0

    return ready


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`."""
    cuda, device, bytes_of = target.cuda, target.device, target.bytes_of
    decode, code, ready = make_bitstream(target), make_codes(target), make_ready(target)

    @device
    def word_of(streams, blocks, b):
        """The source arena's word that a block's positions count from."""
        return streams[I(blocks[b * z.BLOCK_COLUMNS]), S_START] >> 4 << 2

    if lanes == 1:
        halves_of = shared(target).halves_of

        def alone(lane, item, source, source32, streams, blocks, numbers, sequences, work, status):
            words = work[item * WORK : (item + 1) * WORK]
            halves = halves_of(words)
            for b in range(item * BLOCKS, (item + 1) * BLOCKS):
                state = ready(source, streams, blocks, b, sequences, status)
                if state == 0:
                    from32 = source32[word_of(streams, blocks, b) :]
                    from8 = bytes_of(from32)
                    l = code(from8, blocks, b, 0, numbers, halves, U(COUNTS), halves, U(0))  # noqa: E741  # as o and m
                    o = code(from8, blocks, b, 1, numbers, halves, U(OFFSETS_AT), halves, U(0))
                    m = code(from8, blocks, b, 2, numbers, halves, U(MATCHES_AT), halves, U(0))
                    state = BAD_CODE
                    if l >= 0 and o >= 0 and m >= 0:
                        logs = (l & 15) | (o & 15) << 4 | (m & 15) << 8
                        state = decode(
                            from8, from32, blocks, b, logs, m >> 4, numbers, halves, U(COUNTS), sequences, words, U(0)
                        )
                    if state != OK:
                        status[I(blocks[b * z.BLOCK_COLUMNS])] = state
                elif state < 0:
                    status[I(blocks[b * z.BLOCK_COLUMNS])] = -state

        return alone

    def together(lane, item, source, source32, streams, blocks, numbers, sequences, work, status):
        words = cuda.shared.array(0, types.uint32)
        halves = cuda.shared.array(0, types.uint16)
        k = U(lane)
        while k < U(NUMBERS_SIZE):
            words[k] = numbers[k]
            k = U(k + U(WARP))
        cuda.syncwarp(FULL)
        group, part = I(lane // LANES_OF_BLOCK), I(lane % LANES_OF_BLOCK)
        b = I(item) * BLOCKS + group
        state = ready(source, streams, blocks, b, sequences, status)
        base = U(2 * NUMBERS_SIZE + group * HALVES)
        from32 = source32
        if state == 0:
            from32 = source32[word_of(streams, blocks, b) :]
        from8 = bytes_of(from32)
        mine, other = I(-1), I(-1)
        if state == 0:
            for turn in range(2 - part):  # lane 0: literals' lengths, then offsets; lane 1: matches' lengths
                kind = I(2) if part == 1 else I(turn)
                to, counts = U(base + U(COUNTS)), base
                if kind == 1:
                    to = U(base + U(OFFSETS_AT))
                elif kind == 2:
                    to, counts = U(base + U(MATCHES_AT)), U(base + U(MATCH_COUNTS))
                mine, other = code(from8, blocks, b, kind, words, halves, to, halves, counts), mine
        cuda.syncwarp(FULL)
        m = I(cuda.shfl_down_sync(FULL, mine, 1))
        if part == 0:
            if state == 0:
                state = BAD_CODE
                if mine >= 0 and other >= 0 and m >= 0:
                    logs = (other & 15) | (mine & 15) << 4 | (m & 15) << 8
                    to = U(base + U(COUNTS))
                    ring = U(base >> U(1))
                    state = decode(from8, from32, blocks, b, logs, m >> 4, words, halves, to, sequences, words, ring)
                if state != OK:
                    status[I(blocks[b * z.BLOCK_COLUMNS])] = state
            elif state < 0:
                status[I(blocks[b * z.BLOCK_COLUMNS])] = -state

    return together


_u1, _u4, _u8, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32))
ARGUMENTS = (_u1, _u4, types.Array(types.int64, 2, "C"), _u4, _u4, _u8, _u4, _i4)

KERNEL = Kernel("zstd_sequences", make, ARGUMENTS, lanes=WARP, threads=WARP, shared=SHARED)
