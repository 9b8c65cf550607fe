"""rounding: the device functions of zarr's ``cast_value``, as cast-value-rs 0.5 does it.

A value that the scalar map has becomes what the map says, NaNs all being one. Else, after
https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value, the exact value is rounded once:

* to an integer, in the way asked for; NaN and infinity are refused. What is outside the target's range is refused,
  brought to its end (``clamp``) or taken modulo two to the power of its bits (``wrap``);
* to a float, to what the target would have without a limit to its exponent. A finite value that is then beyond the
  largest finite one is refused, or infinity (``clamp``). A NaN gets its quiet bit set, but none where nothing changes.

All of it is integer arithmetic: a float is its bits, an integer its magnitude and sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.half import make_half
from zarrgpu.kernels.values import Conversion, DType, infinity

U = np.uint32
W = np.uint64
S = np.float32
D = np.float64

SIGN = W(1 << 63)
DOUBLE = np.dtype(D)


def make_key(target: Target, dtype: DType) -> Any:
    """Device function ``key(bits) -> uint64``, as `zarrgpu.kernels.values.key`."""
    if dtype.kind != "f":

        @target.device
        def same(bits):
            return W(bits)

        return same
    magnitude, most = W((1 << 8 * dtype.itemsize - 1) - 1), W(infinity(dtype))

    @target.device
    def key(bits):
        size = W(W(bits) & magnitude)
        if size > most:
            return W(0xFFFFFFFFFFFFFFFF)
        return W(bits) if size != W(0) else W(0)

    return key


def make_integer(target: Target, source: DType) -> Any:
    """Device function ``integer(bits) -> (magnitude, negative, huge, good)`` of an integer, which is never huge."""
    signed, top = source.kind == "i", W(1 << 8 * source.itemsize - 1)

    @target.device
    def integer(bits):
        value = W(bits)
        negative = signed and (value & top) != W(0)
        if negative:
            value = W(W(W(top) << W(1)) - value)  # 2**64 is 0
        return value, negative, False, True

    return integer


def make_whole(target: Target, source: DType, cast: Any, rounding: str) -> Any:
    """Device function ``whole(bits) -> (magnitude, negative, huge, good)``: a float's nearest integer.

    The magnitude is modulo 2**64, and `huge` whether that changed it; a number that is not finite is not good.
    """
    to_double = cast(source, DOUBLE)
    away, even = rounding == "nearest-away", rounding == "nearest-even"
    up, down = rounding == "towards-positive", rounding == "towards-negative"

    @target.device
    def whole(bits):
        b = to_double(bits)
        negative = (b & SIGN) != W(0)
        exponent, m = np.int64(W(b >> W(52)) & W(0x7FF)), W(b & W((1 << 52) - 1))
        if exponent == 0x7FF:
            return W(0), negative, False, False
        if exponent != 0:  # a subnormal is as good as zero with a rest
            m = W(m | W(1 << 52))
        shift = exponent - 1075  # the value is m * 2**shift
        if shift >= 0:
            return W(m << W(shift)) if shift < 64 else W(0), negative, shift > 11, True
        k = W(min(-shift, np.int64(54)))  # m is less than 2**53: from there on it is all rest, less than a half
        n, rest, half = W(m >> k), W(m & W(W(W(1) << k) - W(1))), W(W(1) << W(k - W(1)))
        if even:
            more = rest > half or (rest == half and (n & W(1)) != W(0))
        elif away:
            more = rest >= half
        else:
            more = rest != W(0) and ((up and not negative) or (down and negative))
        return W(n + W(1)) if more else n, negative, False, True

    return whole


def make_fit(target: Target, parts: Any, destination: DType, out_of_range: str) -> Any:
    """Device function ``fit(bits, parameters) -> (bits, good)``: what `parts` gives, in an integer's range."""
    word = U if destination.itemsize <= 4 else W
    width, signed = 8 * destination.itemsize, destination.kind == "i"
    mask, most = W(2**width - 1), W(2 ** (width - signed) - 1)
    least = W(2 ** (width - 1) if signed else 0)  # its magnitude, and its bits
    wraps, clamps = out_of_range == "wrap", out_of_range == "clamp"

    @target.device
    def fit(bits, parameters):
        magnitude, negative, huge, good = parts(bits)
        if not good:
            return word(0), False
        limit = least if negative else most
        if wraps or (not huge and magnitude <= limit):
            value = W(W(0) - magnitude) if negative else magnitude
            return word(value & mask), True
        return word(limit), clamps

    return fit


def make_float_from_integer(target: Target, parts: Any, destination: DType, rounding: str, clamps: bool) -> Any:
    """Device function ``fit(bits, parameters) -> (bits, good)``: the integer that `parts` gives, as a float.

    The device rounds to nearest; what came of it, taken back to an integer, says which neighbour is the right one.
    """
    word, digits = (W, 53) if destination.itemsize == 8 else (U, {2: 11, 4: 24}[destination.itemsize])
    floating = D if destination.itemsize == 8 else S
    is_half = destination.itemsize == 2
    _, single_to_half, _, _ = make_half(target)
    sign, infinite = word(1 << 8 * destination.itemsize - 1), word(infinity(destination))
    bias = (1 << 8 * destination.itemsize - digits - 1) - 1
    away, even, zero = rounding == "nearest-away", rounding == "nearest-even", rounding == "towards-zero"
    up, down = rounding == "towards-positive", rounding == "towards-negative"

    @target.device
    def wide(magnitude):
        return floating(magnitude).view(word)

    @target.device
    def half(magnitude):
        return single_to_half(floating(magnitude).view(word))

    nearest = half if is_half else wide

    @target.device
    def neighbour(n, magnitude, negative):
        """`n`, or the float beside it. Infinity as a float16 counts as 2**16, the number that its bits go on to."""
        m = W(W(n) & W((1 << digits - 1) - 1)) | W(1 << digits - 1)
        shift = np.int64(n >> word(digits - 1)) - np.int64(bias + digits - 1)
        back = W(m << W(shift)) if shift >= 0 else W(m >> W(-shift))  # 2**64, from below, is 0
        above = back > magnitude or back == W(0)
        if back == magnitude:
            return n
        if away:
            tie = not above and W(W(magnitude - back) << W(1)) == W(W(1) << W(shift))
            return word(n + word(1)) if tie else n
        if above and (zero or (up and negative) or (down and not negative)):
            return word(n - word(1))
        if not above and ((up and not negative) or (down and negative)):
            return word(n + word(1))
        return n

    @target.device
    def fit(bits, parameters):
        magnitude, negative, _, _ = parts(bits)
        minus = sign if negative else word(0)
        if is_half and magnitude >= W(1 << 16):
            return word(infinite | minus), clamps
        n = nearest(magnitude)
        if not even and magnitude != W(0):
            n = neighbour(n, magnitude, negative)
        return word(n | minus), clamps or n != infinite

    return fit


def make_narrow(target: Target, source: DType, destination: DType, cast: Any, rounding: str, clamps: bool) -> Any:
    """Device function ``narrow(bits, parameters) -> (bits, good)`` from a float to one of fewer digits."""
    to_nearest, from_source, from_destination = (
        cast(source, destination),
        cast(source, DOUBLE),
        cast(destination, DOUBLE),
    )
    word = U if destination.itemsize <= 4 else W
    size, sign = (word(n) for n in ((1 << 8 * destination.itemsize - 1) - 1, 1 << 8 * destination.itemsize - 1))
    infinite = word(infinity(destination))
    beyond = D(2.0**16) if destination.itemsize == 2 else D(2.0**128)  # after the largest exponent
    away, zero = rounding == "nearest-away", rounding == "towards-zero"
    up, down = rounding == "towards-positive", rounding == "towards-negative"

    @target.device
    def number(m):
        return W(from_destination(m)).view(D)

    @target.device
    def neighbour(m, exact, negative):
        """The magnitude `m`, which is nearest to `exact`, or the one beside it."""
        near = number(m)
        if near == exact:
            return m
        if away:
            tie = near < exact and D(near + number(word(m + word(1)))) == D(exact + exact)
            return word(m + word(1)) if tie else m
        if near > exact and (zero or (up and negative) or (down and not negative)):
            return word(m - word(1))
        if near < exact and ((up and not negative) or (down and negative)):
            return word(m + word(1))
        return m

    @target.device
    def narrow(bits, parameters):
        nearest = to_nearest(bits)
        m, minus = word(nearest & size), word(nearest & sign)
        exact = W(from_source(bits) & ~SIGN)
        if exact >= W(0x7FF << 52):  # NaN and infinity are what they were
            return nearest, True
        m = neighbour(m, exact.view(D), minus != word(0))
        if m == infinite or exact.view(D) >= beyond:
            return word(infinite | minus), clamps
        return word(m | minus), True

    return narrow


def make_mapped(target: Target, conversion: Conversion, fit: Any) -> Any:
    """Device function ``convert(bits, parameters) -> (bits, good)``: the scalar map, then `fit`."""
    _, _, entries = conversion.choices
    word, key = U if conversion.target.itemsize <= 4 else W, make_key(target, conversion.source)

    @target.device
    def convert(bits, parameters):
        k = key(bits)
        for i in range(entries):
            if parameters[2 * i] == k:
                return word(parameters[2 * i + 1]), True
        return fit(bits, parameters)

    return convert if entries else fit


def make_round(target: Target, conversion: Conversion, cast: Any) -> Any:
    """The `convert` of `zarrgpu.kernels.convert` for ``cast_value``.

    ``cast(source, destination)`` makes a device function from a float to another, rounding to nearest.
    """
    source, destination = conversion.source, conversion.target
    rounding, out_of_range = str(conversion.choices[0]), str(conversion.choices[1])
    clamps = out_of_range == "clamp"  # "wrap" else, or to be refused
    if source.kind == "f" and destination.kind == "f":
        if source.itemsize > destination.itemsize:
            narrow = make_narrow(target, source, destination, cast, rounding, clamps)
            return make_mapped(target, conversion, narrow)
        widen = cast(source, destination)

        @target.device
        def exact(bits, parameters):
            return widen(bits), True

        return make_mapped(target, conversion, exact)
    parts = make_whole(target, source, cast, rounding) if source.kind == "f" else make_integer(target, source)
    if destination.kind == "f":
        fit = make_float_from_integer(target, parts, destination, rounding, clamps)
    else:
        fit = make_fit(target, parts, destination, out_of_range)
    return make_mapped(target, conversion, fit)
