"""A zarr store in device memory: chunks stay there as they were compressed, and are read without a way over PCIe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from importlib import import_module
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.storage import StorePath

from zarrgpu import _compat
from zarrgpu._async import awaited, together
from zarrgpu.engine import normalize, resolve
from zarrgpu.engine.base import Array

DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
"""Names of metadata documents, which only the host reads, and which stay there."""


class DeviceStore(Store):
    """A store that keeps values in the memory of one device, and metadata documents in the host's.

    `zarrgpu.read` and ``z[...]`` on that device decode its chunks where they are: no byte of a chunk crosses PCIe, as
    `zarrgpu.counters` shows. Of shards the host reads the indexes, once a read: 16 bytes for each of their chunks, and
    a checksum. What has no kernel does cross: chunks that libraries decode on the host (`zarrgpu.explain` says which),
    shards that are compressed as a whole, and a chunk that a kernel refuses. Whoever asks for host buffers gets a
    copy, through PCIe. On ``"host"`` all is in host memory, so that a program runs the same without a GPU.

    Values are copied when they are set, and replaced, never written to: a device buffer that `get` handed out holds
    what it did when the key is set anew. It is the store's own memory, and must not be written to.

    A copy (`copy.copy`, `copy.deepcopy`) shares the values that there are and goes its own way from then on. A pickle
    holds all values, copied through the host; they go to the device of the same name where it is unpickled.

    Parameters
    ----------
    device : str, default "auto"
        As in `zarrgpu.enable`.
    read_only : bool, default False

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.

    Raises
    ------
    DeviceUnavailableError
        When the device is not there; the message says what is missing and how to get it.

    Examples
    --------
    >>> import zarr, zarrgpu
    >>> store = zarrgpu.DeviceStore(device="host")
    >>> z = zarr.create_array(store, shape=(4,), dtype="i4")
    >>> z[:] = 7
    >>> zarrgpu.read(z, device="host").tolist()
    [7, 7, 7, 7]
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, device: str = "auto", *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self.device = normalize(device)
        self._values: dict[str, Array] = {}

    @classmethod
    def load(cls, source: Any, path: str = "", device: str = "auto", *, read_only: bool = False) -> Self:
        """Copy what another store holds; as many values at once as zarr's ``async.concurrency`` says.

        Parameters
        ----------
        source : path, zarr.Array, zarr.Group, zarr.abc.store.Store or zarr.storage.StorePath
            Where to copy from, anything that `zarr.open` takes; it must be able to list its keys.
        path : str, optional
            A group or an array in `source`, which becomes the root of the new store.
        device, read_only
            Of the new store.

        Returns
        -------
        DeviceStore

        Raises
        ------
        FileNotFoundError
            When `source` holds nothing at `path`.
        """
        store, place = cls(device), _place(source, path)
        awaited(store._fill(place), _compat.loop())
        return cast("Self", store.with_read_only(True)) if read_only else store

    async def _fill(self, place: StorePath) -> None:
        """Copy every key under `place`."""
        prefix = f"{place.path}/" if place.path else ""
        keys = [key async for key in place.store.list_prefix(prefix)]
        if not keys:
            raise FileNotFoundError(f"{place} holds no keys")
        module = import_module(f"zarrgpu.buffer.{'cpu' if self.device == 'host' else 'gpu'}")

        async def copy(left: Iterator[str]) -> None:
            for key in left:
                value = await place.store.get(key, module.buffer_prototype)
                if value is not None:
                    await self.set(key.removeprefix(prefix), value)

        left = iter(keys)
        await together(copy(left) for _ in range(min(_compat.concurrency(), len(keys))))

    def with_read_only(self, read_only: bool = False) -> DeviceStore:
        """Return a store of the same values, now and later."""
        other = type(self)(self.device, read_only=read_only)
        other._values = self._values
        return other

    def array(self, key: str) -> Array | None:
        """Return the value of a key as it is kept, ``uint8[n]``, not to be written to; None when there is none."""
        return self._values.get(key)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a value, or a part of it; None when there is none."""
        array = self._values.get(key)
        if array is None:
            return None
        kind = (prototype or default_buffer_prototype()).buffer
        part = array[_slice(byte_range, array.size)]
        if isinstance(part, np.ndarray) or not _compat.is_for_device(kind):
            return kind.from_bytes(memoryview(self._on_host(part)))
        return kind.from_array_like(part)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a value, or a part of it; None when there is none.

        Parameters
        ----------
        key : str
        prototype : BufferPrototype
            One for a device is given the device array itself, without a copy.
        byte_range : ByteRequest, optional
        """
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of values, as `get` does."""
        return [self.get_sync(key, prototype=prototype, byte_range=part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether there is a value."""
        return key in self._values

    async def getsize(self, key: str) -> int:
        """Return the bytes of a value; `FileNotFoundError` when there is none."""
        if key not in self._values:
            raise FileNotFoundError(key)
        return int(self._values[key].size)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Keep a copy of a value."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"value must be a Buffer, got {type(value).__name__}")
        self._values[key] = self._kept(key, value._data)

    async def set(self, key: str, value: Buffer) -> None:
        """Keep a copy of a value, which is uploaded when it is in host memory."""
        self.set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Keep a copy of a value unless there is one."""
        self._check_writable()
        if key not in self._values:
            self.set_sync(key, value)

    def delete_sync(self, key: str) -> None:
        """Forget a value, if there is one."""
        self._check_writable()
        self._values.pop(key, None)

    async def delete(self, key: str) -> None:
        """Forget a value, if there is one."""
        self.delete_sync(key)

    async def list(self) -> AsyncIterator[str]:
        """Go through all keys."""
        for key in list(self._values):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Go through the keys that start with `prefix`."""
        for key in list(self._values):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Go through the names in a folder."""
        folder = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        for name in {key.removeprefix(folder).split("/")[0] for key in self._values if key.startswith(folder)}:
            yield name

    def _kept(self, key: str, array: Any) -> Array:
        """A copy of an array, on the host or on a device, where the value of `key` belongs."""
        if self.device == "host" or key.rpartition("/")[2] in DOCUMENTS:
            return np.array(
                array if isinstance(array, np.ndarray) else resolve(f"cuda:{array.device.id}").to_host(array)
            )
        engine = resolve(self.device)
        if isinstance(array, np.ndarray):
            return engine.from_host(array)
        own = engine.empty(array.shape, array.dtype)
        engine.assign(own, array)
        return own

    def _on_host(self, array: Array) -> npt.NDArray[np.uint8]:
        """A value in host memory."""
        return array if isinstance(array, np.ndarray) else resolve(self.device).to_host(array)

    def __eq__(self, other: object) -> bool:
        """Whether the two are on one device and hold the same; values that they do not share go through the host."""
        if not isinstance(other, DeviceStore) or (self.device, self.read_only) != (other.device, other.read_only):
            return False
        mine, theirs = self._values, other._values
        return mine.keys() == theirs.keys() and all(
            a is theirs[key]
            or (a.size == theirs[key].size and np.array_equal(self._on_host(a), other._on_host(theirs[key])))
            for key, a in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]  # what it holds changes

    def __copy__(self) -> Self:
        other = type(self)(self.device, read_only=self.read_only)
        other._values = dict(self._values)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        values = {key: self._on_host(array) for key, array in self._values.items()}
        return _restored, (type(self), self.device, self.read_only, values)

    def __str__(self) -> str:
        return f"device-memory://{self.device}/{id(self._values)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self}')"


def _restored(kind: type[DeviceStore], device: str, read_only: bool, values: dict[str, Any]) -> DeviceStore:
    store = kind(device, read_only=read_only)
    store._values = {key: store._kept(key, array) for key, array in values.items()}
    return store


def _place(source: Any, path: str) -> StorePath:
    """Where the keys of `load` lie."""
    if isinstance(source, Store):
        return StorePath(source) / path
    if isinstance(source, StorePath):
        return source / path
    if isinstance(source, zarr.Array | zarr.Group):
        return source.store_path / path
    return zarr.open(source, path=path or None, mode="r").store_path


def _slice(byte_range: ByteRequest | None, size: int) -> slice:
    """The part of a value of `size` bytes that a request is for."""
    if byte_range is None:
        return slice(None)
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, None)
    if isinstance(byte_range, SuffixByteRequest):
        return slice(max(0, size - byte_range.suffix), None)
    raise ValueError(f"Unexpected byte_range, got {byte_range}.")
