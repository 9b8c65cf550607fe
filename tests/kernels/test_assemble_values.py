"""Values come out converted and at their places, whatever the layout and byte order, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numcodecs
import numpy as np
import pytest

from tests import kit
from tests.kernels.box_kit import GATHER_FAULTS, by_index, left_by_fault, lines_of, windowed
from tests.kernels.test_assemble import BAD_TABLES, MODES, shuffled
from tests.kernels.value_kit import DTYPES, samples
from tests.kit import Array
from zarrgpu.kernels import assemble_values, values
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, BITS, BYTES, FILL, PLAIN, SCRATCH, SOURCE, Status
from zarrgpu.kernels.values import Conversion

i1, i2, i4, i8, u1 = (DTYPES[name] for name in ("i1", "i2", "i4", "i8", "u1"))
f2, f4, f8 = (DTYPES[name] for name in ("f2", "f4", "f8"))


def some(conversion: Conversion | None) -> Conversion:
    assert conversion is not None
    return conversion


@dataclass
class Case:
    """Chunks of one shape with values that are not refused, read by boxes into an output with guards around it."""

    conversion: Conversion
    oracle: Callable[[Array], Array]
    swap: int = 0
    out_swap: int = 0
    shape: tuple[int, ...] = (4, 6, 10)
    mode: int = BYTES
    kind: int | None = None  # typesize of the shuffle; the item size by default
    block: int | None = None  # the chunk by default
    window: tuple[slice | int, ...] = ()
    order: str = "C"
    missing: tuple[int, ...] = ()
    lead: int = 16  # bytes before the output in its arena
    gap: int = 0  # elements between two rows of the output
    index: str = ""  # read by arrays of indices rather than a window: "axes" or "points"
    chunks: list[Array] = field(default_factory=list)  # their stored elements, drawn by default

    def __post_init__(self) -> None:
        g = np.random.default_rng(1)
        conversion, count = self.conversion, int(np.prod(self.shape))
        itemsize = conversion.target.itemsize
        if not self.chunks:
            pool = samples(conversion.source)
            self.chunks = [g.choice(pool, count) for _ in range(3)]
        self.fill = g.integers(0, 256, itemsize, np.uint8)
        arenas = [np.zeros(0, np.uint8), np.zeros(0, np.uint8)]
        self.layouts = np.zeros((len(self.chunks), 6), np.int64)
        for i, chunk in enumerate(self.chunks):
            arena = FILL if i in self.missing else SOURCE if i % 2 else SCRATCH
            stored = (chunk.byteswap() if self.swap > 1 else chunk).view(np.uint8)
            block, kind = self.block or max(stored.size, 1), self.kind or conversion.source.itemsize
            self.layouts[i] = [arena, 0, stored.size, block, kind, self.mode]
            if arena != FILL:
                self.layouts[i, 1] = arenas[arena].size + (g.integers(0, 8) if arena == SOURCE else 0)
                padded = np.zeros((stored.size + int(self.layouts[i, 1]) + 15) // 16 * 16, np.uint8)
                padded[: arenas[arena].size] = arenas[arena]
                padded[self.layouts[i, 1] :][: stored.size] = shuffled(stored, block, kind, self.mode)
                arenas[arena] = padded
        self.source, self.scratch = arenas
        at = len(self.chunks), self.shape, self.order, itemsize, self.lead
        made = by_index(*at, self.index, self.lead) if self.index else windowed(*at, self.window, self.gap)
        self.boxes, self.src_strides, self.dst_strides, self.gather, self.out, places = made
        self.want = self.out.copy()
        for i, chunk in enumerate(self.chunks):
            if i not in self.missing:
                with np.errstate(all="ignore"):
                    decoded = self.oracle(chunk)
                decoded = (decoded.byteswap() if self.out_swap > 1 else decoded).view(np.uint8).reshape(-1, itemsize)
            for element, byte in places[i].tolist():
                self.want[byte : byte + itemsize] = self.fill if i in self.missing else decoded[element]

    def own(self, box: int) -> slice:
        """The bytes of a box of one axis."""
        start = int(self.boxes[box, B_DEST])
        return slice(start, start + int(self.boxes[box, B_COUNT]) * self.conversion.target.itemsize)

    def run(self, lane: str) -> Array:
        """Assemble; the statuses."""
        status = np.zeros(len(self.boxes), np.int32)
        gather, indexed = () if self.gather is None else (self.gather,), self.gather is not None
        groups = assemble_values.groups(self.boxes, self.conversion, indexed)
        kernel = assemble_values.kernel(self.conversion, self.swap, self.out_swap, indexed)
        kit.run(
            kernel, lane, len(self.boxes) * groups,
            groups, self.source, kit.words(self.source), self.scratch, kit.words(self.scratch), self.layouts,
            self.boxes, self.src_strides, self.dst_strides, *gather, self.fill, self.out, kit.words(self.out), status,
            self.conversion.parameters,
        )  # fmt: skip
        return status

    def check(self, lane: str) -> None:
        assert not self.run(lane).any()
        np.testing.assert_array_equal(self.out, self.want)


def linear(source: Any, target: Any, swap: int = 0, out_swap: int = 0, **changes: Any) -> Case:
    """A case of ``divide_add``."""
    conversion = some(values.divide_add(source, 3, 1.5, target))
    return Case(conversion, numcodecs.FixedScaleOffset(1.5, 3, target, source).decode, swap, out_swap, **changes)


def packed(count: int, shape: tuple[int, ...] | None = None, **changes: Any) -> Case:
    """A case of ``bits``, of chunks with `count` booleans."""
    g = np.random.default_rng(count)
    chunks = [numcodecs.PackBits().encode(g.integers(0, 2, count).astype(bool)) for _ in range(3)]
    return Case(values.bits(count), numcodecs.PackBits().decode, shape=shape or (count,), chunks=chunks, **changes)


# Few for the host, where each is compiled for seconds.
KINDS = {
    "host": [(i2, f4, 0, 0), (f8, f4, 8, 4)],
    kit.LANES[1]: [(i2, f4, 0, 0), (f8, f4, 8, 4), (u1, f8, 0, 8), (f2, f2, 2, 2), (i8, f8, 8, 0), (i4, f2, 0, 2)],
}
kinds = pytest.mark.parametrize(
    ("lane", "source", "target", "swap", "out_swap"),
    [pytest.param(lane, *kind, id=f"{lane}-{kind[0]}-{kind[1]}") for lane, chosen in KINDS.items() for kind in chosen],
)


@kinds
@pytest.mark.parametrize("mode", MODES)
def test_whole_chunks(lane: str, source: Any, target: Any, swap: int, out_swap: int, mode: str) -> None:
    """At all alignments of the output."""
    for shape, lead in (((8, 9), 0), ((5, 7), 1), ((1, 1), 2), ((24,), 3), ((30,), 4)):
        linear(source, target, swap, out_swap, shape=shape, mode=MODES[mode], lead=lead).check(lane)


@kinds
@pytest.mark.parametrize("mode", MODES)
def test_blocks_and_typesizes_of_any_size(
    lane: str, source: Any, target: Any, swap: int, out_swap: int, mode: str
) -> None:
    """Blocks may cut elements in two."""
    for kind, block in ((None, 32 * source.itemsize), (1, 40), (3, 64), (7, 101)):
        linear(source, target, swap, out_swap, shape=(9, 11), mode=MODES[mode], kind=kind, block=block).check(lane)


@kinds
def test_windows_and_missing_chunks(lane: str, source: Any, target: Any, swap: int, out_swap: int) -> None:
    """Clipped, stepped, reversed and transposed; the fill value is not converted."""
    window: tuple[Any, ...] = (slice(1, 3), slice(0, 5), slice(3, 22))
    linear(source, target, swap, out_swap, shape=(3, 6, 24), window=window, missing=(1,), gap=3).check(lane)
    window = (slice(None, None, -2), 1, slice(4, None, -3))
    linear(source, target, swap, out_swap, shape=(3, 4, 5), mode=BITS, window=window).check(lane)
    linear(source, target, swap, out_swap, shape=(3, 4, 5), order="F").check(lane)


@kinds
@pytest.mark.parametrize("index", ["axes", "points"])
def test_arrays_of_indices(lane: str, source: Any, target: Any, swap: int, out_swap: int, index: str) -> None:
    """Unsorted and repeated, beside strided axes, of missing chunks too, to places in any order."""
    for lead, mode in enumerate(MODES.values()):
        shape, order = ((40,), (5, 9), (3, 4, 5))[lead], "CF"[lead % 2]
        linear(
            source, target, swap, out_swap, shape=shape, mode=mode, order=order, missing=(1,), lead=lead, index=index
        ).check(lane)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("index", ["axes", "points"])
def test_arrays_of_indices_into_bits(lane: str, index: str) -> None:
    packed(55, (5, 11), missing=(1,), index=index).check(lane)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("mode", MODES)
def test_bits(lane: str, mode: str) -> None:
    """Whatever remains of the last byte, and in the layouts that a compressor may give to bytes."""
    for count in (1, 7, 8, 9, 40, 63, 200):
        packed(count, mode=MODES[mode]).check(lane)
    for kind, block in ((1, 16), (2, 16), (4, 9)):
        packed(201, mode=MODES[mode], kind=kind, block=block).check(lane)
    window = (slice(1, 4), slice(3, 9, 2))
    packed(55, (5, 11), mode=MODES[mode], window=window, missing=(1,), gap=1).check(lane)


@pytest.mark.parametrize("lane", kit.LANES)
def test_a_header_that_contradicts_the_number_of_bits(lane: str) -> None:
    case = packed(30)
    case.source[case.layouts[1, 1]] = 3
    assert case.run(lane).tolist() == [0, Status.BAD_HEADER, 0]
    case.want[case.own(1)] = kit.GUARD
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
def test_refused_values_are_reported_and_not_written(lane: str) -> None:
    """The others of their box are; a box that does not hold them does not care."""
    chunks = [np.arange(40, dtype=i4) * 3 + 90 for _ in range(3)]
    chunks[0][7] = chunks[1][[5, 11]] = 1
    conversion = some(values.scale_offset(i4, 3, -7))
    case = Case(conversion, lambda x: x // 3 - 7, shape=(40,), chunks=chunks, mode=PLAIN)
    case.boxes[0, B_FIRST] += 10
    case.boxes[0, B_DEST] += 40
    case.boxes[0, B_COUNT] -= 10
    assert case.run(lane).tolist() == [0, Status.BAD_VALUE, 0]
    start = case.own(1).start
    for k in (5, 11):
        case.want[start + 4 * k : start + 4 * k + 4] = kit.GUARD
    case.want[case.own(0).start - 40 : case.own(0).start] = kit.GUARD
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
def test_other_numbers_need_no_other_kernel(lane: str) -> None:
    a, b = some(values.divide_add(i2, 10, 5, f4)), some(values.divide_add(i2, 0.1, 7, f4))
    assert assemble_values.kernel(a) is assemble_values.kernel(b, 1, 0)
    for conversion, scale, offset in ((a, 10, 5), (b, 0.1, 7)):
        Case(conversion, numcodecs.FixedScaleOffset(offset, scale, f4, i2).decode).check(lane)


def test_names_tell_kernels_apart() -> None:
    conversions = [values.cast(i2, t) for t in (i4, f4)] + [values.divide_add(s, 2, 1, f4) for s in (i2, f4)]
    conversions += [values.cast_value(f4, i1, rounding) for rounding in values.ROUNDINGS]
    conversions += [values.cast_value(f4, i1, out_of_range=how) for how in ("clamp", "wrap")]
    conversions += [values.cast_value(f4, i1, scalar_map={0: 1}), values.scale_offset(i2, 2, 1), values.bits(3)]
    kernels = [assemble_values.kernel(some(c)) for c in conversions]
    kernels += [assemble_values.kernel(some(values.cast(i2, f4)), *swaps) for swaps in ((2, 0), (0, 4), (2, 4))]
    assert len({k.name for k in kernels}) == len(kernels)
    assert all(k.name.isidentifier() for k in kernels)


def test_bytes_that_cannot_be_reversed() -> None:
    with pytest.raises(ValueError, match="4 bytes of a int16"):
        assemble_values.kernel(some(values.cast(i2, f4)), 4)
    with pytest.raises(ValueError, match="2 bytes of a float32"):
        assemble_values.kernel(some(values.cast(i2, f4)), 0, 2)


def test_the_reference_agrees() -> None:
    window = (slice(0, 2), slice(1, 18))
    for case in (
        linear(i2, f4, 2, 4, shape=(3, 20), mode=BITS, window=window, missing=(2,)),
        linear(f8, f4, shape=(3, 20), block=104, window=window),
        packed(60, (3, 20), window=window),
        linear(i2, f4, 2, 4, shape=(3, 20), missing=(2,), index="axes"),
    ):
        tables = case.layouts, case.boxes, case.src_strides, case.dst_strides
        arenas, swaps = (case.source, case.scratch), (case.swap, case.out_swap)
        assemble_values.reference(case.conversion, arenas, *tables, case.fill, swaps, case.out, case.gather)
        np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", BAD_TABLES)
def test_hostile_tables_are_reported_and_harm_nothing(lane: str, fault: str) -> None:
    table, at, value = BAD_TABLES[fault]
    case = linear(i2, f4, shape=(40,), mode=BITS if "typesize" in fault else BYTES, lead=0)
    getattr(case, table)[at] = value
    assert case.run(lane).tolist() == [0, Status.BAD_TABLE, 0]
    end = int(case.boxes[2, B_DEST])
    own = slice(end - 40 * 4, end)
    case.out[own] = case.want[own] = 0
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", GATHER_FAULTS)
def test_hostile_lines_are_reported_and_copy_nothing(lane: str, fault: str) -> None:
    table, at, value = GATHER_FAULTS[fault]
    case = linear(i2, f4, shape=(40,), lead=0)
    case.boxes, case.gather = lines_of(case.boxes, case.src_strides, case.dst_strides)
    getattr(case, table)[at] = value
    assert case.run(lane).tolist() == [0, Status.BAD_TABLE, 0]
    np.testing.assert_array_equal(case.out, left_by_fault(case.boxes, case.gather, case.want, 4))


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", BAD_TABLES)
def test_hostile_tables_of_bits(lane: str, fault: str) -> None:
    table, at, value = BAD_TABLES[fault]
    case = packed(160, lead=0, mode=BITS if "typesize" in fault else BYTES)
    getattr(case, table)[at] = value
    assert case.run(lane).tolist() == [0, Status.BAD_TABLE, 0]
    end = int(case.boxes[2, B_DEST])
    case.out[end - 160 : end] = case.want[end - 160 : end] = 0
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_numbers_of_bits(lane: str) -> None:
    """More than the chunk has, fewer, and none that 64 bits hold."""
    for count in (161, 152, 0, 2**63, 2**64 - 1, 2**62):
        case = packed(160)
        case.conversion = values.bits(count)
        assert case.run(lane).tolist() == [Status.BAD_TABLE] * 3
        assert (case.out == kit.GUARD).all()


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_numbers_of_a_division(lane: str) -> None:
    """A scale of zero divides nothing."""
    conversion = Conversion(i4, i4, "divide_exactly", (), (0, 5))
    case = Case(conversion, lambda x: x, shape=(40,))
    assert case.run(lane).tolist() == [Status.BAD_VALUE] * 3
    assert (case.out == kit.GUARD).all()
