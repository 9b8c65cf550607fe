"""stored: streams that are kept as they are, copied from the source arena to their slots.

==============  ==============================================================================================
``source``      uint8[]: the source arena; ``source32``: uint32[], its whole words, 4-byte aligned
``scratch``     uint8[]: the scratch arena; ``scratch32``: uint32[], its whole words, 4-byte aligned; no alias
``streams``     int64[s, 5]: see `zarrgpu.kernels.tables`
``order``       int64[k]: which streams to copy, in what order
``status``      int32[s]: of each stream in `order`: OK, WRONG_SIZE where ``S_SIZE`` is not ``S_WANT``, BAD_TABLE where
                the stream lies outside the source or its slot outside the scratch arena, which is then not written to
==============  ==============================================================================================

A line of `order` outside ``streams`` is skipped. Grid: a warp a stream, blocks of 256, no shared memory. Limits: none
but int64. Source: c-blosc 1.21, ``blosc_d``, which keeps a split whose compressed size equals its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import WARP, Kernel, Target
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT, Status

U = np.uint32
W = np.uint64
BAD_TABLE, WRONG_SIZE, OK = int(Status.BAD_TABLE), int(Status.WRONG_SIZE), int(Status.OK)


def reference(source: npt.NDArray[np.uint8], scratch: npt.NDArray[np.uint8], streams: npt.NDArray[np.int64]) -> None:
    """Copy good streams."""
    for start, size, dest, _, _ in streams:
        scratch[dest : dest + size] = source[start : start + size]


def make(target: Target, lanes: int) -> Any:
    """The body: bytes up to a word of the scratch arena, words cut out of the source's, then the bytes that remain."""

    @target.device
    def word(words, i, shift):
        """Four bytes from bit `shift` of word `i` on."""
        value = W(words[i])
        if shift != W(0):
            value = (value | W(words[i + W(1)]) << W(32)) >> shift
        return U(value & W(0xFFFFFFFF))

    def body(lane, item, source, source32, scratch, scratch32, streams, order, status):
        s = order[item]
        if s < 0 or s >= streams.shape[0]:
            return
        start, size, dest = streams[s, S_START], streams[s, S_SIZE], streams[s, S_DEST]
        result = OK
        if size != streams[s, S_WANT]:
            result = WRONG_SIZE
        elif size < 0 or start < 0 or start > source.size - size or dest < 0 or dest > scratch.size - size:
            result = BAD_TABLE
        if lane == 0:
            status[s] = result
        if result != OK:
            return
        # Whole words of scratch, as long as the arenas' words hold all their bytes; what is left is copied as bytes.
        head = min(-dest & 3, size)
        end = min(dest + size, 4 * np.int64(scratch32.size), 4 * np.int64(source32.size) - start + dest)
        words = max(end - dest - head, np.int64(0)) >> 2
        first, origin = W((dest + head) >> 2), W((start + head) >> 2)
        shift = W(8 * ((start + head) & 3))
        i = W(lane)
        if lanes > 1:  # eight loads at once for each lane: a copy waits for memory, and few streams must do
            n = W(lanes)
            while i + W(7) * n < W(words):
                o, t = origin + i, first + i
                a, b, c = word(source32, o, shift), word(source32, o + n, shift), word(source32, o + W(2) * n, shift)
                d, e = word(source32, o + W(3) * n, shift), word(source32, o + W(4) * n, shift)
                f, g = word(source32, o + W(5) * n, shift), word(source32, o + W(6) * n, shift)
                h = word(source32, o + W(7) * n, shift)
                scratch32[t], scratch32[t + n], scratch32[t + W(2) * n] = a, b, c
                scratch32[t + W(3) * n], scratch32[t + W(4) * n] = d, e
                scratch32[t + W(5) * n], scratch32[t + W(6) * n] = f, g
                scratch32[t + W(7) * n] = h
                i += W(8) * n
        while i < W(words):
            scratch32[first + i] = word(source32, origin + i, shift)
            i += W(lanes)
        for k in range(lane, head, lanes):
            scratch[W(dest + k)] = source[W(start + k)]
        for k in range(head + 4 * words + lane, size, lanes):
            scratch[W(dest + k)] = source[W(start + k)]

    return body


_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
KERNEL = Kernel("stored", make, (_u1, _u4, _u1, _u4, types.Array(types.int64, 2, "C"), _i8, _i4), lanes=WARP)
