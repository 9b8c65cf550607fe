"""Chunks arrive in the arena whole, at aligned places, from files and from asynchronous stores."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zarrgpu import _native
from zarrgpu.fetch import MISSING, Files, NativeFiles, Objects, files

WAYS = [Files, NativeFiles]


class Arena:
    """Memory that is reserved on demand, poisoned."""

    def reserve(self, nbytes: int) -> Any:
        self.bytes = np.full(nbytes, 0xEE, np.uint8)
        return self.bytes


@pytest.mark.parametrize("way", WAYS)
def test_files(way: type[Files], tmp_path: Path) -> None:
    """Many sizes, some large enough to be read by several workers, empty ones, missing ones and a folder among them."""
    rng = np.random.default_rng(0)
    want: list[bytes | None] = [rng.bytes(int(n)) for n in rng.integers(0, 3000, 50)]
    want += [b"", rng.bytes(3 << 20), b"x"]
    for i, data in enumerate(want):
        (tmp_path / f"ü{i}").write_bytes(data or b"")
    (tmp_path / "folder").mkdir()
    names = [f"ü{i}" for i in range(len(want))]
    for name in ("missing", "ü1/under-a-file", "folder"):
        names.insert(7, name)
        want.insert(7, None)
    arena = Arena()
    first = 3
    starts, sizes, used = way([str(tmp_path / n) for n in names]).load(first, len(names), arena.reserve)
    assert used % 16 == 0
    for data, at, n in zip(want[first:], starts.tolist(), sizes.tolist(), strict=True):
        assert at % 16 == 0
        assert n == (MISSING if data is None else len(data))
        assert data is None or arena.bytes[at : at + n].tobytes() == data


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_files_are_the_system_s(way: type[Files], tmp_path: Path) -> None:
    """Anything but a missing file raises, with its path."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match=r"symbolic links.*loop") as caught:
        way([str(loop)]).load(0, 1, Arena().reserve)
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_shrinks_is_an_error(way: type[Files], tmp_path: Path) -> None:
    """A file that is rewritten between the look at its size and the read is not half a chunk."""
    path = tmp_path / "a"
    path.write_bytes(bytes(100_000))

    def reserve(nbytes: int) -> Any:
        os.truncate(path, 10)
        return np.empty(nbytes, np.uint8)

    with pytest.raises(OSError, match="became shorter"):
        way([str(path)]).load(0, 1, reserve)


def test_no_files() -> None:
    """An empty range reads nothing."""
    for way in WAYS:
        starts, sizes, used = way([]).load(0, 0, Arena().reserve)
        assert (len(starts), len(sizes), used) == (0, 0, 0)


def test_places_outside_the_arena_are_refused(tmp_path: Path) -> None:
    """The compiled worker checks every destination itself."""
    (tmp_path / "a").write_bytes(bytes(64))
    table = _native.path_table([str(tmp_path / "a")] * 2)
    arena = np.full(64, 7, np.uint8)
    status = np.zeros(2, np.int64)
    starts, sizes = np.array([0, 48]), np.array([16, 64])
    _native.read_span(*table, starts, sizes, arena[:64], status, 0, 112)
    assert status.tolist() == [0, -34]
    assert arena.tolist() == [0] * 16 + [7] * 48


def test_this_system_has_a_way() -> None:
    """`files` chooses one of them."""
    assert isinstance(files([]), Files)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own, as zarr has."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_objects(loop: asyncio.AbstractEventLoop) -> None:
    """Buffers of an asynchronous store, no more at once than allowed."""
    busy = peak = 0

    async def get(i: int) -> Any:
        nonlocal busy, peak
        busy += 1
        peak = max(peak, busy)
        await asyncio.sleep(0.001)
        busy -= 1
        return None if i % 5 == 0 else np.full(i, i, np.uint8)

    arena = Arena()
    starts, sizes, _ = Objects(get, loop, concurrency=4).load(3, 40, arena.reserve)
    assert peak == 4
    for i, at, n in zip(range(3, 40), starts, sizes, strict=True):
        assert n == (MISSING if i % 5 == 0 else i)
        assert (arena.bytes[at : at + max(n, 0)] == i).all()


def test_a_store_s_error_cancels_the_others(loop: asyncio.AbstractEventLoop) -> None:
    """The error surfaces as it is, and nothing is left running."""
    ended = []

    async def get(i: int) -> Any:
        if i == 2:
            raise KeyError("the store's own")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(i)

    with pytest.raises(KeyError, match="the store's own"):
        Objects(get, loop, concurrency=10).load(0, 4, Arena().reserve)
    assert sorted(ended) == [0, 1, 3]
