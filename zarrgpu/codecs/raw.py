"""No compression: the chunk's bytes are its elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs.base import Bytes, Container, Located, put
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded


class Raw(Container):
    """What is not compressed, or not any more; it is read where it lies."""

    name = "bytes"
    kernels = "read in place"
    keeps_size = True

    @property
    def fewest(self) -> int | None:
        return 0

    @property
    def does_nothing(self) -> bool:
        return True

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        return put(encoded, out)

    def on_host(self) -> str:
        return "copied"

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        size, want = chunks[:, t.C_SIZE], chunks[:, t.C_WANT]
        layouts = np.empty((len(chunks), t.LAYOUT_COLUMNS), np.int64)
        layouts[:, t.L_ARENA] = np.where(size < 0, t.FILL, t.SOURCE)
        layouts[:, t.L_BASE] = chunks[:, t.C_START]
        layouts[:, t.L_SIZE] = layouts[:, t.L_BLOCK] = want
        layouts[:, t.L_TYPE] = 1
        layouts[:, t.L_MODE] = t.PLAIN
        status = np.where((size < 0) | (size == want), int(t.Status.OK), int(t.Status.WRONG_SIZE)).astype(np.int32)
        return Located(layouts, np.empty((0, t.STREAM_COLUMNS), np.int64), {}, status)

    def scratch(self) -> int:
        return 0
