"""`zarrgpu.bench`: no figure without the right bytes, honest statistics, every system that is installed."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import make, smooth
from zarrgpu import bench
from zarrgpu.bench import BenchMismatch, Measurement, System, compare, difference, measure, page_cache
from zarrgpu.bench.ways import _kvstore, absolute


@pytest.fixture
def array(tmp_path: Path) -> zarr.Array[Any]:
    return make(smooth((6, 40, 50)), (1, 40, 50), store=tmp_path / "a.zarr")


OTHERS = ["zarr", "zarr fused", *(name for name in ("zarrs", "tensorstore") if find_spec(name) is not None)]


def ours(read: Any, name: str = "zarrgpu") -> System:
    return System(name, "host", read, ours=True)


def tampered(array: zarr.Array[Any], selection: Any) -> Any:
    result = np.array(array[selection])
    result.reshape(-1).view(np.uint8)[-1] ^= 1
    return result


def failing(array: zarr.Array[Any], selection: Any) -> Any:
    raise RuntimeError("two\nlines")


@pytest.mark.parametrize("selection", [..., np.s_[1:5, ::3, 7], np.s_[2, 3, 4]])
def test_every_system_of_the_host_gives_the_same_bytes_and_as_many_times_as_asked(
    array: zarr.Array[Any], selection: Any
) -> None:
    told: list[tuple[int, int, str]] = []
    found = compare(
        array, selection, systems=bench.systems(["host"]), repeats=2, progress=lambda *state: told.append(state)
    )
    assert [(m.system, m.failure, m.note, len(m.times)) for m in found] == [
        (name, None, None, 2) for name in (*OTHERS, "zarrgpu")
    ]
    assert all(m.rate > 0 and m.decoded == np.asarray(array[selection]).nbytes for m in found)
    assert [done for done, _, _ in told] == list(range(told[0][1]))


class StandInArray(np.ndarray[Any, Any]):
    """As a cupy array, as far as it is filled from the host."""

    def set(self, host: Any) -> None:
        self[...] = host


class StandInDevice:
    """As `cupy.cuda.Device`."""

    waits = 0

    def __init__(self, index: int) -> None:
        assert index == 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        StandInDevice.waits += 1


@pytest.mark.nogpu("with a GPU the real ones are measured")
def test_zarrs_ways_to_a_gpu_copy_and_wait_for_the_device(
    array: zarr.Array[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[int] = []

    def alloc_pinned_memory(nbytes: int) -> bytearray:
        pinned.append(nbytes)
        return bytearray(nbytes)

    cupy: Any = ModuleType("cupy")
    cupy.asarray, cupy.empty = np.copy, lambda shape, dtype: np.empty(shape, dtype).view(StandInArray)
    cupy.cuda = SimpleNamespace(Device=StandInDevice, alloc_pinned_memory=alloc_pinned_memory)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for selection in (..., np.s_[1:5, -3, ::2], np.s_[[0, 2], :, :]):
        StandInDevice.waits = 0
        pinned.clear()
        systems = [s for s in bench.systems(["cuda:1"]) if s.name.endswith("copy")]
        found = compare(array, selection, systems=systems, repeats=3)
        assert [(m.failure, len(m.times)) for m in found] == [(None, 3)] * (2 * len(OTHERS))
        assert StandInDevice.waits == 2 * 3 * len(systems)
        assert pinned == [found[0].decoded] * len(OTHERS)  # once for each


def test_systems_for_a_gpu_bring_the_results_of_others_there_too() -> None:
    found = [(s.name, s.device, s.ours) for s in bench.systems(["cuda:1", "host"])]
    assert found == [
        *((name, "host", False) for name in OTHERS),
        *((f"{name} + {how}", "cuda:1", False) for name in OTHERS for how in ("copy", "pinned copy")),
        ("zarr enable_gpu", "cuda:1", False),
        ("zarrgpu", "cuda:1", True),
        ("zarrgpu", "host", True),
    ]


@pytest.mark.gpu
def test_every_system_of_the_gpu_gives_the_same_bytes(array: zarr.Array[Any]) -> None:
    found = compare(array, systems=bench.systems(["cuda:0", "host"]), repeats=1)
    assert [(m.system, m.failure) for m in found] == [(m.system, None) for m in found]


def test_a_wrong_byte_of_ours_stops_the_bench_before_any_clock_starts(
    array: zarr.Array[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_timed", failing)
    with pytest.raises(BenchMismatch, match=r"zarrgpu on host .* 1 of 48000 bytes differ"):
        compare(array, systems=[ours(tampered)])


def test_wrong_bytes_of_others_are_a_failure_without_a_figure(array: zarr.Array[Any]) -> None:
    (found,) = compare(array, systems=[System("other", "host", tampered)], repeats=1)
    assert found.failure == "wrong data: 1 of 48000 bytes differ"
    assert found.times == []
    assert math.isnan(found.rate)


def test_a_system_that_raises_is_kept_with_its_reason_on_one_line(array: zarr.Array[Any]) -> None:
    found = compare(array, systems=[ours(failing), System("zarr", "host", lambda a, s: a[s])], repeats=1)
    assert [m.failure for m in found] == ["RuntimeError: two lines", None]


def test_a_system_that_raises_later_loses_its_times(array: zarr.Array[Any]) -> None:
    calls = iter([False, False, True])

    def read(array: zarr.Array[Any], selection: Any) -> Any:
        return failing(array, selection) if next(calls) else array[selection]

    (found,) = compare(array, systems=[ours(read)], repeats=2)
    assert found.failure is not None
    assert found.times == []


def test_a_fallback_is_noted_beside_the_figure() -> None:
    array = zarr.create_array({}, shape=(3,), chunks=(2,), dtype="<U4")
    array[...] = np.array(["a", "bcd", ""], "<U4")
    found = compare(
        array, systems=[s for s in bench.systems(["host"]) if "zarr" in s.name and s.name != "zarrs"], repeats=1
    )
    assert {m.system: m.note for m in found if not m.failure} == {
        "zarr": None,
        "zarr fused": None,
        "zarrgpu": "bind:dtype <U4",
    }


def test_comparing_leaves_zarrs_configuration_alone(array: zarr.Array[Any]) -> None:
    with zarrgpu.enable("host"):
        before = zarr.config.get("codec_pipeline.path")
        compare(array, systems=bench.systems(["host"]), repeats=1)
        assert zarr.config.get("codec_pipeline.path") == before


@pytest.mark.parametrize(
    ("times", "seconds", "best", "spread"),
    [([2.0], 2.0, 2.0, 0.0), ([4.0, 1.0, 2.0], 2.0, 1.0, 1.5), ([1.0, 2.0, 3.0, 4.0], 2.5, 1.0, 1.2)],
)
def test_statistics_are_median_minimum_and_relative_range(
    times: list[float], seconds: float, best: float, spread: float
) -> None:
    m = Measurement("s", "host", True, decoded=10**9, stored=1, times=times)
    assert (m.seconds, m.best) == (seconds, best)
    assert [m.spread, m.rate] == pytest.approx([spread, 1 / seconds])
    assert m.as_dict()["times"] == times


def test_json_has_no_nan() -> None:
    described = Measurement("s", "host", True, 1, 1, failure="why").as_dict()
    assert [described[k] for k in ("seconds", "best", "spread", "rate", "cold_rate", "failure")] == [None] * 5 + ["why"]


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        (np.array([1, 2]), np.array([1, 2]), None),
        (np.array([1, 2], "i4"), np.array([1, 2], "i8"), "shape .* dtype int32"),
        (np.array([[1, 2]]), np.array([1, 2]), "shape"),
        (np.array([0x7FC00001], "u4").view("f4"), np.array([0x7FC00002], "u4").view("f4"), "1 of 4 bytes differ"),
        (np.array([-0.0]), np.array([0.0]), "1 of 8 bytes differ"),
        (np.array(["a"], object), np.array(["b"], object), "other values"),
        (np.float32(1), np.array(1, "f4"), None),
    ],
)
def test_difference_sees_every_bit(got: Any, want: Any, expected: str | None) -> None:
    found = difference(np.asarray(got), want)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(expected, found)


def test_bytes_that_go_wrong_under_load_are_found_when_the_clock_has_stopped(array: zarr.Array[Any]) -> None:
    """A race shows when reads follow each other, not in the first one."""
    for ours in (False, True):
        calls = iter([False, False, True])
        read = lambda array, selection, calls=calls: tampered(array, selection) if next(calls) else array[selection]  # noqa: E731  # with its own calls
        system = System("one", "host", read, ours=ours)
        if ours:
            with pytest.raises(BenchMismatch):
                compare(array, systems=[system], repeats=2)
            continue
        (found,) = compare(array, systems=[system], repeats=2)
        assert found.failure == "wrong data: 1 of 48000 bytes differ"
        assert found.times == []


def test_a_budget_ends_the_repeats_of_slow_systems_only(array: zarr.Array[Any]) -> None:
    def slow(array: zarr.Array[Any], selection: Any) -> Any:
        time.sleep(0.02)
        return array[selection]

    systems = [System("slow", "host", slow), System("quick", "host", lambda a, s: a[s])]
    found = compare(array, systems=systems, repeats=6, budget=0.02)
    assert len(found[0].times) == 2  # and the last, which is checked once more
    assert len(found[1].times) >= 2


def test_cold_reads_come_after_the_files_have_left_the_page_cache(array: zarr.Array[Any]) -> None:
    done: list[str] = []

    def read(array: zarr.Array[Any], selection: Any) -> Any:
        done.append("read")
        return array[selection]

    (found,) = compare(array, systems=[System("s", "host", read)], repeats=2, drop=lambda: done.append("drop"))
    assert done == ["read", "drop", "read", "drop", "read", "read", "read"]
    assert (len(found.cold), len(found.times)) == (2, 2)
    assert found.cold_rate > 0
    assert math.isnan(Measurement("s", "host", True, 1, 1).cold_rate)


def test_files_are_dropped_from_the_page_cache(array: zarr.Array[Any], tmp_path: Path) -> None:
    files = page_cache.files_of(array)
    assert files is not None
    assert len(files) == 7
    if not page_cache.can_drop(files):
        pytest.skip("this file system keeps files in memory, or does not say what is there")
    for path in files:
        Path(path).read_bytes()
    assert page_cache.is_cached(files[0])
    page_cache.drop(files)
    assert sum(page_cache.is_cached(path) is False for path in files) > len(files) / 2


def test_cold_is_not_told_apart_where_it_cannot_be(array: zarr.Array[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    files = page_cache.files_of(array)
    assert not page_cache.can_drop(None)
    assert not page_cache.can_drop([])
    assert page_cache.files_of(make(smooth((3, 4)), (1, 4))) is None
    for told in (True, None):
        monkeypatch.setattr(page_cache, "is_cached", lambda path, told=told: told)
        assert not page_cache.can_drop(files)

    def refused(*_: Any) -> int:
        raise OSError(95, "not supported")

    monkeypatch.undo()
    monkeypatch.setattr(os, "preadv", refused)
    assert not page_cache.can_drop(files)
    monkeypatch.setattr(os, "fsync", refused)
    assert not page_cache.can_drop(files)
    monkeypatch.setattr(page_cache, "MOST_FILES", 3)
    assert page_cache.files_of(array) is None


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (..., [slice(0, 4, 1), slice(0, 6, 1)]),
        (np.s_[-1], [3, slice(0, 6, 1)]),
        (np.s_[..., ::2], [slice(0, 4, 1), slice(0, 6, 2)]),
        (np.s_[1:-1, -2], [slice(1, 3, 1), 4]),
        ([0, 1], None),
    ],
)
def test_selections_count_from_the_start_of_their_axes(selection: Any, expected: Any) -> None:
    assert absolute(selection, (4, 6)) == expected


def test_tensorstore_is_given_files_and_http(array: zarr.Array[Any]) -> None:
    pytest.importorskip("tensorstore")
    tensorstore = next(s for s in bench.systems(["host"]) if s.name == "tensorstore")
    (found,) = compare(make(smooth((3, 4)), (1, 4)), systems=[tensorstore], repeats=1)
    assert found.failure is not None
    assert "files and HTTP addresses" in found.failure
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    store = zarr.storage.FsspecStore.from_url("https://example.org/a.zarr")
    for path in ("", "b"):
        remote: Any = SimpleNamespace(store_path=SimpleNamespace(store=store, path=path))
        assert _kvstore(remote) == {
            "driver": "http",
            "base_url": f"https://example.org/a.zarr/{path}".rstrip("/") + "/",
        }
