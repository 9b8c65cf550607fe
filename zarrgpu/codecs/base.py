"""The seam between a codec and a wave: `Stage` finds the streams of encoded chunks, `Located` says where they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Located:
    """What *locate* found in the encoded chunks of a wave; the tables are those of `zarrgpu.kernels.tables`.

    Attributes
    ----------
    layouts : int64[c, LAYOUT_COLUMNS]
        Where the bytes of each chunk are once its streams are decoded.
    streams : int64[s, STREAM_COLUMNS]
        The streams of all chunks.
    work : dict of str to int64[k]
        For each kind of stream the lines of `streams` to decode, in the order in which to start them.
    status : int32[c]
        `Status` of each chunk; a chunk that is not `OK` is neither in `work` nor in `whole`.
    whole : int64[k]
        Chunks to be decoded by `Stage.decode` instead, each at once, into its slot of the scratch arena.
    """

    layouts: npt.NDArray[np.int64]
    streams: npt.NDArray[np.int64]
    work: dict[str, npt.NDArray[np.int64]]
    status: npt.NDArray[np.int32]
    whole: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


class Stage(ABC):
    """A bytes-to-bytes codec, bound to its config."""

    name: str

    @classmethod
    @abstractmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Bind the codec; `UnsupportedError` when this config has no kernel."""

    @abstractmethod
    def locate(self, arena: npt.NDArray[np.uint8], chunks: npt.NDArray[np.int64], by_library: bool) -> Located:
        """Find the streams of `chunks` (``int64[c, CHUNK_COLUMNS]``), whose encoded bytes are in `arena`.

        With `by_library`, chunks that `decode` can do at once are named in `Located.whole` rather than taken apart.
        """

    def decode(self, encoded: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with a chunk decoded by a library, without the GIL; any exception means that it refused."""
        raise NotImplementedError(f"{self.name} has no library")

    @abstractmethod
    def scratch(self, chunk_nbytes: int) -> int:
        """Bytes of scratch arena that one chunk of `chunk_nbytes` decoded bytes needs."""

    @abstractmethod
    def describe(self, by_library: bool) -> str:
        """One line for ``explain()``: what decodes it."""
