"""Whole reads by every way in: `zarrgpu.read`, of parts, into an output that is there already; zarr itself, enabled.

What to expect on an H200 with files in the page cache, in decoded GB/s to the device, of float32 fields with Blosc-LZ4:
zarr's own pipelines and a copy give 1.7 (batched) and 4.4 (fused), and are capped by the 6.4 of an upload from pageable
memory; zarr's GPU buffers give 2.5-3.0, `zarrgpu.read` 31-35 and ``z[...]`` 28.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from pytest_benchmark.fixture import BenchmarkFixture

import zarrgpu
from benchmarks.conftest import Arrays
from benchmarks.datasets import DATASETS
from zarrgpu import wave
from zarrgpu.bench import difference, on, to_host
from zarrgpu.engine import resolve

ROUNDS = 3
FIELDS = "f4 fields, lz4, shuffle"


def measure(benchmark: BenchmarkFixture, device: str, want: Any, read: Any) -> None:
    """Compare, then time."""
    want = to_host(want)
    with on(device) as synchronize:
        assert difference(to_host(read()), want) is None

        def run() -> None:
            read()
            synchronize()

        benchmark.pedantic(run, rounds=ROUNDS)  # type: ignore[no-untyped-call]  # it has no types
    benchmark.extra_info["bytes"] = want.nbytes
    if benchmark.stats is not None:
        benchmark.extra_info["GB/s"] = want.nbytes / benchmark.stats.stats.median / 1e9


@pytest.mark.parametrize("name", DATASETS)
def test_read_all(benchmark: BenchmarkFixture, arrays: Arrays, device: str, name: str) -> None:
    array = arrays(name)
    zarrgpu.reset_counters()
    measure(benchmark, device, array[...], lambda: zarrgpu.read(array, device=device))
    fates = {name for name in zarrgpu.counters() if not name.startswith("bytes.")}
    assert fates == {f"chunks.{device.partition(':')[0]}"}


@pytest.mark.parametrize(
    "selection", [np.s_[:, ::4, ::4], np.s_[0], np.s_[..., 100:200]], ids=["steps", "one", "columns"]
)
def test_read_a_part(benchmark: BenchmarkFixture, arrays: Arrays, device: str, selection: Any) -> None:
    array = arrays(FIELDS)
    measure(benchmark, device, array[selection], lambda: zarrgpu.read(array, selection, device=device))


def test_read_into_an_output(benchmark: BenchmarkFixture, arrays: Arrays, device: str) -> None:
    array = arrays(FIELDS)
    out = resolve(device).empty(array.shape, np.dtype("f4"))
    measure(benchmark, device, array[...], lambda: zarrgpu.read(array, out=out, device=device))


def test_zarr_enabled(benchmark: BenchmarkFixture, arrays: Arrays, device: str) -> None:
    plain = arrays(FIELDS)
    want = plain[...]
    with zarrgpu.enable(device):
        array = zarr.open_array(plain.store_path, mode="r")
        measure(benchmark, device, want, lambda: array[...])


@pytest.mark.parametrize("way", ["read", "z[...]"])
@pytest.mark.parametrize("n", [10, 100, 316], ids=lambda n: f"{n * n} chunks")
def test_plan(
    benchmark: BenchmarkFixture, device: str, n: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a read does before its first wave; 100,000 chunks of files take 10 ms, of which NumPy takes most.

    Through ``z[...]`` a chunk takes 15 us, most of it zarr's: coordinates, slices and a store path for each. Ours were
    20 us when each was parsed by itself, and are 3 since slices that chunks have in common are parsed once.
    """
    zarr.create_array(tmp_path, shape=(30 * n, 30 * n), chunks=(30, 30), dtype="f4")
    planned = []

    def run(request: Any, stream: Any = None) -> Any:
        planned.append(len(request.plan))
        return np.ones(planned[-1], bool)

    monkeypatch.setattr(wave, "run", run)
    with zarrgpu.enable(device):
        array = zarr.open_array(tmp_path, mode="r")
        out = resolve(device).empty(array.shape, np.dtype("f4"))
        benchmark(partial(zarrgpu.read, array, out=out, device=device) if way == "read" else lambda: array[...])
    assert set(planned) == {n * n}
