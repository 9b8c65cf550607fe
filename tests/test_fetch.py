"""Chunks arrive in the arena whole, at aligned places, from files and from asynchronous stores."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zarrgpu import _native
from zarrgpu.fetch import MISSING, UNKNOWN, Objects, by_number
from zarrgpu.files import Files, NativeFiles, files

WAYS = [Files, NativeFiles]


class Arena:
    """Memory that is reserved on demand, poisoned."""

    bytes = np.empty(0, np.uint8)

    def reserve(self, nbytes: int, keep: int = 0) -> Any:
        kept = self.bytes[:keep]
        self.bytes = np.full(nbytes, 0xEE, np.uint8)
        self.bytes[:keep] = kept
        return self.bytes


@pytest.mark.parametrize("count", [50, 500])
@pytest.mark.parametrize("way", WAYS)
def test_files(way: type[Files], count: int, tmp_path: Path) -> None:
    """Many sizes, some large enough to be read by several workers, empty ones, missing ones and a folder among them.

    Of 500, workers know no sizes, and the large ones find no room at first.
    """
    rng = np.random.default_rng(0)
    want: list[bytes | None] = [rng.bytes(int(n)) for n in rng.integers(0, 3000, count)]
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
    for count in (1, 500):
        with pytest.raises(OSError, match=r"symbolic links.*loop") as caught:
            way([str(loop)] * count).load(0, count, Arena().reserve)
        assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_shrinks_is_an_error(way: type[Files], tmp_path: Path) -> None:
    """A file that is rewritten between the look at its size and the read is not half a chunk."""
    path = tmp_path / "a"
    path.write_bytes(bytes(100_000))

    def reserve(nbytes: int, keep: int = 0) -> Any:
        os.truncate(path, 10)
        return np.empty(nbytes, np.uint8)

    with pytest.raises(OSError, match="became shorter"):
        way([str(path)]).load(0, 1, reserve)


def test_files_of_unknown_sizes_stay_in_the_arena(tmp_path: Path) -> None:
    """The compiled worker gives no place outside, and what found none is whole in none."""
    paths, want = [], [bytes([i]) * (20 * i) for i in range(6)]
    for i, data in enumerate(want):
        paths.append(str(tmp_path / str(i)))
        (tmp_path / str(i)).write_bytes(data)
    arena, taken = np.full(160, 0xEE, np.uint8), np.zeros(1, np.int64)
    starts, sizes = np.empty(6, np.int64), np.empty(6, np.int64)
    _native.read_files(*_native.path_table(paths), arena[16:144], taken, starts, sizes, 0, 6)
    assert sizes.tolist() == [20 * i for i in range(6)]
    assert starts.tolist() == [0, 0, 32, -1, -1, -1]  # 60 bytes are more than are left after 80
    assert arena[16:36].tolist() == [1] * 20
    assert arena[48:88].tolist() == [2] * 40
    assert (arena[:16] == 0xEE).all()
    assert (arena[88:] == 0xEE).all()


def test_no_files() -> None:
    """An empty range reads nothing."""
    for way in WAYS:
        starts, sizes, used = way([]).load(0, 0, Arena().reserve)
        assert (len(starts), len(sizes), used) == (0, 0, 0)


def test_places_outside_the_arena_are_refused(tmp_path: Path) -> None:
    """The compiled worker checks every destination itself."""
    (tmp_path / "a").write_bytes(bytes(64))
    table = _native.path_table([str(tmp_path / "a")])
    arena = np.full(64, 7, np.uint8)
    status = np.zeros(3, np.int64)
    offsets, sizes, starts = np.array([0, 8, 0]), np.array([16, 56, 4]), np.array([0, 16, -1])
    _native.read_ranges(*table, np.zeros(3, np.int64), offsets, sizes, starts, arena[:64], status, 0, 3)
    assert status.tolist() == [0, -34, -34]
    assert arena.tolist() == [0] * 16 + [7] * 48


@pytest.mark.parametrize("way", WAYS)
def test_ranges_of_files(way: type[Files], tmp_path: Path) -> None:
    """Parts of files, large ones in pieces, missing and open-ended ones, and the ends of files."""
    rng = np.random.default_rng(1)
    content = [rng.integers(0, 256, n, np.uint8).tobytes() for n in (10, 9_000_000, 0)]
    for i, data in enumerate(content):
        (tmp_path / str(i)).write_bytes(data)
    source = way([str(tmp_path / str(i)) for i in (0, 1, 2, 3)])
    which, offsets = np.array([1, 1, 0, 2, 3, 0, 1]), np.array([5, 0, 2, 0, 0, 4, 8_999_990])
    asked = np.array([8_500_000, 7, 3, UNKNOWN, UNKNOWN, MISSING, UNKNOWN])
    arena = Arena()
    starts, sizes, used = source.ranges(which, offsets, asked, arena.reserve)
    assert sizes.tolist() == [8_500_000, 7, 3, 0, MISSING, MISSING, 10]
    assert used % 16 == 0
    for i, offset, at, n in zip(which.tolist(), offsets.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if n >= 0:
            assert arena.bytes[at : at + n].tobytes() == content[i][offset : offset + n]
    for at_end in (False, True):
        ends, sizes = source.ends(np.array([3, 0, 1, 2]), 12, at_end)
        assert sizes.tolist() == [MISSING, 10, 9_000_000, 0]
        got = [None if e is None else e.tobytes() for e in ends]
        assert got == [None, content[0], content[1][-12:] if at_end else content[1][:12], b""]


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


@dataclass
class Value:
    """A value of a store that gives all of it."""

    whole: Callable[[int], Awaitable[Any]]
    i: int

    async def get(self) -> Any:
        return await self.whole(self.i)

    async def end(self, nbytes: int, at_end: bool) -> Any:
        data = await self.get()
        return data if data is None else data[max(0, data.size - nbytes) :] if at_end else data[:nbytes]

    async def ranges(self, spans: Sequence[tuple[int, int]], concurrency: int) -> Sequence[Any]:
        return [(await self.get())[first:stop] for first, stop in spans]


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
    starts, sizes, _ = Objects(partial(Value, get), loop, concurrency=4).load(3, 40, arena.reserve)
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
        Objects(partial(Value, get), loop, concurrency=10).load(0, 4, Arena().reserve)
    assert sorted(ended) == [0, 1, 3]


def test_lines_by_number() -> None:
    """In order, none for a number that does not occur, or where there are none at all."""
    found = by_number(np.array([2, 0, 2, 3, 0]), 5)
    assert [lines.tolist() for lines in found] == [[1, 4], [], [0, 2], [3], []]
    assert by_number(np.zeros(0, np.int64), 0) == []
    assert [lines.tolist() for lines in by_number(np.zeros(0, np.int64), 2)] == [[], []]
