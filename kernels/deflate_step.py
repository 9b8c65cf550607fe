"""A step of the Deflate decoder: what a crew does with a window of the input.

1. Lanes decode segments of the window into lists of tokens, and find out which lists start where a token does, as
   `zarrgpu.kernels.deflate_agree` says.
2. A prefix sum says where the output of each lane's tokens goes.
3. Literals go to their place in a ring of the latest output. A match leaves its description there, in the first three
   of its own bytes, length - 3 and (distance - 1) + 32768, and a bit in a bitmap of the bytes that matches start at:
   enough for `zarrgpu.kernels.deflate_copy` to make the step's bytes, all of them at once.

A stored block is copied into the ring, so much a step.

Bounds. A step takes at least a token, a block's header or its end, so that the input's end is reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.deflate_agree import PATIENCE, STARTS, make_agree
from zarrgpu.kernels.deflate_codes import make_codes
from zarrgpu.kernels.deflate_crew import Crew, make_or
from zarrgpu.kernels.deflate_form import Layout
from zarrgpu.kernels.deflate_input import FULL, Input
from zarrgpu.kernels.deflate_tokens import BROKEN, ENDS, TRUNCATED
from zarrgpu.kernels.tables import Status

U = np.uint32
S = np.int32

RUNNING = -1  # in place of a status: the stream goes on
OK, CUT, BAD_HEADER = int(Status.OK), int(Status.TRUNCATED), int(Status.BAD_HEADER)
BAD_CODE, BAD_OFFSET, OVERFLOW = int(Status.BAD_CODE), int(Status.BAD_OFFSET), int(Status.OVERFLOW)

# What a step finds next, in the low bits of `mode`; three flags beside it.
HEADER, CODED, STORED, END = 0, 1, 2, 3
KIND, LAST, FIXED = 3, 4, 8  # the block is the last one; the tables are those of the fixed codes
SCORE = 4  # the bit from which on there is how many turns this block's steps took: each time a quarter is forgotten
SHORT = 16  # bits of a segment where so little output fits


def make_segment(layout: Layout) -> Any:
    """``resize(segment, bits, parts, made, full, close)``: bits of the next step's segments, by what `parts` gave.

    So many that the output is four fifths of what there is room for: what does not fit is decoded again. `full` says
    that a list was full, `close` that one nearly was.
    """
    output, most = layout.form.output, layout.form.segment

    def resize(segment, bits, parts, made, full, close):
        size = U(U(U(bits // parts) * U(output - output // 5)) // max(made, U(1)))
        size = min(min(size, U(segment << U(2))), U(most))
        if full:
            size = min(size, U(segment >> U(1)))
        elif close:
            size = min(size, segment)
        if size < U(32):
            return U(SHORT)
        return U(U(U(U(size >> U(5)) - U(1)) | U(1)) << U(5))

    return resize


def make_coded(target: Target, layout: Layout, crew: Crew, source: Input) -> Any:
    """``coded(lane, words, halves, bytes8, buffer, op, done, pos, segment, score)``: a step of a coded block.

    `op` is where the output goes, after `done` bytes of the same stream. Gives a status, bytes of output, the next bit,
    whether the block ends, bits of the next segments, and the score of turns, by which they are spread or not.
    """
    device = target.device
    limits, agree, made = make_agree(target, layout, crew, source)
    resize, set_bits = device(make_segment(layout)), make_or(target)
    lowest, pick, total = crew.lowest, crew.pick, crew.total
    lanes, slots, output = layout.crew, layout.form.slots, layout.form.output
    ring, ring_mask, lists = 4 * layout.ring, layout.ring_bytes - 1, 2 * layout.lists
    starts, starts_words = layout.starts, layout.starts_words

    @device
    def coded(lane, words, halves, bytes8, buffer, op, done, pos, segment, score):
        slow = score > U(4 * PATIENCE)
        counts, last, at, first, n, size, exit_, turns = agree(lane, words, halves, pos, segment, slow, limits(words))
        if not counts:
            n, size = U(0), U(0)
        upto, whole = total(lane, words, size)
        o = U(upto - size)
        skew = U(op & U(3))
        bitmap = U(U(starts) + U(buffer * U(starts_words)))
        stopped, bad = False, False
        k = U(0)
        i = U(U(lists) + U(first * U(lanes)) + lane)
        while k < n and not stopped:
            slot = U(halves[i])
            size = made(slot)
            if U(o + size) > U(output):
                stopped = True
            else:
                to = U(op + o)
                at = U(at + U(U(slot >> U(8)) & U(63)))
                bytes8[U(U(ring) + U(to & U(ring_mask)))] = np.uint8(slot & U(255))
                if size > U(1):
                    i = U(i + U(lanes))
                    k = U(k + U(1))
                    distance = U(halves[i])
                    bytes8[U(U(ring) + U(U(to + U(1)) & U(ring_mask)))] = np.uint8(distance & U(255))
                    bytes8[U(U(ring) + U(U(to + U(2)) & U(ring_mask)))] = np.uint8(U(distance >> U(8)) | U(128))
                    set_bits(words, U(bitmap + U(U(o + skew) >> U(5))), U(U(1) << U(U(o + skew) & U(31))))
                    bad = bad or distance >= U(done + o)
                o = U(o + size)
                k = U(k + U(1))
                i = U(i + U(lanes))
        cut = lowest(lane, words, stopped)
        close = lowest(lane, words, n > U(slots - slots // 4)) < U(lanes)
        status = S(RUNNING)
        ends, full = False, False
        before = pos
        if cut < U(lanes):
            whole = pick(lane, words, o, cut)
            pos = pick(lane, words, at, cut)
        else:
            found = pick(lane, words, exit_, last)
            pos = U(found & U(TRUNCATED - 1))
            if found & U(BROKEN):
                status = S(BAD_CODE)
            ends = found >= U(ENDS)
            full = U(found & U(TRUNCATED)) != U(0)
        if lowest(lane, words, bad) < U(lanes):
            status = S(BAD_OFFSET)
        parts = U(lanes // STARTS) if slow else U(lanes)
        segment = resize(segment, U(pos - before), parts, whole, full, close)
        if not slow:
            score = U(score - U(score >> U(2)) + turns)
        return status, whole, pos, ends, segment, score

    return coded


def make_stored(target: Target, layout: Layout, source: Input) -> Any:
    """``stored(lane, bytes8, source32, end, base, pos, op, n)``: `n` bytes from bit `pos` on into the ring at `op`."""
    device, load, joined = target.device, target.load, source.joined
    lanes, ring, ring_mask = layout.crew, 4 * layout.ring, layout.ring_bytes - 1

    @device
    def stored(lane, bytes8, source32, end, base, pos, op, n):
        at = U(base + U(pos >> U(5)))
        shift = U(pos & U(24))
        stop = U(U(end + U(3)) >> U(2))
        k = lane
        while U(k << U(2)) < n:  # two pairs in flight
            one, two = U(at + k), U(at + k + U(lanes))
            a = load(source32, one, one < stop, U(0))
            b = load(source32, U(one + U(1)), U(one + U(1)) < stop, U(0))
            c = load(source32, two, two < stop, U(0))
            d = load(source32, U(two + U(1)), U(two + U(1)) < stop, U(0))
            a, c = joined(a, b, shift), joined(c, d, shift)
            for j in range(4):
                i = U(U(k << U(2)) + U(j))
                if i < n:
                    bytes8[U(U(ring) + U(U(op + i) & U(ring_mask)))] = np.uint8(U(a >> U(8 * j)) & U(255))
                i = U(i + U(4 * lanes))
                if i < n:
                    bytes8[U(U(ring) + U(U(op + i) & U(ring_mask)))] = np.uint8(U(c >> U(8 * j)) & U(255))
            k = U(k + U(2 * lanes))

    return stored


def make_step(target: Target, layout: Layout, crew: Crew, source: Input) -> Any:
    """``step``: the next output of a stream, up to `Form.output` bytes of it."""
    device, peek, refill, fetch = target.device, source.peek, source.refill, source.fetch
    fixed, dynamic = make_codes(target, layout, crew, source)
    coded, stored = make_coded(target, layout, crew, source), make_stored(target, layout, source)
    output = layout.form.output

    @device
    def place(base, pos):
        """The byte after the one that the bit before `pos` is in."""
        return U(U(base << U(2)) + U(U(pos + U(7)) >> U(3)))

    @device
    def step(
        lane, words, halves, bytes8, source32, end, buffer, op, begin, stop,
        base, pos, mode, left, segment, loaded, a, b, c, d,
    ):  # fmt: skip
        """Take a step.

        Parameters
        ----------
        end : uint32
            Where the input ends, in bytes.
        buffer : 0 or 1
            Which bitmap is used.
        op, begin, stop : uint32
            Where output goes, where that of this stream started, where there is no more room.
        base, pos, loaded, a, b, c, d
            The input; see `zarrgpu.kernels.deflate_input`.
        mode, left, segment : uint32
            What comes next; bytes of a stored block that are left; bits of a segment.

        Returns
        -------
        status, made, then all from `base` on
        """
        status, made, ends = S(RUNNING), U(0), False
        kind = U(mode & U(KIND))
        if kind != U(STORED):
            base, pos, loaded, a, b, c, d = refill(lane, source32, words, end, base, pos, loaded, a, b, c, d)
        if kind == U(HEADER):
            head = peek(words, pos)
            pos = U(pos + U(3))
            mode = U(U(mode & U(FIXED)) | U(U(head & U(1)) << U(2)))
            coding = U(U(head >> U(1)) & U(3))
            if coding == U(3):
                status = S(BAD_HEADER)
            elif coding == U(0):
                kind = U(STORED)
                pos = U(U(pos + U(7)) & U(FULL - 7))
                head = peek(words, pos)
                pos = U(pos + U(32))
                left = U(head & U(0xFFFF))
                at = place(base, pos)
                if at > end or left > U(end - at):
                    status = S(CUT)
                elif U(head >> U(16)) != U(left ^ U(0xFFFF)):
                    status = S(BAD_HEADER)
            else:
                kind = U(CODED)
                if coding == U(1):
                    if U(mode & U(FIXED)) == U(0):
                        fixed(lane, words, bytes8)
                    mode = U(mode | U(FIXED))
                else:
                    mode = U(mode & U(LAST))
                    verdict, pos = dynamic(lane, words, bytes8, pos)
                    if verdict != S(OK):
                        status = verdict
                if place(base, pos) > end:
                    status = S(CUT)
                base, pos, loaded, a, b, c, d = refill(lane, source32, words, end, base, pos, loaded, a, b, c, d)
            mode = U(mode | kind)
        if status == S(RUNNING):
            if kind == U(CODED):
                status, made, pos, ends, segment, score = coded(
                    lane, words, halves, bytes8, buffer, op, U(op - begin), pos, segment, U(mode >> U(SCORE))
                )
                mode = U(U(mode & U(KIND | LAST | FIXED)) | U(score << U(SCORE)))
                if place(base, pos) > end:
                    status = S(CUT)
            else:
                made = min(left, U(output))
                stored(lane, bytes8, source32, end, base, pos, op, made)
                left = U(left - made)
                pos = U(pos + U(made << U(3)))
                if left == U(0):
                    ends = True
                    loaded = U(pos >> U(5))
                    a, b, c, d = fetch(lane, source32, U(base + loaded), end)
            if made > U(stop - op) and status == S(RUNNING):
                status = S(OVERFLOW)
            if ends:
                mode = U(mode & U(LAST | FIXED))
                if mode & U(LAST):
                    mode = U(mode | U(END))
        if status != S(RUNNING):
            made = U(0)
        return status, made, base, pos, mode, left, segment, loaded, a, b, c, d

    return step
