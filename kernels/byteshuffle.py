"""byteshuffle: the byte shuffle of Blosc and of numcodecs' ``Shuffle``, both ways, where it is not part of assemble.

==========  ====================================================================================================
``src``     uint8[]: the bytes to shuffle or unshuffle
``dst``     uint8[]: where they go; no alias of ``src``
``blocks``  int64[b, 4]: of each block the first byte in ``src``, the first in ``dst``, its bytes, its typesize
``groups``  int64: work items of each block, see `groups`; items are ``blocks * groups``
``status``  int32[b]: zeros; BAD_TABLE is written where a block lies outside ``src`` or ``dst``, or has no typesize, and
            nothing else of it
==========  ====================================================================================================

Grid: a thread an item, which is `GROUP` bytes of a block; blocks of 256, no shared memory. Limits: none but int64.

Source: c-blosc 1.21, ``shuffle-generic.h``. A block of ``s`` bytes and typesize ``t`` holds ``n = s // t`` elements;
byte ``y`` of element ``j``, at ``j * t + y``, is at ``y * n + j`` when shuffled. What remains after the elements stays.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.tables import Status

W = np.uint64
BAD = int(Status.BAD_TABLE)
GROUP: Final = 16

K_SRC: Final = 0
K_DST: Final = 1
K_SIZE: Final = 2
K_TYPE: Final = 3

_u1, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.int32))
ARGUMENTS = (_u1, _u1, types.Array(types.int64, 2, "C"), types.int64, _i4)


def shuffled(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """The reference for one block."""
    n = block.size // typesize * typesize
    return np.concatenate([block[:n].reshape(-1, typesize).T.ravel(), block[n:]])


def unshuffled(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """The reference for one block."""
    n = block.size // typesize
    return np.concatenate([block[: n * typesize].reshape(typesize, n).T.ravel(), block[n * typesize :]])


def groups(blocks: npt.NDArray[np.int64]) -> int:
    """The argument ``groups``: work items that the largest block needs."""
    return int(-(-blocks[:, K_SIZE].max(initial=0) // GROUP))


def make_range(target: Target) -> Any:
    """Device function ``span(src, dst, blocks, groups, status, item) -> (block, first, end)``: the bytes of an item.

    There are none if the block is bad, of which the item says so, or shorter.
    """

    @target.device
    def span(src, dst, blocks, groups, status, item):
        block = item // groups
        source, target, size = blocks[block, K_SRC], blocks[block, K_DST], blocks[block, K_SIZE]
        first = (item - block * groups) * GROUP
        good = size >= 0 and blocks[block, K_TYPE] > 0 and source >= 0 and target >= 0
        if not good or source > src.size - size or target > dst.size - size:
            status[block] = BAD
            return block, first, first
        return block, first, min(first + GROUP, size)

    return span


def make(target: Target, lanes: int, forward: bool) -> Any:
    """The body that shuffles, or unshuffles."""
    span = make_range(target)

    def body(lane, item, src, dst, blocks, groups, status):
        block, first, end = span(src, dst, blocks, groups, status, item)
        if first >= end:
            return
        source, goal = W(blocks[block, K_SRC]), W(blocks[block, K_DST])
        t = W(blocks[block, K_TYPE])
        n = W(blocks[block, K_SIZE]) // t
        # Byte q of the output comes from row y, column j of a matrix of `rows` rows and `columns` columns, turned.
        rows, columns = (n, t) if forward else (t, n)
        whole = min(np.int64(n * t), end)
        if first < whole:
            y = W(first) // rows
            j = W(first) - y * rows
            for q in range(first, whole):
                dst[goal + W(q)] = src[source + j * columns + y]
                j += W(1)
                if j == rows:
                    j, y = W(0), y + W(1)
        for q in range(max(first, whole), end):
            dst[goal + W(q)] = src[source + W(q)]

    return body


SHUFFLE = Kernel("byteshuffle", partial(make, forward=True), ARGUMENTS)
UNSHUFFLE = Kernel("byteunshuffle", partial(make, forward=False), ARGUMENTS)
