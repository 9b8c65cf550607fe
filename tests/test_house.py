"""The house rules that a reader relies on: who may import what, and that files stay small enough to have one job."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = [p for p in sorted((ROOT / "zarrgpu").rglob("*.py")) if "kernels" not in p.relative_to(ROOT).parts]
KERNELS = sorted((ROOT / "kernels").rglob("*.py"))

LINES = 300
# Longer files, and why they still have one job.
LONGER: dict[str, str] = {}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, at its top or inside a function; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_only_the_pipeline_knows_the_inside_of_zarr(path: Path) -> None:
    if name(path) != "zarrgpu/pipeline.py" and not name(path).startswith("zarrgpu/_compat/"):
        assert "zarr.core" not in path.read_text()


@pytest.mark.parametrize("path", KERNELS, ids=name)
def test_kernels_import_numpy_numba_and_each_other_only(path: Path) -> None:
    foreign = [
        module
        for module in imports(path)
        if not within(module, "numpy", "numba", "zarrgpu._cuda", "zarrgpu.kernels")
        and module.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert not foreign


@pytest.mark.parametrize("path", KERNELS, ids=name)
def test_kernels_reach_numba_cuda_through_one_module(path: Path) -> None:
    assert not [module for module in imports(path) if within(module, "numba.cuda")]


@pytest.mark.parametrize("path", PACKAGE + KERNELS, ids=name)
def test_files_are_short_or_say_why_not(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LINES or name(path) in LONGER
    assert lines > LINES or name(path) not in LONGER, "short again: take it off the list"
