"""How a stream is decoded step by step: by one crew that also copies, or by a crew and a warp that copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import Target, shared
from zarrgpu.kernels.checksums import K_ARENA, K_FIRST, K_SIZE, K_STORED, K_VALUE
from zarrgpu.kernels.deflate_copy import make_copy
from zarrgpu.kernels.deflate_crew import make_crew
from zarrgpu.kernels.deflate_form import MAIL, Form, Layout
from zarrgpu.kernels.deflate_frames import GZIP, make_frames
from zarrgpu.kernels.deflate_input import make_input
from zarrgpu.kernels.deflate_step import END, FIXED, KIND, RUNNING, make_step
from zarrgpu.kernels.lz4 import inside
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT, SCRATCH, Status

U = np.uint32
S = np.int32

OK, SHORT = int(Status.OK), int(Status.SHORT)
UNSUPPORTED, BAD_TABLE = int(Status.UNSUPPORTED), int(Status.BAD_TABLE)


def make_advance(target: Target, layout: Layout) -> tuple[Any, Any, Any]:
    """``(begin, advance, clear)``: how to start a stream, take a step of it, and have shared memory ready."""
    device = target.device
    crew = make_crew(target, layout)
    source = make_input(target, layout, crew.sync)
    step = make_step(target, layout, crew, source)
    enter, leave = make_frames(target, layout)
    fetch, sync = source.fetch, crew.sync
    lanes, starts, upto = layout.crew, layout.starts, layout.exchange

    @device
    def clear(lane, words):
        """Empty the bitmaps and what the crew tells the copier."""
        i = U(U(starts) + lane)
        while i < U(upto):
            words[i] = U(0)
            i = U(i + U(lanes))
        sync()

    @device
    def begin(lane, from8, from32, at, end, framing):
        """The status, base, bit and first words of a stream that starts, its frame included, at byte `at`."""
        status, at = enter(lane, from8, at, end, framing)
        if status == S(OK):
            status = S(RUNNING)
        base = U(at >> U(2))
        a, b, c, d = fetch(lane, from32, base, end)
        return status, base, U(U(at & U(3)) << U(3)), a, b, c, d

    @device
    def advance(
        lane, words, halves, bytes8, from8, from32, end, framing, members, row, rows, slot, buffer, op, first, stop,
        base, pos, mode, left, segment, loaded, a, b, c, d,
    ):  # fmt: skip
        """Take a step; at the end of a stream look at what is around it.

        Gives a status, bytes made, the line of `members` that comes next, where the output of the stream that goes on
        starts, and all from `base` on.
        """
        status, made, base, pos, mode, left, segment, loaded, a, b, c, d = step(
            lane, words, halves, bytes8, from32, end, buffer, op, first, stop,
            base, pos, mode, left, segment, loaded, a, b, c, d,
        )  # fmt: skip
        if status == S(RUNNING) and U(mode & U(KIND)) == U(END):
            at = U(U(base << U(2)) + U(U(pos + U(7)) >> U(3)))
            after = U(op + made)
            status, at, value = leave(lane, from8, at, end, framing, U(after - first))
            if status == S(OK):
                if lane == U(0):
                    members[row, K_ARENA] = SCRATCH
                    members[row, K_FIRST] = slot + np.int64(first)
                    members[row, K_SIZE] = np.int64(after) - np.int64(first)
                    members[row, K_STORED] = 0
                    members[row, K_VALUE] = np.int64(value)
                row = row + 1
                first = after
                if framing != GZIP or at >= end:
                    if after != stop:
                        status = S(SHORT)
                elif row >= rows:
                    status = S(UNSUPPORTED)
                else:
                    status, base, pos, a, b, c, d = begin(lane, from8, from32, at, end, framing)
                    mode = U(mode & U(FIXED))
                    loaded = U(0)
        return status, made, row, first, base, pos, mode, left, segment, loaded, a, b, c, d

    return begin, advance, clear


def make_alone(target: Target, layout: Layout) -> Any:
    """``decode``: a crew of one warp, or lane, decodes a step and copies it."""
    device = target.device
    begin, advance, clear = make_advance(target, layout)
    copy = make_copy(target, layout)
    longest = layout.form.segment

    @device
    def decode(
        lane, words, halves, bytes8, from8, from32, at, end, to8, to32, op, stop, framing, members, row, rows, slot
    ):
        clear(lane, words)
        status, base, pos, a, b, c, d = begin(lane, from8, from32, at, end, framing)
        mode, left, segment, loaded, first = U(0), U(0), U(longest), U(0), op
        while status == S(RUNNING):
            begun = first
            status, made, row, first, base, pos, mode, left, segment, loaded, a, b, c, d = advance(
                lane, words, halves, bytes8, from8, from32, end, framing, members, row, rows, slot, U(0), op, first,
                stop, base, pos, mode, left, segment, loaded, a, b, c, d,
            )  # fmt: skip
            if made > U(0):
                copy(lane, words, bytes8, to8, to32, op, made, U(0), begun)
                op = U(op + made)
        return status

    return decode


def make_together(target: Target, layout: Layout) -> Any:
    """``decode``: a crew decodes a step while the block's last warp copies the one before."""
    cuda, device = target.cuda, target.device
    begin, advance, clear = make_advance(target, layout)
    copy = make_copy(target, layout)
    longest, crew, mail = layout.form.segment, layout.crew, layout.mail

    @device
    def decode(
        lane, words, halves, bytes8, from8, from32, at, end, to8, to32, op, stop, framing, members, row, rows, slot
    ):
        decodes = lane < U(crew)
        status, base, pos, mode, left, segment, loaded = S(OK), U(0), U(0), U(0), U(0), U(longest), U(0)
        a, b, c, d = U(0), U(0), U(0), U(0)
        first = op
        if decodes:
            clear(lane, words)
            status, base, pos, a, b, c, d = begin(lane, from8, from32, at, end, framing)
        turn = U(0)
        told, done = False, False
        while not done:
            buffer = U(turn & U(1))
            if decodes:
                if told:
                    done = True
                else:
                    made, begun = U(0), first
                    if status == S(RUNNING):
                        status, made, row, first, base, pos, mode, left, segment, loaded, a, b, c, d = advance(
                            lane, words, halves, bytes8, from8, from32, end, framing, members, row, rows, slot, buffer,
                            op, first, stop, base, pos, mode, left, segment, loaded, a, b, c, d,
                        )  # fmt: skip
                        op = U(op + made)
                    told = status != S(RUNNING)
                    if lane == U(0):
                        line = U(U(mail) + U(buffer * U(MAIL)))
                        words[line] = made
                        words[U(line + U(1))] = U(1) if told else U(0)
                        words[U(line + U(2))] = begun
            elif turn > U(0):
                line = U(U(mail) + U(U(U(1) - buffer) * U(MAIL)))
                made = U(words[line])
                if made > U(0):
                    before = U(U(1) - buffer)
                    copy(U(lane - U(crew)), words, bytes8, to8, to32, op, made, before, U(words[U(line + U(2))]))
                    op = U(op + made)
                done = words[U(line + U(1))] != U(0)
            turn = U(turn + U(1))
            cuda.syncthreads()
        return status

    return decode


def make_body(target: Target, form: Form, lanes: int) -> Any:
    """The body of a form's kernel."""
    device, bytes_of = target.device, target.bytes_of
    layout = form.layout(form.crew if lanes > 1 else 1)
    decode = make_together(target, layout) if lanes > 1 and form.copier else make_alone(target, layout)
    is_inside = device(inside)
    need = layout.words

    @device
    def guarded(
        lane,
        item,
        words,
        halves,
        bytes8,
        source,
        source32,
        scratch,
        scratch32,
        streams,
        order,
        framing,
        members,
        status,
    ):
        """Check the tables, and decode a stream between 16-byte boundaries, so that positions fit 32 bits."""
        rows = members.shape[0] // order.shape[0]
        if lane == U(0):
            for k in range(rows):
                members[item * rows + k, K_ARENA] = -1
        line = order[item]
        if line < 0 or line >= streams.shape[0]:
            return
        start, size = streams[line, S_START], streams[line, S_SIZE]
        dest, want = streams[line, S_DEST], streams[line, S_WANT]
        verdict = S(BAD_TABLE)
        good = is_inside(start, size, source.size) and is_inside(dest, want, scratch.size)
        if good and rows > 0 and words.size >= need:
            from32, to32 = source32[start >> 4 << 2 :], scratch32[dest >> 4 << 2 :]
            at, op = U(start & 15), U(dest & 15)
            if framing == GZIP and size == 0:  # no member is no byte
                verdict = S(OK) if want == 0 else S(SHORT)
            else:
                verdict = decode(
                    lane,
                    words,
                    halves,
                    bytes8,
                    bytes_of(from32),
                    from32,
                    at,
                    U(at + U(size)),
                    bytes_of(to32),
                    to32,
                    op,
                    U(op + U(want)),
                    framing,
                    members,
                    item * rows,
                    (item + 1) * rows,
                    dest >> 4 << 4,
                )
        if lane == U(0):
            status[line] = verdict

    if lanes == 1:
        halves_of = shared(target).halves_of

        def alone(lane, item, source, source32, scratch, scratch32, streams, order, framing, members, work, status):
            words = work[item * need : (item + 1) * need]
            guarded(
                U(lane), item, words, halves_of(words), bytes_of(words),
                source, source32, scratch, scratch32, streams, order, framing, members, status,
            )  # fmt: skip

        return alone

    cuda = target.cuda

    def together(lane, item, source, source32, scratch, scratch32, streams, order, framing, members, work, status):
        words = cuda.shared.array(0, types.uint32)
        halves = cuda.shared.array(0, types.uint16)
        bytes8 = cuda.shared.array(0, types.uint8)
        guarded(
            U(lane), item, words, halves, bytes8,
            source, source32, scratch, scratch32, streams, order, framing, members, status,
        )  # fmt: skip

    return together
