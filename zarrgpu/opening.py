"""`open_array` and `open_group`: zarr's own, with settings for what they open and nothing else."""

from __future__ import annotations

from typing import Any

import zarr
from zarr.storage import StoreLike

from zarrgpu import _fork
from zarrgpu._settings import Settings


def open_array(
    store: StoreLike | None = None,
    *,
    device: str = "auto",
    memory_limit: int | None = None,
    strict: bool = False,
    **options: Any,
) -> zarr.Array[Any]:
    """Open an array that is read through zarrgpu, whatever zarr is configured for, which stays as it is.

    Parameters
    ----------
    store : store, path or mapping, optional
        As of `zarr.open_array`.
    device, memory_limit, strict
        As of `enable`; for this array.
    **options
        As of `zarr.open_array`.

    Returns
    -------
    zarr.Array
        Indexing it in any way (``[...]``, ``vindex``, ``oindex``, ``blocks``) gives arrays of the device, and takes
        them as indices and values.

    Raises
    ------
    DeviceUnavailableError
        When the device is not there; the message says what is missing and how to get it.

    Examples
    --------
    >>> import zarr, zarrgpu
    >>> store = zarr.storage.MemoryStore()
    >>> z = zarrgpu.open_array(store, mode="w", shape=(4,), dtype="i4", fill_value=7, device="host")
    >>> z[1:3].tolist()
    [7, 7]
    """
    with _fork.loading:
        from zarrgpu._compat.opened import own

    settings = Settings.chosen(device, memory_limit, strict)
    array: zarr.Array[Any] = own(zarr.open_array(store, **options), settings)
    return array


def open_group(
    store: StoreLike | None = None,
    *,
    device: str = "auto",
    memory_limit: int | None = None,
    strict: bool = False,
    **options: Any,
) -> zarr.Group:
    """Open a group whose arrays, now and later, are as of `open_array`.

    Parameters
    ----------
    store : store, path or mapping, optional
        As of `zarr.open_group`.
    device, memory_limit, strict
        As of `enable`; for the members of this group and of the groups in it.
    **options
        As of `zarr.open_group`.

    Returns
    -------
    zarr.Group
        Its members keep these settings, those too that it creates.

    Raises
    ------
    DeviceUnavailableError
        When the device is not there; the message says what is missing and how to get it.

    Examples
    --------
    >>> import zarr, zarrgpu
    >>> g = zarrgpu.open_group(zarr.storage.MemoryStore(), device="host")
    >>> g.create_array("x", shape=(4,), dtype="i4", fill_value=7)[1:3].tolist()
    [7, 7]
    """
    with _fork.loading:
        from zarrgpu._compat.opened import own

    settings = Settings.chosen(device, memory_limit, strict)
    group: zarr.Group = own(zarr.open_group(store, **options), settings)
    return group
