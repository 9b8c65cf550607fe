"""Selections -> boxes: which elements of which chunk go where in the output. Pure host code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zarrgpu.errors import UnsupportedError
from zarrgpu.selection import Axis, Index, Orthogonal, Points, Selection

BYTE, BOX = 2, 3
"""Columns of a box, known here without importing kernels: `tables.B_DEST`, and `tables.B_COUNT`, its first extent."""

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """The boxes of a request, one for each chunk that it touches.

    Attributes
    ----------
    owner : int64[n]
        Which of the planned selections chunk ``i`` belongs to.
    grid : int64[n, ndim]
        Coordinates of chunk ``i`` in the grid of what that selection selects from.
    boxes : int64[n, 3 + nd] or int64[n, 3 + 2 * nd]
        As in `zarrgpu.kernels.tables`; box ``i`` reads chunk ``i``. The wider ones are indexed.
    src_strides : int64[nd]
        Elements of the chunk between neighbours of a box, along each axis of the array.
    dst_strides : int64[nd]
        Bytes of the output between them; 0 along an axis that an integer selected.
    gather : int64[m, 2] or None
        The lines that indexed boxes name: elements of the chunk, bytes of the output.
    """

    owner: Table
    grid: Table
    boxes: Table
    src_strides: Table
    dst_strides: Table
    gather: Table | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    @classmethod
    def line(cls, n: int, elements: int, itemsize: int, step: int) -> Plan:
        """`n` chunks of so many elements, one after the other, `step` bytes apart."""
        boxes = np.zeros((n, BOX + 1), np.int64)
        boxes[:, 0], boxes[:, BYTE], boxes[:, BOX] = np.arange(n), step * np.arange(n), elements
        return cls(
            np.arange(n), np.empty((n, 0), np.int64), boxes, np.ones(1, np.int64), np.full(1, itemsize, np.int64)
        )

    def part(self, chunks: Table) -> tuple[Table, Table | None]:
        """The boxes of some chunks, and the lines that they name, numbered from the first of them."""
        boxes, nd = self.boxes[chunks], len(self.src_strides)
        if self.gather is None:
            return boxes, None
        line, extent = boxes[:, BOX + nd :], boxes[:, BOX : BOX + nd]
        indexed = line >= 0
        first, last = (int(f()) for f in (line[indexed].min, (line + extent)[indexed].max)) if indexed.any() else (0, 0)
        line[indexed] -= first
        return boxes, self.gather[first:last]

    def reordered(self, order: Table) -> Plan:
        """The same plan, its chunks in another order."""
        boxes = self.boxes[order]
        boxes[:, 0] = np.arange(len(boxes))
        return Plan(self.owner[order], self.grid[order], boxes, self.src_strides, self.dst_strides, self.gather)


def plan(
    selections: Sequence[Selection] | Orthogonal,
    shape: Sequence[int],
    chunks: Sequence[int],
    chunk_strides: Sequence[int],
    out_strides: Sequence[int],
) -> Plan:
    """Plan selections from things of one shape, such as an array or shards, each on its regular grid of chunks.

    Parameters
    ----------
    selections : sequence of Selection, or Orthogonal
        Orthogonal ones or points, not both.
    shape, chunks : sequence of int
        Shape of what each of them selects from, and of its chunks.
    chunk_strides : sequence of int
        Strides of a decoded chunk, in elements.
    out_strides : sequence of int
        Strides of the output in bytes, one for each axis that is not dropped.

    Returns
    -------
    Plan
        Its boxes in the order of `selections`, those of each in C order of the grid.

    Raises
    ------
    UnsupportedError
        For selections that do not fit together, or not the output.
    """
    gather = _Gather()
    if not isinstance(selections, Orthogonal):
        if any(isinstance(s, Points) for s in selections):
            return _plan_points(selections, chunks, chunk_strides, out_strides, gather)
        selections = Orthogonal.of([s for s in selections if not isinstance(s, Points)], len(shape))
    axes, which = selections.axes, selections.which
    first = [[several[i] for several, i in zip(axes, line, strict=True)] for line in which[:1].tolist()]
    dst = _out_strides(first[0], out_strides) if first else [0] * len(chunks)
    steps = [next((a.step for a in several if _strides(a)), 1) for several in axes]  # type: ignore[union-attr]  # an Axis
    along = [stride * step for stride, step in zip(chunk_strides, steps, strict=True)]
    alone = tuple(shape) == tuple(chunks) and all(isinstance(a, Axis) for several in axes for a in several)
    if alone and all(a.step == step or a.count < 2 for several, step in zip(axes, steps, strict=True) for a in several):  # type: ignore[union-attr]  # an Axis
        boxes = _whole_chunks(selections, chunk_strides, dst)
        return _finished(
            np.arange(len(boxes)), np.zeros((len(boxes), len(chunks)), np.int64), boxes, along, dst, gather
        )
    columns = [
        [_column(_strided(a, step), size, src, to, gather) for a in several]
        for several, step, size, src, to in zip(axes, steps, chunks, chunk_strides, dst, strict=True)
    ]
    grids, parts = [np.empty((0, len(chunks)), np.int64)], [np.empty((0, BOX + 2 * len(chunks)), np.int64)]
    for line in which.tolist():
        grid, boxes = _product([several[i] for several, i in zip(columns, line, strict=True)])
        grids.append(grid)
        parts.append(boxes)
    owner = np.repeat(np.arange(len(which)), [len(part) for part in parts[1:]])
    return _finished(owner, np.concatenate(grids), np.concatenate(parts), along, dst, gather)


class _Gather:
    """A table of lines that grows."""

    def __init__(self) -> None:
        self.parts: list[Table] = []
        self.size = 0

    def add(self, elements: Table, offsets: Table) -> int:
        """Append lines; gives the first one's number."""
        first = self.size
        self.parts.append(np.column_stack([elements, offsets]))
        self.size += len(elements)
        return first


class _Column(NamedTuple):
    """The chunks that a selection touches along one axis; a line for each.

    Attributes
    ----------
    chunk : int64[c]
        Coordinate of the chunk.
    element, byte : int64[c]
        Where its first element lies in the chunk (in elements), and in the output.
    extent, line : int64[c]
        How many elements there are, and their first line in the gather table, -1 where they are strided.
    """

    chunk: Table
    element: Table
    byte: Table
    extent: Table
    line: Table


def _column(axis: Axis | Index, size: int, src: int, dst: int, gather: _Gather) -> _Column:
    if isinstance(axis, Index):
        chunk = axis.positions // size
        order = np.argsort(chunk, kind="stable")
        chunk = chunk[order]
        first, count = _runs(chunk)
        line = gather.add((axis.positions[order] - chunk * size) * src, axis.targets[order] * dst)
        zero = np.zeros_like(first)
        return _Column(chunk[first], zero, zero, count, line + first)
    last = axis.start + (axis.count - 1) * axis.step
    chunk = np.arange(axis.start // size, last // size + 1 if axis.count else axis.start // size, dtype=np.int64)
    before = np.maximum(0, -(-(chunk * size - axis.start) // axis.step))  # selected elements in earlier chunks
    after = np.minimum(axis.count, -(-((chunk + 1) * size - axis.start) // axis.step))
    hit = after > before  # a step longer than a chunk skips some
    chunk, before, after = chunk[hit], before[hit], after[hit]
    first = axis.start + before * axis.step - chunk * size
    return _Column(chunk, first * src, (axis.target + before) * dst, after - before, np.full_like(chunk, -1))


def _runs(values: Table) -> tuple[Table, Table]:
    """First places and lengths of the runs of equal values."""
    first = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return first, np.diff(first, append=len(values))


def _product(columns: Sequence[_Column]) -> tuple[Table, Table]:
    """Grid coordinates and indexed boxes of all combinations of chunks, in C order."""
    ndim, shape = len(columns), tuple(len(c.chunk) for c in columns)
    n = math.prod(shape)
    grid, boxes = np.empty((n, ndim), np.int64), np.zeros((n, BOX + 2 * ndim), np.int64)
    for k, column in enumerate(columns):
        where = np.broadcast_to(np.arange(shape[k]).reshape([-1 if i == k else 1 for i in range(ndim)]), shape).ravel()
        grid[:, k] = column.chunk[where]
        boxes[:, 1] += column.element[where]
        boxes[:, BYTE] += column.byte[where]
        boxes[:, BOX + k] = column.extent[where]
        boxes[:, BOX + ndim + k] = column.line[where]
    return grid, boxes


def _whole_chunks(selections: Orthogonal, strides: Sequence[int], dst: Sequence[int]) -> Table:
    """Boxes of selections that each select from one chunk, by axes alone: what zarr asks for a chunk at a time."""
    ndim = len(strides)
    boxes = np.full((len(selections), BOX + 2 * ndim), -1)
    boxes[:, 1 : BYTE + 1] = 0
    for k, (several, src, to) in enumerate(zip(selections.axes, strides, dst, strict=True)):
        lines = [(a.start * src, a.target * to, a.count) for a in several]  # type: ignore[union-attr]  # an Axis
        table = np.array(lines, np.int64).reshape(-1, 3)[selections.which[:, k]]
        boxes[:, 1 : BYTE + 1] += table[:, :2]
        boxes[:, BOX + k] = table[:, 2]
    return boxes


def _plan_points(
    selections: Sequence[Selection],
    chunks: Sequence[int],
    chunk_strides: Sequence[int],
    out_strides: Sequence[int],
    gather: _Gather,
) -> Plan:
    """Plan points: boxes of one axis, of the points in one chunk each."""
    if len(out_strides) != 1:
        raise UnsupportedError("points with an output of several axes")
    size, strides = np.array(chunks)[:, None], np.array(chunk_strides)
    owners, grids, parts = [], [], []
    for i, points in enumerate(selections):
        if not isinstance(points, Points):
            raise UnsupportedError("points beside other selections")
        chunk = points.coordinates // size
        order = np.lexsort(chunk[::-1])
        chunk = chunk[:, order]
        new = (np.diff(chunk, axis=1) != 0).any(axis=0)
        first, count = _runs(np.concatenate([np.zeros(min(1, len(order)), np.int64), np.cumsum(new)]))
        elements = strides @ (points.coordinates[:, order] - chunk * size)
        line = gather.add(elements, points.targets[order] * out_strides[0])
        boxes = np.zeros((len(first), BOX + 2), np.int64)
        boxes[:, BOX], boxes[:, BOX + 1] = count, line + first
        owners.append(np.full(len(first), i))
        grids.append(chunk[:, first].T)
        parts.append(boxes)
    every = np.concatenate(owners), np.concatenate(grids), np.concatenate(parts)
    return _finished(*every, [0], [0], gather)


def _finished(owner: Table, grid: Table, boxes: Table, src: Sequence[int], dst: Sequence[int], gather: _Gather) -> Plan:
    nd = len(src)
    boxes[:, 0] = np.arange(len(boxes))
    src_strides, dst_strides = np.array(src, np.int64), np.array(dst, np.int64)
    if gather.size:
        return Plan(owner, grid, boxes, src_strides, dst_strides, np.concatenate(gather.parts))
    boxes = boxes[:, : BOX + nd]
    if nd == 0:  # kernels want an axis: one of a single element
        boxes, src_strides, dst_strides = (
            np.pad(boxes, ((0, 0), (0, 1)), constant_values=1),
            np.ones(1, np.int64),
            np.zeros(1, np.int64),
        )
    return Plan(owner, grid, boxes, src_strides, dst_strides)


def _strided(axis: Axis | Index, step: int) -> Axis | Index:
    """An axis as the boxes of a plan have it: position by position, unless its step is theirs."""
    return axis.index() if isinstance(axis, Axis) and axis.step != step and axis.count > 1 else axis


def _strides(axis: Axis | Index) -> bool:
    """Whether the step of an axis counts."""
    return isinstance(axis, Axis) and axis.count > 1


def _out_strides(axes: Sequence[Axis | Index], out_strides: Sequence[int]) -> list[int]:
    """Bytes of the output between neighbours along each axis of a selection."""
    kept = iter(out_strides)
    dst = [0 if isinstance(a, Axis) and a.dropped else next(kept, None) for a in axes]
    if None in dst or next(kept, None) is not None:
        raise UnsupportedError("selection with new axes")
    return [d for d in dst if d is not None]
