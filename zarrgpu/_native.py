"""Files -> arena by compiled workers that call libc: no GIL and no Python between two reads.

Threads of Python reach 2 GB/s at 32 KB a file and stand in the way of the thread that feeds the GPU; these reach what
the page cache gives. Linux only, as ``__errno_location`` says; `zarrgpu.fetch` has another way for other systems.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from zarrgpu._cache import compiled
from zarrgpu.engine.base import ALIGN
from zarrgpu.keys import Keys

INT, PTR, I64 = types.intc, types.intp, types.int64
c_open = types.ExternalFunction("open", INT(PTR, INT))
c_close = types.ExternalFunction("close", INT(INT))
c_pread = types.ExternalFunction("pread", PTR(INT, PTR, PTR, I64))
c_lseek = types.ExternalFunction("lseek", I64(INT, I64, INT))
c_errno = types.ExternalFunction("__errno_location", PTR())

READ = os.O_RDONLY | os.O_CLOEXEC
EINTR = 4
SEEK_END = 2
SHORT = -10_000
"""Status of a file that ended before its size was read; others are bytes or a negative errno."""


@intrinsic
def load_i32(typing_context, address):  # type: ignore[no-untyped-def]  # numba reads the names
    """The int32 at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()))

    return types.int32(types.intp), codegen


@intrinsic
def fetch_add_i64(typing_context, address, n):  # type: ignore[no-untyped-def]  # numba reads the names
    """Add `n` to the int64 at an address that other threads add to as well; what it was before."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], ir.IntType(64).as_pointer()), args[1], "monotonic")

    return types.int64(types.intp, types.int64), codegen


@compiled
def _open(path):  # type: ignore[no-untyped-def]  # typed by numba
    """A descriptor, or a negative errno, for the NUL-terminated path at an address."""
    while True:
        fd = c_open(PTR(path), INT(READ))
        if fd >= 0:
            return fd
        error = load_i32(c_errno())
        if error != EINTR:
            return -error


@compiled
def _pread(fd, address, n, offset):  # type: ignore[no-untyped-def]  # typed by numba
    """Bytes read, `SHORT` at the end of the file, or a negative errno."""
    got = 0
    while got < n:
        r = c_pread(INT(fd), PTR(address + got), PTR(n - got), I64(offset + got))
        if r > 0:
            got += r
        elif r == 0:
            return I64(SHORT)
        else:
            error = load_i32(c_errno())
            if error != EINTR:
                return -I64(error)
    return I64(got)


@compiled
def _size(fd):  # type: ignore[no-untyped-def]  # typed by numba
    """Bytes of an open file, or a negative errno."""
    size = c_lseek(INT(fd), I64(0), INT(SEEK_END))
    if size < 0 or c_pread(INT(fd), PTR(0), PTR(0), I64(0)) < 0:  # a folder has a size, but nothing to read
        return -I64(load_i32(c_errno()))
    return I64(size)


@compiled
def file_sizes(paths, first, sizes, begin, end):  # type: ignore[no-untyped-def]  # typed by numba
    """``sizes[begin:end]`` = bytes of those files, or a negative errno.

    `paths` is ``uint8[]``, NUL-terminated paths of which the i-th starts at ``first[i]``.
    """
    for i in range(begin, end):
        fd = _open(paths.ctypes.data + first[i])
        if fd < 0:
            sizes[i] = fd
            continue
        sizes[i] = _size(fd)
        c_close(INT(fd))


@compiled
def read_files(paths, first, arena, taken, starts, sizes, begin, end):  # type: ignore[no-untyped-def]  # typed by numba
    """Read files ``begin:end``, whose sizes nobody knows, to the next free places of an arena.

    ``taken[0]`` are the bytes given away, which all workers add to. ``sizes[i]`` becomes the bytes of a file, `SHORT`
    or a negative errno; ``starts[i]`` its place, a multiple of `ALIGN`, or -1 where the arena had no room for it.
    """
    for i in range(begin, end):
        starts[i] = -1
        fd = _open(paths.ctypes.data + first[i])
        if fd < 0:
            sizes[i] = fd
            continue
        size = _size(fd)
        if 0 <= size <= arena.size:
            at = fetch_add_i64(taken.ctypes.data, (size + ALIGN - 1) // ALIGN * ALIGN)
            if at <= arena.size - size:
                starts[i] = at
                got = _pread(fd, arena.ctypes.data + at, size, 0)
                size = min(size, got)
        sizes[i] = size
        c_close(INT(fd))


@compiled
def read_ranges(paths, first, which, offsets, sizes, starts, arena, status, begin, end):  # type: ignore[no-untyped-def]  # typed by numba
    """Read ranges ``begin:end``: `sizes` bytes from `offsets` on of the files `which`, to `starts` in the arena.

    ``status[i]`` becomes `SHORT`, a negative errno, or -34 for a place outside the arena; it is left alone where all is
    well. A file stays open while ranges of it follow each other.
    """
    fd, opened = -1, -1
    for i in range(begin, end):
        if starts[i] < 0 or sizes[i] < 0 or starts[i] > arena.size - sizes[i]:
            status[i] = -34
            continue
        if which[i] != opened:
            if fd >= 0:
                c_close(INT(fd))
            fd, opened = _open(paths.ctypes.data + first[which[i]]), which[i]
        got = _pread(fd, arena.ctypes.data + starts[i], sizes[i], offsets[i]) if fd >= 0 else fd
        if got < 0:
            status[i] = got
    if fd >= 0:
        c_close(INT(fd))


@compiled
def _write_keys(prefix, separator, grid, blob, first):  # type: ignore[no-untyped-def]  # typed by numba
    """Write to `blob`, for each line of `grid`: `prefix`, its coordinates with `separator` between, NUL."""
    digits, at = np.empty(20, np.uint8), 0
    for k in range(len(grid)):
        first[k] = at
        for i in range(len(prefix)):
            blob[at + i] = prefix[i]
        at += len(prefix)
        for axis in range(grid.shape[1]):
            if axis:
                blob[at] = separator
                at += 1
            left, n = grid[k, axis], 0
            while left > 0 or n == 0:
                digits[n] = 48 + left % 10
                left //= 10
                n += 1
            for i in range(n):
                blob[at + i] = digits[n - 1 - i]
            at += n
        blob[at] = 0
        at += 1


def key_table(keys: Keys, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """`path_table` of the keys `which`, whose style is known, without a Python object for each."""
    assert keys.style is not None
    prefix, grid = np.frombuffer(os.fsencode(keys.root + keys.style[0]), np.uint8), np.take(keys.grid, which, axis=0)
    most = len(prefix) + 1 + grid.shape[1] * (1 + len(str(int(grid.max(initial=0)))))
    blob, first = np.empty(len(which) * most, np.uint8), np.empty(len(which), np.int64)
    _write_keys(prefix, ord(keys.style[1]), grid, blob, first)
    return blob, first


def path_table(paths: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Paths as NUL-terminated bytes, and where each one starts."""
    raw = [os.fsencode(p) for p in paths]
    lengths = np.fromiter(map(len, raw), np.int64, len(raw)) + 1
    return np.frombuffer(b"\0".join(raw) + b"\0", np.uint8), np.cumsum(lengths) - lengths


def _compile() -> None:
    """Compile all, while the import still keeps forks waiting."""
    nothing = np.empty(0, np.int64)
    table = path_table([])
    file_sizes(*table, nothing, 0, 0)
    read_files(*table, np.empty(0, np.uint8), np.zeros(1, np.int64), nothing, nothing, 0, 0)
    key_table(Keys(str, np.zeros((1, 1), np.int64), ("c/", "/")), np.zeros(1, np.int64))
    read_ranges(*table, nothing, nothing, nothing, nothing, np.empty(0, np.uint8), nothing, 0, 0)


_compile()
