"""values: what the decoding of an element filter does to one value, chosen once from the metadata.

A `Conversion` says what becomes of an element of a chunk. `zarrgpu.kernels.assemble_values` applies it on the way to
the output; `zarrgpu.kernels.convert` has its device functions, `zarrgpu.kernels.values_reference` the same in plain
NumPy. The functions here return one, or None where a device would not provably give the bits that NumPy gives, NaNs
included; then the host has to decode.

==================  ==========================================================================================
`cast`              ``astype`` of numcodecs' AsType and Quantize, and of Delta before its sum
`divide_add`        numcodecs' FixedScaleOffset: ``((x / scale) + offset).astype(target)``
`scale_offset`      zarr's ``scale_offset``: the same in the array's dtype; integers divide without a remainder
`cast_value`        zarr's ``cast_value``, which is cast-value-rs 0.5
`bits`              numcodecs' PackBits
==================  ==========================================================================================

dtypes are native ones: assemble reverses bytes. A NaN keeps its sign and payload. x86's instructions set its quiet bit,
NumPy's float16 does not, see `zarrgpu.kernels.half`; where the NumPy at hand does otherwise, NaNs, and so floats, are
left to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from zarrgpu.kernels.values_reference import REFERENCES

Number = int | float
DType = np.dtype[Any]

ROUNDINGS: Final = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
MAPPED: Final = 8
"""Entries of a scalar map that kernels take."""

REFUSE: Final = "refuse"  # in place of "clamp" and "wrap"


@dataclass(frozen=True)
class Conversion:
    """From a stored value to a decoded one.

    Attributes
    ----------
    source, target : numpy.dtype
        Of the stored and the decoded elements, native.
    operation : str
        Which: a key of `zarrgpu.kernels.values_reference.REFERENCES`.
    choices : tuple of str and int
        What else kernels are compiled for.
    numbers : tuple of int
        What kernels get as an argument: the bits of float64, float32, or 64-bit integers.
    """

    source: DType
    target: DType
    operation: str
    choices: tuple[str | int, ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """A name for all but the `numbers`."""
        parts = [self.operation, self.source.str[1:], self.target.str[1:], *map(str, self.choices)]
        return "_".join(parts).replace("-", "_")

    @property
    def parameters(self) -> npt.NDArray[np.uint64]:
        """`numbers` as the kernels' argument; never empty."""
        return np.array(self.numbers or (0,), np.uint64)

    def reference(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the kernels make of a chunk's elements, by NumPy; ValueError where they refuse one."""
        with np.errstate(all="ignore"):
            return REFERENCES[self.operation](self, stored)


def cast(source: DType, target: DType) -> Conversion | None:
    """``stored.astype(target)``; None from floats to integers, whose result is undefined outside the target's range."""
    if not (_is_plain(source, "biuf") and _is_plain(target, "biuf")) or (source.kind == "f" and target.kind in "iu"):
        return None
    if source.kind == target.kind == "f" and source != target and not _nans_are_known():
        return None
    return Conversion(source, target, "cast")


def divide_add(source: DType, scale: Number, offset: Number, target: DType) -> Conversion | None:
    """``((stored / scale) + offset).astype(target)``, with plain numbers as JSON gives them.

    None where a number is not finite in the dtype in which NumPy computes, or the scale zero; and for integer targets,
    unless no stored value has a result outside the target's range.
    """
    if not (_is_plain(source, "biuf") and _is_plain(target, "biuf")):
        return None
    if type(scale) not in (int, float) or type(offset) not in (int, float):
        return None
    try:
        with np.errstate(all="ignore"):
            compute = (np.ones(1, source) / scale).dtype
            if ((np.ones(1, compute)) + offset).dtype != compute:
                return None
            one = np.ones(1, compute)  # a product has the bits of what NumPy makes of a plain number
            numbers = (one * scale)[0], (one * offset)[0]
            ends = (_ends(source) / scale) + offset
    except OverflowError:
        return None
    if target.kind in "iu":
        limits = np.iinfo(target)  # rounding is monotonic, so that all results lie between the ends'
        if source.kind == "f" or not all(int(limits.min) <= float(x) < int(limits.max) + 1 for x in ends):
            return None
    return _divide_add(source, compute, *numbers, target)


def scale_offset(dtype: DType, scale: Any, offset: Any) -> Conversion | None:
    """``stored / scale + offset`` in `dtype`, with scalars of it, as zarr parses them.

    Kernels refuse an integer that the scale does not divide, and a sum outside `dtype`.
    """
    if not _is_plain(dtype, "iuf"):
        return None
    try:
        with np.errstate(all="ignore"):
            numbers = dtype.type(scale), dtype.type(offset)
    except (OverflowError, TypeError, ValueError):
        return None
    if dtype.kind == "f":
        return _divide_add(dtype, dtype, *numbers, dtype)
    if numbers != (scale, offset) or numbers[0] == 0:
        return None
    return Conversion(dtype, dtype, "divide_exactly", (), tuple(int(n) % 2**64 for n in numbers))


def cast_value(
    source: DType,
    target: DType,
    rounding: str = "nearest-even",
    out_of_range: Literal["clamp", "wrap"] | None = None,
    scalar_map: Mapping[Any, Any] | None = None,
) -> Conversion | None:
    """What `zarr.codecs.CastValue` does with `source` on its way to `target`, with its ``scalar_map["decode"]``.

    None from float64 to float16, which cast-value-rs rounds twice on some CPUs; for more than `MAPPED` entries; and for
    what zarr refuses whatever the data. Kernels refuse what has no result; with ``clamp`` so they do NaN and infinity.
    """
    if not (_is_plain(source, "iuf") and _is_plain(target, "iuf")) or rounding not in ROUNDINGS:
        return None
    if out_of_range not in (None, "clamp", "wrap") or (out_of_range == "wrap" and source.kind == target.kind == "f"):
        return None
    if (source.str[1:], target.str[1:]) == ("f8", "f2"):
        return None
    try:
        pairs = _mapped(source, target, scalar_map or {})
    except (OverflowError, TypeError, ValueError):
        return None
    if len(pairs) > MAPPED:
        return None
    if source.kind != "f" and target.kind != "f":
        rounding = ROUNDINGS[0]  # nothing to round: one kernel for all
    mode = REFUSE if out_of_range is None or (out_of_range == "wrap" and target.kind == "f") else out_of_range
    choices = rounding, mode, len(pairs)
    return Conversion(source, target, "cast_value", choices, tuple(n for pair in pairs for n in pair))


def bits(count: int) -> Conversion:
    """The bits of `count` booleans, the first one highest, behind a byte that says how many bits are left over.

    A chunk has ``1 + ceil(count / 8)`` bytes. Its boolean `e` is bit ``7 - e % 8`` of byte ``1 + e // 8``.
    """
    if count < 0:
        raise ValueError(f"a chunk has no {count} elements")
    return Conversion(np.dtype(np.uint8), np.dtype(np.bool_), "bits", (), (count,))


def key(dtype: DType, bits: int) -> int:
    """Equal for what a scalar map takes to be equal: the bits, but all NaNs alike, and both zeros."""
    if dtype.kind != "f":
        return bits
    magnitude = bits & ((1 << 8 * dtype.itemsize - 1) - 1)
    if magnitude == 0:
        return 0
    return 2**64 - 1 if magnitude > infinity(dtype) else bits


def infinity(dtype: DType) -> int:
    """The bits of a float's infinity; those of a NaN without its sign are above."""
    return bits_of(dtype.type(np.inf))


def bits_of(value: Any) -> int:
    """The bits of a NumPy scalar."""
    return int(value.view(f"u{value.itemsize}"))


def _is_plain(dtype: DType, kinds: str) -> bool:
    return dtype.kind in kinds and dtype.itemsize <= 8 and dtype.isnative


def _ends(source: DType) -> npt.NDArray[Any]:
    if source.kind not in "iu":
        return np.array([False, True]).astype(source)
    limits = np.iinfo(source)
    return np.array([limits.min, limits.max], source)


def _divide_add(source: DType, compute: DType, scale: Any, offset: Any, target: DType) -> Conversion | None:
    if not (np.isfinite(scale) and np.isfinite(offset)) or scale == 0:
        return None
    if source.kind == "f" and not _nans_are_known():
        return None
    wide = np.float64 if compute.itemsize == 8 else np.float32  # float16 computes in float32
    return Conversion(source, target, "divide_add", (compute.str[1:],), (bits_of(wide(scale)), bits_of(wide(offset))))


def _mapped(source: DType, target: DType, scalar_map: Mapping[Any, Any]) -> list[tuple[int, int]]:
    """Keys and results of a scalar map, each key once, read as zarr and cast-value-rs read it."""

    def scalar(dtype: DType, number: Number) -> int:
        with np.errstate(all="ignore"):
            if dtype.kind == "f" and dtype.itemsize == 2:
                number = float(np.float32(number))  # rounded twice
            return bits_of(dtype.type(number))

    to_source, to_target = (float if dtype.kind == "f" else int for dtype in (source, target))
    entries: dict[Any, Any] = {to_source(k): to_target(v) for k, v in scalar_map.items()}
    pairs: dict[int, int] = {}
    for k, v in entries.items():  # of keys that are equal in `source` the first one counts
        pairs.setdefault(key(source, scalar(source, k)), scalar(target, v))
    return list(pairs.items())


@cache
def _nans_are_known() -> bool:
    """Whether the NumPy at hand converts NaNs as on x86 without F16C instructions, which NumPy's builds do not use."""

    def converted(bits: int, source: str, target: str) -> int:
        value = np.array([bits], f"u{source[1]}").view(source)
        return bits_of(value.astype(target)[0])

    signalling = np.array([0xFF800001], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        return (
            converted(0xFC01, "f2", "f4") == 0xFF802000
            and converted(0xFC01, "f2", "f8") == 0xFFF0040000000000
            and converted(0xFF800001, "f4", "f2") == 0xFC01
            and converted(0xFFF0000000000001, "f8", "f2") == 0xFC01
            and converted(0xFF800001, "f4", "f8") == 0xFFF8000020000000
            and converted(0xFFF0000020000000, "f8", "f4") == 0xFFC00001
            and bits_of((signalling / np.float32(3))[0]) == bits_of((signalling + np.float32(3))[0]) == 0xFFC00001
        )
