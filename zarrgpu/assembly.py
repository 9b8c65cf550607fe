"""Boxes -> launches: which *assemble* kernel, or library, copies which boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu import _fork
from zarrgpu.engine.base import Array, Engine, Lane
from zarrgpu.kernels import assemble, assemble_words, boxes

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Target:
    """Where boxes go.

    Attributes
    ----------
    out, out32 : uint8[n], uint32[n // 4]
        The output, starting at a multiple of `zarrgpu.engine.base.ALIGN` bytes.
    src_strides, dst_strides : int64[nd]
        As in `zarrgpu.kernels.assemble`.
    fill : uint8[itemsize]
        The fill value as the output stores it.
    gather : int64[m, 2] or None
        Where boxes are indexed, the table that their lines are of.
    """

    out: Array
    out32: Array
    src_strides: Table
    dst_strides: Table
    fill: npt.NDArray[np.uint8]
    gather: Table | None = None


@dataclass(frozen=True)
class How:
    """What happens to elements on their way.

    Attributes
    ----------
    swap : int
        Bytes of a stored element that are reversed together, 0 for none.
    conversion : Conversion or None
        What makes elements of the output of them.
    out_swap : int
        Bytes of a converted element that are reversed together.
    """

    swap: int = 0
    conversion: Conversion | None = None
    out_swap: int = 0


def copy(
    engine: Engine, lane: Lane, arenas: tuple[Array, ...], layouts: Table, own: Table, target: Target, how: How
) -> list[tuple[Table, Array]]:
    """Enqueue the copying of the boxes `own` from `arenas` (source and scratch, as bytes and as words).

    Returns
    -------
    list of (int64[k], int32[k])
        For each launch the lines of `own` that it copies, and an array of the engine that takes their statuses.

    Raises
    ------
    ValueError
        For indexed boxes without a gather table, lines outside it, and strided boxes with one.
    """
    if len(own) == 0:
        return []
    itemsize, swap, indexed = target.fill.size, how.swap, target.gather is not None
    if boxes.is_indexed(own, target.src_strides.size) != indexed:
        raise ValueError("boxes are indexed if, and only if, there is a gather table")
    steps: list[Table]
    if target.gather is None:
        own, *steps = boxes.merge_axes(own, target.src_strides, target.dst_strides)
    else:
        own, *steps = boxes.cut_gather(own, target.src_strides, target.dst_strides, target.gather)
    parts: list[tuple[int, Any, Table]] = []
    everything = np.arange(len(own))
    if how.conversion is not None:
        with _fork.loading:
            from zarrgpu.kernels import assemble_values  # its many dtypes, only where one is needed

        kernel = assemble_values.kernel(how.conversion, swap, how.out_swap, indexed)
        parts.append((assemble_values.groups(own, how.conversion, indexed), kernel, everything))
    elif indexed:
        parts.append((assemble.groups(own, itemsize, indexed), assemble.kernel(itemsize, swap, indexed), everything))
    else:
        src, dst = steps
        fast = assemble_words.eligible(layouts, own, src, dst, itemsize)
        rest = everything[~fast]
        done = engine.copy_boxes(arenas[::2], target.out, layouts, own[rest], steps, itemsize, swap)
        for module, which in ((assemble_words, everything[fast]), (assemble, rest[~done])):
            if len(which):
                parts.append((module.groups(own[which], itemsize), module.kernel(itemsize, swap), which))
    if not parts:
        return []
    parameters = [how.conversion.parameters] if how.conversion is not None else []
    common: list[npt.NDArray[Any]] = [layouts, *steps, target.fill, *parameters]
    tables = lane.tables(*common, *(own[which] for _, _, which in parts))
    to_fill, more = tables[1 : 2 + len(steps)], tables[2 + len(steps) : len(common)]
    launched = []
    for (groups, kernel, which), part in zip(parts, tables[len(common) :], strict=True):
        status = lane.zeros(len(which))
        args = (groups, *arenas, tables[0], part, *to_fill, target.out, target.out32, status, *more)
        lane.launch(kernel, len(which) * groups, *args)
        launched.append((which, status))
    return launched
