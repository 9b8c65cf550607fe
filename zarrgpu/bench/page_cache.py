"""Files out of the page cache, so that a read of them comes from the disk; nobody needs to be root for that."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import zarr

from zarrgpu._compat import store as stores

MOST_FILES = 20_000
"""With more files, looking for them takes longer than reading them."""
PROBES = 8
ATTEMPTS, PAUSE = 4, 0.05
"""What was just written, or is being read, may stay for a moment."""


def files_of(array: zarr.Array[Any]) -> list[str] | None:
    """The files below an array in a local store; None for another store, or for too many."""
    root = stores.local_path(array.store_path)
    if root is None:
        return None
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    files = list(islice(found, MOST_FILES + 1))
    return files if len(files) <= MOST_FILES else None


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def drop(files: Sequence[str]) -> None:
    """Ask the system to forget the pages of files; what was written is on the disk before."""
    for path in files:
        with _opened(path) as descriptor:
            os.fsync(descriptor)  # dirty pages stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def is_cached(path: str) -> bool | None:
    """Whether a file's first page is in the cache; None where the file system does not say.

    The system may begin to read what it was asked for and did not have: only the first answer counts.
    """
    with _opened(path) as descriptor:
        try:
            return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False
        except OSError:
            return None


def can_drop(files: Sequence[str] | None) -> bool:
    """Whether `drop` works for these files: most of some of them are not in the cache afterwards.

    Pages that somebody is reading just then stay.
    """
    if not files or not hasattr(os, "posix_fadvise") or not hasattr(os, "preadv"):
        return False
    some = [path for path in files[:: max(1, len(files) // PROBES)] if os.path.getsize(path)]
    for _ in range(ATTEMPTS):
        try:
            drop(some)
            if 2 * sum(is_cached(path) is False for path in some) > len(some):
                return True
        except OSError:
            return False
        time.sleep(PAUSE)
    return False
