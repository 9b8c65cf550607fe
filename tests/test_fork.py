"""After ``os.fork()``: CUDA is refused with a reason, at once; the host's engine works, whoever was busy."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zarrgpu import engine

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("what", ["device", "host", "first", "counting"])
def test_forked_processes(what: str, tmp_path: Path) -> None:
    """The functions of `tests.forking`, which say what they prove."""
    env = {**os.environ, "ZARRGPU_TEST_FOLDER": str(tmp_path)}
    if what == "first":
        env["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")  # something to compile
    child = subprocess.run(
        [sys.executable, "-m", "tests.forking", what], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600
    )
    assert child.returncode == 0, child.stderr


def test_a_driver_that_a_fork_has_taken_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another library used CUDA before the fork, only the driver knows."""

    class Driver:
        def cuInit(self, flags: int) -> int:  # the driver's name
            return 3

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert "forkserver" in str(engine._driver_devices.__wrapped__())
