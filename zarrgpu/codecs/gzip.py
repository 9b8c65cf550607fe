"""gzip (RFC 1952): members of a header, one Deflate stream, the CRC-32 and the size of what it decodes to.

Headers are read as Python's `gzip`, and so numcodecs, reads them: optional fields are skipped, the header's own
checksum among them, and zeros may follow a member. A chunk without any member is empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import numpy.typing as npt

from zarrgpu.codecs import _deflate
from zarrgpu.codecs.base import Bytes, Container, Located, Refused, one_stream
from zarrgpu.codecs.preference import streams_at_once
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded

HEADER, TRAILER = 10, 8
MAGIC = b"\x1f\x8b"
DEFLATE = 8
FHCRC, FEXTRA, FNAME, FCOMMENT = 2, 4, 8, 16

TEXT = re.compile(rb"[^\0]*\0?")  # the zero may be missing: there is no stream then
PADDING = re.compile(rb"\0*")


class GZip(Container):
    """One stream a chunk, of members, of which kernels decode a few; its level matters to the encoder only."""

    name = "gzip"
    kernels = "members of Deflate, their CRC-32 and sizes verified"

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if out is None:
            return numcodecs.GZip().decode(encoded)
        at = filled = 0
        while at < encoded.size:
            at = after_header(encoded, at)
            used, made = _deflate.inflate(encoded[at:], out[filled:])
            trailer = encoded[at + used :][:TRAILER]
            if trailer.size < TRAILER:
                raise Refused(Status.TRUNCATED)
            checksum = _deflate.crc32(out[filled : filled + made])
            if int.from_bytes(trailer, "little") != checksum | (made & 0xFFFFFFFF) << 32:
                raise Refused(Status.BAD_CHECKSUM)
            filled += made
            at = after(PADDING, encoded, at + used + TRAILER)
        if filled != out.size:
            raise Refused(Status.WRONG_SIZE)
        return out

    @property
    def at_once(self) -> int:
        return streams_at_once(self.nbytes)

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        return one_stream(chunks, self.name)

    def on_host(self) -> str:
        return _deflate.library()


def after_header(encoded: Bytes, at: int) -> int:
    """Where the Deflate stream starts of the member that starts at `at`."""
    header = bytes(encoded[at : at + HEADER])
    if not header.startswith(MAGIC):
        raise Refused(Status.BAD_HEADER)
    if len(header) < HEADER:
        raise Refused(Status.TRUNCATED)
    if header[2] != DEFLATE:
        raise Refused(Status.BAD_HEADER)
    flags = header[3]
    at += HEADER
    if flags & FEXTRA:
        at += 2 + int.from_bytes(encoded[at : at + 2], "little")
    if flags & FNAME:
        at = after(TEXT, encoded, at)
    if flags & FCOMMENT:
        at = after(TEXT, encoded, at)
    if flags & FHCRC:
        at += 2
    if at > encoded.size:
        raise Refused(Status.TRUNCATED)
    return at


def after(pattern: re.Pattern[bytes], encoded: Bytes, at: int) -> int:
    """Where a match at `at` ends."""
    found = pattern.match(encoded, at)
    return found.end() if found else at
