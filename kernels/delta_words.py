"""Words of packed integers and what a warp does with them: device functions of `zarrgpu.kernels.delta`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target

U = np.uint32
W = np.uint64


def word_of(itemsize: int) -> Any:
    """The unsigned type of a word: 8 bytes for items of 8, else 4."""
    return W if itemsize == 8 else U


def make_packed(target: Target, itemsize: int) -> tuple[Any, Any, Any, Any]:
    """Device functions for a word as the integers that are packed in it, none of which carries into another.

    ``plus(a, b)``; ``prefix(a)``, the prefix sums; ``last(a)``, the last integer; and ``spread(value)``, which is that
    integer in all places.
    """
    device, word = target.device, word_of(itemsize)
    size = word().itemsize
    mask, top = word(2 ** (8 * itemsize) - 1), word(8 * (size - itemsize))
    ones = word(sum(1 << 8 * k for k in range(0, size, itemsize)))
    high = word(int(ones) << 8 * itemsize - 1)  # the highest bits, which are added without a carry
    low = word(2 ** (8 * size) - 1 - int(high))
    shifts = tuple(word(8 * itemsize << k) for k in range(2) if itemsize << k < size)

    @device
    def whole_plus(a, b):
        return word(a + b)

    @device
    def packed_plus(a, b):
        return word(word(word(a & low) + word(b & low)) ^ word(word(a ^ b) & high))

    plus = whole_plus if itemsize == size else packed_plus

    @device
    def prefix(a):
        for shift in shifts:
            a = plus(a, word(a << shift))
        return a

    @device
    def same(a):
        return a

    @device
    def last(a):
        return word(a >> top)

    @device
    def spread(value):
        return word(word(value & mask) * ones)

    return plus, prefix if shifts else same, last, spread


def make_scan(target: Target, lanes: int, word: Any) -> tuple[Any, Any]:
    """Device functions ``scan(lane, value)``, the sum up to this lane, and ``final(value)``, the last lane's value."""
    cuda, device = target.cuda, target.device
    signed = np.int64 if word is W else np.int32  # all that shuffles take

    @device
    def alone(lane, value):
        return value

    @device
    def only(value):
        return value

    if lanes == 1:
        return alone, only

    @device
    def scan(lane, value):
        for k in range(5):
            other = word(cuda.shfl_up_sync(FULL, signed(value), 1 << k))
            if lane >= 1 << k:
                value = word(value + other)
        return value

    @device
    def final(value):
        return word(cuda.shfl_sync(FULL, signed(value), WARP - 1))

    return scan, final


def make_edges(target: Target, itemsize: int) -> tuple[Any, Any]:
    """Device functions for words of which some bytes may lie outside the bytes `first` to `end` of a run.

    ``load(arena, words, w, first, end)`` gives zeros for those, ``store(arena, words, w, first, end, value)`` leaves
    them alone. A word that ends past ``words`` is taken to pieces, too.
    """
    device, word = target.device, word_of(itemsize)
    size = word().itemsize

    @device
    def is_whole(words, w, first, end):
        return w * size >= first and (w + 1) * size <= end and w < words.size

    @device
    def load(arena, words, w, first, end):
        if is_whole(words, w, first, end):
            return words[W(w)]
        value = word(0)
        for k in range(size):
            if w * size + k >= first and w * size + k < end:
                value |= word(word(arena[W(w * size + k)]) << word(8 * k))
        return value

    @device
    def store(arena, words, w, first, end, value):
        if is_whole(words, w, first, end):
            words[W(w)] = value
        else:
            for k in range(size):
                if w * size + k >= first and w * size + k < end:
                    arena[W(w * size + k)] = np.uint8(word(value >> word(8 * k)) & word(255))

    return load, store
