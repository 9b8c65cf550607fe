"""Every conversion gives the bits that numcodecs and zarr give, or refuses what they refuse, or is left to the host."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import cast_value_rs
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, CastValue, ScaleOffset

from tests import kit
from tests.kernels.value_kit import DTYPES, NUMBERS, check, every, same_bits, samples
from tests.kit import Array
from zarrgpu.kernels import values
from zarrgpu.kernels.values import ROUNDINGS, Conversion

i1, i2, i4, i8 = (DTYPES[name] for name in ("i1", "i2", "i4", "i8"))
u1, u2, u4, u8 = (DTYPES[name] for name in ("u1", "u2", "u4", "u8"))
b1, f2, f4, f8 = (DTYPES[name] for name in ("?", "f2", "f4", "f8"))


def some(conversion: Conversion | None) -> Conversion:
    assert conversion is not None
    return conversion


def by_zarr(filter: Any, dtype: np.dtype[Any], fill: Any, folder: Path) -> Any:
    """A function that reads an array whose only chunk is its argument."""

    def oracle(stored: Array) -> Array:
        array = zarr.create_array(
            folder,
            shape=stored.shape,
            chunks=stored.shape,
            dtype=dtype,
            filters=[filter],
            serializer=BytesCodec(endian="little"),
            compressors=None,
            fill_value=fill,
            overwrite=True,
        )
        if stored.size == 0:
            return np.zeros(0, dtype)
        (folder / "c").mkdir()
        (folder / "c" / "0").write_bytes(stored.tobytes())
        return np.asarray(array[:])

    return oracle


# cast


@pytest.mark.parametrize("source", DTYPES)
def test_astype_of_all_pairs(source: str) -> None:
    for target in DTYPES.values():
        conversion = values.cast(DTYPES[source], target)
        if DTYPES[source].kind == "f" and target.kind in "iu":
            assert conversion is None
            continue
        check(some(conversion), samples(DTYPES[source]), "python", numcodecs.AsType(DTYPES[source], target).decode)


CASTS = [(f2, f4), (f2, f8), (f4, f2), (f8, f2), (f4, f8), (f8, f4), (i2, f2), (i8, f4), (u8, f8), (u8, f2), (b1, f4)]
CASTS += [(i1, u8), (i8, i2), (b1, b1), (f2, b1), (u4, i8)]


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(("source", "target"), CASTS, ids=lambda d: d.str[1:])
def test_astype(lane: str, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """All values of 8 and 16 bits."""
    conversion = some(values.cast(source, target))
    check(conversion, every(source, lane), lane, numcodecs.AsType(source, target).decode)
    if source.kind == target.kind == "f":
        check(conversion, every(source, lane), lane, numcodecs.Quantize(3, target, source).decode)


# divide_add

SCALES = [(10, 1000), (0.1, -7.3), (-3, 0), (1e-3, 273.15), (7, -0.0), (2.0**-20, 1)]


@pytest.mark.parametrize("source", DTYPES)
def test_fixed_scale_offset_of_all_pairs(source: str) -> None:
    seen = 0
    for target, (scale, offset) in product(DTYPES.values(), SCALES):
        conversion = values.divide_add(DTYPES[source], scale, offset, target)
        assert conversion or target.kind in "iu"
        if conversion:
            seen += target.kind in "iu"
            codec = numcodecs.FixedScaleOffset(offset, scale, target, DTYPES[source])
            check(conversion, samples(DTYPES[source], 10), "python", codec.decode)
    assert (seen > 0) == (DTYPES[source].kind != "f")


PAIRS = [(i2, f4), (u1, f8), (i8, f8), (u8, f4), (f4, f4), (f8, f8), (f8, f4), (f4, f8), (f2, f2), (f2, f4), (i2, f2)]


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(("source", "target"), [*PAIRS, (u1, i4)], ids=lambda d: d.str[1:])
def test_fixed_scale_offset(lane: str, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """One kernel for all numbers."""
    for scale, offset in SCALES[: 2 if lane == "sim" else None]:
        conversion = some(values.divide_add(source, scale, offset, target))
        codec = numcodecs.FixedScaleOffset(offset, scale, target, source)
        check(conversion, every(source, lane), lane, codec.decode)


def test_fixed_scale_offset_that_is_left_to_the_host() -> None:
    assert values.divide_add(i2, 0, 1, f4) is None
    assert values.divide_add(f4, 1e-60, 1, f4) is None, "zero in float32"
    assert values.divide_add(f4, 1e60, 1, f4) is None, "infinity in float32"
    assert values.divide_add(f2, 1, 70000, f2) is None
    assert values.divide_add(f8, 1, np.inf, f8) is None
    assert values.divide_add(f8, np.nan, 1, f8) is None
    assert values.divide_add(i2, 10**400, 1, f8) is None
    assert values.divide_add(i2, np.float64(2), 1, f8) is None, "it takes part in NumPy's choice of a dtype"
    assert values.divide_add(i2, True, 1, f8) is None
    assert values.divide_add(i2, "2", 1, f8) is None  # type: ignore[arg-type]  # as JSON may have it
    assert values.divide_add(f4, 1, 0, i4) is None, "infinity is no integer"
    assert values.divide_add(i2, 0.5, 0, i2) is None
    assert values.divide_add(i2, -1, 0, i2) is None
    assert values.divide_add(i2, -1, -1, i2) is not None
    assert values.divide_add(i2, 2, -0.5, u2) is None
    assert values.divide_add(u8, 1, 0, u8) is None
    assert values.divide_add(u8, 2, 1, u8) is not None
    assert values.divide_add(i2.newbyteorder(), 2, 1, f8) is None
    assert values.divide_add(np.dtype("c8"), 2, 1, f8) is None


# scale_offset

INTEGERS = [(i1, 3, 5), (i1, -1, 0), (i1, -1, -1), (u1, 2, 200), (i2, -7, -30000), (i4, -1, 1), (u4, 3, 4_000_000_000)]
INTEGERS += [(i8, 5, -(2**62)), (i8, -1, -3), (i8, -(2**63), 1), (u8, 3, 2**64 - 2**60), (u8, 1, 7)]


def multiples(dtype: np.dtype[Any], scale: int) -> Array:
    """Samples, and multiples of `scale` near them."""
    plain, limits = samples(dtype), np.iinfo(dtype)
    near = [int(x) // scale * scale for x in plain]
    return np.concatenate([np.array([x for x in near if limits.min <= x <= limits.max], dtype), plain])


def exactly(scale: int, offset: int) -> Any:
    """What zarr says of integers, or would, if int64 did not wrap around."""

    def oracle(stored: Array) -> Array:
        result = [divmod(int(x), scale) for x in stored]
        if any(rest for _, rest in result):
            raise ValueError("a remainder")
        try:
            return np.array([q + offset for q, _ in result], stored.dtype)
        except OverflowError as error:
            raise ValueError("out of range") from error

    return oracle


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(("dtype", "scale", "offset"), INTEGERS)
def test_scale_offset_of_integers(
    lane: str, dtype: np.dtype[Any], scale: int, offset: int, tmp_path: Path
) -> None:  # fmt: skip
    conversion = some(values.scale_offset(dtype, dtype.type(scale), dtype.type(offset)))
    stored = multiples(dtype, scale)
    check(conversion, stored, lane, exactly(scale, offset), refused=10_000)
    codec = ScaleOffset(offset=offset, scale=scale)
    check(conversion, stored, lane, by_zarr(codec, dtype, offset, tmp_path), refused=0 if dtype == i8 else 8)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("dtype", [f2, f4, f8], ids=lambda d: d.str[1:])
def test_scale_offset_of_floats(lane: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    for scale, offset in SCALES[:2]:
        conversion = some(values.scale_offset(dtype, dtype.type(scale), dtype.type(offset)))
        codec = ScaleOffset(offset=offset, scale=scale)
        with np.errstate(all="ignore"):
            check(conversion, every(dtype, lane), lane, by_zarr(codec, dtype, 0.0, tmp_path))


def test_scale_offset_that_is_left_to_the_host() -> None:
    assert values.scale_offset(u1, 256, 0) is None
    assert values.scale_offset(u1, -1, 0) is None
    assert values.scale_offset(i1, 0, 0) is None
    assert values.scale_offset(i1, 1.5, 0) is None
    assert values.scale_offset(f4, 0, 0) is None
    assert values.scale_offset(f4, 1, np.inf) is None
    assert values.scale_offset(f4, "a", 0) is None
    assert values.scale_offset(b1, 1, 0) is None
    assert values.scale_offset(np.dtype("c8"), 1, 0) is None


# cast_value


def by_rust(target: np.dtype[Any], rounding: str, out_of_range: Any, entries: Any = None) -> Any:
    """The library behind zarr's codec."""

    def oracle(stored: Array) -> Array:
        return cast_value_rs.cast_array(
            stored,
            target_dtype=target,
            rounding_mode=rounding,  # type: ignore[arg-type]  # one of ROUNDINGS
            out_of_range_mode=out_of_range,
            scalar_map_entries=entries,
        )

    return oracle


@pytest.mark.parametrize("out_of_range", [None, "clamp", "wrap"])
@pytest.mark.parametrize("source", NUMBERS)
def test_cast_value_of_all_pairs(source: str, out_of_range: Any) -> None:
    stored = samples(DTYPES[source], 8)
    for target, rounding in product(NUMBERS, ROUNDINGS):
        conversion = values.cast_value(DTYPES[source], DTYPES[target], rounding, out_of_range)
        if (source, target) == ("f8", "f2") or (out_of_range == "wrap" and source[0] == target[0] == "f"):
            assert conversion is None
            continue
        oracle = by_rust(DTYPES[target], rounding, out_of_range)
        check(some(conversion), stored, "python", oracle, refused=4 if rounding == ROUNDINGS[0] else 100)


CAST_VALUES: list[tuple[Any, Any, str, Any]] = [
    (f4, u1, "nearest-even", "clamp"),
    (f8, i8, "nearest-away", None),
    (f2, i4, "towards-positive", None),
    (i8, u2, "nearest-even", "wrap"),
    (i8, f4, "nearest-away", None),
    (u8, f8, "towards-negative", None),
    (i4, f2, "towards-zero", "clamp"),
    (i8, i4, "nearest-even", "clamp"),
    (i2, u1, "nearest-even", None),
    (f8, f4, "nearest-away", "clamp"),
    (f4, f2, "towards-positive", None),
    (f2, f8, "nearest-even", None),
    (f4, f4, "nearest-even", None),
]


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(("source", "target", "rounding", "out_of_range"), CAST_VALUES)
def test_cast_value(
    lane: str, source: np.dtype[Any], target: np.dtype[Any], rounding: Any, out_of_range: Any, tmp_path: Path
) -> None:  # fmt: skip
    conversion = some(values.cast_value(source, target, rounding, out_of_range))
    codec = CastValue(data_type=source.name, rounding=rounding, out_of_range=out_of_range)
    check(conversion, every(source, lane), lane, by_zarr(codec, target, 0, tmp_path))


@pytest.mark.parametrize("lane", kit.LANES)
def test_floats_that_wrap_around(lane: str) -> None:
    """Which zarr itself asks for with integers only."""
    conversion = some(values.cast_value(f8, i4, "towards-zero", "wrap"))
    check(conversion, every(f8, lane), lane, by_rust(i4, "towards-zero", "wrap"))


MAPS: list[tuple[Any, Any, list[tuple[Any, Any]]]] = [
    (f4, u1, [("NaN", 0), ("Infinity", 255), ("-Infinity", 254), (0.1, 7), (0.0, 9), (1e30, 1)]),
    (f8, f4, [("NaN", "-Infinity"), (-0.0, "NaN"), (1e300, 1.5)]),
    (i2, f8, [(-32768, "NaN"), (0, -0.5), (7, 1e300)]),
    (i8, i1, [(2**40 + k, k) for k in range(8)]),
    (f2, i2, [(0.1, 5), ("NaN", -1), (0.0999755859375, 6)]),
]


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(("source", "target", "entries"), MAPS)
def test_scalar_maps(
    lane: str, source: np.dtype[Any], target: np.dtype[Any], entries: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    """Of keys that are equal in the dtype the first one counts; NaNs and zeros are equal whatever their bits."""
    codec = CastValue(data_type=source.name, out_of_range="clamp", scalar_map={"decode": entries})
    assert codec.scalar_map is not None
    conversion = some(values.cast_value(source, target, "nearest-even", "clamp", codec.scalar_map["decode"]))
    keys = np.array([float(k) if source.kind == "f" else k for k, _ in entries]).astype(source)
    stored = np.concatenate([keys, samples(source)])
    check(conversion, stored, lane, by_zarr(codec, target, 0, tmp_path))


def test_cast_value_that_is_left_to_the_host() -> None:
    assert values.cast_value(f8, f2) is None
    assert values.cast_value(b1, f2) is None
    assert values.cast_value(f4, b1) is None
    assert values.cast_value(i4, f4, "stochastic") is None
    assert values.cast_value(i4, i2, "nearest-even", "saturate") is None  # type: ignore[arg-type]  # no such mode
    assert values.cast_value(f8, f4, "nearest-even", "wrap") is None
    assert values.cast_value(i4, f4, "nearest-even", "wrap") == values.cast_value(i4, f4)
    assert values.cast_value(i4, f4, scalar_map=dict.fromkeys(range(9), 0)) is None
    assert values.cast_value(i4, f4, scalar_map={"NaN": 0}) is None
    assert values.cast_value(i4, i1, scalar_map={0: 1000}) is None
    assert values.cast_value(i4.newbyteorder(), i1) is None


# All of them


def test_references_agree() -> None:
    """With the oracles, and with the kernels in what they refuse."""

    def oracles() -> Any:
        yield values.cast(f4, f2), numcodecs.AsType(f4, f2).decode
        yield values.divide_add(f2, 0.3, 7, f4), numcodecs.FixedScaleOffset(7, 0.3, f4, f2).decode
        yield values.divide_add(i8, 0.3, 7, f4), numcodecs.FixedScaleOffset(7, 0.3, f4, i8).decode
        yield values.scale_offset(i8, -3, 2**62), exactly(-3, 2**62)
        yield values.scale_offset(u8, 3, 2**63), exactly(3, 2**63)
        for source, target, rounding, out_of_range in CAST_VALUES:
            yield values.cast_value(source, target, rounding, out_of_range), by_rust(target, rounding, out_of_range)
        entries = {float("nan"): 3, 0.5: 4}
        yield values.cast_value(f4, u1, scalar_map=entries), by_rust(u1, "nearest-even", None, entries)

    def tried(function: Any, value: Array) -> Any:
        try:
            with np.errstate(all="ignore"):
                return function(value)
        except ValueError:
            return None

    for conversion, oracle in oracles():
        stored = samples(conversion.source, 10)
        for k in range(stored.size):
            value = stored[k : k + 1]
            want, got = tried(oracle, value), tried(conversion.reference, value)
            assert (want is None) == (got is None), f"{conversion.name} of {value}: {got} for {want}"
            if want is not None:
                same_bits(got, want, value)


def test_the_reference_of_bits() -> None:
    for n in (0, 1, 7, 8, 9, 40):
        array = np.random.default_rng(n).integers(0, 2, n).astype(bool)
        stored = numcodecs.PackBits().encode(array)
        np.testing.assert_array_equal(values.bits(n).reference(stored), array)
        for count in (n + 1, n + 8):
            with pytest.raises(ValueError, match="booleans"):
                values.bits(count).reference(stored)
    with pytest.raises(ValueError, match="no -1 elements"):
        values.bits(-1)


def test_conversions_are_values() -> None:
    """Equal and hashable; the name has all but the numbers, which the parameters have."""
    a, b = values.divide_add(i2, 10, 5, f4), values.divide_add(i2, 20, 5, f4)
    assert a == values.divide_add(i2, 10, 5, f4)
    assert len({a, b, values.divide_add(i2, 10, 5, f4)}) == 2
    assert some(a).name == some(b).name == "divide_add_i2_f4_f8"
    assert some(a).parameters.view(np.float64).tolist() == [10, 5]
    assert values.bits(12).parameters.tolist() == [12]
    assert some(values.cast(i2, f4)).parameters.size == 1, "no argument is empty"
    name = some(values.cast_value(f4, u1, "towards-zero", "clamp", {1: 2})).name
    assert name == "cast_value_f4_u1_towards_zero_clamp_1"


def test_another_numpy_leaves_floats_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was built to use instructions which set a NaN's quiet bit."""
    assert values._nans_are_known()
    monkeypatch.setattr(values, "_nans_are_known", lambda: False)
    assert values.cast(f2, f4) is None
    assert values.divide_add(f4, 2, 1, f4) is None
    assert values.scale_offset(f2, 2, 1) is None
    assert values.divide_add(i2, 2, 1, f4) is not None
    assert values.cast(i2, f2) is not None
