"""Plain references of the conversions in `zarrgpu.kernels.values`: ``reference(conversion, stored) -> decoded``.

`stored` is a chunk's elements in one dimension. ValueError stands for the status of a kernel: BAD_VALUE, or BAD_HEADER
for the bits. NumPy may warn of what overflows or is a signalling NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion

Array = npt.NDArray[Any]


def cast(conversion: Conversion, stored: Array) -> Array:
    """As NumPy does it."""
    return stored.astype(conversion.target)


def divide_add(conversion: Conversion, stored: Array) -> Array:
    """As NumPy does it, in the dtype of the choices."""
    compute = np.dtype(str(conversion.choices[0]))
    wide = np.float64 if compute.itemsize == 8 else np.float32
    scale, offset = (np.uint64(n).astype(f"u{wide().itemsize}").view(wide).astype(compute) for n in conversion.numbers)
    decoded: Array = ((stored / scale) + offset).astype(conversion.target)
    return decoded


def divide_exactly(conversion: Conversion, stored: Array) -> Array:
    """Integers of any size: no remainder, and a sum that the dtype has."""
    dtype = conversion.target
    scale, offset = (n - 2**64 if dtype.kind == "i" and n >= 2**63 else n for n in conversion.numbers)
    decoded = []
    for x in stored.tolist():
        quotient, rest = divmod(x, scale)
        if rest:
            raise ValueError(f"{x} is no multiple of {scale}")
        decoded.append(_checked(quotient + offset, dtype))
    return np.array(decoded, dtype)


def cast_value(conversion: Conversion, stored: Array) -> Array:
    """An exact number, rounded once, then brought into the target's range."""
    from zarrgpu.kernels.values import key

    target = conversion.target
    _, _, entries = conversion.choices
    mapped = dict(zip(conversion.numbers[::2], conversion.numbers[1::2], strict=True))
    assert len(mapped) == entries
    decoded = np.empty(stored.size, f"u{target.itemsize}")
    for i, (x, b) in enumerate(zip(stored, stored.view(f"u{stored.itemsize}").tolist(), strict=True)):
        k = key(conversion.source, b)
        value = mapped[k] if k in mapped else _one(conversion, x)
        decoded[i] = value % 2 ** (8 * target.itemsize)
    return decoded.view(target)


def bits(conversion: Conversion, stored: Array) -> Array:
    """As NumPy does it, a header that contradicts the number of elements apart."""
    (count,) = conversion.numbers
    if stored[0] != -count % 8 or stored.size != 1 + (count + 7) // 8:
        raise ValueError(f"{stored.size} bytes with {stored[0]} bits left over are not {count} booleans")
    return np.unpackbits(stored[1:])[:count].view(np.bool_)


REFERENCES: dict[str, Callable[[Conversion, Array], Array]] = {
    f.__name__: f for f in (cast, divide_add, divide_exactly, cast_value, bits)
}


def rounded(value: Fraction, unit: Fraction, rounding: str) -> Fraction:
    """The multiple of `unit` next to `value`, in the direction of `rounding`."""
    n, rest = divmod(value, unit)
    up = {
        "nearest-even": rest * 2 > unit or (rest * 2 == unit and n % 2 == 1),
        "nearest-away": rest * 2 > unit or (rest * 2 == unit and value > 0),
        "towards-zero": rest > 0 and value < 0,
        "towards-positive": rest > 0,
        "towards-negative": False,
    }[rounding]
    return (n + up) * unit


def _checked(number: int, dtype: np.dtype[Any]) -> int:
    limits = np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"{number} is no {dtype}")
    return number


def _one(conversion: Conversion, x: Any) -> int:
    """The bits of one converted value, of any sign."""
    target, (rounding, out_of_range, _) = conversion.target, conversion.choices
    if target == conversion.source:
        return int(x.view(f"u{target.itemsize}"))
    if target.kind == "f":
        return _float(x, target, str(rounding), str(out_of_range))
    if not np.isfinite(x):
        raise ValueError(f"{x} is no {target}")
    number = int(rounded(Fraction(x.item()), Fraction(1), str(rounding)))
    limits = np.iinfo(target)
    if out_of_range == "clamp":
        number = min(max(number, int(limits.min)), int(limits.max))
    return number if out_of_range == "wrap" else _checked(number, target)


def _float(x: Any, target: np.dtype[Any], rounding: str, out_of_range: str) -> int:
    unsigned = f"u{target.itemsize}"
    if np.isnan(x):
        bits = x.view(f"u{x.itemsize}")
        quiet = (bits | bits.dtype.type(1 << int(np.finfo(x.dtype).nmant) - 1)).view(x.dtype)
        return int(np.array([quiet]).astype(target).view(unsigned)[0])
    if not np.isfinite(x) or x == 0:
        return int(target.type(x).view(unsigned))
    value, limits = Fraction(x.item()), np.finfo(target)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(limits.minexp)) - int(limits.nmant))
    number = rounded(value, unit, rounding)
    if abs(number) > Fraction(float(limits.max)):
        if out_of_range != "clamp":
            raise ValueError(f"{x} is no {target}")
        return int(target.type(np.copysign(np.inf, float(x))).view(unsigned))
    return int(target.type(np.copysign(abs(float(number)), float(x))).view(unsigned))
