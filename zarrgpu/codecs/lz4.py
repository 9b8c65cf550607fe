"""LZ4 as numcodecs frames it: the decoded size, a little-endian uint32, then one raw LZ4 block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numcodecs.lz4 import decompress

from zarrgpu.codecs.base import Bytes, Container, Located, Refused, plain_layouts
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded

HEADER = 4


class LZ4(Container):
    """One stream a chunk."""

    name = "lz4"
    kernels = "LZ4 blocks"

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return int.from_bytes(encoded[:HEADER], "little") if encoded.size >= HEADER else None

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if out is None:
            return decompress(encoded)
        if encoded.size < HEADER:
            raise Refused(t.Status.TRUNCATED)
        if int.from_bytes(encoded[:HEADER], "little") != out.size:
            raise Refused(t.Status.WRONG_SIZE)
        return decompress(encoded, out)

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        n = len(chunks)
        start, size, want = chunks[:, t.C_START], chunks[:, t.C_SIZE], chunks[:, t.C_WANT]
        framed = size > HEADER
        says = np.zeros(n, np.int64)
        says[framed] = encoded.pick(start[framed], HEADER).view("<u4")[:, 0]
        status = np.zeros(n, np.int32)
        status[(says != want) | (want == 0)] = t.Status.WRONG_SIZE
        status[~framed] = t.Status.TRUNCATED
        status[size < 0] = t.Status.OK
        which = np.flatnonzero((status == t.Status.OK) & (size >= 0))
        streams = np.empty((len(which), t.STREAM_COLUMNS), np.int64)
        streams[:, t.S_START], streams[:, t.S_SIZE] = start[which] + HEADER, size[which] - HEADER
        streams[:, t.S_DEST], streams[:, t.S_WANT] = chunks[which, t.C_SLOT], want[which]
        streams[:, t.S_CHUNK] = which
        longest = np.argsort(-streams[:, t.S_SIZE], kind="stable")
        return Located(
            plain_layouts(chunks, t.SCRATCH, t.C_SLOT), streams, {"lz4": longest} if len(which) else {}, status
        )
