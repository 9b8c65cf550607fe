"""box_loop: a work item's elements of a box, one after the other, each with its place in chunk and output.

What kernels that copy boxes element by element share; they differ in how they write one. An item is so many consecutive
elements of one box, counted in C order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.boxes import make_find, make_place, make_total
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, Status

OK, BAD = int(Status.OK), int(Status.BAD_TABLE)


def make_span(target: Target, group: int) -> Any:
    """Device function ``span(item, groups, boxes, axes) -> (box, begin, end)``: an item's elements of its box."""
    total = make_total(target)

    @target.device
    def span(item, groups, boxes, axes):
        box = item // groups
        begin = (item - box * groups) * group
        return box, begin, min(begin + group, total(boxes, box, axes))

    return span


def make_loop(target: Target, itemsize: int, write: Any, indexed: bool = False) -> Any:
    """Device function ``loop(boxes, box, begin, end, steps, elements, nbytes, status, context)``.

    Calls ``write(context, e, d) -> status`` for the elements from `begin` to `end` of a box: element `e` of a chunk of
    `elements`, which has it, and byte `d` of an output of `nbytes`, which has `itemsize` bytes there. A chunk that is
    missing has -1 `elements`, and any `e`. An element that lies elsewhere is skipped, and its box called BAD_TABLE.

    The tuple `steps` is ``(src_strides, dst_strides)``, and ``(src_strides, dst_strides, gather)`` if boxes are
    `indexed`.
    """
    device = target.device
    place, find = make_place(target), make_find(target)

    @device
    def strided(boxes, box, steps, i, e, d, column):
        """Where element `i` is, that before it being at `e`, `d` and `column` of a row; whether it is anywhere."""
        src_strides, dst_strides = steps
        axes = src_strides.size
        column += 1
        if column == boxes[box, B_COUNT + axes - 1]:
            e, d, column = place(boxes, box, src_strides, dst_strides, axes, i)
        else:
            e, d = e + src_strides[axes - 1], d + dst_strides[axes - 1]
        return e, d, column, True

    @device
    def by_index(boxes, box, steps, i, e, d, column):
        src_strides, dst_strides, gather = steps
        e, d, found = find(boxes, box, src_strides, dst_strides, gather, src_strides.size, i)
        return e, d, column, found

    next_place = by_index if indexed else strided

    @device
    def loop(boxes, box, begin, end, steps, elements, nbytes, status, context):
        corner, dest = boxes[box, B_FIRST], boxes[box, B_DEST]
        e, d, column = np.int64(0), np.int64(0), boxes[box, B_COUNT + steps[0].size - 1] - 1  # as at a row's end
        for i in range(begin, end):
            e, d, column, found = next_place(boxes, box, steps, i, e, d, column)
            element, at = corner + e, dest + d
            outside = elements >= 0 and (element < 0 or element >= elements)
            if not found or outside or at < 0 or at > nbytes - itemsize:
                status[box] = BAD
            else:
                wrong = write(context, element, at)
                if wrong != OK:
                    status[box] = wrong

    return loop
