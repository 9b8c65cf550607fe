"""nvCOMP's batched decoders, to compare ours with; they are no part of the product.

Interface: the headers of nvCOMP 6, package ``nvidia-libnvcomp-cu13``. Only streams that are known to be good may be
given to it: mutated ones make it write outside their slots, or lose the CUDA context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu.kernels import tables as t

NAMES = {"lz4": "LZ4", "zstd": "Zstd", "deflate": "Deflate"}
"""By our names of codecs."""


class _Options(ctypes.Structure):
    """What a decoder may be told, all of it 0: the default."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


@cache
def library() -> ctypes.CDLL | None:
    """The library; None where it is not installed."""
    try:
        from nvidia import libnvcomp
    except ImportError:
        return None
    found: ctypes.CDLL | None = libnvcomp.load_library()
    return found


def decoder(
    codec: str, source: Any, scratch: Any, streams: npt.NDArray[np.int64], stream: Any
) -> tuple[Callable[[], None], Callable[[], None], int]:
    """What decodes good streams on the current GPU.

    Parameters
    ----------
    codec : str
        One of `NAMES`.
    source, scratch : cupy uint8[n]
        Arenas.
    streams : int64[s, STREAM_COLUMNS]
        In the order in which to decode them. Both ends of each start at a multiple of 8 bytes.
    stream : cupy.cuda.Stream

    Returns
    -------
    enqueue : callable
        Decodes them all, once.
    check : callable
        Waits, and raises `AssertionError` unless all went well.
    temporary : int
        Bytes of memory that it asks for beside the arenas.
    """
    import cupy

    found = library()
    assert found is not None
    n, want = len(streams), streams[:, t.S_WANT]
    size, largest, total = (ctypes.c_size_t(x) for x in (n, int(want.max()), int(want.sum())))
    temporary, options, handle = ctypes.c_size_t(), _Options(), ctypes.c_void_p(stream.ptr)
    name = f"nvcompBatched{NAMES[codec]}Decompress"
    measure, launch = found[f"{name}GetTempSize"], found[f"{name}Async"]
    _succeed(measure(size, largest, options, ctypes.byref(temporary), total, handle))
    room = cupy.empty(max(temporary.value, 8), np.uint8)
    starts, ends = (cupy.asarray(a.data.ptr + streams[:, k]) for a, k in ((source, t.S_START), (scratch, t.S_DEST)))
    sizes, slots = cupy.asarray(streams[:, t.S_SIZE]), cupy.asarray(want)
    made, status = cupy.zeros(n, np.int64), cupy.full(n, -1, np.int32)
    cupy.cuda.get_current_stream().synchronize()
    arrays = (starts, sizes, slots, made, room, ends, status)
    pointers = [ctypes.c_void_p(a.data.ptr) for a in arrays]
    arguments = (*pointers[:4], size, pointers[4], temporary, pointers[5], options, pointers[6], handle)

    def enqueue(_kept: Any = arrays) -> None:  # they live as long as this may be called
        _succeed(launch(*arguments))

    def check() -> None:
        stream.synchronize()
        if status.any() or (made != slots).any():
            raise AssertionError(f"nvCOMP refuses good data: {cupy.unique(status)}")

    return enqueue, check, temporary.value


def _succeed(status: int) -> None:
    if status:
        raise RuntimeError(f"nvCOMP returned {status}")
