"""scatter: decoded chunks, element by element as they are, into the boxes of a strided array; `gather` is the way back.

===============  ==========================================================================================
``groups``       int64: work items of each box; items are ``boxes * groups``
``slots``        uint8[]: the arena of chunks; ``slots32``: uint32[], its whole words, 4-byte aligned
``layouts``      int64[l, 6]: ``L_BASE`` and ``L_SIZE`` say where a chunk's slot is, see `zarrgpu.kernels.tables`; the
                 other columns are not read
``boxes``        int64[b, 3 + nd], nd >= 1: see `zarrgpu.kernels.boxes`
``src_strides``  int64[nd]: elements in the chunk for a step of a box along each axis, any sign
``dst_strides``  int64[nd]: bytes in the array for the same step, any sign
``array``        uint8[]: the array's bytes; ``array32``: uint32[], its whole words, 4-byte aligned
``status``       int32[b]: zeros; `Status.BAD_TABLE` is written where a box failed, nothing elsewhere
===============  ==========================================================================================

``slots`` and ``array`` do not alias; no two elements share a byte of what is written. An element that lies outside its
slot, or the array, is skipped and its box called BAD_TABLE. Grid: a thread an item, which is `group` consecutive
elements of a box; blocks of 256, no shared memory. Limits: none but int64.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.boxes import Table, element_groups, make_place, make_total
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, B_LAYOUT, L_BASE, L_SIZE, Status

W = np.uint64
BAD = int(Status.BAD_TABLE)

_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
_table = types.Array(types.int64, 2, "C")
ARGUMENTS = (types.int64, _u1, _u4, _table, _table, _i8, _i8, _u1, _u4, _i4)


def reference(
    slots: npt.NDArray[np.uint8],
    layouts: Table,
    boxes: Table,
    src_strides: Table,
    dst_strides: Table,
    array: npt.NDArray[np.uint8],
    itemsize: int,
    to_array: bool = True,
) -> None:
    """The reference for good tables; with `to_array` false, that of `gather`."""
    for box in boxes:
        for i in np.ndindex(*(int(n) for n in box[B_COUNT:])):
            e = int(layouts[box[B_LAYOUT], L_BASE] + (box[B_FIRST] + np.dot(i, src_strides)) * itemsize)
            d = int(box[B_DEST] + np.dot(i, dst_strides))
            if to_array:
                array[d : d + itemsize] = slots[e : e + itemsize]
            else:
                slots[e : e + itemsize] = array[d : d + itemsize]


def group(itemsize: int) -> int:
    """Elements of a work item: 16 bytes of them, at least one."""
    return max(1, 16 // itemsize)


def groups(boxes: Table, itemsize: int) -> int:
    """The argument ``groups``: work items that the largest of `boxes` needs."""
    return element_groups(boxes, group(itemsize))


def make(target: Target, lanes: int, itemsize: int, to_array: bool) -> Any:
    """The body for elements of `itemsize` bytes, to the array or from it."""
    total, place = make_total(target), make_place(target)
    size = group(itemsize)

    @target.device
    def move(dst, dst32, d, src, src32, s):
        """One element, in words where it lies on words that the views hold."""
        whole = (d | s) & 3 == 0 and d + itemsize <= 4 * dst32.size and s + itemsize <= 4 * src32.size
        words = itemsize // 4 if whole else 0
        for k in range(words):
            dst32[W(d >> 2) + W(k)] = src32[W(s >> 2) + W(k)]
        for k in range(4 * words, itemsize):
            dst[W(d + k)] = src[W(s + k)]

    def body(
        lane, item, groups, slots, slots32, layouts, boxes, src_strides, dst_strides, array, array32, status
    ):  # fmt: skip
        box = item // groups
        axes = src_strides.size
        begin = (item - box * groups) * size
        end = min(begin + size, total(boxes, box, axes))
        row = boxes[box, B_LAYOUT]
        if begin >= end:
            return
        if row < 0 or row >= layouts.shape[0]:
            status[box] = BAD
            return
        base, room = layouts[row, L_BASE], layouts[row, L_SIZE]
        if base < 0 or room < 0 or base > slots.size - room:
            status[box] = BAD
            return
        elements = room // itemsize
        corner, dest = boxes[box, B_FIRST], boxes[box, B_DEST]
        e, d, column = place(boxes, box, src_strides, dst_strides, axes, begin)
        for i in range(begin, end):
            if column == boxes[box, B_COUNT + axes - 1]:
                e, d, column = place(boxes, box, src_strides, dst_strides, axes, i)
            element, at = corner + e, dest + d
            if element < 0 or element >= elements or at < 0 or at > array.size - itemsize:
                status[box] = BAD
            else:
                s = base + element * itemsize
                if to_array:
                    move(array, array32, at, slots, slots32, s)
                else:
                    move(slots, slots32, s, array, array32, at)
            e += src_strides[axes - 1]
            d += dst_strides[axes - 1]
            column += 1

    return body


@cache
def kernel(itemsize: int) -> Kernel:
    """The kernel for elements of `itemsize` bytes."""
    if itemsize < 1:
        raise ValueError(f"itemsize must be positive, not {itemsize}")
    return Kernel(f"scatter_{itemsize}", partial(make, itemsize=itemsize, to_array=True), ARGUMENTS)


KERNELS = (kernel(4), kernel(16))
