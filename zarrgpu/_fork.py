"""Forks: a child gets no other thread of its parent's, but every lock as it was, those that such threads held too.

Caches that hold threads and locks of ours are made anew in the child. Code that is being imported or compiled is waited
for before the fork, since nobody in the child would ever finish it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

loading = threading.RLock()
"""Held while a function imports modules of this package, which may be on any thread; a fork waits for it."""


def in_child(reset: Callable[[], Any]) -> None:
    """Call `reset` in every process that is forked from now on, where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


_held: list[Any] = []


def _before() -> None:
    """Take `loading` first, as a thread that imports may go on to compile, then numba's lock."""
    compiling = sys.modules.get("numba.core.compiler_lock")
    _held[:] = [loading] if compiling is None else [loading, compiling.global_compiler_lock]
    for lock in _held:
        lock.acquire()


def _after() -> None:
    while _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
