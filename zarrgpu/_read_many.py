"""Several selections of one shape in one request, such as the crops of a batch for training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from zarrgpu import _compat, _out
from zarrgpu._compat.select import select
from zarrgpu._read import bind_array, counted, finish, plan_for, read_planned, writable
from zarrgpu.engine.base import Array, Engine
from zarrgpu.plan import BYTE
from zarrgpu.selection import Axis, Points, parse


def read_many(
    array: zarr.Array[Any], selections: Sequence[Any], out: Array | None, engine: Engine, stream: Any
) -> Array | None:
    """What `zarrgpu.read_many` does, by one request; None where one cannot do it.

    That is for points, integers that drop different axes, and chunks that differ in shape; `UnsupportedError` as of
    `zarrgpu._read.read`.
    """
    if _compat.chunk_shape(array.metadata) is None:
        return None
    with counted("fallback.bind"):
        bound = bind_array(array, engine)
    with counted("fallback.plan"):
        found = [select(array, selection, bound.spec, True) for selection in selections]
        shape = common({one.shape for one in found})
        parsed = [parse(p.selected, p.target, array.shape, one.drop_axes) for one in found for p in one.parts]
    dropped = {None if isinstance(axes, Points) else tuple(map(_dropped, axes)) for axes in parsed}
    if len(dropped) > 1 or None in dropped:
        return None
    dtype = bound.program.dtype.newbyteorder("=")
    if out is None:
        out = engine.empty((len(found), *shape), dtype)
    else:
        _out.check(out, (len(found), *shape), dtype)
    target = writable(engine, out)
    if parsed:
        planned = plan_for(bound, parsed, array.shape, target.strides[1:])
        planned.boxes[:, BYTE] += planned.owner * target.strides[0]
        planned = replace(planned, owner=np.zeros_like(planned.owner))  # all are of one array
        read_planned(array, bound, planned, engine, target, stream)
    finish(engine, out, target)
    return out


def one_by_one(
    selections: Sequence[Any], out: Array | None, engine: Engine, read: Callable[[Any, Array | None], Array]
) -> Array:
    """The same by ``read(selection, out)``, a request for each."""
    if out is not None and out.shape[:1] != (len(selections),):
        raise ValueError(f"out must have a line for each of {len(selections)} selections, got shape {out.shape}")
    for i, selection in enumerate(selections):
        if out is None:
            first = read(selection, None)
            out = engine.empty((len(selections), *first.shape), first.dtype)
            engine.assign(out[0, ...], first)
            continue
        read(selection, out[i, ...])
    assert out is not None
    return out


def common(shapes: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The one shape of all selections."""
    if len(shapes) != 1:
        raise ValueError(f"selections must be of one shape, got {', '.join(map(str, sorted(shapes))) or 'none'}")
    return next(iter(shapes))


def _dropped(axis: Any) -> bool:
    return isinstance(axis, Axis) and axis.dropped
