"""bitshuffle: the bit shuffle of Blosc, both ways, where it is not part of assemble.

Arguments, results and limits are those of `zarrgpu.kernels.byteshuffle`. Grid: a thread an item, which is two 8x8 bit
transposes of a block; blocks of 256, no shared memory.

Source: c-blosc 1.21, ``bitshuffle-generic.c``. A block of ``s`` bytes and typesize ``t`` holds ``n = s // t`` elements;
bit ``b`` (0 is the least) of byte ``y`` of element ``j`` is bit ``j % 8`` of byte ``(8 * y + b) * (n // 8) + j // 8``
when shuffled. What remains after the elements stays; so does a whole block whose ``n`` is no multiple of eight.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.byteshuffle import ARGUMENTS, K_DST, K_SIZE, K_SRC, K_TYPE, groups, make_range
from zarrgpu.kernels.transpose import make_bits8

__all__ = ["BITSHUFFLE", "BITUNSHUFFLE", "groups", "shuffled", "unshuffled"]

U = np.uint32
W = np.uint64


def shuffled(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """The reference for one block."""
    n = block.size // typesize
    if n % 8:
        return block.copy()
    bits = np.unpackbits(block[: n * typesize].reshape(n, typesize), axis=1, bitorder="little")
    return np.concatenate([np.packbits(bits.T, axis=1, bitorder="little").ravel(), block[n * typesize :]])


def unshuffled(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """The reference for one block."""
    n = block.size // typesize
    if n % 8:
        return block.copy()
    bits = np.unpackbits(block[: n * typesize].reshape(typesize * 8, n // 8), axis=1, bitorder="little")
    return np.concatenate([np.packbits(bits.T, axis=1, bitorder="little").ravel(), block[n * typesize :]])


def make(target: Target, lanes: int, forward: bool) -> Any:
    """The body that shuffles, or unshuffles."""
    span = make_range(target)
    _, bits8 = make_bits8(target)

    def body(lane, item, src, dst, blocks, groups, status):
        block, first, end = span(src, dst, blocks, groups, status, item)
        if first >= end:
            return
        source, goal = W(blocks[block, K_SRC]), W(blocks[block, K_DST])
        t = W(blocks[block, K_TYPE])
        n = W(blocks[block, K_SIZE]) // t
        plane = n >> W(3)  # bytes of a bit plane, and octets of elements
        octets = W(0) if n & W(7) != W(0) else plane * t
        # Octet i of the block: eight elements from 8 * (i % plane) on, byte i // plane of each.
        for i in range(first >> 3, min((end + 7) >> 3, np.int64(octets))):
            y = W(i) // plane
            j = W(i) - y * plane
            elements, planes = W(8) * j * t + y, W(8) * y * plane + j
            if forward:
                low, high = bits8(src, source + elements, t, U(0))
                at, step = goal + planes, plane
            else:
                low, high = bits8(src, source + planes, plane, U(0))
                at, step = goal + elements, t
            for k in range(4):
                dst[at + W(k) * step] = np.uint8(low >> U(8 * k) & U(255))
                dst[at + W(k + 4) * step] = np.uint8(high >> U(8 * k) & U(255))
        for q in range(max(first, np.int64(W(8) * octets)), end):
            dst[goal + W(q)] = src[source + W(q)]

    return body


BITSHUFFLE = Kernel("bitshuffle", partial(make, forward=True), ARGUMENTS)
BITUNSHUFFLE = Kernel("bitunshuffle", partial(make, forward=False), ARGUMENTS)
