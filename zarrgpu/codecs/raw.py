"""No compression: the chunk's bytes are its elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs.base import Located, Stage


class Raw(Stage):
    """Uncompressed chunks; *assemble* reads them where they were fetched to."""

    name = "bytes"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls()

    def locate(self, arena: npt.NDArray[np.uint8], chunks: npt.NDArray[np.int64], by_library: bool) -> Located:
        from zarrgpu.kernels import tables as t

        size, want = chunks[:, t.C_SIZE], chunks[:, t.C_WANT]
        layouts = np.empty((len(chunks), t.LAYOUT_COLUMNS), np.int64)
        layouts[:, t.L_ARENA] = np.where(size < 0, t.FILL, t.SOURCE)
        layouts[:, t.L_BASE] = chunks[:, t.C_START]
        layouts[:, t.L_SIZE] = layouts[:, t.L_BLOCK] = want
        layouts[:, t.L_TYPE] = 1
        layouts[:, t.L_MODE] = t.PLAIN
        status = np.where((size < 0) | (size == want), int(t.Status.OK), int(t.Status.WRONG_SIZE)).astype(np.int32)
        return Located(layouts, np.empty((0, t.STREAM_COLUMNS), np.int64), {}, status)

    def scratch(self, chunk_nbytes: int) -> int:
        return 0

    def describe(self, by_library: bool) -> str:
        return "uncompressed: read in place"
