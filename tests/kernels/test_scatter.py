"""Slots go to boxes of an array as NumPy's indexing would put them, and nowhere else."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import kit
from tests.kit import Array
from zarrgpu.kernels import gather, scatter
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, B_LAYOUT, L_BASE, L_SIZE, Status

CHUNK = (3, 5)
ITEMSIZES = {"host": [3, 8], "sim": [1, 2, 3, 4, 8, 12, 16], "cuda": [1, 2, 3, 4, 8, 12, 16]}
LANES = [pytest.param(lane, size, id=f"{lane}-{size}") for lane in kit.LANES for size in ITEMSIZES[lane]]


class Grid:
    """An array cut into chunks, those at its edges clipped, with a slot for each."""

    def __init__(self, itemsize: int, shape: tuple[int, int], *, lead: int = 0, order: str = "C") -> None:
        g = np.random.default_rng(itemsize)
        self.itemsize, self.shape, self.lead = itemsize, shape, lead
        starts = [(i, j) for i in range(0, shape[0], CHUNK[0]) for j in range(0, shape[1], CHUNK[1])]
        self.slots = kit.Slots([CHUNK[0] * CHUNK[1] * itemsize] * len(starts))
        self.array = np.full((lead + int(np.prod(shape)) * itemsize + 15) // 4 * 4, kit.GUARD, np.uint8)
        self.values = g.integers(0, 256, (*shape, itemsize), np.uint8)
        self.layouts = np.zeros((len(starts), 6), np.int64)
        self.layouts[:, L_BASE], self.layouts[:, L_SIZE] = self.slots.starts, self.slots.sizes
        # The array is C order, the chunks in `order`.
        self.dst_strides = np.array([shape[1] * itemsize, itemsize])
        self.src_strides = np.array([CHUNK[1], 1] if order == "C" else [1, CHUNK[0]])
        self.boxes = np.zeros((len(starts), 5), np.int64)
        for k, (i, j) in enumerate(starts):
            counts = [min(CHUNK[0], shape[0] - i), min(CHUNK[1], shape[1] - j)]
            self.boxes[k] = [k, 0, lead + (i * shape[1] + j) * itemsize, *counts]

    def run(self, module: ModuleType, lane: str) -> list[int]:
        """Statuses of a launch."""
        status = np.zeros(len(self.boxes), np.int32)
        groups = module.groups(self.boxes, self.itemsize)
        kit.run(
            module.kernel(self.itemsize), lane, len(self.boxes) * groups, groups, self.slots.arena,
            kit.words(self.slots.arena), self.layouts, self.boxes, self.src_strides, self.dst_strides, self.array,
            kit.words(self.array), status,
        )  # fmt: skip
        return [int(s) for s in status]

    def inside(self) -> Array:
        """The array's elements, a view."""
        return self.array[self.lead :][: self.values.size].reshape(self.values.shape)

    def chunks(self) -> list[Array]:
        """A view of each chunk's elements that lie in the array."""
        shape = (*CHUNK, self.itemsize) if self.src_strides[1] == 1 else (*CHUNK[::-1], self.itemsize)
        views = [self.slots[k].reshape(shape) for k in range(len(self.boxes))]
        views = [v if self.src_strides[1] == 1 else v.transpose(1, 0, 2) for v in views]
        return [v[: box[B_COUNT], : box[B_COUNT + 1]] for v, box in zip(views, self.boxes, strict=True)]

    def pieces(self, whole: Array) -> list[Array]:
        """What of `whole` belongs to each chunk."""
        corners = [divmod(int(d - self.lead) // self.itemsize, self.shape[1]) for d in self.boxes[:, B_DEST]]
        counts = self.boxes[:, B_COUNT:].tolist()
        return [whole[i : i + n, j : j + m] for (i, j), (n, m) in zip(corners, counts, strict=True)]


@pytest.mark.parametrize(("lane", "itemsize"), LANES)
@settings(max_examples=8)
@given(shape=st.tuples(st.integers(1, 7), st.integers(1, 11)), lead=st.integers(0, 5), order=st.sampled_from("CF"))
def test_chunks_land_where_numpy_puts_them(
    lane: str, itemsize: int, shape: tuple[int, int], lead: int, order: str
) -> None:
    grid = Grid(itemsize, shape, lead=lead, order=order)
    for chunk, values in zip(grid.chunks(), grid.pieces(grid.values), strict=True):
        chunk[:] = values
    assert not any(grid.run(scatter, lane))
    np.testing.assert_array_equal(grid.inside(), grid.values)
    assert (np.delete(grid.array, np.s_[lead : lead + grid.values.size]) == kit.GUARD).all()


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("module", [scatter, gather], ids=["scatter", "gather"])
def test_the_reference_agrees(lane: str, module: ModuleType) -> None:
    grid = Grid(8, (4, 7))
    (grid.slots.arena if module is scatter else grid.array)[:] = np.random.default_rng(1).integers(0, 256, 1, np.uint8)
    slots, array = grid.slots.arena.copy(), grid.array.copy()
    tables = grid.layouts, grid.boxes, grid.src_strides, grid.dst_strides
    scatter.reference(slots, *tables, array, 8, module is scatter)
    assert not any(grid.run(module, lane))
    np.testing.assert_array_equal(grid.slots.arena, slots)
    np.testing.assert_array_equal(grid.array, array)


FAULTS = {
    "slot_line_beyond_the_table": ("boxes", B_LAYOUT, 9),
    "slot_line_before_the_table": ("boxes", B_LAYOUT, -1),
    "elements_beyond_the_slot": ("boxes", B_FIRST, 15),
    "elements_before_the_slot": ("boxes", B_FIRST, -15),
    "beyond_the_array": ("boxes", B_DEST, 1 << 20),
    "before_the_array": ("boxes", B_DEST, -(1 << 20)),
    "slot_beyond_the_arena": ("layouts", L_BASE, 1 << 20),
    "slot_before_the_arena": ("layouts", L_BASE, -8),
    "negative_slot": ("layouts", L_SIZE, -8),
}


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("module", [scatter, gather], ids=["scatter", "gather"])
@pytest.mark.parametrize("fault", FAULTS)
def test_hostile_tables_are_reported_and_harm_nothing(lane: str, module: ModuleType, fault: str) -> None:
    grid = Grid(8, (6, 5))
    table, column, value = FAULTS[fault]
    grid.slots.arena[:] = 1 if module is scatter else kit.GUARD
    grid.inside()[:] = kit.GUARD if module is scatter else 1
    getattr(grid, table)[1, column] = value
    assert grid.run(module, lane) == [Status.OK, Status.BAD_TABLE]
    written = grid.inside() if module is scatter else np.stack([grid.slots[k] for k in range(2)])
    assert (written.reshape(2, -1)[0] == 1).all()
    assert (written.reshape(2, -1)[1] == kit.GUARD).all()
    if module is gather:
        grid.slots.check_guards()
