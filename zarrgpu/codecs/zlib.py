"""zlib (RFC 1950): a header of two bytes, one Deflate stream, the Adler-32 of what it decodes to.

What follows is ignored, as `zlib.decompress` and so numcodecs do.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs import _deflate
from zarrgpu.codecs.base import Bytes, Container, Located, Refused, one_stream
from zarrgpu.codecs.preference import streams_at_once
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded

HEADER, TRAILER = 2, 4
DEFLATE = 8
DICTIONARY = 0x20


class Zlib(Container):
    """One stream a chunk; its level matters to the encoder only."""

    name = "zlib"
    kernels = "streams of Deflate, their Adler-32 verified"

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if out is None:
            return zlib.decompress(encoded)
        check_header(encoded)
        used, made = _deflate.inflate(encoded[HEADER:], out)
        if made != out.size:
            raise Refused(Status.WRONG_SIZE)
        trailer = encoded[HEADER + used :][:TRAILER]
        if trailer.size < TRAILER:
            raise Refused(Status.TRUNCATED)
        if int.from_bytes(trailer, "big") != _deflate.adler32(out):
            raise Refused(Status.BAD_CHECKSUM)
        return out

    @property
    def at_once(self) -> int:
        return streams_at_once(self.nbytes)

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        return one_stream(chunks, self.name)

    def on_host(self) -> str:
        return _deflate.library()


def check_header(encoded: Bytes) -> None:
    """Raise `Refused` for what zlib does not take: another method, a window of over 32 KiB, a dictionary."""
    if encoded.size < HEADER:
        raise Refused(Status.TRUNCATED)
    method, flags = int(encoded[0]), int(encoded[1])
    if (method << 8 | flags) % 31 or method & 15 != DEFLATE or method >> 4 > 7:
        raise Refused(Status.BAD_HEADER)
    if flags & DICTIONARY:
        raise Refused(Status.UNSUPPORTED)
