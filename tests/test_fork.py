"""After ``os.fork()``: CUDA is refused with a reason, at once; the host's engine works, whoever was busy."""

from __future__ import annotations

import ast
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zarrgpu
from zarrgpu import engine

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("what", ["device", "host", "first", "importing", "locked", "workers"])
def test_forked_processes(what: str, tmp_path: Path) -> None:
    """The functions of `tests.forking`, which say what they prove."""
    env = {**os.environ, "ZARRGPU_TEST_FOLDER": str(tmp_path)}
    if what == "first":
        env["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")  # something to compile
    child = subprocess.run(
        [sys.executable, "-m", "tests.forking", what], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600
    )
    assert child.returncode == 0, child.stderr


def test_imports_of_ours_at_work_are_waited_for() -> None:
    """What a function imports of this package may come from any thread, so a fork must wait for it."""
    programs = {Path(zarrgpu.__file__).parent / name for name in ("cli.py", "bench", "kernels")}
    unheld: list[str] = []

    def visit(node: ast.AST, path: Path, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            ours = isinstance(child, ast.ImportFrom) and (child.module or "").startswith("zarrgpu")
            if inside and ours and ast.unparse(child) != "from zarrgpu import _plots":  # of someone who looks
                unheld.append(f"{path.name}: {ast.unparse(child)}")
            if isinstance(child, ast.With) and "_fork.loading" in map(
                ast.unparse, [i.context_expr for i in child.items]
            ):
                continue
            visit(child, path, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    for path in Path(zarrgpu.__file__).parent.rglob("*.py"):
        if not programs & {path, *path.parents} and path.name != "_cubin.py":  # of a GPU, refused in a child
            visit(ast.parse(path.read_text()), path, False)
    assert not unheld


def test_a_driver_that_a_fork_has_taken_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another library used CUDA before the fork, only the driver knows."""

    class Driver:
        def cuInit(self, flags: int) -> int:  # the driver's name
            return 3

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert "forkserver" in str(engine._driver_devices.__wrapped__())
