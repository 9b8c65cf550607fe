"""convert: the device functions of the conversions in `zarrgpu.kernels.values`.

`make_convert` gives ``convert(bits, parameters) -> (bits, good)``: from the bits of a stored value, in a uint32 or for
eight bytes in a uint64, to those of the decoded one, in the same way. ``good`` is False where the value is refused.
``parameters`` is the uint64[] of `Conversion.parameters`; it must have what the conversion's choices call for.

A device's own arithmetic is that of IEEE 754 and so the host's, but for NaNs, of which it has a single one. They never
reach it: what is a NaN is converted as bits. There is no product to be fused with a sum.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels.half import make_half
from zarrgpu.kernels.rounding import make_round
from zarrgpu.kernels.values import Conversion, DType, infinity

U = np.uint32
W = np.uint64
S = np.float32
D = np.float64


def word_of(dtype: DType) -> Any:
    """The unsigned type that holds the bits of a value."""
    return U if dtype.itemsize <= 4 else W


def make_extend(target: Target, dtype: DType, word: Any) -> Any:
    """Device function ``extend(bits) -> word``: an integer, modulo two to the power of the word's bits."""
    if word is U and dtype.itemsize == 8:

        @target.device
        def low(bits):
            return U(bits & W(0xFFFFFFFF))

        return low
    top = word(1 << 8 * dtype.itemsize - 1)

    @target.device
    def boolean(bits):
        return word(1) if bits != U(0) else word(0)

    @target.device
    def signed(bits):
        return word(word(word(bits) ^ top) - top)

    @target.device
    def unsigned(bits):
        return word(bits)

    return {"b": boolean, "i": signed, "u": unsigned}[dtype.kind]


def make_cast(target: Target, source: DType, destination: DType, quiet: bool = False) -> Any:
    """Device function ``cast(bits) -> bits``, ``astype`` for all but floats to integers; `quiet` as in `make_half`."""
    device = target.device
    word = word_of(destination)
    if source == destination:

        @device
        def same(bits):
            return word(bits)

        return same
    if destination.kind == "b":
        sign = 1 << 8 * source.itemsize - 1 if source.kind == "f" else 0
        zero, magnitude = (word_of(source)(n) for n in (0, 2 ** (8 * source.itemsize) - 1 - sign))

        @device
        def is_not_zero(bits):
            return U(1) if bits & magnitude != zero else U(0)

        return is_not_zero
    if destination.kind in "iu":
        extend = make_extend(target, source, word)
        mask = word(2 ** (8 * destination.itemsize) - 1)

        @device
        def wrapped(bits):
            return word(extend(bits) & mask)

        return wrapped
    if source.kind == "f":
        return make_float(target, source, destination, quiet)
    return make_number(target, source, destination)


def make_number(target: Target, source: DType, destination: DType) -> Any:
    """Device function ``number(bits) -> bits``: an integer or boolean as a float, by the device's own instruction.

    A float16 is rounded from a float32: one that is not exact is beyond float16's range.
    """
    word = word_of(source)
    extend = make_extend(target, source, word)
    signed = source.kind == "i"
    integer = (np.int32 if signed else U) if word is U else (np.int64 if signed else W)
    floating, unsigned = (D, W) if destination.itemsize == 8 else (S, U)
    _, single_to_half, _, _ = make_half(target)

    @target.device
    def number(bits):
        return floating(word(extend(bits)).view(integer)).view(unsigned)

    @target.device
    def half(bits):
        return single_to_half(number(bits))

    return half if destination.itemsize == 2 else number


def make_float(target: Target, source: DType, destination: DType, quiet: bool) -> Any:
    """Device function ``cast(bits) -> bits`` from one float to another; `quiet` as in `make_half`."""
    half_to_single, single_to_half, half_to_double, double_to_half = make_half(target, quiet)

    @target.device
    def widened(bits):
        if U(bits & U(0x7FFFFFFF)) > U(0x7F800000):
            sign = W(W(bits & U(0x80000000)) << W(32))
            return W(sign | W(0x7FF8 << 48) | W(W(bits & U(0x7FFFFF)) << W(29)))
        return D(U(bits).view(S)).view(W)

    @target.device
    def narrowed(bits):
        if W(bits & W(0x7FFFFFFFFFFFFFFF)) > W(0x7FF << 52):
            sign = U(W(bits >> W(32)) & W(0x80000000))
            return U(sign | U(0x7FC00000) | U(W(bits >> W(29)) & W(0x7FFFFF)))
        return S(W(bits).view(D)).view(U)

    return {
        (2, 4): half_to_single,
        (2, 8): half_to_double,
        (4, 2): single_to_half,
        (8, 2): double_to_half,
        (4, 8): widened,
        (8, 4): narrowed,
    }[source.itemsize, destination.itemsize]


def make_linear(target: Target, compute: DType) -> Any:
    """Device function ``linear(bits, parameters) -> bits``: divided, then added to, in the float `compute`."""
    device = target.device
    half_to_single, single_to_half, _, _ = make_half(target)
    word = word_of(compute)
    infinite = infinity(compute)
    most, sign = word(infinite), word(1 << 8 * compute.itemsize - 1)
    quiet = word((infinite & -infinite) >> 1)

    @device
    def singly(bits, parameters):
        scale, offset = U(parameters[0]).view(S), U(parameters[1]).view(S)
        return S(S(U(bits).view(S) / scale) + offset).view(U)

    @device
    def doubly(bits, parameters):
        return D(D(W(bits).view(D) / W(parameters[0]).view(D)) + W(parameters[1]).view(D)).view(W)

    @device
    def halfway(bits, parameters):
        """In float32, rounded after each operation."""
        scale, offset = U(parameters[0]).view(S), U(parameters[1]).view(S)
        quotient = single_to_half(S(U(half_to_single(bits)).view(S) / scale).view(U))
        return single_to_half(S(U(half_to_single(quotient)).view(S) + offset).view(U))

    compute_one = {2: halfway, 4: singly, 8: doubly}[compute.itemsize]

    @device
    def linear(bits, parameters):
        if word(bits & ~sign) > most:
            return word(bits | quiet)
        return compute_one(bits, parameters)

    return linear


def make_truncate(target: Target, destination: DType) -> Any:
    """Device function ``truncate(bits) -> bits``: a float64 in the range of the integer `destination`, to zero."""
    word, integer = word_of(destination), W if destination.str[1:] == "u8" else np.int64
    mask = W(2 ** (8 * destination.itemsize) - 1)

    @target.device
    def truncate(bits):
        return word(integer(W(bits).view(D)).view(W) & mask)

    return truncate


def make_divide_exactly(target: Target, dtype: DType) -> Any:
    """The `convert` of integers; divides the magnitudes, in 32 bits where they fit."""
    word, signed, eight = word_of(dtype), dtype.kind == "i", dtype.itemsize == 8
    extend = make_extend(target, dtype, W)
    top, most = W(1 << 63), W(2 ** (8 * dtype.itemsize - signed) - 1)
    least = W(2**64 - 2 ** (8 * dtype.itemsize - 1)) if signed else W(0)
    mask = W(2 ** (8 * dtype.itemsize) - 1)

    @target.device
    def is_negative(value):
        return signed and value >= top

    @target.device
    def magnitude(value):
        return word(W(W(0) - value) if is_negative(value) else value)

    @target.device
    def convert(bits, parameters):
        value, scale, offset = extend(bits), parameters[0], parameters[1]
        dividend, divisor = magnitude(value), magnitude(scale)
        if divisor == word(0):
            return word(0), False
        quotient = word(dividend // divisor)
        if word(quotient * divisor) != dividend:
            return word(0), False
        flip = is_negative(value) != is_negative(scale)
        term = W(W(0) - W(quotient)) if flip else W(quotient)
        total = W(term + offset)
        if not signed:
            good = total >= term and total <= most  # a sum that wrapped around is smaller than its terms
        elif eight:
            # -2**63 / -1 is too large by one, which a negative offset takes back.
            over = not flip and quotient == top
            negative = is_negative(total)
            if over:
                good = is_negative(offset) and not negative
            else:
                good = is_negative(term) != is_negative(offset) or is_negative(term) == negative
        else:
            good = total >= least if is_negative(total) else total <= most
        return word(total & mask), good

    return convert


def make_convert(target: Target, conversion: Conversion) -> Any:
    """The `convert` of a conversion; of the bits, what remains to do once one is cut out."""
    device = target.device
    source, destination, operation = conversion.source, conversion.target, conversion.operation
    if operation == "divide_exactly":
        return make_divide_exactly(target, source)
    if operation == "cast_value":
        return make_round(target, conversion, partial(make_cast, target, quiet=True))
    if operation == "divide_add":
        compute = np.dtype(str(conversion.choices[0]))
        widen, linear = make_cast(target, source, compute), make_linear(target, compute)
        to_integer = destination.kind in "iu"
        narrow = make_truncate(target, destination) if to_integer else make_cast(target, compute, destination)

        @device
        def divided_and_added(bits, parameters):
            return narrow(linear(widen(bits), parameters)), True

        return divided_and_added
    cast = make_cast(target, np.dtype(np.bool_) if operation == "bits" else source, destination)

    @device
    def converted(bits, parameters):
        return cast(bits), True

    return converted
