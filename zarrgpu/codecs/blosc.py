"""Blosc: a container of blocks of streams, shuffled or not.

The chunk's header wins over the metadata, whose `cname` only says what a writer was asked for: a chunk of another inner
codec than LZ4 is `UNSUPPORTED`, and the CPU decodes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import decompress

from zarrgpu.codecs.base import Located, Stage
from zarrgpu.errors import UnsupportedError


class Blosc(Stage):
    """Blosc-1 with LZ4 or LZ4HC inside."""

    name = "blosc"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        cname = str(config.get("cname", "lz4"))
        if cname not in ("lz4", "lz4hc"):
            raise UnsupportedError(f"blosc with {cname}")
        return cls()

    def locate(self, arena: npt.NDArray[np.uint8], chunks: npt.NDArray[np.int64], by_library: bool) -> Located:
        from zarrgpu.kernels import blosc
        from zarrgpu.kernels import tables as t

        n = len(chunks)
        layouts = np.empty((n, t.LAYOUT_COLUMNS), np.int64)
        counts, status = np.empty(n, np.int64), np.empty(n, np.int32)
        blosc.SCAN.host()(0, n, arena, chunks, layouts, counts, status)
        if by_library:
            whole = np.flatnonzero((status == t.Status.OK) & (layouts[:, t.L_ARENA] == t.SCRATCH))
            layouts[whole, t.L_BLOCK], layouts[whole, t.L_MODE] = layouts[whole, t.L_SIZE], t.PLAIN
            return Located(layouts, np.empty((0, t.STREAM_COLUMNS), np.int64), {}, status, whole)
        first = np.concatenate([[0], np.cumsum(counts)])
        streams = np.zeros((int(first[-1]), t.STREAM_COLUMNS), np.int64)
        streams[:, t.S_CHUNK] = np.repeat(np.arange(n), counts)
        blosc.STREAMS.host()(0, n, arena, chunks, layouts, first, streams, status)
        size, want = streams[:, t.S_SIZE], streams[:, t.S_WANT]
        usable = status[streams[:, t.S_CHUNK]] == t.Status.OK
        longest = np.argsort(-size, kind="stable")
        stored = usable & (size == want)
        work = {"lz4": longest[(usable & ~stored)[longest]], "stored": longest[stored[longest]]}
        return Located(layouts, streams, {kind: order for kind, order in work.items() if len(order)}, status)

    def decode(self, encoded: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
        decompress(encoded, out)

    def scratch(self, chunk_nbytes: int) -> int:
        return chunk_nbytes

    def describe(self, by_library: bool) -> str:
        if by_library:
            return "blosc: whole chunks by numcodecs on host threads, into the output where they fill it"
        return "blosc: headers and blocks on the host, LZ4 and stored streams by kernels, unshuffled in assemble"
