"""Counts of what decoded where and of every fallback with its reason."""

from __future__ import annotations

import threading
from collections import Counter

from zarrgpu import _fork

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def _unlock() -> None:
    global _lock
    _lock = threading.Lock()


_fork.in_child(_unlock)


def count(name: str, n: int = 1) -> None:
    """Add `n` to the counter `name`."""
    if n:
        with _lock:
            _counts[name] += n


def counters() -> dict[str, int]:
    """Return what this process has counted so far.

    Returns
    -------
    dict of str to int
        ``chunks.cuda`` and ``chunks.host``: chunks that a program of ours read on that engine, missing ones too;
        ``chunks.zarr``: chunks read through zarr's own pipeline; ``fallback.bind:<reason>``: requests that went there
        because of their codecs, dtype or device; ``fallback.plan:<reason>``: because of their selection;
        ``fallback.check:<reason>``: chunks that zarr's codecs decoded on the host; ``mismatch``: those among them that
        our decoder should have decoded.
    """
    with _lock:
        return dict(_counts)


def reset_counters() -> None:
    """Set every counter to zero."""
    with _lock:
        _counts.clear()
