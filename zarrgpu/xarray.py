"""xarray's variables as dask arrays whose blocks are on the device."""

from __future__ import annotations

from typing import Any

import dask.array
from xarray.core.indexing import ImplicitToExplicitIndexingAdapter
from xarray.namedarray.daskmanager import DaskManager
from zarr.registry import get_ndbuffer_class


class _AsTheyAre:
    """A lazy array of xarray whose parts are the arrays that were read, of whatever library."""

    def __init__(self, lazy: ImplicitToExplicitIndexingAdapter) -> None:
        self.lazy = lazy
        self.shape, self.dtype, self.ndim = lazy.shape, lazy.dtype, lazy.ndim

    def __getitem__(self, key: Any) -> Any:
        part: Any = self.lazy[key]
        # A part is wrapped as the whole is, unless xarray has no more to do with it.
        return part.get_duck_array() if isinstance(part, type(self.lazy)) else part  # type: ignore[no-untyped-call]  # of xarray's


class DeviceChunks(DaskManager):
    """xarray's chunk manager for dask, without the copy of each block to the host that xarray's own makes.

    It takes the place of a name in `xarray.open_zarr`, `xarray.open_dataset` and ``Dataset.chunk``, for data that come
    from a store; without dask (``chunks=None``) xarray keeps the arrays of the device anyway. Either way xarray masks
    fill values by NumPy alone: open packed variables with ``mask_and_scale=False`` on a GPU.

    Examples
    --------
    >>> import numpy as np, xarray, zarr, zarrgpu
    >>> from zarrgpu.xarray import DeviceChunks
    >>> store = zarr.storage.MemoryStore()
    >>> _ = xarray.Dataset({"t2m": ("time", np.arange(4))}).to_zarr(store, consolidated=False)
    >>> with zarrgpu.enable():
    ...     data = xarray.open_zarr(store, chunks={}, chunked_array_type=DeviceChunks(), consolidated=False)
    ...     float(data.t2m.data.mean().compute())
    1.5
    """

    def is_chunked_array(self, data: Any) -> bool:
        """Say no: what was made is dask's, and xarray's own manager of it goes on with that."""
        return False

    def from_array(self, data: Any, chunks: Any, **options: Any) -> dask.array.Array:
        """Make a dask array; of an array that xarray reads lazily, with blocks as they are read."""
        if not isinstance(data, ImplicitToExplicitIndexingAdapter):
            return super().from_array(data, chunks, **options)
        empty = get_ndbuffer_class().empty((0,) * data.ndim, data.dtype)
        options |= {"meta": empty.as_ndarray_like(), "asarray": False}
        made: dask.array.Array = dask.array.from_array(_AsTheyAre(data), chunks, **options)  # type: ignore[no-untyped-call]  # of dask's
        return made
