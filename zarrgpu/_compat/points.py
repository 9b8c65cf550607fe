"""zarr's selection of points, for device arrays.

`zarr.Array.get_coordinate_selection` makes a NumPy array of what its pipeline has read, only to reshape it, and
`set_coordinate_selection` of what it is given; device arrays refuse that. `adopted` puts functions in their place that
reshape the arrays as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.indexing import CoordinateIndexer
from zarr.core.sync import sync


async def get_points_async(
    array: Any, selection: Any, *, out: Any = None, fields: Any = None, prototype: Any = None
) -> Any:
    """`zarr.AsyncArray.get_coordinate_selection`, for arrays of any kind."""
    indexer = CoordinateIndexer(selection, array.metadata.shape, array._chunk_grid)
    found = await array._get_selection(
        indexer, prototype=prototype or default_buffer_prototype(), out=out, fields=fields
    )
    return found.reshape(indexer.sel_shape) if hasattr(found, "shape") else found


def get_points(array: Any, selection: Any, *, out: Any = None, fields: Any = None, prototype: Any = None) -> Any:
    """`zarr.Array.get_coordinate_selection`, for arrays of any kind."""
    options = {"out": out, "fields": fields, "prototype": prototype}
    return sync(get_points_async(array.async_array, selection, **options))


def set_points(array: Any, selection: Any, value: Any, *, fields: Any = None, prototype: Any = None) -> None:
    """`zarr.Array.set_coordinate_selection`, for values of any kind."""
    flat = value.reshape(-1) if hasattr(value, "__cuda_array_interface__") else value
    _ORIGINAL["set_coordinate_selection"](array, selection, flat, fields=fields, prototype=prototype)


_ORIGINAL: dict[str, Any] = {
    name: getattr(zarr.Array, name) for name in ("get_coordinate_selection", "set_coordinate_selection")
}
_ORIGINAL_ASYNC = zarr.AsyncArray.get_coordinate_selection
_lock = Lock()
_users = 0


@contextmanager
def adopted() -> Iterator[None]:
    """Put these functions in the place of zarr's, until all that have entered this have left it."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _put(get_points, set_points, get_points_async)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _put(_ORIGINAL["get_coordinate_selection"], _ORIGINAL["set_coordinate_selection"], _ORIGINAL_ASYNC)


def _put(get: Any, put: Any, get_async: Any) -> None:
    zarr.Array.get_coordinate_selection = get  # type: ignore[method-assign]  # see the module's docstring
    zarr.Array.set_coordinate_selection = put  # type: ignore[method-assign]  # as above
    zarr.AsyncArray.get_coordinate_selection = get_async  # type: ignore[method-assign]  # as above
