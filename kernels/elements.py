"""elements: the bytes of a chunk's elements, however the chunk is stored; device functions for kernels that assemble.

The layouts are those of `zarrgpu.kernels.tables`; `zarrgpu.kernels.assemble` tells where each byte of a shuffled chunk
lies. What is read lies in the chunk if the element does, and the chunk in its arena: `zarrgpu.kernels.assemble`'s
``make_layout`` checks the latter, the kernel the former.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.tables import BYTES, L_BASE, L_BLOCK, L_MODE, L_SIZE, L_TYPE, PLAIN

U = np.uint32
W = np.uint64


def make_bytes(target: Target, itemsize: int, swap: int, unsigned: Any = W) -> tuple[Any, Any, Any]:
    """Device functions that find the bytes of an element of which every `swap` are reversed.

    ``origin(o) -> uint64`` is the byte of the stored element that becomes byte `o` of the decoded one.
    ``locate(layouts, row, e) -> (chunk, p, first, step)``, for element `e` of the chunk in line `row`: its stored byte
    ``k`` is byte ``first + k * step`` of the arena; if `step` is 0, it is ``scattered(arena, chunk, p + k) -> uint32``.
    Divides in the type `unsigned`, which holds a chunk's size.
    """
    device = target.device
    unit = max(swap, 1)

    @device
    def origin(o):
        return W(o // unit * unit + unit - 1 - o % unit)

    @device
    def bits(arena, first, plane, shift):
        """Eight bits at `shift`, one from each of eight planes of `plane` bytes."""
        value = U(0)
        for b in range(8):
            value |= U((U(arena[first + W(b) * plane]) >> shift & U(1)) << U(b))
        return value

    @device
    def scattered(arena, chunk, p):
        """Byte `p` of a shuffled chunk. All that is read lies in the block: ``y * n + j <= kind * n - 1 < length``."""
        base, size, block, kind, mode = chunk
        start = unsigned(p // block * block)
        q = unsigned(p - start)
        n = unsigned(min(block, unsigned(size - start)) // kind)
        j = unsigned(q // kind)
        y = W(q - j * kind)
        first = base + W(start)
        if j < n and mode == BYTES:
            return U(arena[first + y * W(n) + W(j)])
        if j < n and n & unsigned(7) == unsigned(0):
            plane = W(n) >> W(3)
            return bits(arena, first + W(8) * y * plane + (W(j) >> W(3)), plane, U(j & unsigned(7)))
        return U(arena[base + W(p)])

    @device
    def locate(layouts, row, e):
        base, size, mode = W(layouts[row, L_BASE]), unsigned(layouts[row, L_SIZE]), layouts[row, L_MODE]
        kind = unsigned(layouts[row, L_TYPE])
        block = unsigned(min(layouts[row, L_BLOCK], layouts[row, L_SIZE]))
        p = unsigned(unsigned(e) * unsigned(itemsize))
        first = base + W(p)
        step = W(1)
        if mode != PLAIN:
            step = W(0)
            if mode == BYTES and kind == unsigned(itemsize):
                start = unsigned(p // block * block)
                n = unsigned(min(block, unsigned(size - start)) // kind)
                q = unsigned(p - start)
                j = unsigned(q // kind)
                if q == j * kind and j < n:
                    first = base + W(start) + W(j)
                    step = W(n)
        return (base, size, block, kind, mode), p, first, step

    return origin, locate, scattered
