"""All that ``zarrgpu bench`` measures of one array: every system, each step of ours, the ceilings of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import zarr

import zarrgpu
from zarrgpu.bench import ceilings, page_cache
from zarrgpu.bench.measure import Measurement, compare, on
from zarrgpu.bench.report import Findings
from zarrgpu.bench.ways import absolute, systems

MOST = 1 << 30
"""Decoded bytes that are read of an array unless more is asked for."""
BUDGET = 60.0, 150.0
"""Seconds of timed reads, without a GPU and with one."""


def examine(
    array: zarr.Array[Any],
    selection: Any,
    devices: Sequence[str],
    repeats: int,
    name: str,
    progress: Callable[[int, int, str], None] | None = None,
    budget: float | None = None,
) -> Findings:
    """Measure reads of an array.

    Parameters
    ----------
    array : zarr.Array
    selection : object or None
        As in ``array[selection]``; None for all of it, or its first part if it is large.
    devices : sequence of str
        The preferred one first.
    repeats : int
        Timed reads of each system.
    name : str
        What the array is called.
    progress : callable, optional
        As of `compare`.
    budget : float, optional
        As of `compare`; what makes a whole bench take a minute or three by default.
    """
    chosen = first_part(array) if selection is None else selection
    files = page_cache.files_of(array)
    drop = partial(page_cache.drop, files) if files and page_cache.can_drop(files) else None
    measured = compare(
        array,
        chosen,
        systems=systems(devices),
        repeats=repeats,
        progress=progress,
        drop=drop,
        budget=BUDGET[devices[0] != "host"] if budget is None else budget,
    )
    title = f"{name}: {array.dtype} {array.shape}, chunks {array.chunks}"
    if array.shards is not None:
        title += f" in shards {array.shards}"
    title += said(chosen, array.shape)
    profiles = {m.device: profiled(array, chosen, m) for m in measured if m.ours and m.times}
    return Findings(title, measured, profiles, ceilings.measure(devices[0], files, drop))


def profiled(array: zarr.Array[Any], selection: Any, m: Measurement) -> zarrgpu.Profile:
    """A profile of one read of ours, after those that were timed."""
    with on(m.device):
        zarrgpu.read(array, selection, device=m.device)  # binds this array, as was done before the others were timed
        with zarrgpu.profile() as seen:
            _kept = zarrgpu.read(array, selection, device=m.device)  # freeing it is not reading
    return seen


def first_part(array: zarr.Array[Any], most: int = MOST) -> Any:
    """All of an array, or, if that is large, whole chunks or shards from its beginning, in order of the axes."""
    extent = list(array.shape)
    step = array.shards or array.chunks
    for axis, n in enumerate(extent):
        each = array.dtype.itemsize * math.prod(extent[:axis] + extent[axis + 1 :])
        if each * n <= most:
            break
        extent[axis] = min(n, max(1, most // max(each, 1) // step[axis]) * step[axis])
    return tuple(slice(0, n) for n in extent) if tuple(extent) != array.shape else ...


def said(selection: Any, shape: Sequence[int]) -> str:
    """Words for a selection, none for all of an array."""
    parts = absolute(selection, shape)
    if parts is None or all(part == slice(0, n, 1) for part, n in zip(parts, shape, strict=True)):
        return ""
    written = (
        str(part) if isinstance(part, int) else f"{part.start}:{part.stop}" + f":{part.step}" * (part.step != 1)
        for part in parts
    )
    return f"; of it [{', '.join(written)}]"
