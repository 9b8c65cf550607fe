"""Six kinds of data: every engine reads them as zarr does, they compress as real ones do; results are compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import zarrgpu
from benchmarks import results
from benchmarks.six import SIX
from benchmarks.test_read import measure
from zarrgpu import engine


@pytest.mark.parametrize("name", SIX)
def test_read_six(
    benchmark: BenchmarkFixture, device: str, name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    archive = SIX[name]
    large = archive.large if engine.available() == ["host"] else archive.huge
    array = archive.write(tmp_path / "a.zarr", large if pytestconfig.getoption("benchmark_enable") else archive.small)
    low, high = archive.ratio
    assert low < array.nbytes / array.nbytes_stored() < high
    zarrgpu.reset_counters()
    measure(benchmark, device, array[...], lambda: zarrgpu.read(array, device=device))
    assert not [counted for counted in zarrgpu.counters() if counted.startswith("fallback")]


def test_results_are_written_and_compared(tmp_path: Path) -> None:
    """As a command, twice: the second run is compared with the first."""
    command = [sys.executable, "-m", "benchmarks", "--only", "ERA5 fields", "--small", "--repeats", "1"]
    command += ["--results", str(tmp_path)]
    first = subprocess.run(command, cwd=results.ROOT, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    (tmp_path / "results.json").rename(tmp_path / "before.json")
    command += ["--compare", str(tmp_path / "before.json")]
    second = subprocess.run(command, cwd=results.ROOT, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert "ERA5 fields, 4 MB chunks, zarrgpu → host: " in second.stdout
    report = json.loads((tmp_path / "results.json").read_text())
    assert {"commit", "driver", "processor", "zarr", "threads"} <= set(report["machine"])
    assert "| ERA5 fields, 4 MB chunks | " in (tmp_path / "results.md").read_text()


def report(rate: float | None, threads: str = "2") -> dict[str, Any]:
    measurements = [{"system": "zarr", "device": "host", "rate": rate}]
    return {"machine": {"threads": threads}, "datasets": {"d": {"measurements": measurements, "verdict": "v"}}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (report(1.0), report(2.0), "d, zarr → host: 1.00 -> 2.00 GB/s, 2.00, faster"),
        (report(1.0), report(1.05), "d, zarr → host: 1.00 -> 1.05 GB/s, 1.05, the same"),
        (report(1.0), report(0.5), "d, zarr → host: 1.00 -> 0.50 GB/s, 0.50, SLOWER"),
        (report(None), report(0.5), "nothing to compare"),
        (report(1.0, "16"), report(None), "another machine: threads was 16, is 2"),
    ],
)
def test_rates_are_compared(before: Any, after: Any, expected: str) -> None:
    assert results.comparison(before, after) == expected
