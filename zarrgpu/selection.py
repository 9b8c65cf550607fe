"""What zarr's indexers make of a selection -> axes and points: which elements of a chunk, or of an array, go where.

A selection is orthogonal, and then has an `Axis` or an `Index` for each axis of what it selects from, or it is
`Points`. Pure host code; what users may write, and the errors for it, are zarr's (see `zarrgpu._compat.select`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu.errors import UnsupportedError

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """``start`` and every ``step``-th position after it, ``count`` in all; they go to ``target`` and what follows."""

    start: int
    step: int
    count: int
    target: int = 0
    dropped: bool = False

    def index(self) -> Index:
        """The same, position by position."""
        every = np.arange(self.count, dtype=np.int64)
        return Index(self.start + every * self.step, self.target + every)


@dataclass(frozen=True)
class Index:
    """Positions along an axis, in any order and maybe repeated, and where each of them goes."""

    positions: Positions
    targets: Positions


@dataclass(frozen=True)
class Points:
    """Single elements, ``coordinates: int64[ndim, m]``, and where each of them goes in an output of one axis."""

    coordinates: Positions
    targets: Positions


Selection = list[Axis | Index] | Points


@dataclass(frozen=True)
class Orthogonal:
    """Orthogonal selections from things of one shape, axis by axis: those of a grid have most axes in common.

    Attributes
    ----------
    axes : list of list of Axis or Index
        For each axis, the different ones.
    which : int64[n, ndim]
        Which of them selection ``i`` has.
    """

    axes: list[list[Axis | Index]]
    which: Positions

    def __len__(self) -> int:
        return len(self.which)

    @classmethod
    def of(cls, selections: Sequence[list[Axis | Index]], ndim: int) -> Orthogonal:
        """Selections that were parsed one by one."""
        each = np.arange(len(selections), dtype=np.int64)
        return cls([[s[k] for s in selections] for k in range(ndim)], np.repeat(each[:, None], ndim, axis=1))


def parse(selected: Any, target: Any, shape: Sequence[int], drop_axes: Sequence[int] = ()) -> Selection:
    """Read a pair of selections as zarr's codec pipelines get them.

    Parameters
    ----------
    selected : tuple or array
        What to take of something of this `shape`: for each axis an int, a slice or an array as `numpy.ix_` makes them;
        or a flat array of coordinates for each axis.
    target : tuple, slice or array
        The part of the output that it goes to.
    drop_axes : sequence of int
        Axes of `selected` with a single element that the output does not have.

    Raises
    ------
    UnsupportedError
        For pairs that do not fit together.
    """
    items, targets = _tuple(selected), _tuple(target)
    if len(items) != len(shape):
        raise UnsupportedError("selection of another number of axes")
    if len(items) > 1 and all(map(_is_flat, items)):
        if len(targets) != 1:
            raise UnsupportedError("points with an output of several axes")
        coordinates = np.array(np.broadcast_arrays(*items), np.int64)
        return Points(coordinates, _positions(targets[0], coordinates.shape[1]))
    rest = iter(targets)
    axes = [_axis(s, n, k in drop_axes, rest) for k, (s, n) in enumerate(zip(items, shape, strict=True))]
    if next(rest, None) is not None:
        raise UnsupportedError("selection with new axes")
    return axes


def parse_all(
    selected: Sequence[Any], targets: Sequence[Any], shape: Sequence[int], drop_axes: Sequence[int] = ()
) -> Orthogonal | list[Selection]:
    """Read the pairs of a request, of things of one shape, as `parse` does; but each object along an axis only once.

    zarr's indexers make one for each chunk along an axis, and combine those.

    Raises
    ------
    UnsupportedError
        As `parse`, and for pairs that do not fit each other.
    """
    if not selected or isinstance(parse(selected[0], targets[0], shape, drop_axes), Points):
        return [parse(*pair, shape, drop_axes) for pair in zip(selected, targets, strict=True)]
    try:
        columns = list(zip(*map(_tuple, selected), strict=True))
        rest = iter(list(zip(*map(_tuple, targets), strict=True)))
    except ValueError:
        raise UnsupportedError("selections of different numbers of axes") from None
    axes: list[list[Axis | Index]] = []
    flat = 0  # axes along which there are arrays that may be of points
    which = np.empty((len(selected), len(shape)), np.int64)
    for k, (column, size) in enumerate(zip(columns, shape, strict=True)):
        dropped = k in drop_axes or isinstance(column[0], int | np.integer)
        target = column if dropped else next(rest)
        seen: dict[tuple[int, int], int] = {}
        which[:, k] = [seen.setdefault(ids, len(seen)) for ids in zip(map(id, column), map(id, target), strict=True)]
        first = np.unique(which[:, k], return_index=True)[1].tolist()
        axes.append([_axis(column[i], size, k in drop_axes, iter(() if dropped else target[i : i + 1])) for i in first])
        if any((isinstance(a, Axis) and a.dropped) != dropped for a in axes[k]):
            raise UnsupportedError("selections that drop different axes")
        flat += any(_is_flat(column[i]) for i in first)
    if flat == len(shape) > 1:
        raise UnsupportedError("points beside other selections")
    return Orthogonal(axes, which)


def _is_flat(selected: Any) -> bool:
    """Whether it is an array of one axis, which is of points if all that are selected with it are."""
    return isinstance(selected, np.ndarray) and selected.ndim == 1


def _tuple(items: Any) -> tuple[Any, ...]:
    return items if isinstance(items, tuple) else (items,)


def _axis(selected: Any, size: int, dropped: bool, targets: Any) -> Axis | Index:
    """One axis of an orthogonal selection; takes its part of the output from `targets`, unless it is dropped."""
    if isinstance(selected, slice):
        start, stop, step = selected.indices(size)
        if step < 1:
            raise UnsupportedError("selection with a negative step")
        taken: Axis | Index = Axis(start, step, max(0, -(-(stop - start) // step)), dropped=dropped)
    elif isinstance(selected, int | np.integer):
        taken = Axis(int(selected), 1, 1, dropped=True)
    else:
        line = np.asarray(selected).reshape(-1)
        positions = np.flatnonzero(line) if line.dtype == bool else line.astype(np.int64)
        run = bool(len(positions)) and bool((np.diff(positions) == 1).all())
        taken = Axis(int(positions[0]), 1, len(positions), dropped=dropped) if run else Index(positions, positions)
    if dropped and (isinstance(taken, Index) or taken.count != 1):
        raise UnsupportedError("several elements of an axis that is dropped")
    if isinstance(taken, Axis) and taken.dropped:
        return taken
    target = next(targets, None)
    if target is None:
        raise UnsupportedError("selection with fewer axes than its output")
    if isinstance(taken, Axis):
        if isinstance(target, slice) and target.step in (None, 1):
            return Axis(taken.start, taken.step, taken.count, _first(target, taken.count))
        taken = taken.index()
    return Index(taken.positions, _positions(target, len(taken.positions)))


def _positions(target: Any, count: int) -> Positions:
    """Where `count` elements go, one by one."""
    if isinstance(target, slice) and target.step in (None, 1):
        return _first(target, count) + np.arange(count, dtype=np.int64)
    line = np.asarray(target).reshape(-1)
    if line.dtype.kind not in "iu" or len(line) != count:
        raise UnsupportedError("selection of another shape than its output")
    return line.astype(np.int64)


def _first(target: slice, count: int) -> int:
    start = target.start or 0
    if target.stop is not None and target.stop - start != count:
        raise UnsupportedError("selection of another shape than its output")
    return int(start)
