"""byteswap: every `width` bytes reversed, where it is not part of assemble.

=========  ============================================================================================
``src``    uint8[]: values of `width` bytes, one after the other, from its first byte on
``dst``    uint8[]: where they go; ``src`` itself, or no alias of it
``size``   int64: bytes to swap, a multiple of ``width``
``width``  int64: 2, 4, 8 or 16
``status`` int32[1]: zero; BAD_TABLE is written if an argument contradicts this, and nothing else
=========  ============================================================================================

Grid: a thread an item, which is `VALUE_BYTES` bytes of values; blocks of 256, no shared memory. Limits: none but int64.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.tables import Status

W = np.uint64
BAD = int(Status.BAD_TABLE)
VALUE_BYTES: Final = 16


def reference(values: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """`values` with every `width` bytes reversed."""
    return values.reshape(-1, width)[:, ::-1].ravel()


def items(size: int) -> int:
    """Work items for `size` bytes."""
    return -(-size // VALUE_BYTES)


def make(target: Target, lanes: int) -> Any:
    """The body: pairs of bytes change places, so that `dst` may be `src`."""

    def body(lane, item, src, dst, size, width, status):
        good = width == 2 or width == 4 or width == 8 or width == 16
        if not good or size < 0 or size & (width - 1) != 0 or size > src.size or size > dst.size:
            status[0] = BAD
            return
        first = item * VALUE_BYTES
        for value in range(first, min(first + VALUE_BYTES, size), width):
            for k in range(width >> 1):
                i, j = W(value + k), W(value + width - 1 - k)
                low, high = src[i], src[j]
                dst[i], dst[j] = high, low

    return body


_u1 = types.Array(types.uint8, 1, "C")
KERNEL = Kernel("byteswap", make, (_u1, _u1, types.int64, types.int64, types.Array(types.int32, 1, "C")))
