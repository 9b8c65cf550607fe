"""Where the tokens of a Deflate block's next segments start: two ways for a crew to find out.

*Agree*: each lane decodes a segment of its own from the segment's first bit on; lanes whose start is not where the lane
before ended decode again from there, until all agree. Most codes need two or three turns, since they synchronise
themselves. Where nearly all codes have the same length, which is what noise gets, they do not: every lane waits for
the one before it.

*Spread*: `STARTS` lanes decode the same segment, each from another of its first bits on, and the right ones are picked
in the order of the segments. That takes one turn, for fewer segments, whatever the codes are. Lanes of a block go over
to it when they have needed more than `PATIENCE` turns a step, those of the latest steps counting most.

Bounds. A turn makes at least one more lane right, the first one that was not, so that there are as many turns as lanes
at most. Spread lanes always have the first segment right, which starts where the step does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.deflate_crew import Crew
from zarrgpu.kernels.deflate_form import Layout
from zarrgpu.kernels.deflate_input import Input
from zarrgpu.kernels.deflate_tokens import TRUNCATED, make_lists

U = np.uint32

STARTS = 8  # bits at which a token of noise may start in a segment: its codes have 7 to 9 bits
PATIENCE = 8  # a turn takes as long as to decode one of `STARTS` times as many segments, if no list is met soon


def make_agree(target: Target, layout: Layout, crew: Crew, source: Input) -> tuple[Any, Any, Any]:
    """``(limits, starts, made)``; the outer two are those of `zarrgpu.kernels.deflate_tokens`.

    ``starts(lane, words, halves, pos, segment, slow, known)``, from bit `pos` on, spread if `slow`, gives whether this
    lane's list counts, the last lane whose does, this one's start, first slot, slots, bytes of output and exit; and how
    many turns it took.
    """
    device = target.device
    limits, run, mend, made = make_lists(target, layout, source)
    sync, previous, lowest, pick, _ = crew
    lanes, spare = layout.crew, layout.form.spare

    @device
    def agree(lane, words, halves, pos, segment, known):
        begin = U(pos + U(lane * segment))
        end = U(begin + segment)
        n, size, exit_ = run(lane, words, halves, begin, end, known)
        first, count, turn = U(spare), U(0), U(0)
        while count == U(0) and turn <= U(lanes):
            turn = U(turn + U(1))
            right = previous(lane, words, exit_, begin)
            wrong = lowest(lane, words, right != begin)
            if wrong == U(lanes):
                count = U(lanes)
            else:
                if pick(lane, words, right, wrong) >= U(TRUNCATED):  # the lane before it is right, and nothing follows
                    count = wrong
                elif right != begin and right < U(TRUNCATED):
                    first, n, size, exit_, full = mend(
                        lane, words, halves, right, end, begin, first, n, size, exit_, known
                    )
                    begin = right
                    if full:
                        n, size, exit_ = run(lane, words, halves, begin, end, known)
                        first = U(spare)
            sync()
        return lane < count, U(count - U(1)), begin, first, n, size, exit_, turn

    if lanes < 2 * STARTS:

        @device
        def alone(lane, words, halves, pos, segment, slow, known):
            return agree(lane, words, halves, pos, segment, known)

        return limits, alone, made

    @device
    def spread(lane, words, halves, pos, segment, known):
        part, start = U(lane // U(STARTS)), U(lane & U(STARTS - 1))
        begin = U(pos + U(part * segment))
        end = U(begin + segment)
        begin = U(begin + start)
        n, size, exit_ = run(lane, words, halves, begin, end, known)
        counts, last, part, going = lane == U(0), U(0), U(0), True
        while going:
            found = pick(lane, words, exit_, last)
            part = U(part + U(1))
            start = U(found - U(pos + U(part * segment)))  # large, if nothing follows
            if part == U(lanes // STARTS) or start >= U(STARTS):
                going = False
            else:
                last = U(U(part * U(STARTS)) + start)
                counts = counts or lane == last
        sync()
        return counts, last, begin, U(spare), n, size, exit_, U(1)

    @device
    def starts(lane, words, halves, pos, segment, slow, known):
        if slow:
            return spread(lane, words, halves, pos, segment, known)
        return agree(lane, words, halves, pos, segment, known)

    return limits, starts, made
