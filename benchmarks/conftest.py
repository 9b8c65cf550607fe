"""What the benchmarks share: how much data, on which devices, and the arrays, written once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

from benchmarks.datasets import DATASETS
from zarrgpu import engine

Arrays = Callable[[str], zarr.Array[Any]]


@pytest.fixture(scope="session")
def arrays(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Arrays:
    """Give a dataset's array in a local store, of a size for what this run is."""
    folder: Path = tmp_path_factory.mktemp("arrays")
    made: dict[str, zarr.Array[Any]] = {}
    measured = bool(pytestconfig.getoption("benchmark_enable"))

    def array(name: str) -> zarr.Array[Any]:
        if name not in made:
            dataset = DATASETS[name]
            n = dataset.small if not measured else dataset.large if engine.available() == ["host"] else dataset.huge
            made[name] = dataset.write(folder / f"{len(made)}.zarr", n)
        return made[name]

    return array


@pytest.fixture(scope="session", params=[d for d in engine.available() if d in ("cuda:0", "host")])
def device(request: pytest.FixtureRequest) -> str:
    """A device of this machine: the first GPU if there is one, and the host."""
    return str(request.param)
