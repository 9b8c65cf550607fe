"""weighted_sums: what Adler-32 and Fletcher-32 share, a sum of values and a sum of values times how far from the end.

Arguments, grid, statuses and limits: `zarrgpu.kernels.checksums`; ``tables`` may have any length.

Both checksums read a payload as values: bytes, or pairs of bytes. ``A`` is the sum of the values and ``B`` the sum of
each value times its weight, the number of values from it to the payload's end, itself included; both modulo `modulus`.

Weights are counted to the end of a segment first. Let a word have `unit` values. Of the words of a segment, lane ``l``
of ``L`` has every ``L``-th, up to the one that has ``L - 1 - l`` words after it. With ``x`` the sum of a word's values,
and ``y`` the sum of those values times their weights if the word were the last, a lane keeps::

    s = sum of x        t = sum of x times the lane's words after it        v = sum of y

and its share of the segment's ``B`` is ``unit (L - 1 - l) s + unit L t + v``. A partial is the segment's ``A``, not
reduced, and, 32 bits further, its ``B``, reduced. When ``r`` values follow the segment, it adds ``A`` to the payload's
first sum, and ``B + r A`` to the second.

Bounds. ``x`` is 131070 at most, of two pairs, and ``y`` below 2^18. In a segment of 4096 words, ``A`` < 2^30 fits the
32 bits in which lanes add it up, and so do 32 reduced ``B``. With one lane, ``t`` is below 2^17 times 4096^2 / 2 = 2^40
and its share of ``B`` below 2^43; with more, they are less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import Target
from zarrgpu.kernels.checksums import SEGMENT_WORDS, Checksum, kernels, make_head, make_total

U = np.uint32
W = np.uint64


def make_digest(target: Target, lanes: int, unit: int, modulus: int, split: Callable[..., Any]) -> Any:
    """The partial of a segment."""
    head, split = make_head(target, ones=0), target.device(split)
    m = W(modulus)
    total = make_total(target, lanes, lambda a, b: a + b)

    @target.device
    def digest(lane, tables, words, start, begin, end, skew):
        s, t, v = W(0), W(0), W(0)
        # Whole rows of lanes back from the end: the first may begin before the payload.
        at = end - (end - begin + lanes - 1) // lanes * lanes + lane
        while at < 1 and at < end:
            x, y = split(head(words, start, at, skew), skew)
            s, t, v = s + W(x), t + s, v + W(y)
            at += lanes
        i, last, n = W(start + at), W(start + end), W(lanes)
        while i + W(3) * n < last:  # four words on their way at once
            a, b, c, d = words[i], words[i + n], words[i + W(2) * n], words[i + W(3) * n]
            i += W(4) * n
            x, y = split(a, skew)
            s, t, v = s + W(x), t + s, v + W(y)
            x, y = split(b, skew)
            s, t, v = s + W(x), t + s, v + W(y)
            x, y = split(c, skew)
            s, t, v = s + W(x), t + s, v + W(y)
            x, y = split(d, skew)
            s, t, v = s + W(x), t + s, v + W(y)
        while i < last:
            x, y = split(words[i], skew)
            s, t, v = s + W(x), t + s, v + W(y)
            i += n
        share = W(unit * (lanes - 1 - lane)) * s + W(unit * lanes) * t + v
        return W(total(U(s))) | W(total(U(share % m))) % m << W(32)

    return digest


def make_conclude(
    target: Target,
    lanes: int,
    unit: int,
    modulus: int,
    rest: Callable[..., Any],
    single: Callable[..., Any],
    finish: Callable[..., Any],
) -> Any:
    """The checksum: a lane adds every `lanes`-th segment, then the bytes of the tail come on top."""
    rest, single, finish = target.device(rest), target.device(single), target.device(finish)
    total = make_total(target, lanes, lambda a, b: a + b)
    m = W(modulus)

    @target.device
    def conclude(lane, tables, partial, base, segments, arena, first, size, tail):
        a, b = W(0), W(0)
        after = rest(first, size, tail)  # values after the last segment
        for at in range(lane, segments, lanes):
            value = partial[W(base + at)]
            s = value & W(0xFFFFFFFF)
            a += s
            if a > W(0):  # from 1 to the modulus: a sum of zeros is told from one of anything else
                a = (a - W(1)) % m + W(1)
            # Below 2^16 + 2^16 + 2^32.
            b = (b + (value >> W(32)) + s % m * (W(after + (segments - 1 - at) * (SEGMENT_WORDS * unit)) % m)) % m
        a, b = W(total(U(a))), W(total(U(b)))
        for i in range(tail - first, size):  # 7 at most
            x, y = single(arena[W(first + i)], i, size)
            a, b = a + W(x), b + W(y)
        return U(finish(a, b, W(size)))

    return conclude


def weighted_sums(
    name: str,
    unit: int,
    modulus: int,
    split: Callable[..., Any],
    rest: Callable[..., Any],
    single: Callable[..., Any],
    finish: Callable[..., Any],
) -> Checksum:
    """A checksum of this kind.

    Parameters
    ----------
    name : str
        Of the checksum.
    unit : int
        Values in a word.
    modulus : int
        Of both sums, below 2^16.
    split : callable
        ``split(word, skew) -> (x, y)``, as above, of a payload that starts `skew` bytes into a word.
    rest : callable
        ``rest(first, size, tail)``: values after the byte before `tail`, which is a multiple of 4.
    single : callable
        ``single(byte, i, size)``: the value and the weighted value of byte `i` of the payload, one of its last 7.
    finish : callable
        ``finish(a, b, size)``: the checksum. Sums are below 2^32; `a` is 0 only if all bytes are.
    """

    def digest(target: Target, lanes: int) -> Any:
        return make_digest(target, lanes, unit, modulus, split)

    def conclude(target: Target, lanes: int) -> Any:
        return make_conclude(target, lanes, unit, modulus, rest, single, finish)

    tables: npt.NDArray[np.uint32] = np.zeros(1, U)  # not empty: a GPU's array without bytes has no address
    return Checksum(name, *kernels(name, 0, digest, conclude), tables)
