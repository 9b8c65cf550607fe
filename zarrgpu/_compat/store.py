"""zarr's stores and byte getters, as `zarrgpu.fetch` wants them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, StorePath

from zarrgpu._compat import concurrency, host_prototype
from zarrgpu.engine.base import Engine
from zarrgpu.fetch import Objects, Source
from zarrgpu.files import files
from zarrgpu.keys import Keys
from zarrgpu.resident import resident


def local_path(getter: Any) -> str | None:
    """The file of a chunk that lies in a plain local store; None for every other place."""
    if isinstance(getter, StorePath) and type(getter.store) is LocalStore:
        return os.path.join(getter.store.root, getter.path)
    return None


@dataclass(frozen=True)
class HostGetter:
    """A byte getter that is not a store's, such as the sharding codec's, which serves the configured buffers only."""

    inner: Any

    async def get(self, prototype: Any, byte_range: Any = None) -> Any:
        """The bytes in host memory, or None."""
        data = await self.inner.get(default_buffer_prototype(), byte_range)
        return None if data is None else prototype.buffer.from_array_like(data.as_numpy_array())


def host_getter(byte_getter: Any) -> Any:
    """`byte_getter`, made to serve host buffers."""
    return byte_getter if isinstance(byte_getter, StorePath) else HostGetter(byte_getter)


@dataclass(frozen=True)
class HostSetter(HostGetter):
    """A byte setter of the same kind."""

    async def set(self, value: Any) -> None:
        """Set the bytes."""
        await self.inner.set(value)

    async def delete(self) -> None:
        """Remove the bytes."""
        await self.inner.delete()


def host_setter(byte_setter: Any) -> Any:
    """`byte_setter`, made to serve host buffers."""
    return byte_setter if isinstance(byte_setter, StorePath) else HostSetter(byte_setter)


@dataclass(frozen=True)
class StoreValue:
    """A chunk or shard as `zarrgpu.fetch.Value`: what its byte getter gives, in host memory.

    Attributes
    ----------
    getter
        A store path, or another byte getter of zarr.
    spec : ArraySpec
        Its array's, which says how to coalesce ranges.
    """

    getter: Any
    spec: ArraySpec

    async def get(self, byte_range: Any = None) -> Any:
        """All of it, or a range."""
        data = await host_getter(self.getter).get(host_prototype(self.spec.prototype), byte_range)
        return None if data is None else np.frombuffer(data.as_numpy_array(), np.uint8)

    async def end(self, nbytes: int, at_end: bool) -> Any:
        """Its first or last bytes."""
        return await self.get(SuffixByteRequest(nbytes) if at_end else RangeByteRequest(0, nbytes))

    async def ranges(self, spans: Sequence[tuple[int, int]], concurrency: int) -> Sequence[Any]:
        """Ranges, coalesced as zarr's configuration of the array says."""
        requests: list[Any] = [RangeByteRequest(*span) for span in spans]
        found: list[Any] = [None] * len(spans)
        if not isinstance(self.getter, StorePath):
            return [await self.get(request) for request in requests]
        store, config = self.getter.store, self.spec.config
        groups = store.get_ranges(
            self.getter.path,
            requests,
            prototype=host_prototype(self.spec.prototype),
            max_concurrency=concurrency,
            max_gap_bytes=config.sharding_coalesce_max_gap_bytes,
            max_coalesced_bytes=config.sharding_coalesce_max_bytes,
        )
        try:
            async for group in groups:
                for k, data in group:
                    found[k] = None if data is None else np.frombuffer(data.as_numpy_array(), np.uint8)
        except BaseExceptionGroup as errors:
            _, others = errors.split(FileNotFoundError)
            if others is not None:  # the store's own error, as it is
                raise _first(others) from None
        return found


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    """The first error of a group that is no group itself."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def name_of(byte_getter: Any) -> tuple[str, str]:
    """Store and key of a chunk, for messages."""
    if isinstance(byte_getter, StorePath):
        return str(byte_getter.store), byte_getter.path
    return type(byte_getter).__name__, str(getattr(byte_getter, "chunk_coords", byte_getter))


def source_in(place: StorePath, keys: Keys, spec: ArraySpec, loop: Any, engine: Engine) -> Source:
    """Where to fetch values of keys under a place in a store from: as `source_of`, without a store path for each."""
    folder = local_path(place)
    if folder is not None:
        return files(keys.under(folder))
    here = resident(place.store, keys.under(place.path) if place.path else keys, engine)
    return here or Objects(lambda i: StoreValue(place / keys[i], spec), loop, concurrency())


def source_of(getters: Sequence[Any], spec: ArraySpec, loop: Any, engine: Engine) -> Source:
    """Where to fetch values from: the engine's own memory, files for a plain local store, else what the getters give.

    They are awaited on `loop`.
    """
    if set(map(type, getters)) == {StorePath} and len({id(getter.store) for getter in getters}) == 1:
        store, keys = getters[0].store, [getter.path for getter in getters]
        if type(store) is LocalStore:
            folder = str(store.root)
            return files([f"{folder}/{key}" for key in keys])
        here = resident(store, keys, engine)
        if here is not None:
            return here
    return Objects(lambda i: StoreValue(getters[i], spec), loop, concurrency())
