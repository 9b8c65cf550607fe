"""Prefix sums in place are those of numcodecs, for runs of any length at any place, and nothing else is written."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numcodecs
import numpy as np
import pytest

from tests import kit
from tests.conftest import GPU
from tests.kit import Array
from zarrgpu.kernels import delta
from zarrgpu.kernels.tables import Status

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def words(arena: Array, itemsize: int) -> Array:
    size = 8 if itemsize == 8 else 4
    return arena[: arena.size // size * size].view(f"u{size}")


def run(
    lane: str, arena: Array, runs: Any, itemsize: int, groups: int | None = None, scratch: int | None = None
) -> Any:
    """All three kernels; the statuses."""
    table = np.asarray(runs, np.int64).reshape(-1, delta.RUN_COLUMNS)
    groups = delta.groups(table, itemsize) if groups is None else groups
    items = len(table) * groups
    sums = np.full(items if scratch is None else scratch, 0xA5A5A5A5A5A5A5A5, np.uint64)
    status = np.zeros(len(table), np.int32)
    args = groups, arena, words(arena, itemsize), table, sums, status
    for kernel, n in zip(delta.kernels(itemsize), (items, len(table), items), strict=True):
        kit.run(kernel, lane, n, *args)
    return status


def check(lane: str, dtype: str, sizes: list[int], lead: int = 0, gap: int = 0, tail: int = 0) -> None:
    """Runs of `sizes` elements, `lead` before them, `gap` between them, and `tail` bytes after."""
    kind, itemsize = np.dtype(dtype), np.dtype(dtype).itemsize
    g = np.random.default_rng(len(sizes))
    runs, end = [], lead * itemsize
    for n in sizes:
        runs.append((end, n))
        end += (n + gap) * itemsize
    arena = g.integers(0, 256, end + tail, np.uint8)
    want = arena.copy()
    for first, n in runs:
        own = want[first : first + n * itemsize]
        if n:
            own[:] = numcodecs.Delta(kind).decode(own.copy()).view(np.uint8)
    assert not run(lane, arena, runs, itemsize).any()
    np.testing.assert_array_equal(arena, want)


def sizes(lane: str, itemsize: int) -> list[int]:
    """Lengths around words, rows, steps and segments."""
    small = [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 127, 128, 129, 300]
    segment = delta.SEGMENT // itemsize
    if lane == "sim":
        return [*small, segment + 5]
    return [*small, 511, 512, 513, segment - 1, segment, segment + 1, 5 * segment + 77, 70 * segment + 1]


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_runs_of_any_length(lane: str, dtype: str) -> None:
    """Apart, and side by side: those of one and two bytes then share words."""
    for gap in (0, 3):
        check(lane, dtype, sizes(lane, np.dtype(dtype).itemsize), lead=3, gap=gap, tail=5)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_runs_at_any_place(lane: str, itemsize: int) -> None:
    """And up to the last byte of an arena whose end is no whole word."""
    for lead in range(8 // itemsize):
        for n in (1, 8 // itemsize, 40):
            check(lane, f"u{itemsize}", [n], lead=lead)
            check(lane, f"u{itemsize}", [n, n], lead=lead, tail=3)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("itemsize", [1, 4])
def test_the_last_kernel_alone_does_single_segments(lane: str, itemsize: int) -> None:
    arena = np.random.default_rng(0).integers(0, 256, 4000, np.uint8)
    want = arena.copy()
    table = np.array([(0, 100), (400, 3000 // itemsize)], np.int64)
    delta.reference(want, table, itemsize)
    _, _, add = delta.kernels(itemsize)
    assert delta.groups(table, itemsize) == 1
    status = np.zeros(2, np.int32)
    kit.run(add, lane, 2, 1, arena, words(arena, itemsize), table, np.zeros(1, np.uint64), status)
    assert not status.any()
    np.testing.assert_array_equal(arena, want)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("itemsize", [1, 4, 8])
def test_the_sums_of_many_segments(lane: str, itemsize: int) -> None:
    """The scan alone, over more sums than a warp has lanes."""
    segments = 100
    length = segments * delta.SEGMENT
    arena = np.zeros(length, np.uint8)
    table = np.array([(0, length // itemsize), (0, 1)], np.int64)
    sums = np.random.default_rng(0).integers(0, 2**64, 2 * segments, np.uint64)
    want = sums.copy()
    want[:segments] = np.cumsum(sums[:segments]) - sums[:segments]
    want[segments] = 0
    _, scan, _ = delta.kernels(itemsize)
    status = np.zeros(2, np.int32)
    kit.run(scan, lane, 2, segments, arena, words(arena, itemsize), table, sums, status)
    np.testing.assert_array_equal(sums, want)


@pytest.mark.nogpu("of the simulator")
@pytest.mark.parametrize("itemsize", [2, 8])
def test_the_order_of_threads_does_not_matter(itemsize: int) -> None:
    from tests.fastsim import scheduled

    for seed in range(3):
        with scheduled(seed) if seed else nullcontext():
            check("sim", f"u{itemsize}", [200, delta.SEGMENT // itemsize + 40], lead=1, gap=1)


@pytest.mark.gpu
def test_more_elements_than_32_bits_count() -> None:
    """A run of them, and one that starts behind them."""
    assert GPU
    n = (1 << 32) + 12345
    arena = np.ones(n + 100, np.uint8)
    assert not run("cuda", arena, [(0, n), (n, 100)], 1).any()
    period = np.arange(1, 257, dtype=np.int64).astype(np.uint8)
    whole = n // 256 * 256
    assert (arena[:whole].reshape(-1, 256) == period).all()
    np.testing.assert_array_equal(arena[whole:n], period[: n - whole])
    np.testing.assert_array_equal(arena[n:], period[:100])


BAD_RUNS = {
    "before_the_arena": (-4, 10),
    "behind_the_arena": (5000, 0),
    "beyond_its_end": (3000, 300),
    "a_number_below_zero": (400, -1),
    "a_number_beyond_all": (400, 1 << 62),
    "at_no_element": (401, 10),
    "far_beyond": (1 << 62, 1 << 62),
}


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", BAD_RUNS)
def test_hostile_runs_are_reported_and_harm_nothing(lane: str, fault: str) -> None:
    arena = np.random.default_rng(0).integers(0, 256, 4000, np.uint8)
    want = arena.copy()
    delta.reference(want, np.array([(0, 90), (400, 300)], np.int64), 4)
    status = run(lane, arena, [(0, 90), BAD_RUNS[fault], (400, 300)], 4, groups=1)
    assert status.tolist() == [0, Status.BAD_TABLE, 0]
    np.testing.assert_array_equal(arena, want)


@pytest.mark.parametrize("lane", kit.LANES)
def test_hostile_numbers_of_segments(lane: str) -> None:
    """Too few of them, or of sums."""
    n = 3 * delta.SEGMENT
    arena = np.full(n, 7, np.uint8)
    assert run(lane, arena, [(0, n)], 1, groups=2).tolist() == [Status.BAD_TABLE]
    assert run(lane, arena, [(0, n), (0, 5)], 1, scratch=5).tolist() == [Status.BAD_TABLE] * 2
    assert (arena == 7).all()


def test_groups() -> None:
    def of(itemsize: int, *runs: tuple[int, int]) -> int:
        return delta.groups(np.array(runs, np.int64).reshape(-1, 2), itemsize)

    assert of(4) == 0
    assert of(1, (0, 0)) == 0
    assert of(1, (3, 1), (0, delta.SEGMENT)) == 1
    assert of(1, (3, delta.SEGMENT)) == 2
    assert of(8, (8, 10 * delta.SEGMENT // 8), (0, 4)) == 10


def test_items_of_other_sizes() -> None:
    with pytest.raises(ValueError, match="no integers have 3 bytes"):
        delta.kernels(3)
