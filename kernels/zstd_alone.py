"""What a warp does for one sequence of Zstandard by itself, and for a block without any.

Positions in the input and the output are uint32, relative to views of them that start at a multiple of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import WARP, Target
from zarrgpu.kernels import lz4_copy

U = np.uint32
U64 = np.uint64


def make_move(target: Target, crew: Any) -> Any:
    """``move(lane, to, to32, dest, start, n)``: bytes of a slot to a place not behind theirs, which it may overlap."""
    device, load, sync = target.device, target.load, target.sync

    @device
    def word(to32, i, wanted, shift):
        """The unaligned word at bit `shift` of word `i`; what is loaded has a wanted byte in it."""
        low = load(to32, i, wanted, U(0))
        high = load(to32, U(i + U(1)), wanted and shift != U(0), U(0))
        return U(((U64(low) | (U64(high) << U64(32))) >> U64(shift)) & U64(0xFFFFFFFF))

    @device
    def move(lane, to, to32, dest, start, n):
        """Front to back, every row loaded before it is stored."""
        if dest == start:
            return
        head = min(U((U(4) - (dest & U(3))) & U(3)), n)
        byte = load(to, U(start + lane), lane < head, U(0))
        sync()
        if lane < head:
            to[U(dest + lane)] = np.uint8(byte)
        words = U((n - head) >> U(2))
        q = U(start + head)
        i = U(q >> U(2))
        j = U((dest + head) >> U(2))
        shift = U((q & U(3)) << U(3))
        k = U(lane)
        while U(k - lane) < words:
            k1 = U(k + U(WARP))
            k2 = U(k + U(2 * WARP))
            k3 = U(k + U(3 * WARP))
            a = word(to32, U(i + k), k < words, shift)
            b = word(to32, U(i + k1), k1 < words, shift)
            c = word(to32, U(i + k2), k2 < words, shift)
            d = word(to32, U(i + k3), k3 < words, shift)
            sync()
            if k < words:
                to32[U(j + k)] = a
            if k1 < words:
                to32[U(j + k1)] = b
            if k2 < words:
                to32[U(j + k2)] = c
            if k3 < words:
                to32[U(j + k3)] = d
            sync()
            k = U(k + U(4 * WARP))
        tail = U(head + U(words << U(2)) + lane)
        byte = load(to, U(start + tail), tail < n, U(0))
        sync()
        if tail < n:
            to[U(dest + tail)] = np.uint8(byte)

    return move


def make_alone(target: Target, crew: Any) -> tuple[Any, Any, Any]:
    """``(copy, fill, sequence)``: bytes of one view to another, one byte many times, a sequence."""
    device, sync = target.device, target.sync
    _, copy_late, fill_pattern, _ = lz4_copy.make_alone(target, crew)
    move = make_move(target, crew)

    @device
    def copy(lane, to, to32, dest, source, source32, start, n):
        """``to[dest:dest + n] = source[start:start + n]``, which do not overlap."""
        if n > U(0):
            copy_late(lane, to, to32, dest, source, source32, start, n, U(0), U(0), U(0))

    repeat = lz4_copy.make_repeat(target, WARP, copy)

    @device
    def fill(lane, to, dest, byte, n):
        """``to[dest:dest + n] = byte``."""
        k = lane
        while k < n:
            to[U(dest + k)] = np.uint8(byte)
            k = U(k + U(WARP))

    @device
    def sequence(lane, source, source32, to, to32, dest, literals, raw, count, offset, length):
        """One sequence; what is there before `dest` is visible to all lanes, and what it writes when it returns."""
        if raw:
            copy(lane, to, to32, dest, source, source32, literals, count)
        elif count > U(0):
            move(lane, to, to32, dest, literals, count)
        dest = U(dest + count)
        sync()
        if offset >= length:
            copy(lane, to, to32, dest, to, to32, U(dest - offset), length)
        elif length > U(4 * WARP) and (offset <= U(2) or offset == U(4)):
            fill_pattern(lane, to, to32, dest, offset, length)
        else:
            repeat(lane, to, to32, dest, offset, length)
        sync()

    return copy, fill, sequence
