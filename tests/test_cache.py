"""Compiled twins come back from disk as they were, whatever else the process compiles; cubins too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zarrgpu import _cache, _cubin
from zarrgpu.kernels import byteswap

CHECK = """
import sys
import numpy as np
from zarrgpu.kernels import assemble, tables as t

def check(itemsize, swap):
    n = 37
    source = np.arange(n * itemsize + 16, dtype=np.uint8)[: (n * itemsize + 15) // 16 * 16]
    layouts = np.array([[t.SOURCE, 0, n * itemsize, n * itemsize, 1, t.PLAIN]])
    box = np.array([[0, 0, 0, n]])
    out = np.zeros((n * itemsize + 15) // 16 * 16, np.uint8)
    status = np.zeros(1, np.int32)
    g = assemble.groups(box, itemsize)
    word = lambda a: a.view(np.uint32)
    assemble.kernel(itemsize, swap).host()(
        0, g, g, source, word(source), source, word(source), layouts, box, np.array([1]), np.array([itemsize]),
        np.zeros(itemsize, np.uint8), out, word(out), status)
    want = source[: n * itemsize].reshape(-1, max(swap, 1))[:, ::-1].ravel()
    assert status[0] == 0 and np.array_equal(out[: n * itemsize], want), (itemsize, swap)
    return assemble.kernel(itemsize, swap).host().stats.cache_hits

hits = [bool(check(*map(int, pair.split(",")))) for pair in sys.argv[1:]]
print(hits)
"""


def run(folder: Path, *pairs: str) -> str:
    """Check kernels ``itemsize,swap`` in a new process, in order; say which came from disk."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"} | {
        "NUMBA_CACHE_DIR": str(folder)
    }
    child = subprocess.run(
        [sys.executable, "-c", CHECK, *pairs], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.strip()


def test_a_twin_from_disk_keeps_its_own_inner_functions(tmp_path: Path) -> None:
    """A kernel that was compiled alone is right beside another one whose inner functions have the same names."""
    assert run(tmp_path, "4,4") == "[False]"
    assert run(tmp_path, "3,0", "4,4") == "[False, True]"
    assert run(tmp_path, "4,4", "3,0") == "[True, True]"


def test_cubins_are_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process reads what the first one compiled; an unwritable folder only costs the time."""
    compiled: list[Any] = []

    def compile_lto(kernel: Any, capability: Any) -> bytes:
        compiled.append(kernel)
        return b"lto"

    monkeypatch.setattr(_cubin, "compile_lto", compile_lto)
    monkeypatch.setattr(_cubin, "link", lambda lto, architecture: (lto + architecture.encode(), ""))
    monkeypatch.setenv("ZARRGPU_CACHE_DIR", str(tmp_path / "new" / "folder"))
    assert _cubin.cubin(byteswap.KERNEL, (9, 0)) == b"ltosm_90"
    assert _cubin.cubin(byteswap.KERNEL, (9, 0)) == b"ltosm_90"
    assert len(compiled) == 1
    assert _cubin.cubin(byteswap.KERNEL, (8, 0)) == b"ltosm_80"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZARRGPU_CACHE_DIR", str(tmp_path / "file" / "folder"))
    assert _cubin.cubin(byteswap.KERNEL, (9, 0)) == b"ltosm_90"
    assert len(compiled) == 3
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 2


def test_a_cubin_without_a_kernel_is_an_error() -> None:
    """What is on disk may be anything."""
    assert _cubin.entry(b"\x7fELF .text._ZN3abc ") == "_ZN3abc"
    with pytest.raises(RuntimeError, match="no kernel"):
        _cubin.entry(b"")


def test_cubins_lie_in_the_user_s_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default under XDG's rules."""
    monkeypatch.delenv("ZARRGPU_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert _cubin.folder() == Path("/somewhere/zarrgpu")


def test_without_a_place_to_write_code_is_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses to cache where it finds no folder; we go on without."""

    def refuse(self: Any, function: Any, name: str) -> None:
        raise RuntimeError("no locator available")

    monkeypatch.setattr(_cache._TwinCache, "__init__", refuse)
    assert _cache.compiled(lambda x: x + 1)(1) == 2
