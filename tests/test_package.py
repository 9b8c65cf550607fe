"""What users get by `import zarrgpu` and by installing it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import zarrgpu

ROOT = Path(__file__).parents[1]
IMPORT = """
import json, sys, time
import zarr
before, begin = set(sys.modules), time.perf_counter()
import zarrgpu
print(json.dumps({"seconds": time.perf_counter() - begin, "modules": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def fresh_imports() -> list[dict[str, Any]]:
    """Three imports of zarrgpu, each in an interpreter of its own that has imported zarr: their time, what they add."""
    command = [sys.executable, "-c", IMPORT]
    return [json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout) for _ in range(3)]


@pytest.mark.parametrize("module", ["cupy", "numba", "numba.cuda", "numba_cuda", "typer", "rich"])
def test_import_loads_no_extra_and_no_compiler(fresh_imports: list[dict[str, Any]], module: str) -> None:
    assert module not in fresh_imports[0]["modules"]


def test_import_is_quick(fresh_imports: list[dict[str, Any]]) -> None:
    assert statistics.median(fresh["seconds"] for fresh in fresh_imports) < 0.5


def test_metadata_and_module_agree_on_the_version() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert metadata["project"]["version"] == zarrgpu.__version__


def test_types_are_shipped() -> None:
    assert files("zarrgpu").joinpath("py.typed").is_file()


def test_public_names_exist_and_have_docstrings() -> None:
    assert zarrgpu.__all__ == sorted(zarrgpu.__all__)
    undocumented = [name for name in zarrgpu.__all__ if name != "__version__" and not getattr(zarrgpu, name).__doc__]
    assert not undocumented


def test_zarr_finds_the_pipeline_by_its_entry_point() -> None:
    """Installed metadata name the class by the path under which zarr's registry files it."""
    found = [point for point in entry_points(group="zarr.codec_pipeline") if point.value.startswith("zarrgpu.")]
    assert found, "zarrgpu is not installed: pip install --editable ."
    for point in found:
        pipeline = point.load()
        assert point.name == f"{pipeline.__module__}.{pipeline.__qualname__}" == "zarrgpu.pipeline.GpuCodecPipeline"


def test_kernels_ship_inside_the_package() -> None:
    module = import_module("zarrgpu.kernels.tables")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / "kernels"


def test_the_module_is_the_command() -> None:
    """``python -m zarrgpu`` is there where scripts are not on the path."""
    child = subprocess.run([sys.executable, "-m", "zarrgpu", "info"], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert zarrgpu.__version__ in child.stdout
