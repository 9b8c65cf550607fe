"""Blosc: a container of blocks of streams, shuffled or not.

The chunk's header wins over the metadata, whose `cname` only says what a writer was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import decompress

from zarrgpu import _fork
from zarrgpu.codecs._blosc_parts import HEADER, decompress_by
from zarrgpu.codecs.base import Bytes, Container, Located, Refused, Spec
from zarrgpu.codecs.preference import FEWEST_STREAMS
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded
    from zarrgpu.kernels.zstd import Group

BLOSCLZ, LZ4, ZLIB, ZSTD = 0, 1, 3, 4  # numbers of inner codecs; 2 was Snappy, which numcodecs lacks
KINDS = {BLOSCLZ: "blosclz", LZ4: "lz4", ZLIB: "zlib"}
"""Kinds of streams but Zstandard's, by the number of the inner codec."""


class Blosc(Container):
    """Blosc-1 with any inner codec that numcodecs has.

    Parameters
    ----------
    cname : str
        The inner codec that the metadata name.
    spec : Spec
    """

    name = "blosc"
    kernels = "blocks of LZ4, LZ4HC, BloscLZ, zlib, Zstd and stored streams, unshuffled in assemble"

    def __init__(self, cname: str, spec: Spec) -> None:
        super().__init__(spec)
        self.cname = cname

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(str(config.get("cname", "lz4")), spec)

    @property
    def fewest(self) -> int | None:
        return FEWEST_STREAMS.get(f"{self.name} {self.cname}")

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        return self.decode_by(1, encoded, out)

    def decode_by(self, threads: int, encoded: Bytes, out: Bytes | None = None) -> Any:
        if encoded.size < HEADER or int.from_bytes(encoded[12:16], "little") > encoded.size:
            raise Refused(t.Status.CUT_SHORT)  # c-blosc would read past the end, and may succeed
        if out is None:
            return decompress(encoded)
        if int.from_bytes(encoded[4:8], "little") != out.size:
            raise Refused(t.Status.WRONG_SIZE)
        return decompress_by(threads, encoded, out)

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        with _fork.loading:
            from zarrgpu.kernels import blosc

        n = len(chunks)
        layouts = np.empty((n, t.LAYOUT_COLUMNS), np.int64)
        counts, status = np.empty(n, np.int64), np.empty(n, np.int32)
        encoded.run(blosc.SCAN, n, (chunks,), (layouts, counts, status))
        first = np.concatenate([[0], np.cumsum(counts)])
        streams = np.zeros((int(first[-1]), t.STREAM_COLUMNS), np.int64)
        streams[:, t.S_CHUNK] = np.repeat(np.arange(n), counts)
        if len(streams):
            encoded.run(blosc.STREAMS, n, (chunks, layouts, first), (streams, status))
        size, want = streams[:, t.S_SIZE], streams[:, t.S_WANT]
        usable = status[streams[:, t.S_CHUNK]] == t.Status.OK
        stored = usable & (size == want)
        longest = np.argsort(-size, kind="stable")
        work = {"stored": longest[stored[longest]]}
        inner = inner_codecs(encoded, chunks)[streams[:, t.S_CHUNK]]
        for number, kind in KINDS.items():
            work[kind] = longest[(usable & ~stored & (inner == number))[longest]]
        frames = longest[(usable & ~stored & (inner == ZSTD))[longest]]
        groups = _groups(encoded, streams, frames, status) if len(frames) else []
        if len(frames):  # what was found there may refuse a chunk
            work = {kind: lines[status[streams[lines, t.S_CHUNK]] == t.Status.OK] for kind, lines in work.items()}
        return Located(layouts, streams, {kind: order for kind, order in work.items() if len(order)}, status, groups)

    def by_library(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        zstd: npt.NDArray[np.bool_] = inner_codecs(encoded, chunks) == ZSTD
        return zstd

    def tables(self) -> int:
        return self.nbytes if self.cname == "zstd" else super().tables()

    def on_host(self) -> str:
        return "c-blosc by numcodecs"


def _groups(
    encoded: Encoded, streams: npt.NDArray[np.int64], frames: npt.NDArray[np.int64], status: npt.NDArray[np.int32]
) -> list[Group]:
    """Prepare the streams `frames`, of Zstandard; a chunk one of which is refused gets its status."""
    with _fork.loading:
        from zarrgpu.kernels import zstd

    verdicts = np.zeros(len(streams), np.int32)
    counts = zstd.measure(encoded.run, streams, frames, verdicts, False)
    refused = frames[verdicts[frames] != t.Status.OK]
    status[streams[refused, t.S_CHUNK]] = verdicts[refused]
    good = status[streams[frames, t.S_CHUNK]] == t.Status.OK
    return zstd.group(encoded.run, streams, frames[good], counts[good], verdicts, False)


def inner_codecs(encoded: Encoded, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The number of each chunk's inner codec, -1 for chunks without a header."""
    has = chunks[:, t.C_SIZE] >= HEADER
    flags = np.full(len(chunks), -1, np.int64)
    flags[has] = encoded.pick(chunks[has, t.C_START] + 2, 1)[:, 0] >> 5
    return flags
