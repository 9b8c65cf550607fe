"""No compression: the chunk's bytes are its elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs.base import Bytes, Container, Located, plain_layouts, put
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
        status = np.where((size < 0) | (size == want), int(t.Status.OK), int(t.Status.WRONG_SIZE)).astype(np.int32)
        return Located(
            plain_layouts(chunks, t.SOURCE, t.C_START), np.empty((0, t.STREAM_COLUMNS), np.int64), {}, status
        )

    def scratch(self) -> int:
        return 0
