"""The `out` of a read: which engine fills it, and whether it can be filled at all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from zarrgpu.chain import native
from zarrgpu.engine import resolve
from zarrgpu.engine.base import Array, Engine


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the bits of times, int64; `dtype` for everything else."""
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def adopt(out: Any | None, dtype: np.dtype[Any], engine: Engine) -> tuple[Array | None, Engine]:
    """View `out` as an array of the engine that fills it.

    Parameters
    ----------
    out : array or None
        Of any library, in the memory of `engine`.
    dtype : dtype
        Of the array that is read.
    engine : Engine
        The one asked for.

    Returns
    -------
    Array or None
        An array of the second, of the very memory of `out`.
    Engine
        `engine`, or the host's for elements that are no numbers there, unless `out` takes their bits.

    Raises
    ------
    TypeError
        For an `out` that is no array in the memory of that engine.
    ValueError
        For one on another device, or one that is read-only.
    """
    dtype = native(dtype)
    if not engine.supports(dtype):
        with suppress(TypeError):  # in other memory, or none at all
            bits = engine.adopt(out)
            if bits.dtype == bits_of(dtype):
                return bits, engine
        engine = resolve("host")
    return (None if out is None else engine.adopt(out)), engine


def check(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` unless an adopted `out` is of this shape and dtype, and no two of its elements share bytes."""
    if out.shape != shape or out.dtype not in (dtype, bits_of(dtype)):
        raise ValueError(f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}")
    if overlaps_itself(out.shape, out.strides, out.dtype.itemsize):
        raise ValueError(f"out overlaps itself: elements of {out.dtype} share bytes at strides {out.strides}")


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether any two elements of an array share bytes; exact, whatever the strides.

    Two elements whose indices differ by ``d`` are ``sum(d * strides)`` bytes apart, so that the question is whether
    that comes to less than `itemsize` for a ``d`` other than zero. Sorted by stride, an axis that steps over all that
    the shorter ones reach cannot take part; an array that was not made by tricks has only such axes. For the rest
    every ``d`` is tried which the shorter axes could still make up for.
    """
    if 0 in shape:
        return False
    axes = sorted((abs(stride), n - 1) for n, stride in zip(shape, strides, strict=True) if n > 1)
    reach = [0]  # of the first k axes: bytes from the first element to the last
    for stride, last in axes:
        reach.append(reach[-1] + stride * last)
    if axes and axes[0][0] == 0:
        return True

    def meet(k: int, apart: int, moved: bool) -> bool:
        """Whether the first `k` axes can bring elements that are `apart` bytes apart to less than `itemsize`."""
        if k == 0:
            return moved and abs(apart) < itemsize
        stride, last = axes[k - 1]
        slack = reach[k - 1] + itemsize - 1
        first = max(-((apart + slack) // stride), -last if moved else 0)  # of d and -d one will do
        return any(
            meet(k - 1, apart + d * stride, moved or d != 0)
            for d in range(first, min((slack - apart) // stride, last) + 1)
        )

    k = len(axes)
    while k and axes[k - 1][0] >= reach[k - 1] + itemsize:
        k -= 1
    return meet(k, 0, False)
