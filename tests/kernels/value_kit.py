"""What the tests of conversions share: samples of a dtype, a conversion run on every lane, the verdict of an oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numba import types

from tests import kit
from tests.kit import Array
from zarrgpu._cuda import Kernel, Target, host
from zarrgpu.kernels.convert import make_convert, word_of
from zarrgpu.kernels.values import Conversion

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
DTYPES = {name: np.dtype(name) for name in ["?", *NUMBERS]}

BOUNDARIES = [
    0,
    1,
    *(2**k + d for k in (7, 8, 15, 16, 24, 25, 31, 32, 53, 63, 64) for d in (-1, 0, 1, 3)),
    65504,
    65520,
]
FRACTIONS = [0.5, 1.5, 2.5, 0.49999997, 126.5, 127.5, 128.5, 254.5, 255.5, 32767.5, 65519.0, 1e30, 1e39, 1e300, np.inf]
TINY = [2.0**-k * n for k in (11, 14, 24, 25, 26, 126, 149, 150, 1022, 1074) for n in (1, 3)]
TIES = [1 + 2.0**-k * n for k in (11, 24, 40) for n in (1, 3)] + [3.4028235677973366e38, 3.4028234663852886e38]
NANS = [(1, 0), (0, 1), (1, 5), (0, 3 << 12), (1, 3 << 12)]  # the quiet bit, and a payload


def samples(dtype: np.dtype[Any], n: int = 40) -> Array:
    """Values where conversions change their minds, NaNs of all sorts, and `n` random bit patterns."""
    g = np.random.default_rng(n)
    if dtype.kind == "b":
        return np.array([0, 1, 2, 255], np.uint8).view(dtype)  # a byte that is no boolean is true
    unsigned = np.dtype(f"u{dtype.itemsize}")
    random = g.integers(0, 1 << 8 * dtype.itemsize, n, unsigned).view(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        chosen = [s * b for b in BOUNDARIES for s in (1, -1) if limits.min <= s * b <= limits.max]
        return np.concatenate([np.array(chosen, dtype), random])
    with np.errstate(all="ignore"):
        positive = np.array([float(b) for b in BOUNDARIES] + FRACTIONS + TINY + TIES).astype(dtype)
        spread = (g.standard_normal(n) * np.exp(g.uniform(-20, 50, n))).astype(dtype)
    nmant = int(np.finfo(dtype).nmant)
    infinity = int(dtype.type(np.inf).view(unsigned))
    nans = [infinity | quiet << nmant - 1 | payload % (1 << nmant - 1) or infinity | 1 for quiet, payload in NANS]
    nans = [bits if bits != infinity else bits | 1 for bits in nans] + [infinity | (1 << nmant) - 1]
    signed = np.concatenate([positive.view(unsigned), np.array(nans, unsigned)])
    sign = unsigned.type(1 << 8 * dtype.itemsize - 1)
    return np.concatenate([signed, signed | sign, random.view(unsigned), spread.view(unsigned)]).view(dtype)


def every(dtype: np.dtype[Any], lane: str) -> Array:
    """All values of a small dtype, many of another; few where running them takes long."""
    if lane in ("python", "sim"):
        return samples(dtype)
    if dtype.itemsize > 2:
        return samples(dtype, 50_000)
    return np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)


def _make(target: Target, lanes: int, conversion: Conversion) -> Any:
    convert = make_convert(target, conversion)

    def body(lane: Any, item: Any, stored: Any, parameters: Any, decoded: Any, good: Any) -> None:
        value, verdict = convert(stored[item], parameters)
        decoded[item] = value
        good[item] = 1 if verdict else 0

    return body


@cache
def probe(conversion: Conversion) -> Kernel:
    """A kernel that converts an array; for all conversions that differ in their numbers only."""
    stored, decoded = (
        types.Array(types.uint32 if word_of(dtype) is np.uint32 else types.uint64, 1, "C")
        for dtype in (conversion.source, conversion.target)
    )
    arguments = stored, types.Array(types.uint64, 1, "C"), decoded, types.Array(types.uint8, 1, "C")
    return Kernel(f"probe_{conversion.name}", partial(_make, conversion=conversion), arguments)


def run(conversion: Conversion, stored: Array, lane: str) -> tuple[Array, Array]:
    """The decoded values, and which of them were not refused.

    In the lane "python" nothing is compiled, which is for tests of many conversions.
    """
    kernel = probe(replace(conversion, numbers=()))
    bits = stored.view(f"u{conversion.source.itemsize}").astype(word_of(conversion.source))
    decoded = np.zeros(stored.size, word_of(conversion.target))
    good = np.zeros(stored.size, np.uint8)
    args = bits, conversion.parameters, decoded, good
    if lane == "python":
        with np.errstate(all="ignore"):
            body = kernel.make(replace(host(), device=lambda f: f), 1)
            for item in range(stored.size):
                body(0, item, *args)
    else:
        kit.run(kernel, lane, stored.size, *args)
    assert (decoded >> word_of(conversion.target)(8 * conversion.target.itemsize - 1) < 2).all()
    return decoded.astype(f"u{conversion.target.itemsize}").view(conversion.target), good != 0


def check(
    conversion: Conversion, stored: Array, lane: str, oracle: Callable[[Array], Array], refused: int = 20
) -> None:
    """The bits are the oracle's, which raises ValueError for each of the first `refused` values that are refused."""
    decoded, good = run(conversion, stored, lane)
    with np.errstate(all="ignore"):
        same_bits(decoded[good], oracle(stored[good]), stored[good])
    for value in stored[~good][:refused]:
        try:
            result = oracle(np.array([value]))
        except ValueError:
            continue
        raise AssertionError(f"{value} was refused, and is {result}")


def same_bits(got: Array, want: Array, stored: Array) -> None:
    """Fail where arrays of one dtype differ in a bit, and show of what."""
    assert got.dtype == want.dtype
    unsigned = f"u{got.itemsize}"
    (wrong,) = np.nonzero(got.view(unsigned) != want.view(unsigned))
    shown = [(stored[k], hex(got.view(unsigned)[k]), hex(want.view(unsigned)[k])) for k in wrong[:8]]
    assert not shown, f"{wrong.size} of {got.size}: (stored, got, wanted) {shown}"
