"""Codec metadata -> `Program`, or `UnsupportedError` with the reason. Pure host code, once per array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs import STAGES, Raw, Stage
from zarrgpu.errors import UnsupportedError


@dataclass(frozen=True)
class Chain:
    """What an array's metadata say of its codecs, Zarr 2 and 3 alike, in decoding order.

    Attributes
    ----------
    stored : numpy.dtype
        The elements as they are stored, byte order included.
    order : {"C", "F"}
        Order of the elements in a chunk.
    codecs : tuple of (name, config)
        The bytes-to-bytes codecs, the last applied on encoding first.
    unsupported : str or None
        What else there is that no program covers.
    """

    stored: np.dtype[Any]
    order: Literal["C", "F"]
    codecs: tuple[tuple[str, Mapping[str, Any]], ...]
    unsupported: str | None = None


@dataclass(frozen=True)
class Program:
    """A codec chain bound to the stages that decode it.

    Attributes
    ----------
    stored : numpy.dtype
        The elements as they are stored, byte order included.
    order : {"C", "F"}
        Order of the elements in a chunk.
    stage : Stage
        Decodes the chunk's bytes.
    """

    stored: np.dtype[Any]
    order: Literal["C", "F"]
    stage: Stage

    def chunk_strides(self, shape: Sequence[int]) -> list[int]:
        """Strides of a decoded chunk, in elements."""
        axes = range(len(shape))
        steps, step = [0] * len(shape), 1
        for axis in reversed(axes) if self.order == "C" else axes:
            steps[axis] = step
            step *= shape[axis]
        return steps

    def swap(self, dtype: np.dtype[Any]) -> int:
        """Bytes that are reversed together on the way into an output of `dtype`; 0 when none are."""
        return (
            0
            if self.stored.isnative == dtype.isnative
            else self.stored.itemsize // (2 if self.stored.kind == "c" else 1)
        )

    def describe(self, by_library: bool) -> list[str]:
        """Lines for ``explain()``: each stage and what is folded into assemble."""
        folded = ["unshuffle"] if self.stage.name == "blosc" and not by_library else []
        if self.swap(self.stored.newbyteorder("=")):
            folded.append("byte swap")
        if self.order == "F":
            folded.append("axis order")
        folded += ["clip", "steps", "scatter", "fill"]
        how = "rows by a compiled twin, strided boxes by NumPy" if by_library else "one launch"
        return [self.stage.describe(by_library), f"assemble: {', '.join(folded)}; {how}"]


def reordered(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """`array` in the byte order of `dtype`, bit for bit.

    `numpy.ndarray.astype` will not do: it swaps nothing between the byte orders of times without a unit.
    """
    return (array if array.dtype.isnative == dtype.isnative else array.byteswap()).view(dtype)


DTYPE_KINDS = "biufcmM"
"""Kinds of dtypes whose elements are plain numbers of one size."""


def bind(chain: Chain) -> Program:
    """Bind a chain to the stages that decode it.

    Parameters
    ----------
    chain : Chain
        From `zarrgpu._compat`.

    Raises
    ------
    UnsupportedError
        When a part of it has no stage here.
    """
    if chain.unsupported is not None:
        raise UnsupportedError(chain.unsupported)
    if chain.stored.kind not in DTYPE_KINDS:
        raise UnsupportedError(f"dtype {chain.stored}")
    if len(chain.codecs) > 1:
        raise UnsupportedError("codecs " + " + ".join(name for name, _ in chain.codecs))
    if not chain.codecs:
        return Program(chain.stored, chain.order, Raw())
    name, config = chain.codecs[0]
    if name not in STAGES:
        raise UnsupportedError(f"codec {name}")
    return Program(chain.stored, chain.order, STAGES[name].from_config(config))
