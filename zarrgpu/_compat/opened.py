"""zarr's arrays and groups with a pipeline, buffers and settings of their own, whatever zarr is configured for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, cast

import zarr
from zarr.abc.buffer import BufferPrototype
from zarr.storage import StorePath

from zarrgpu._compat import points
from zarrgpu._interop import on_device, to_cupy
from zarrgpu._settings import Settings
from zarrgpu.pipeline import GpuCodecPipeline


def on_host(value: Any) -> Any:
    """A selection, or a value to be written, its device arrays copied to the host, which needs them there."""
    if isinstance(value, tuple):
        return tuple(map(on_host, value))
    return to_cupy(value)[0].get() if on_device(value) else value


def _with_own_buffers[F: Callable[..., Any]](method: F) -> F:
    """A method of an array, with the array's buffers where no others are asked for; selections may be device arrays."""
    parameters = signature(method)
    selection = list(parameters.parameters)[1]

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        bound = parameters.bind(*args, **options)
        bound.arguments[selection] = on_host(bound.arguments[selection])
        if bound.arguments.get("prototype") is None:
            bound.arguments["prototype"] = bound.args[0].prototype
        return method(*bound.args, **bound.kwargs)

    return cast("F", call)


class AsyncArray(zarr.AsyncArray[Any]):
    """An asynchronous array with settings of its own."""

    settings: Settings

    def __init__(self, metadata: Any, store_path: StorePath, config: Any, settings: Settings) -> None:
        super().__init__(metadata, store_path, config)
        pipeline = GpuCodecPipeline.from_array_metadata_and_store(self.metadata, store_path.store)
        object.__setattr__(self, "settings", settings)  # the base class is frozen
        object.__setattr__(self, "codec_pipeline", replace(pipeline, settings=settings))

    @property
    def prototype(self) -> BufferPrototype:
        """Its buffers."""
        return self.settings.prototype

    def with_config(self, config: Any) -> Any:
        """As in the base class."""
        plain = zarr.AsyncArray(self.metadata, self.store_path, self.config).with_config(config)
        return _of_async(plain, self.settings)

    getitem = _with_own_buffers(zarr.AsyncArray.getitem)
    setitem = _with_own_buffers(zarr.AsyncArray.setitem)
    get_orthogonal_selection = _with_own_buffers(zarr.AsyncArray.get_orthogonal_selection)
    get_mask_selection = _with_own_buffers(zarr.AsyncArray.get_mask_selection)
    get_coordinate_selection = _with_own_buffers(points.get_points_async)


class Array(zarr.Array[Any]):
    """An array with settings of its own."""

    @property
    def settings(self) -> Settings:
        """How it is read."""
        return cast("AsyncArray", self.async_array).settings

    @property
    def prototype(self) -> BufferPrototype:
        """Its buffers."""
        return self.settings.prototype

    def __getitem__(self, selection: Any) -> Any:
        return super().__getitem__(on_host(selection))

    def __setitem__(self, selection: Any, value: Any) -> None:
        super().__setitem__(on_host(selection), value[...] if isinstance(value, zarr.Array) else value)

    get_basic_selection = _with_own_buffers(zarr.Array.get_basic_selection)
    set_basic_selection = _with_own_buffers(zarr.Array.set_basic_selection)
    get_orthogonal_selection = _with_own_buffers(zarr.Array.get_orthogonal_selection)
    set_orthogonal_selection = _with_own_buffers(zarr.Array.set_orthogonal_selection)
    get_mask_selection = _with_own_buffers(zarr.Array.get_mask_selection)
    set_mask_selection = _with_own_buffers(zarr.Array.set_mask_selection)
    get_block_selection = _with_own_buffers(zarr.Array.get_block_selection)
    set_block_selection = _with_own_buffers(zarr.Array.set_block_selection)
    get_coordinate_selection = _with_own_buffers(points.get_points)
    set_coordinate_selection = _with_own_buffers(points.set_points)


def _keeping[F: Callable[..., Any]](method: F) -> F:
    """A method of a group, its results with the settings of the group."""

    @wraps(method)
    def call(self: Group, *args: Any, **options: Any) -> Any:
        return own(method(self, *args, **options), self.settings)

    return cast("F", call)


@dataclass(frozen=True)
class Group(zarr.Group):
    """A group whose members have its settings.

    Attributes
    ----------
    settings : Settings
        How they are read.
    """

    settings: Settings

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, on_host(value))

    def create_array(self, name: str, *, data: Any = None, **options: Any) -> Any:
        """As in the base class; `data` may be a device array."""
        return own(super().create_array(name, data=on_host(data), **options), self.settings)

    __getitem__ = _keeping(zarr.Group.__getitem__)
    get_array = _keeping(zarr.Group.get_array)
    get_group = _keeping(zarr.Group.get_group)
    members = _keeping(zarr.Group.members)
    groups = _keeping(zarr.Group.groups)
    arrays = _keeping(zarr.Group.arrays)
    create_group = _keeping(zarr.Group.create_group)
    create_hierarchy = _keeping(zarr.Group.create_hierarchy)
    require_group = _keeping(zarr.Group.require_group)
    require_groups = _keeping(zarr.Group.require_groups)
    require_array = _keeping(zarr.Group.require_array)
    empty = _keeping(zarr.Group.empty)
    zeros = _keeping(zarr.Group.zeros)
    ones = _keeping(zarr.Group.ones)
    full = _keeping(zarr.Group.full)
    empty_like = _keeping(zarr.Group.empty_like)
    zeros_like = _keeping(zarr.Group.zeros_like)
    ones_like = _keeping(zarr.Group.ones_like)
    full_like = _keeping(zarr.Group.full_like)


def own(found: Any, settings: Settings) -> Any:
    """What zarr gives, its arrays and groups with settings of their own."""
    if isinstance(found, zarr.Array):
        return Array(_of_async(found.async_array, settings))
    if isinstance(found, zarr.Group):
        return Group(found._async_group, settings)
    if isinstance(found, tuple):
        return tuple(own(one, settings) for one in found)
    if isinstance(found, Iterator):
        return (own(one, settings) for one in found)
    return found


def _of_async(array: Any, settings: Settings) -> Any:
    return AsyncArray(array.metadata, array.store_path, array.config, settings)
