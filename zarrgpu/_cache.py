"""Compiled host twins on disk: numba's own cache, under a key that covers all that a kernel is made of.

numba caches a function by its own file and code; a twin is a generated loop around a closure, so that its key here is
the text of every kernel and of the targets instead. ``NUMBA_CACHE_DIR`` says where the files go, as for numba.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


@cache
def sources() -> str:
    """Digest of the text of all kernels and of this package's numba layer."""
    here = Path(__file__).parent
    files = [*sorted((here / "kernels").glob("*.py")), *(here / f"_{n}.py" for n in ("cuda", "targets", "native"))]
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()


class _TwinCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    def __init__(self, function: Any, name: str) -> None:
        super().__init__(function)
        self._twin = name

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._twin, sources()


def keep_on_disk(dispatcher: Any, name: str) -> Any:
    """Make a dispatcher look for compiled code on disk, and leave it there; `name` tells twins of one file apart."""
    try:
        dispatcher._cache = _TwinCache(dispatcher.py_func, name)
    except RuntimeError:  # no folder can be written to: compiled again in each process
        return dispatcher
    return dispatcher


def compiled(function: Any) -> Any:
    """A function of a module, compiled to run without the GIL and kept on disk."""
    return keep_on_disk(njit(nogil=True)(function), function.__name__)
