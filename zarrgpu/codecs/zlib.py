"""zlib (RFC 1950): a header of two bytes, one Deflate stream, the Adler-32 of what it decodes to.

What follows is ignored, as `zlib.decompress` and so numcodecs do.
"""

from __future__ import annotations

import zlib
from typing import Any

from zarrgpu.codecs import _deflate
from zarrgpu.codecs.base import Bytes, Refused, Stage
from zarrgpu.kernels.tables import Status

HEADER, TRAILER = 2, 4
DEFLATE = 8
DICTIONARY = 0x20


class Zlib(Stage):
    """Decoded straight into `out`; its level matters to the encoder only."""

    name = "zlib"

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
