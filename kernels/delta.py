"""delta: runs of native integers become their inclusive prefix sums, in place; they wrap around as NumPy's do.

`kernels` gives the three kernels of an item size, to be launched one after the other with the same arguments:

===========  ================================================================================================
``groups``   int64: segments of a run, see `groups`; with a single one `ADD` alone does it all
``arena``    uint8[]: where the runs lie, which do not overlap; ``words``: its whole words, aligned: uint64[] for
             items of 8 bytes, else uint32[]
``runs``     int64[k, 2]: of each run the first byte, a multiple of the item size, and how many elements, of any
             number
``sums``     uint64[k * groups] at least: scratch, need not be cleared; not used if ``groups`` is 1
``status``   int32[k]: zeros; BAD_TABLE is written where a run lies outside the arena or at a wrong byte, or has more
             segments than ``groups``; nothing of it is changed, and nothing at all if ``sums`` is too small
===========  ================================================================================================

A run is cut into segments of `SEGMENT` bytes, counted from the word that its first byte lies in.

* `SUMS`, over ``k * groups`` items: the sum of each segment goes to ``sums``;
* `SCAN`, over ``k`` items: of each run's sums is made the sum of all segments before;
* `ADD`, over ``k * groups`` items: the prefix sums in each segment, to which that is added.

Grid: a warp an item, blocks of 256, no shared memory; a lane takes every 32nd word, four at a time. Limits: none but
int64. Source: numcodecs' ``Delta``, whose decoding is ``np.cumsum``; signed or unsigned does not matter.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import WARP, Kernel, Target
from zarrgpu.kernels.delta_words import make_edges, make_packed, make_scan, word_of
from zarrgpu.kernels.tables import Status

W = np.uint64
BAD = int(Status.BAD_TABLE)

SEGMENT: Final = 8192
"""Bytes of a segment: 16 steps of a warp, and 2**17 segments a GiB."""

FIRST: Final = 0
COUNT: Final = 1
RUN_COLUMNS: Final = 2

STEP = 4  # words of a lane that are on their way together


def reference(arena: npt.NDArray[np.uint8], runs: npt.NDArray[np.int64], itemsize: int) -> None:
    """The reference for good runs."""
    for first, count in runs.tolist():
        values = arena[first : first + count * itemsize].view(f"u{itemsize}")
        np.cumsum(values, out=values)


def groups(runs: npt.NDArray[np.int64], itemsize: int) -> int:
    """The argument ``groups``: segments of the run that has the most."""
    size = word_of(itemsize)().itemsize
    ends = runs[:, FIRST] + runs[:, COUNT] * itemsize
    words = -(-ends // size) - runs[:, FIRST] // size
    return int(-(-words.max(initial=0) * size // SEGMENT))


def make_bounds(target: Target, itemsize: int) -> Any:
    """Device function ``bounds(groups, arena, runs, sums, run) -> (good, first, end, origin, limit)``.

    The bytes `first` to `end` of a good run lie in the words `origin` to `limit`, those in `groups` segments at most.
    """
    size = word_of(itemsize)().itemsize

    @target.device
    def bounds(groups, arena, runs, sums, run):
        first, count, room = runs[run, FIRST], runs[run, COUNT], np.int64(arena.size)
        good = first >= 0 and first % itemsize == 0 and first <= room and count >= 0
        good = good and count <= (room - first) // itemsize and (groups == 1 or sums.size // groups >= runs.shape[0])
        end = first + (count * itemsize if good else np.int64(0))
        origin, limit = first // size, (end + size - 1) // size
        return good and limit - origin <= groups * (SEGMENT // size), first, end, origin, limit

    return bounds


def make_steps(target: Target, lanes: int, itemsize: int) -> tuple[Any, Any]:
    """Device functions for what a warp takes at a time: `STEP` rows of `lanes` words.

    ``take(lane, arena, words, w, stop, first, end)`` gives a lane's words of the rows from word `w` on, without what is
    not between the bytes `first` and `end`; ``give`` is the other way. No word is touched from `stop` on.
    """
    device, word = target.device, word_of(itemsize)
    size = word().itemsize
    load, store = make_edges(target, itemsize)

    @device
    def is_whole(words, w, stop, first, end):
        after = w + STEP * lanes
        return after <= stop and w * size >= first and after * size <= end and after <= words.size

    @device
    def load_before(arena, words, w, stop, first, end):
        return load(arena, words, w, first, end) if w < stop else word(0)

    @device
    def take(lane, arena, words, w, stop, first, end):
        i = w + lane
        if is_whole(words, w, stop, first, end):
            j = W(i)
            return words[j], words[j + W(lanes)], words[j + W(2 * lanes)], words[j + W(3 * lanes)]
        return (
            load_before(arena, words, i, stop, first, end),
            load_before(arena, words, i + lanes, stop, first, end),
            load_before(arena, words, i + 2 * lanes, stop, first, end),
            load_before(arena, words, i + 3 * lanes, stop, first, end),
        )

    @device
    def give(lane, arena, words, w, stop, first, end, a, b, c, d):
        i = w + lane
        if is_whole(words, w, stop, first, end):
            j = W(i)
            words[j], words[j + W(lanes)], words[j + W(2 * lanes)], words[j + W(3 * lanes)] = a, b, c, d
            return
        if i < stop:
            store(arena, words, i, first, end, a)
        if i + lanes < stop:
            store(arena, words, i + lanes, first, end, b)
        if i + 2 * lanes < stop:
            store(arena, words, i + 2 * lanes, first, end, c)
        if i + 3 * lanes < stop:
            store(arena, words, i + 3 * lanes, first, end, d)

    return take, give


def make_sums(target: Target, lanes: int, itemsize: int) -> Any:
    """The body of `SUMS`."""
    word, bounds = word_of(itemsize), make_bounds(target, itemsize)
    length = SEGMENT // word().itemsize
    plus, prefix, last, _ = make_packed(target, itemsize)
    take, _ = make_steps(target, lanes, itemsize)
    scan, final = make_scan(target, lanes, word)

    def body(lane, item, groups, arena, words, runs, sums, status):
        run = item // groups
        good, first, end, origin, limit = bounds(groups, arena, runs, sums, run)
        if not good or groups == 1:
            if not good:
                status[run] = BAD
            return
        begin = origin + (item - run * groups) * length
        stop = min(begin + length, limit)
        total = word(0)
        for w in range(begin, stop, STEP * lanes):
            a, b, c, d = take(lane, arena, words, w, stop, first, end)
            total = plus(plus(total, plus(a, b)), plus(c, d))
        total = final(scan(lane, last(prefix(total))))
        if lane == 0:
            sums[W(item)] = W(total)

    return body


def make_sum_scan(target: Target, lanes: int, itemsize: int) -> Any:
    """The body of `SCAN`: rows of a sum a lane."""
    bounds = make_bounds(target, itemsize)
    length = SEGMENT // word_of(itemsize)().itemsize
    scan, final = make_scan(target, lanes, W)

    def body(lane, item, groups, arena, words, runs, sums, status):
        good, _, _, origin, limit = bounds(groups, arena, runs, sums, item)
        if not good or groups == 1:
            return
        segments = (limit - origin + length - 1) // length
        start, carry = W(item * groups), W(0)
        ahead = sums[start + W(lane)] if lane < segments else W(0)  # loaded a turn before it is needed
        for begin in range(0, segments, lanes):
            k = begin + lane
            own = ahead
            ahead = sums[start + W(k + lanes)] if k + lanes < segments else W(0)
            total = scan(lane, own)
            if k < segments:
                sums[start + W(k)] = W(carry + W(total - own))
            carry = W(carry + final(total))

    return body


def make_add(target: Target, lanes: int, itemsize: int) -> Any:
    """The body of `ADD`: row after row, each with the sum of those before."""
    word, bounds = word_of(itemsize), make_bounds(target, itemsize)
    length, mask = SEGMENT // word().itemsize, W(2 ** (8 * word().itemsize) - 1)
    plus, prefix, last, spread = make_packed(target, itemsize)
    take, give = make_steps(target, lanes, itemsize)
    scan, final = make_scan(target, lanes, word)

    @target.device
    def row(lane, value, carry):
        """The row's prefix sums, and what to carry to the next."""
        value = prefix(value)
        own = last(value)
        total = scan(lane, own)
        return plus(value, spread(word(carry + word(total - own)))), word(carry + final(total))

    def body(lane, item, groups, arena, words, runs, sums, status):
        run = item // groups
        segment = item - run * groups
        good, first, end, origin, limit = bounds(groups, arena, runs, sums, run)
        if not good:
            status[run] = BAD
            return
        begin = origin + segment * length
        stop = min(begin + length, limit)
        carry = word(sums[W(item)] & mask) if segment > 0 and begin < stop else word(0)
        for w in range(begin, stop, STEP * lanes):
            a, b, c, d = take(lane, arena, words, w, stop, first, end)
            a, carry = row(lane, a, carry)
            b, carry = row(lane, b, carry)
            c, carry = row(lane, c, carry)
            d, carry = row(lane, d, carry)
            give(lane, arena, words, w, stop, first, end, a, b, c, d)

    return body


_u1, _u4, _u8, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32))


@cache
def kernels(itemsize: int) -> tuple[Kernel, Kernel, Kernel]:
    """`SUMS`, `SCAN` and `ADD` for integers of 1, 2, 4 or 8 bytes."""
    if itemsize not in (1, 2, 4, 8):
        raise ValueError(f"no integers have {itemsize} bytes")
    words = _u8 if itemsize == 8 else _u4
    arguments = (types.int64, _u1, words, types.Array(types.int64, 2, "C"), _u8, _i4)
    sums, scan, add = (
        Kernel(f"delta_{name}_{itemsize}", partial(make, itemsize=itemsize), arguments, lanes=WARP)
        for name, make in (("sums", make_sums), ("scan", make_sum_scan), ("add", make_add))
    )
    return sums, scan, add


KERNELS = tuple(kernel for itemsize in (1, 2, 4, 8) for kernel in kernels(itemsize))
