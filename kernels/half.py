"""half: float16 in terms of bits, bit for bit as NumPy converts it; device functions for kernels that convert values.

A float16 is the low 16 bits of a uint32. What is rounded is rounded to nearest, ties to even. NumPy converts by integer
arithmetic (``npy_halfbits_to_floatbits`` and its kin, ``numpy/_core/src/npymath/halffloat.cpp``) and moves the payload
of a NaN without setting its quiet bit; a CPU's own instructions set it (`quiet`), as they do for cast-value-rs. A NaN
whose remaining payload would be zero, which means infinity, gets its last bit set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target

U = np.uint32
W = np.uint64
S = np.float32
D = np.float64


def make_half(target: Target, quiet: bool = False) -> tuple[Any, Any, Any, Any]:
    """Device functions from the bits of one type to those of another.

    ``half_to_single(h) -> uint32``, ``single_to_half(f) -> uint32``, ``half_to_double(h) -> uint64`` and
    ``double_to_half(d) -> uint32``.
    """
    device = target.device
    half_quiet, single_quiet, double_quiet = (U(1 << 9), U(1 << 22), W(1 << 51)) if quiet else (U(0), U(0), W(0))

    @device
    def half_to_single(h):
        sign, m = U(U(h & U(0x8000)) << U(16)), U(h & U(0x7FFF))
        if m > U(0x7C00):
            return U(sign | U(0x7F800000) | U(U(m & U(0x3FF)) << U(13)) | single_quiet)
        if m == U(0x7C00):
            return U(sign | U(0x7F800000))
        if m < U(0x400):  # a subnormal is m * 2**-24, which is exact
            return U(sign | S(S(m) * S(2.0**-24)).view(U))
        return U(sign | U(U(m << U(13)) + U(112 << 23)))

    @device
    def half_to_double(h):
        sign, m = W(W(h & U(0x8000)) << W(48)), U(h & U(0x7FFF))
        if m > U(0x7C00):
            return W(sign | W(0x7FF << 52) | W(W(m & U(0x3FF)) << W(42)) | double_quiet)
        if m == U(0x7C00):
            return W(sign | W(0x7FF << 52))
        if m < U(0x400):
            return W(sign | D(D(m) * D(2.0**-24)).view(W))
        return W(sign | W(W(W(m) << W(42)) + W(1008 << 52)))

    @device
    def single_to_half(f):
        sign, m = U(U(f >> U(16)) & U(0x8000)), U(f & U(0x7FFFFFFF))
        if m > U(0x7F800000):
            payload = U(U(U(m >> U(13)) & U(0x3FF)) | half_quiet)
            return U(sign | U(0x7C00) | (payload if payload != U(0) else U(1)))
        if m >= U(0x477FF000):  # 65520, half way between the largest float16 and 2**16
            return U(sign | U(0x7C00))
        if m < U(0x38800000):  # below 2**-14: the last bit of a number in [0.5, 1) is worth 2**-24
            return U(sign | U(S(m.view(S) + S(0.5)).view(U) - U(0x3F000000)))
        odd = U(U(m >> U(13)) & U(1))
        return U(sign | U(U(m - U(112 << 23) + U(0xFFF) + odd) >> U(13)))

    @device
    def double_to_half(d):
        sign, m = U(U(d >> W(48)) & U(0x8000)), W(d & W(0x7FFFFFFFFFFFFFFF))
        if m > W(0x7FF << 52):
            payload = U(U(U(m >> W(42)) & U(0x3FF)) | half_quiet)
            return U(sign | U(0x7C00) | (payload if payload != U(0) else U(1)))
        if m >= W(0x40EFFE0000000000):  # 65520
            return U(sign | U(0x7C00))
        if m < W(0x3F10000000000000):  # below 2**-14: the last bit of a number in [2**28, 2**29) is worth 2**-24
            return U(sign | U(W(D(m.view(D) + D(2.0**28)).view(W) - W(0x41B0000000000000))))
        odd = W(W(m >> W(42)) & W(1))
        return U(sign | U(W(W(m - W(1008 << 52) + W((1 << 41) - 1) + odd) >> W(42))))

    return half_to_single, single_to_half, half_to_double, double_to_half
