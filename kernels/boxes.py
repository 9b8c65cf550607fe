"""Boxes: the index arithmetic that planners and kernels over the ``boxes`` table share.

A strided box (see `zarrgpu.kernels.tables`) has the extents ``boxes[b, B_COUNT:]``. Its element at the indices ``i`` is

* element ``boxes[b, B_FIRST] + sum(i * src_strides)`` of a chunk, with strides in elements of any sign or order, so
  that Fortran order, transposes, steps and reversals are nothing but strides,
* the bytes from ``boxes[b, B_DEST] + sum(i * dst_strides)`` in the output, with strides in bytes.

An indexed box has a line for each axis behind its extents. Where axis ``k`` has the line ``n``, not `STRIDED`, its
addends are the columns of ``gather[n + i[k]]`` instead. A selection by one array for each axis has a box of as many
axes in each chunk, and lines that boxes share; a selection of points has boxes of one axis.

Boxes have one axis at least. Their elements are counted in C order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import Target
from zarrgpu.kernels.tables import B_COUNT, G_BYTE, G_ELEMENT, STRIDED

Table = npt.NDArray[np.int64]
W = np.uint64


def is_indexed(boxes: Table, axes: int) -> bool:
    """Whether boxes of so many axes have lines of a gather table behind their extents."""
    return int(boxes.shape[1]) == B_COUNT + 2 * axes


def offsets(box: Table, src_strides: Table, dst_strides: Table, gather: Table | None = None) -> Table:
    """The reference for what kernels add: the elements and bytes from a box's first to each, ``int64[n, 2]``."""
    axes = src_strides.size
    total = np.zeros((1, 2), np.int64)
    for k in range(axes):
        count, line = int(box[B_COUNT + k]), STRIDED if gather is None else int(box[B_COUNT + axes + k])
        if gather is None or line == STRIDED:
            along = np.outer(np.arange(count), (src_strides[k], dst_strides[k]))
        else:
            along = gather[line : line + count, [G_ELEMENT, G_BYTE]]
        total = (total[:, None] + along).reshape(-1, 2)
    return total


def merge_axes(boxes: Table, src_strides: Table, dst_strides: Table) -> tuple[Table, Table, Table]:
    """The same boxes with as few axes as their strides allow, at least one.

    An axis that counts 1 in every box is dropped. Two neighbours become one where a step of the outer is as far as the
    whole inner one, in chunk and output, and the inner counts the same in every box. Whole chunks of a C-order array
    thereby have one axis if they span the array in all axes but one.

    Parameters
    ----------
    boxes : int64[b, 3 + nd]
    src_strides : int64[nd]
        In elements.
    dst_strides : int64[nd]
        In bytes.

    Returns
    -------
    boxes, src_strides, dst_strides : the same, with fewer axes; not written to, but maybe shared with the arguments
    """
    counts = boxes[:, B_COUNT:]
    kept = np.flatnonzero((counts != 1).any(axis=0))
    if kept.size == 0:
        kept = np.array([counts.shape[1] - 1])
    columns: list[Table] = []  # innermost first, as the strides
    sources: list[int] = []
    targets: list[int] = []
    for k in kept[::-1]:
        inner = int(columns[-1][0]) if columns and len(boxes) else 0
        if (
            inner > 0
            and bool((columns[-1] == inner).all())
            and src_strides[k] == sources[-1] * inner
            and dst_strides[k] == targets[-1] * inner
        ):
            columns[-1] = columns[-1] * counts[:, k]
        else:
            columns.append(counts[:, k])
            sources.append(int(src_strides[k]))
            targets.append(int(dst_strides[k]))
    merged = np.column_stack([boxes[:, :B_COUNT], *columns[::-1]])
    return merged, np.array(sources[::-1], np.int64), np.array(targets[::-1], np.int64)


def cut_gather(
    boxes: Table, src_strides: Table, dst_strides: Table, gather: Table
) -> tuple[Table, Table, Table, Table]:
    """The same indexed boxes, with no more axes and lines of `gather` than they need.

    A strided axis that counts 1 in every box is dropped, if another is left. A few boxes of a large selection thereby
    take a small table with them.

    Parameters
    ----------
    boxes : int64[b, 3 + 2 * nd], b >= 1
    src_strides : int64[nd]
        In elements.
    dst_strides : int64[nd]
        In bytes.
    gather : int64[m, 2]

    Returns
    -------
    boxes, src_strides, dst_strides, gather : the same; not written to, but maybe shared with the arguments

    Raises
    ------
    ValueError
        For lines outside `gather`.
    """
    counts, lines = np.split(boxes[:, B_COUNT:], 2, axis=1)
    used = lines != STRIDED
    kept = np.flatnonzero((used | (counts != 1)).any(axis=0))
    if kept.size == 0:
        kept = np.array([counts.shape[1] - 1])
    first = int(lines.min(where=used, initial=len(gather)))
    last = int((lines + counts).max(where=used, initial=first))
    if first < 0 or last > len(gather):
        raise ValueError(f"boxes take lines {first} to {last} of a gather table of {len(gather)}")
    lines = np.where(used, lines - first, STRIDED)
    fewer = np.column_stack([boxes[:, :B_COUNT], counts[:, kept], lines[:, kept]])
    return fewer, src_strides[kept], dst_strides[kept], gather[first:last]


def element_groups(boxes: Table, group: int, indexed: bool = False) -> int:
    """How many groups of `group` elements the largest box needs; groups do not share a box."""
    if len(boxes) == 0:
        return 0
    axes = (boxes.shape[1] - B_COUNT) // (2 if indexed else 1)
    return int(-(-boxes[:, B_COUNT : B_COUNT + axes].prod(axis=1).max() // group))


def make_total(target: Target) -> Any:
    """Device function ``total(boxes, box, axes) -> int64``: elements of a box along its first `axes` axes."""

    @target.device
    def total(boxes, box, axes):
        elements = np.int64(1)
        for k in range(axes):
            if boxes[box, B_COUNT + k] <= 0:
                return np.int64(0)
            elements *= boxes[box, B_COUNT + k]
        return elements

    return total


def make_place(target: Target, unsigned: Any = W) -> Any:
    """Device function ``place(boxes, box, src_strides, dst_strides, axes, e) -> (elements, bytes, column)``.

    How far element `e` (int64, not negative) of a box's first `axes` axes lies from the box's first element, in the
    chunk and in the output; `column` is its index along the last of them. Divides in the type `unsigned`, but not for
    the outermost axis: one axis needs no division.
    """

    @target.device
    def place(boxes, box, src_strides, dst_strides, axes, e):
        elements, offset, column = np.int64(0), np.int64(0), np.int64(0)
        rest = unsigned(e)
        k = axes - 1
        while rest != unsigned(0):  # at the latest the outermost axis takes all of it
            i, outer = rest, unsigned(0)
            if k > 0:
                count = unsigned(boxes[box, B_COUNT + k])
                outer = unsigned(rest // count)
                i = unsigned(rest - outer * count)
            if k == axes - 1:
                column = np.int64(i)
            elements += np.int64(i) * src_strides[k]
            offset += np.int64(i) * dst_strides[k]
            rest = outer
            k -= 1
        return elements, offset, column

    return place


def make_find(target: Target) -> Any:
    """Device function ``find(boxes, box, src_strides, dst_strides, gather, axes, e) -> (elements, bytes, found)``.

    The same of an indexed box, all of whose axes count, whichever the element; not `found` where a line of it lies
    outside ``gather``.
    """

    @target.device
    def find(boxes, box, src_strides, dst_strides, gather, axes, e):
        elements, offset, found = np.int64(0), np.int64(0), True
        rest = W(e)
        for k in range(axes - 1, -1, -1):
            i, outer = rest, W(0)
            if k > 0:
                count = W(boxes[box, B_COUNT + k])
                outer = W(rest // count)
                i = W(rest - outer * count)
            line = boxes[box, B_COUNT + axes + k]
            if line == STRIDED:
                elements += np.int64(i) * src_strides[k]
                offset += np.int64(i) * dst_strides[k]
            elif line >= 0 and np.int64(i) < gather.shape[0] - line:
                elements += gather[W(line) + i, G_ELEMENT]
                offset += gather[W(line) + i, G_BYTE]
            else:
                found = False
            rest = outer
        return elements, offset, found

    return find
