"""Every kind of store that zarr has: the same values by a program of ours, its errors as they are, no more at once."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.abc.buffer import Buffer
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import cpu
from zarr.storage import (
    FsspecStore,
    LocalStore,
    LoggingStore,
    MemoryStore,
    ObjectStore,
    StorePath,
    WrapperStore,
    ZipStore,
)

import zarrgpu
from tests.conftest import GPU
from tests.engines import ENGINES, device, fates, make, same, smooth
from zarrgpu import _compat, sizing
from zarrgpu.files import Files, NativeFiles

VALUES = smooth((40, 25), "<i4")
VALUES[20:30] = 9  # the fill value: this chunk, or shard, is missing
VALUES[4:8] = 9  # these chunks are missing in a shard
CHUNKS = (10, 25)
WHERE = [engine for engine in ENGINES if engine != "twins"]  # bytes come to the host in one way
READ = {"blosc": 4 + 4 + 4 + 2, "zstd": 4 + 4 + 4 + 2, "sharded": 20 + 14 + 20 + 8}
"""Chunks that `test_every_store` reads of each array."""


class Server(ThreadingHTTPServer):
    """Serves a folder over HTTP, ranges too, and counts what it was asked for.

    Attributes
    ----------
    asked : Counter
        Requests by path.
    ranges : int
        Requests for a part of a file.
    failing : set of str
        Paths that end with status 500.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        self.asked: Counter[str] = Counter()
        self.ranges = 0
        self.failing: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked[self.path] += 1
        file = Path(self.translate_path(self.path))
        if self.path in self.server.failing:
            return self.answer(500, b"")
        if not file.is_file():
            return self.answer(404, b"")
        data = file.read_bytes()
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            return self.answer(200, data)
        self.server.ranges += 1
        first = int(part[1]) if part[1] else len(data) - int(part[2])
        last = int(part[2]) if part[1] and part[2] else len(data) - 1
        return self.answer(206, data[first : last + 1], f"bytes {first}-{last}/{len(data)}")

    def answer(self, status: int, body: bytes, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of a folder of its own."""
    folder = tmp_path / "served"
    folder.mkdir()
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def over_http(server: Server) -> FsspecStore:
    return FsspecStore.from_url(server.url, read_only=True)


def hang_up(store: FsspecStore) -> None:
    """Close a store's connections, on the loop that they belong to."""
    fs: Any = store.fs

    async def close() -> None:
        await (await fs.set_session()).close()

    asyncio.run_coroutine_threadsafe(close(), _compat.loop()).result()
    fs.clear_instance_cache()


def made(store: Any, formats: tuple[int, ...] = (2, 3)) -> None:
    """Write the arrays of these tests into a store."""
    for zarr_format in formats:
        zstd = numcodecs.Zstd(1) if zarr_format == 2 else zarr.codecs.ZstdCodec(level=1)
        chains: dict[str, Any] = {"blosc": {}, "zstd": {"compressors": zstd}}
        if zarr_format == 3:
            chains["sharded"] = {"shards": CHUNKS}
        for name, options in chains.items():
            place, chunks = StorePath(store) / f"{name}{zarr_format}", (2, 25) if "shards" in options else CHUNKS
            array = make(VALUES, chunks, zarr_format, store=place, fill_value=9, **options)
            assert array._nshards_initialized == 3


class Made(NamedTuple):
    """A store with arrays in it, and what to do once it is not needed any more."""

    store: Store
    formats: tuple[int, ...] = (2, 3)
    end: Callable[[], None] = lambda: None


def local(folder: Path, server: Server) -> Made:
    made(LocalStore(folder))
    return Made(LocalStore(folder, read_only=True))


def memory(folder: Path, server: Server) -> Made:
    store = MemoryStore()
    made(store)
    return Made(store)


def zipped(folder: Path, server: Server) -> Made:
    with ZipStore(folder / "a.zip", mode="w") as store:
        made(store)
    reader = ZipStore(folder / "a.zip")
    return Made(reader, end=reader.close)


def http(folder: Path, server: Server) -> Made:
    made(LocalStore(folder / "served"))
    store = over_http(server)
    return Made(store, end=lambda: hang_up(store))


def fsspec_memory(folder: Path, server: Server) -> Made:
    store = FsspecStore.from_url(f"memory://{folder.name}", storage_options={"skip_instance_cache": True})
    made(store)
    return Made(store)


def objects_in_a_folder(folder: Path, server: Server) -> Made:
    import obstore.store

    made(LocalStore(folder))
    return Made(ObjectStore(obstore.store.LocalStore(str(folder)), read_only=True))


def objects_in_memory(folder: Path, server: Server) -> Made:
    import obstore.store

    store = ObjectStore(obstore.store.MemoryStore())
    made(store)
    return Made(store)


def icechunk(folder: Path, server: Server) -> Made:
    from icechunk import Repository, in_memory_storage

    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    made(session.store, (3,))  # it has no Zarr 2
    session.commit("arrays")
    return Made(repository.readonly_session("main").store, (3,))


def wrapped(folder: Path, server: Server) -> Made:
    made(LocalStore(folder))
    return Made(WrapperStore(LocalStore(folder)))


def logging(folder: Path, server: Server) -> Made:
    made(LocalStore(folder))
    return Made(LoggingStore(LocalStore(folder), log_level="CRITICAL"))


def device_memory(folder: Path, server: Server) -> Made:
    store = zarrgpu.DeviceStore()
    made(store)
    return Made(store)


NEEDS = {"http": ("fsspec", "aiohttp"), "fsspec_memory": ("fsspec",), "icechunk": ("icechunk",)}
NEEDS |= {"objects_in_a_folder": ("obstore",), "objects_in_memory": ("obstore",)}


def needs(*packages: str) -> Any:
    """Skip on a machine with a GPU that lacks packages; where there is none, they are test dependencies."""
    lacks = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(GPU and bool(lacks), reason=f"{', '.join(lacks)} not installed beside the GPU")


KINDS = [local, memory, zipped, http, fsspec_memory, objects_in_a_folder, objects_in_memory, icechunk, wrapped]
KINDS += [logging, device_memory]


@pytest.mark.parametrize("engine", WHERE)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs(*NEEDS.get(kind.__name__, ())), id=kind.__name__) for kind in KINDS]
)
def test_every_store(kind: Callable[[Path, Server], Made], engine: str, tmp_path: Path, server: Server) -> None:
    """Through both front doors, whole and in part, chunks missing; each by a program of ours.

    zarr's `GpuMemoryStore` is in `tests.test_resident`.
    """
    with device(engine) as name:
        store, formats, end = kind(tmp_path, server)
        paths = [f"{codec}{n}" for codec in READ for n in formats if (codec, n) != ("sharded", 2)]
        zarrgpu.reset_counters()
        try:
            for path in paths:
                z = zarr.open_array(store, path=path, mode="r")
                for selection in (np.s_[...], np.s_[5:33:2, 3]):
                    assert same(zarrgpu.read(z, selection, device=name), VALUES[selection]), path
                with zarrgpu.enable(name, strict=True):
                    z = zarr.open_array(store, path=path, mode="r")
                    assert same(z[...], VALUES), path
                    assert same(z[12:28], VALUES[12:28]), path
        finally:
            end()
        assert fates() == {f"chunks.{name.partition(':')[0]}": sum(READ[path[:-1]] for path in paths)}


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("engine", WHERE)
def test_what_a_server_is_asked_for(engine: str, server: Server, tmp_path: Path) -> None:
    """Each chunk that is needed once, also those that are missing, nothing else, and no part of one."""
    made(LocalStore(tmp_path / "served"))
    store = over_http(server)
    with device(engine) as name:
        z = zarr.open_array(store, path="blosc3", mode="r")
        server.asked.clear()
        assert same(zarrgpu.read(z, np.s_[15:], device=name), VALUES[15:])
    hang_up(store)
    assert server.asked == {f"/blosc3/c/{i}/0": 1 for i in (1, 2, 3)}
    assert server.ranges == 0


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("engine", WHERE)
def test_shards_over_http(engine: str, server: Server, tmp_path: Path) -> None:
    """A chunk of a shard takes two requests for ranges, of the index and of its bytes."""
    made(LocalStore(tmp_path / "served"), (3,))
    store = over_http(server)
    with device(engine) as name, zarrgpu.enable(name, strict=True):
        z = zarr.open_array(store, path="sharded3", mode="r")
        server.asked.clear()
        assert same(z[12:14], VALUES[12:14])
        assert server.asked == {"/sharded3/c/1/0": 2}
        assert server.ranges == 2
        assert same(zarrgpu.read(z, np.s_[12:14], device=name), VALUES[12:14])
        assert server.ranges == 4
    hang_up(store)


@pytest.mark.parametrize("kind", ["path", "file", "memory", pytest.param("http", marks=needs("fsspec", "aiohttp"))])
def test_opened_by_url(kind: str, server: Server, tmp_path: Path) -> None:
    """As zarr opens what it is given, itself or inside `read`."""
    made(LocalStore(tmp_path / "served"), (3,))
    url = {"path": f"{tmp_path}/served", "file": f"file://{tmp_path}/served", "http": server.url}.get(kind)
    if url is None:
        url = f"memory://{tmp_path.name}"
        made(FsspecStore.from_url(url), (3,))
    for path in ("blosc3", "sharded3"):
        z = zarr.open_array(f"{url}/{path}", mode="r")
        assert z.store.read_only
        zarrgpu.reset_counters()
        assert same(zarrgpu.read(z, device="host"), VALUES)
        assert same(zarrgpu.read(f"{url}/{path}", device="host"), VALUES)
        with zarrgpu.enable("host", strict=True):
            assert same(zarr.open_array(f"{url}/{path}", mode="r")[...], VALUES)
        assert fates() == {"chunks.host": 3 * (20 if path == "sharded3" else 4)}
    if kind == "http":
        hang_up(z.store)  # type: ignore[arg-type]  # zarr's for URLs


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("engine", WHERE)
@pytest.mark.parametrize("path", ["blosc3", "zstd3"])
def test_a_server_that_fails(engine: str, path: str, server: Server, tmp_path: Path) -> None:
    """Status 500 is the error that zarr raises for it, with a note of the chunk; a missing chunk is none."""
    made(LocalStore(tmp_path / "served"))
    server.failing = {f"/{path}/c/1/0"}
    store = over_http(server)
    z = zarr.open_array(store, path=path, mode="r")
    with pytest.raises(Exception, match="500") as plain:
        z[...]
    with device(engine) as name:
        for read in (
            lambda: zarrgpu.read(z, device=name),
            lambda: zarr.open_array(store, path=path, mode="r")[...],
        ):
            with zarrgpu.enable(name), pytest.raises(Exception, match="500") as caught:
                read()
            assert type(caught.value) is type(plain.value)
            assert notes(caught.value) == [f"{store}: chunk '{path}/c/1/0'"]
        assert same(zarrgpu.read(z, np.s_[20:], device=name), VALUES[20:])
    hang_up(store)


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


class Asked(WrapperStore[Store]):
    """A store of which also ranges are asked for by `get`."""

    def get_ranges(self, *args: Any, **options: Any) -> Any:
        return Store.get_ranges(self, *args, **options)


class Raising(Asked):
    """A store of which one chunk cannot be had, or one kind of request for it."""

    error: Exception = RuntimeError()
    kind: type = object

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Buffer | None:
        if key.endswith("c/1/0") and isinstance(byte_range, self.kind):
            raise self.error
        return await super().get(key, prototype, byte_range)


REQUESTS: dict[str, tuple[str, Any, type]] = {
    "a chunk": ("blosc3", np.s_[...], object),
    "a chunk for a library": ("zstd3", np.s_[...], object),
    "a whole shard": ("sharded3", np.s_[...], type(None)),
    "an index": ("sharded3", np.s_[12:14], SuffixByteRequest),
    "a range of a shard": ("sharded3", np.s_[12:14], RangeByteRequest),
}


@pytest.mark.parametrize("engine", WHERE)
@pytest.mark.parametrize("request_for", REQUESTS)
def test_a_store_that_raises(request_for: str, engine: str) -> None:
    """The very error, whatever its type, with one note of store and chunk."""
    path, selection, kind = REQUESTS[request_for]
    made(inner := MemoryStore(), (3,))
    store = Raising(inner.with_read_only(True))
    store.kind = kind
    with device(engine) as name:
        for error in (PermissionError(13, "no"), KeyError("x"), TimeoutError(), ValueError("v")):
            for read in (
                lambda: zarrgpu.read(StorePath(store, path), selection, device=name),
                lambda: zarr.open_array(store, path=path, mode="r")[selection],
            ):
                store.error = type(error)(*error.args)
                with zarrgpu.enable(name), pytest.raises(type(error)) as caught:
                    read()
                assert caught.value is store.error
                assert caught.value.args == error.args
                assert notes(caught.value) == [f"{store}: chunk '{path}/c/1/0'"]


@pytest.mark.parametrize("engine", WHERE)
@pytest.mark.parametrize("path", ["blosc3", "zstd3", "sharded3"])
@pytest.mark.parametrize("way", [Files, NativeFiles])
@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_cannot_be_read(
    way: type[Files], path: str, engine: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's error, noted in the same way, however the file is read."""
    made(LocalStore(tmp_path), (3,))
    chunk = tmp_path / path / "c/1/0"
    chunk.unlink()
    chunk.symlink_to(chunk)  # a loop
    monkeypatch.setattr("zarrgpu._compat.store.files", way)
    if large:
        monkeypatch.setattr(sizing, "LARGE", 1)  # the threads that decode chunks read them
    with device(engine) as name:
        store = LocalStore(tmp_path)
        for read in (
            lambda: zarrgpu.read(StorePath(store, path), device=name),
            lambda: zarr.open_array(store, path=path, mode="r")[...],
        ):
            with zarrgpu.enable(name), pytest.raises(OSError, match="symbolic links") as caught:
                read()
            assert type(caught.value) is OSError
            assert notes(caught.value) == [f"{store}: chunk '{path}/c/1/0'"]


class Busy(Asked):
    """Counts how many requests are under way, and remembers which buffers they are for."""

    busy = peak = 0
    buffers: set[type]

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Buffer | None:
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        self.buffers.add(prototype.buffer)
        await asyncio.sleep(0.002)
        self.busy -= 1
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("engine", WHERE)
@pytest.mark.parametrize("selection", [np.s_[...], np.s_[::10]], ids=["all", "some"])
@pytest.mark.parametrize("shards", [None, (20, 4)], ids=["chunks", "shards"])
def test_no_more_at_once_than_zarr_allows(
    shards: tuple[int, ...] | None, selection: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all waves together, through both front doors, whole shards and ranges; for buffers on the host."""
    for name in ("WAVE_BYTES", "HOST_WAVE_BYTES"):
        monkeypatch.setattr(sizing, name, 100)
    values = smooth((120, 4), "<i4")
    z = make(values, (2, 4), store=MemoryStore(), compressors=None, shards=shards)
    store = Busy(z.store.with_read_only(True))
    config = {"async.concurrency": 3, "array.sharding_coalesce_max_gap_bytes": 0}
    with device(engine) as where, zarr.config.set(config):
        for front_door in ("read", "pipeline"):
            store.peak, store.buffers = 0, set()
            with zarrgpu.enable(where, strict=True):
                array = zarr.open_array(store, mode="r")
                store.buffers = set()  # the documents are zarr's to read
                got = zarrgpu.read(array, selection, device=where) if front_door == "read" else array[selection]
            assert same(got, values[selection])
            assert store.peak == 3, front_door
            assert all(issubclass(buffer, cpu.Buffer) for buffer in store.buffers)
            assert store.buffers
