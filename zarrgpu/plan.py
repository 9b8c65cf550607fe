"""Selections -> boxes: which elements of which chunk go where in the output. Pure host code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu.errors import UnsupportedError

BOX = 3
"""Columns of a box before its extents: `tables.B_COUNT`, known here without importing kernels."""


@dataclass(frozen=True)
class Plan:
    """The boxes of a request, one for each chunk that it touches.

    Attributes
    ----------
    grid : int64[n, ndim]
        Coordinates of the chunks in the chunk grid; ``int64[n, 0]`` where the caller knows the chunks otherwise.
    boxes : int64[n, 3 + ndim]
        As in `zarrgpu.kernels.tables`; box ``i`` reads chunk ``i``.
    src_strides : int64[ndim]
        Elements of the chunk between neighbours of a box, along each axis of the array.
    dst_strides : int64[ndim]
        Bytes of the output between them; 0 along an axis that an integer selected.
    """

    grid: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int64]
    src_strides: npt.NDArray[np.int64]
    dst_strides: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True)
class Axis:
    """One axis of a basic selection: ``start`` and every ``step``-th element after it, ``count`` in all."""

    start: int
    step: int
    count: int
    dropped: bool = False


def axes_of(selection: Sequence[Any], shape: Sequence[int]) -> list[Axis]:
    """Turn a normalised basic selection (an int or a slice for each axis) into axes.

    Raises
    ------
    UnsupportedError
        For anything but ints and slices of positive step.
    """
    axes = []
    for selected, size in zip(selection, shape, strict=True):
        if isinstance(selected, slice):
            start, stop, step = selected.indices(size)
            if step < 1:
                raise UnsupportedError("selection with a negative step")
            axes.append(Axis(start, step, max(0, -(-(stop - start) // step))))
        elif isinstance(selected, int | np.integer):
            axes.append(Axis(int(selected), 1, 1, dropped=True))
        else:
            raise UnsupportedError("selection by arrays")
    return axes


def plan_axes(
    axes: Sequence[Axis], chunks: Sequence[int], chunk_strides: Sequence[int], out_strides: Sequence[int]
) -> Plan:
    """Plan a basic selection on a regular chunk grid.

    Parameters
    ----------
    axes : sequence of Axis
        One for each axis of the array.
    chunks : sequence of int
        Shape of a chunk.
    chunk_strides : sequence of int
        Strides of a decoded chunk, in elements.
    out_strides : sequence of int
        Strides of the output in bytes, one for each axis that is not dropped.

    Returns
    -------
    Plan
        Its boxes in C order of the chunk grid.
    """
    ndim = len(axes)
    dst = _out_axes(axes, out_strides)
    columns = []
    for axis, size in zip(axes, chunks, strict=True):
        last = axis.start + (axis.count - 1) * axis.step
        index = np.arange(axis.start // size, last // size + 1 if axis.count else axis.start // size, dtype=np.int64)
        before = np.maximum(0, -(-(index * size - axis.start) // axis.step))  # selected elements in earlier chunks
        after = np.minimum(axis.count, -(-((index + 1) * size - axis.start) // axis.step))
        hit = after > before  # a step longer than a chunk skips some
        index, before, after = index[hit], before[hit], after[hit]
        columns.append((index, axis.start + before * axis.step - index * size, before, after - before))
    shape = tuple(len(c[0]) for c in columns)
    n = int(np.prod(shape, dtype=np.int64))
    grid, boxes = np.empty((n, ndim), np.int64), np.zeros((n, BOX + ndim), np.int64)
    boxes[:, 0] = np.arange(n)
    for k, (index, first, before, count) in enumerate(columns):
        where = np.broadcast_to(np.arange(shape[k]).reshape([-1 if i == k else 1 for i in range(ndim)]), shape).ravel()
        grid[:, k] = index[where]
        boxes[:, 1] += first[where] * chunk_strides[k]
        boxes[:, 2] += before[where] * dst[k]
        boxes[:, BOX + k] = count[where]
    steps = [s * a.step for s, a in zip(chunk_strides, axes, strict=True)]
    return _plan(grid, boxes, steps, dst)


def plan_batch(
    batch: Sequence[tuple[Any, Any]], chunks: Sequence[int], chunk_strides: Sequence[int], out_strides: Sequence[int]
) -> Plan:
    """Plan what zarr's indexer made of a selection.

    Parameters
    ----------
    batch : sequence of (chunk_selection, out_selection)
        Tuples of ints and slices, as `CodecPipeline.read` gets them.
    chunks, chunk_strides, out_strides
        As in `plan_axes`.

    Raises
    ------
    UnsupportedError
        For selections by arrays, and where boxes differ in their steps.
    """
    ndim = len(chunks)
    boxes = np.zeros((len(batch), BOX + ndim), np.int64)
    common: list[Axis] | None = None
    dst: list[int] = []
    for i, (selection, target) in enumerate(batch):
        if not isinstance(selection, tuple) or len(selection) != ndim:
            raise UnsupportedError("selection by arrays")
        axes = axes_of(selection, chunks)
        if common is None:
            common, dst = axes, _out_axes(axes, out_strides)
        kept = iter(_slices(target))
        boxes[i, 0] = i
        for k, (axis, same) in enumerate(zip(axes, common, strict=True)):
            if (axis.step, axis.dropped) != (same.step, same.dropped):
                raise UnsupportedError("selection with several steps")
            boxes[i, 1] += axis.start * chunk_strides[k]
            boxes[i, BOX + k] = axis.count
            if not axis.dropped:
                boxes[i, 2] += _start(next(kept, None), axis.count) * dst[k]
        if next(kept, None) is not None:
            raise UnsupportedError("selection with new axes")
    assert common is not None
    steps = [s * a.step for s, a in zip(chunk_strides, common, strict=True)]
    return _plan(np.empty((len(batch), 0), np.int64), boxes, steps, dst)


def _plan(grid: npt.NDArray[np.int64], boxes: npt.NDArray[np.int64], steps: list[int], dst: list[int]) -> Plan:
    if not steps:  # kernels want an axis: one of a single element
        boxes, steps, dst = np.pad(boxes, ((0, 0), (0, 1)), constant_values=1), [1], [0]
    return Plan(grid, boxes, np.array(steps, np.int64), np.array(dst, np.int64))


def _out_axes(axes: Sequence[Axis], out_strides: Sequence[int]) -> list[int]:
    kept = iter(out_strides)
    dst = [0 if a.dropped else next(kept, None) for a in axes]
    if None in dst or next(kept, None) is not None:
        raise UnsupportedError("selection with new axes")
    return [d for d in dst if d is not None]


def _slices(target: Any) -> tuple[Any, ...]:
    return target if isinstance(target, tuple) else (target,)


def _start(target: Any, count: int) -> int:
    if not isinstance(target, slice) or target.step not in (None, 1) or target.start is None:
        raise UnsupportedError("selection by arrays")
    if target.stop - target.start != count:
        raise UnsupportedError("selection of another shape than its output")
    return int(target.start)
