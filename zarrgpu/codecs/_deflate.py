"""One raw Deflate stream (RFC 1951) into a given buffer by libdeflate, and the checksums that follow it.

The package `deflate` decodes only into a buffer of its own and does not say where a stream ends, but it exports the C
interface of the libdeflate inside it, which does both; that is called through `ctypes`, without the GIL.

zlib has the last word on what libdeflate refuses, and does everything where `deflate` is built to hide that interface.
The other way round libdeflate is laxer than zlib. It takes a stream that declares more than 286 length or 30 distance
codes, or uses one of those; that uses the unused half of a code of a single symbol, or a distance where the block has
no code for any; whose code lengths have a code of a single symbol. No compressor makes these. They pass, where zlib
refuses them, if size and checksum are right: an error of a bit that did no harm, or somebody's intention.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
from deflate import _deflate

from zarrgpu.codecs.base import Bytes, Refused
from zarrgpu.kernels.tables import Status

SUCCESS = 0  # of enum libdeflate_result


class Library:
    """The functions of libdeflate.h that are used here.

    Parameters
    ----------
    path : str
        A shared object that exports them.
    """

    def __init__(self, path: str) -> None:
        exports = ctypes.CDLL(path)
        pointer, size, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        counter = ctypes.POINTER(size)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(result, *arguments)((f"libdeflate_{name}", exports))

        self.alloc = function("alloc_decompressor", pointer)
        self.free = function("free_decompressor", None, pointer)
        self.decompress = function(
            "deflate_decompress_ex", ctypes.c_int, pointer, pointer, size, pointer, size, counter, counter
        )
        self.crc32 = function("crc32", word, word, pointer, size)
        self.adler32 = function("adler32", word, word, pointer, size)


def load(path: str) -> Library | None:
    """The library in a shared object; None where it exports none."""
    try:
        return Library(path)
    except (OSError, AttributeError):
        return None


LIBRARY = load(_deflate.__file__)


def library() -> str:
    """What `inflate` uses."""
    return "libdeflate" if LIBRARY else "zlib"


def inflate(encoded: Bytes, out: Bytes) -> tuple[int, int]:
    """Decode the stream that `encoded` starts with.

    Parameters
    ----------
    encoded : uint8[n]
        What follows the stream is not looked at.
    out : uint8[m]
        Where to. All of it may be written, whatever the size of the stream.

    Returns
    -------
    used, made : int
        Bytes of the stream, and of what it decodes to.

    Raises
    ------
    Refused
        `WRONG_SIZE` when `out` is too small, `TRUNCATED` when the stream does not end.
    zlib.error
        Any other fault.
    """
    if LIBRARY:
        used, made = ctypes.c_size_t(), ctypes.c_size_t()
        state = LIBRARY.alloc()
        if not state:
            raise MemoryError
        try:
            result = LIBRARY.decompress(state, encoded.ctypes.data, encoded.size, out.ctypes.data, out.size, used, made)
        finally:
            LIBRARY.free(state)
        if result == SUCCESS:
            return used.value, made.value
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    decoded = stream.decompress(encoded, out.size + 1)  # a byte too many shows that it is too long; 0 would be no limit
    if len(decoded) > out.size:
        raise Refused(Status.WRONG_SIZE)
    if not stream.eof:
        raise Refused(Status.TRUNCATED)
    np.copyto(out[: len(decoded)], np.frombuffer(decoded, np.uint8))
    return encoded.size - len(stream.unused_data), len(decoded)


def crc32(data: Bytes) -> int:
    """The checksum of gzip (RFC 1952, section 8)."""
    return int(LIBRARY.crc32(0, data.ctypes.data, data.size)) if LIBRARY else zlib.crc32(data)


def adler32(data: Bytes) -> int:
    """The checksum of zlib (RFC 1950, section 8.2)."""
    return int(LIBRARY.adler32(1, data.ctypes.data, data.size)) if LIBRARY else zlib.adler32(data)
