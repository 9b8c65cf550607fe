"""What users may write between brackets, by zarr's own indexers and with zarr's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.core.array_spec import ArraySpec
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.indexing import (
    BasicIndexer,
    CoordinateIndexer,
    Indexer,
    MaskIndexer,
    OrthogonalIndexer,
    ensure_tuple,
    is_mask_selection,
    is_pure_fancy_indexing,
    is_pure_orthogonal_indexing,
    pop_fields,
    replace_lists,
)

from zarrgpu.errors import UnsupportedError


class Part(NamedTuple):
    """A part of a selection, as zarr gives it to a codec pipeline.

    Attributes
    ----------
    selected, target : tuple or array
        What to take of a chunk, and where it goes.
    spec : ArraySpec or None
        Of the chunk; None for all of the array.
    coordinates : tuple of int
        Of the chunk in its grid.
    """

    selected: Any
    target: Any
    spec: ArraySpec | None
    coordinates: tuple[int, ...]


class Selected(NamedTuple):
    """What a selection comes to.

    Attributes
    ----------
    shape : tuple of int
        Of the result.
    flat : bool
        Whether the parts go to places in a result of one axis, which is reshaped afterwards.
    drop_axes : tuple of int
        As zarr gives it to a codec pipeline.
    parts : list of Part
        One for all of the array where its chunks are of one shape, else one for each chunk.
    """

    shape: tuple[int, ...]
    flat: bool
    drop_axes: tuple[int, ...]
    parts: list[Part]


def indexer_of(selection: Any, shape: tuple[int, ...], grid: ChunkGrid) -> Indexer:
    """The indexer that ``z[selection]`` uses."""
    if pop_fields(selection)[0]:
        raise UnsupportedError("selection of fields")
    if is_pure_fancy_indexing(selection, len(shape)):
        arrays: Any = replace_lists(ensure_tuple(selection))
        return (MaskIndexer if is_mask_selection(arrays, shape) else CoordinateIndexer)(arrays, shape, grid)
    if is_pure_orthogonal_indexing(selection, len(shape)):
        return OrthogonalIndexer(selection, shape, grid)
    return BasicIndexer(selection, shape, grid)


def select(array: zarr.Array[Any], selection: Any, spec: ArraySpec, regular: bool) -> Selected:
    """What ``array[selection]`` comes to; `regular` says whether chunks are of one shape."""
    grid = array.async_array._chunk_grid
    whole = ChunkGrid.from_sizes(array.shape, tuple(max(1, n) for n in array.shape))  # one chunk: the planner splits it
    indexer: Any = indexer_of(selection, array.shape, whole if regular else grid)
    shape = getattr(indexer, "sel_shape", indexer.shape)
    parts = list(_parts(indexer, None if regular else (grid, spec))) if np.prod(shape) else []
    return Selected(shape, hasattr(indexer, "sel_shape"), indexer.drop_axes, parts)


def _parts(indexer: Any, chunks: tuple[ChunkGrid, ArraySpec] | None) -> Iterator[Part]:
    for coordinates, selected, target, _ in indexer:
        spec = None
        if chunks is not None:
            chunk: Any = chunks[0][coordinates]
            spec = ArraySpec(
                tuple(chunk.codec_shape), chunks[1].dtype, chunks[1].fill_value, chunks[1].config, chunks[1].prototype
            )
        yield Part(selected, target, spec, coordinates)
