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
from zarr.abc.store import Store
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
from zarrgpu import _compat, fetch, wave

VALUES = smooth((40, 25), "<i4")
VALUES[20:30] = 9  # the fill value: these chunks are missing
CHUNKS = (10, 25)


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
        for name, options in chains.items():
            place = StorePath(store) / f"{name}{zarr_format}"
            array = make(VALUES, CHUNKS, zarr_format, store=place, fill_value=9, **options)
            assert array.nchunks_initialized == 3


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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs(*NEEDS.get(kind.__name__, ())), id=kind.__name__) for kind in KINDS]
)
def test_every_store(kind: Callable[[Path, Server], Made], engine: str, tmp_path: Path, server: Server) -> None:
    """Through both front doors, whole and in part, chunks missing; each by a program of ours."""
    with device(engine) as name:
        store, formats, end = kind(tmp_path, server)
        zarrgpu.reset_counters()
        try:
            for codec in ("blosc", "zstd"):
                for zarr_format in formats:
                    path = f"{codec}{zarr_format}"
                    z = zarr.open_array(store, path=path, mode="r")
                    for selection in (np.s_[...], np.s_[5:33:2, 3]):
                        assert same(zarrgpu.read(z, selection, device=name), VALUES[selection]), path
                    with zarrgpu.enable(name, strict=True):
                        z = zarr.open_array(store, path=path, mode="r")
                        assert same(z[...], VALUES), path
                        assert same(z[12:28], VALUES[12:28]), path
        finally:
            end()
        assert fates() == {f"chunks.{name.partition(':')[0]}": 2 * len(formats) * (4 + 4 + 4 + 2)}


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("engine", ENGINES)
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
@pytest.mark.parametrize("engine", ["host", ENGINES[-1]])
def test_shards_over_http(engine: str, server: Server, tmp_path: Path) -> None:
    """Inner chunks are asked for by ranges, as zarr does."""
    z = zarr.create_array(
        tmp_path / "served", shape=VALUES.shape, dtype="i4", shards=(20, 25), chunks=(5, 25), fill_value=9
    )
    z[...] = VALUES
    store = over_http(server)
    with device(engine) as name, zarrgpu.enable(name):
        z = zarr.open_array(store, mode="r")
        assert same(z[...], VALUES)
        server.ranges = 0
        assert same(z[7:9], VALUES[7:9])
        assert server.ranges > 0
    hang_up(store)


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("engine", ENGINES)
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


class Raising(WrapperStore[Store]):
    """A store of which one chunk cannot be had."""

    async def get(self, key: str, *args: Any, **options: Any) -> Buffer | None:
        if key.endswith("c/1/0"):
            raise self.error
        return await super().get(key, *args, **options)

    error: Exception = RuntimeError()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", ["blosc3", "zstd3"])
@pytest.mark.parametrize("error", [PermissionError(13, "no"), KeyError("x"), TimeoutError(), ValueError("v")])
def test_a_store_that_raises(error: Exception, path: str, engine: str) -> None:
    """The very error, whatever its type, with one note of store and chunk."""
    made(inner := MemoryStore(), (3,))
    store = Raising(inner.with_read_only(True))
    with device(engine) as name:
        for read in (
            lambda: zarrgpu.read(StorePath(store, path), device=name),
            lambda: zarr.open_array(store, path=path, mode="r")[...],
        ):
            store.error = type(error)(*error.args)
            with zarrgpu.enable(name), pytest.raises(type(error)) as caught:
                read()
            assert caught.value is store.error
            assert notes(caught.value) == [f"{store}: chunk '{path}/c/1/0'"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", ["blosc3", "zstd3"])
@pytest.mark.parametrize("way", [fetch.Files, fetch.NativeFiles])
@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_cannot_be_read(
    way: type[fetch.Files], path: str, engine: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's error, noted in the same way, however the file is read."""
    made(LocalStore(tmp_path), (3,))
    chunk = tmp_path / path / "c/1/0"
    chunk.unlink()
    chunk.symlink_to(chunk)  # a loop
    for module in ("_read", "pipeline"):
        monkeypatch.setattr(f"zarrgpu.{module}.files", way)
    if large:
        monkeypatch.setattr(wave, "LARGE", 1)  # the threads that decode chunks read them
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


class Busy(WrapperStore[Store]):
    """Counts how many chunks are under way."""

    busy = peak = 0

    async def get(self, *args: Any, **options: Any) -> Buffer | None:
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        await asyncio.sleep(0.002)
        self.busy -= 1
        return await super().get(*args, **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_more_at_once_than_zarr_allows(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all waves together, through both front doors."""
    for name in ("WAVE_BYTES", "HOST_WAVE_BYTES"):
        monkeypatch.setattr(wave, name, 1000)
    values = smooth((120, 4), "<i4")
    z = make(values, (2, 4), store=MemoryStore(), compressors=None)
    store = Busy(z.store.with_read_only(True))
    with device(engine) as where, zarr.config.set({"async.concurrency": 3}):
        assert same(zarrgpu.read(zarr.open_array(store, mode="r"), device=where), values)
        assert store.peak == 3
        store.peak = 0
        with zarrgpu.enable(where, strict=True):
            assert same(zarr.open_array(store, mode="r")[...], values)
        assert store.peak == 3
