"""`DeviceStore` is a store as zarr wants one, keeps chunks on its device, and says what crosses PCIe."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore
from zarr.testing.store import StoreTests

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth
from zarrgpu.store import DOCUMENTS

VALUES = smooth((40, 25), "<i4")
WHERE = [engine for engine in ENGINES if engine != "twins"]  # a store has no kernels


def synchronous[T: type](tests: T) -> T:
    """Let plain pytest run the coroutines among the tests of a class, each in an event loop of its own."""

    def run(test: Any) -> Any:
        @functools.wraps(test)
        def inner(*args: Any, **options: Any) -> None:
            asyncio.run(test(*args, **options))

        return inner

    for name, test in inspect.getmembers(tests, inspect.iscoroutinefunction):
        if name.startswith("test_"):
            setattr(tests, name, run(test))
    return tests


@pytest.fixture(params=WHERE)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The ``device=`` argument of each engine."""
    with device(request.param) as name:
        yield name


@synchronous
class TestDeviceStore(StoreTests[zarrgpu.DeviceStore, cpu.Buffer]):
    """zarr's own tests of a store."""

    store_cls = zarrgpu.DeviceStore
    buffer_cls = cpu.Buffer

    async def set(self, store: zarrgpu.DeviceStore, key: str, value: Buffer) -> None:
        store._values[key] = store._kept(key, value.as_numpy_array())

    async def get(self, store: zarrgpu.DeviceStore, key: str) -> Buffer:
        return cpu.Buffer.from_array_like(store._on_host(store._values[key]))

    @pytest.fixture
    def store_kwargs(self, where: str) -> dict[str, Any]:
        return {"device": where}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> Store:
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> Store:
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: zarrgpu.DeviceStore) -> None:
        assert repr(store) == f"DeviceStore('device-memory://{store.device}/{id(store._values)}')"

    def test_store_supports_writes(self, store: zarrgpu.DeviceStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: zarrgpu.DeviceStore) -> None:
        assert store.supports_listing


def prototype(where: str) -> Any:
    """Buffers of the device."""
    if where == "host":
        return cpu.buffer_prototype
    from zarrgpu.buffer import gpu

    return gpu.buffer_prototype


def crossed() -> tuple[int, int]:
    """Bytes that were uploaded and downloaded since the last time."""
    found = zarrgpu.counters()
    zarrgpu.reset_counters()
    return found.get("bytes.uploaded", 0), found.get("bytes.downloaded", 0)


def test_what_is_kept_where(where: str) -> None:
    """Documents on the host, all else on the device: uploaded once, handed out as it is, downloaded when asked."""
    store, data, on_gpu = zarrgpu.DeviceStore(where), cpu.Buffer.from_bytes(b"0123456789"), where != "host"
    crossed()
    for name in DOCUMENTS:
        store.set_sync(f"a/{name}", data)
        assert isinstance(store.array(f"a/{name}"), np.ndarray)
    assert crossed() == (0, 0)
    store.set_sync("a/c/0", data)
    assert crossed() == (10 * on_gpu, 0)
    kept = store.array("a/c/0")
    assert hasattr(kept, "__cuda_array_interface__") == on_gpu
    got = store.get_sync("a/c/0", prototype=prototype(where), byte_range=zarr.abc.store.RangeByteRequest(2, 5))
    assert got is not None
    assert crossed() == (0, 0)
    again = store.get_sync("a/c/0", prototype=prototype(where))
    assert again is not None
    assert _address(again.as_array_like()) == _address(kept)
    assert got.to_bytes() == b"234"
    host = store.get_sync("a/c/0", prototype=cpu.buffer_prototype)
    assert host is not None
    assert isinstance(host.as_array_like(), np.ndarray)
    assert host.to_bytes() == b"0123456789"
    assert crossed() == (0, 10 * on_gpu)
    store.set_sync("a/c/1", again)  # from the device to the device
    assert crossed() == (0, 0)
    assert _address(store.array("a/c/1")) != _address(kept)
    assert store.array("a/c/2") is None


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def test_values_are_copied_and_replaced(where: str) -> None:
    """Neither the buffer that was set, when it changes, nor a later value changes what was handed out."""
    store, memory = zarrgpu.DeviceStore(where), np.frombuffer(bytearray(b"old"), np.uint8)
    for name in ("c", "zarr.json"):
        store.set_sync(name, cpu.Buffer.from_array_like(memory))
    memory[:] = ord("x")
    got = store.get_sync("c", prototype=prototype(where))
    store.set_sync("c", cpu.Buffer.from_bytes(b"new"))
    assert got is not None
    assert got.to_bytes() == b"old"
    assert store.get_sync("zarr.json", prototype=prototype(where)) == cpu.Buffer.from_bytes(b"old")


def test_a_host_store_takes_device_buffers() -> None:
    """They are downloaded, which counts."""
    with device(ENGINES[-1]) as name:
        there, here = zarrgpu.DeviceStore(name), zarrgpu.DeviceStore("host")
        there.set_sync("c", cpu.Buffer.from_bytes(b"abc"))
        got = there.get_sync("c", prototype=prototype(name))
        assert got is not None
        crossed()
        here.set_sync("c", got)
        assert crossed() == (0, 3)
        assert bytes(here.array("c")) == b"abc"  # type: ignore[arg-type]  # a NumPy array


def test_copies_share_values(where: str) -> None:
    """And go their own way; a read-only view does not."""
    store = zarrgpu.DeviceStore(where)
    store.set_sync("c", cpu.Buffer.from_bytes(b"abc"))
    crossed()
    for other in (copy.copy(store), copy.deepcopy(store)):
        assert other == store
        assert other.array("c") is store.array("c")
    view = store.with_read_only(True)
    assert other != view
    store.set_sync("d", cpu.Buffer.from_bytes(b"d"))
    assert view.array("d") is store.array("d")
    assert other.array("d") is None
    assert other != store
    assert crossed() == (int(where != "host"), 0)


def test_pickles_go_through_the_host(where: str) -> None:
    store = zarrgpu.DeviceStore(where, read_only=True)
    store.with_read_only(False).set_sync("c", cpu.Buffer.from_bytes(b"abc"))
    crossed()
    other = pickle.loads(pickle.dumps(store))
    assert crossed() == (3 * (where != "host"),) * 2
    assert other == store
    assert other.read_only
    assert type(other.array("c")) is type(store.array("c"))
    different = zarrgpu.DeviceStore(where)
    different.set_sync("c", cpu.Buffer.from_bytes(b"abd"))
    assert different != store.with_read_only(False)
    assert different != MemoryStore()


def test_only_buffers_are_kept(where: str) -> None:
    with pytest.raises(TypeError, match="must be a Buffer, got bytes"):
        zarrgpu.DeviceStore(where).set_sync("c", b"abc")  # type: ignore[arg-type]  # on purpose


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(zarrgpu.DeviceUnavailableError):
        zarrgpu.DeviceStore("cuda:63")


def test_zarr_writes_and_reads(where: str) -> None:
    """As with any store, in zarr's own memory and in the device's."""
    store = zarrgpu.DeviceStore(where)
    z = make(VALUES, (10, 25), store=store)
    assert same(z[...], VALUES)
    with zarrgpu.enable(where):
        z = zarr.open_array(store)
        z[3:12] = VALUES[13:22]
        assert same(z[3:12], VALUES[13:22])


SOURCES = ["path", "string", "zip", "local store", "memory", "wrapped", "device", "group", "array", "place"]


@pytest.mark.parametrize("kind", SOURCES)
def test_load(kind: str, where: str, tmp_path: Path) -> None:
    """Every kind of source, a part of it; the part becomes the root."""
    root: Any = tmp_path / "a"
    if kind == "memory":
        root = MemoryStore()
    elif kind == "device":
        root = zarrgpu.DeviceStore(where)
    elif kind == "zip":
        root = zarr.storage.ZipStore(tmp_path / "a.zip", mode="w")
    group = zarr.create_group(root)
    make(VALUES, (10, 25), store=StorePath(group.store, "b/c"))
    make(VALUES, (10, 25), store=StorePath(group.store, "b/cc"))
    if kind == "zip":
        root.close()
    source, path = {
        "string": (str(root), "b/c"),
        "zip": (zarr.storage.ZipStore(tmp_path / "a.zip"), "b/c"),
        "local store": (group.store, "b/c"),
        "wrapped": (WrapperStore(group.store), "b/c"),
        "group": (group, "b/c"),
        "array": (None if kind == "zip" else zarr.open_array(group.store, path="b/c"), ""),
        "place": (StorePath(group.store, "b"), "c"),
    }.get(kind, (root, "b/c"))
    crossed()
    store = zarrgpu.DeviceStore.load(source, path, where, read_only=True)
    assert store.read_only
    assert sorted(store._values) == ["c/0/0", "c/1/0", "c/2/0", "c/3/0", "zarr.json"]
    chunks = sum(store._values[key].size for key in store._values if key != "zarr.json")
    assert crossed() == (chunks if where != "host" and kind != "device" else 0, 0)
    assert same(zarrgpu.read(store, device=where), VALUES)  # type: ignore[arg-type]  # zarr opens it


def test_load_everything(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "a", attributes={"x": 1}).create_array("b", shape=(2,), dtype="i4")[:] = 3
    store = zarrgpu.DeviceStore.load(LocalStore(tmp_path / "a"), device="host")
    group = zarr.open_group(store, mode="r")
    assert dict(group.attrs) == {"x": 1}
    assert zarrgpu.read(group["b"], device="host").tolist() == [3, 3]  # type: ignore[arg-type]  # an array


def test_load_nothing(tmp_path: Path) -> None:
    for source in (MemoryStore(), StorePath(MemoryStore(), "a")):
        with pytest.raises(FileNotFoundError, match="holds no keys"):
            zarrgpu.DeviceStore.load(source, device="host")
    with pytest.raises(FileNotFoundError):
        zarrgpu.DeviceStore.load(tmp_path / "none", device="host")


class Busy(WrapperStore[Store]):
    """Counts how many gets are under way."""

    busy = peak = 0

    async def get(self, key: str, *args: Any, **options: Any) -> Buffer | None:
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        await asyncio.sleep(0.001)
        self.busy -= 1
        if key.endswith("bad"):
            raise PermissionError(key)
        return await super().get(key, *args, **options)


def test_load_is_concurrent() -> None:
    """As zarr is told to be; the source's error surfaces as it is."""
    inner = MemoryStore()
    for i in range(30):
        inner.set_sync(f"c/{i}", cpu.Buffer.from_bytes(bytes(i)))
    with zarr.config.set({"async.concurrency": 4}):
        store = Busy(inner)
        assert len(zarrgpu.DeviceStore.load(store, device="host")._values) == 30
        assert store.peak == 4
        inner.set_sync("c/bad", cpu.Buffer.from_bytes(b""))
        with pytest.raises(PermissionError, match="bad"):
            zarrgpu.DeviceStore.load(store, device="host")
