"""`zarrgpu.bench` and `zarrgpu.sample`: no figure without the right bytes, honest statistics, reproducible data."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import make, smooth
from zarrgpu import bench
from zarrgpu.bench import BenchMismatch, Measurement, System, compare, difference
from zarrgpu.sample import Fields, pack, write_sample


@pytest.fixture
def array(tmp_path: Path) -> zarr.Array[Any]:
    return make(smooth((6, 40, 50)), (1, 40, 50), store=tmp_path / "a.zarr")


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
        ("zarr", None, None, 2),
        ("zarr fused", None, None, 2),
        ("zarrgpu", None, None, 2),
    ]
    assert all(m.rate > 0 and m.decoded == np.asarray(array[selection]).nbytes for m in found)
    assert [done for done, _, _ in told] == list(range(told[0][1]))


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
    cupy: Any = ModuleType("cupy")
    cupy.asarray, cupy.cuda = np.copy, SimpleNamespace(Device=StandInDevice)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    systems = [s for s in bench.systems(["cuda:1"]) if s.name.endswith("copy")]
    found = compare(array, systems=systems, repeats=3)
    assert [(m.failure, len(m.times)) for m in found] == [(None, 3), (None, 3)]
    assert StandInDevice.waits == 2 * 2 * 3


def test_systems_for_a_gpu_bring_zarrs_results_there_too() -> None:
    found = [(s.name, s.device, s.ours) for s in bench.systems(["cuda:1", "host"])]
    assert found == [
        ("zarr", "host", False),
        ("zarr fused", "host", False),
        ("zarr + copy", "cuda:1", False),
        ("zarr fused + copy", "cuda:1", False),
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
    monkeypatch.setattr(bench, "_seconds", failing)
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
    found = compare(array, systems=bench.systems(["host"]), repeats=1)
    assert [m.note for m in found] == [None, None, "bind:dtype <U4"]


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
    assert [described[k] for k in ("seconds", "best", "spread", "rate", "failure")] == [None, None, None, None, "why"]


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


def test_the_sample_is_the_same_for_the_same_seed_and_no_step_is_another() -> None:
    one, again, other = (Fields((30, 40), seed) for seed in (1, 1, 2))
    steps = [one[t].tobytes() for t in range(20)]
    assert steps == [again[t].tobytes() for t in range(20)]
    assert len(set(steps)) == 20
    assert other[0].tobytes() != steps[0]


def test_the_sample_compresses_as_a_reanalysis_does(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    array = write_sample(tmp_path / "s.zarr", (2, 721, 1440), progress=lambda *state: told.append(state))
    assert 1.8 < array.nbytes / array.nbytes_stored() < 2.6
    assert told == [(1, 2), (2, 2)]
    sizes = {path.stat().st_size for path in (tmp_path / "s.zarr" / "c").rglob("0") if path.is_file()}
    assert len(sizes) == 2


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_sample_has_a_short_last_chunk_in_either_format(zarr_format: int) -> None:
    array = write_sample({}, (5, 8, 16), (2, 8, 16), seed=3, zarr_format=zarr_format)
    assert np.array_equal(array[...], np.stack([Fields((8, 16), 3)[t] for t in range(5)]))
    assert zarrgpu.explain(array, "host").supported


def test_packing_keeps_sixteen_bits_at_most() -> None:
    values = np.random.default_rng(0).normal(280, 15, 10_000).astype("f4")
    packed = pack(values)
    assert 10_000 // 2 < len(np.unique(packed)) <= 2**16
    assert np.abs(packed - values).max() < np.ptp(values) / 2**15
    assert np.array_equal(pack(np.full(3, 7, "f4")), np.full(3, 7, "f4"))
