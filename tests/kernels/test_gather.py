"""Boxes of an array go to slots as NumPy's indexing would cut them; faults are tested with `scatter`'s."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.test_scatter import LANES, Grid
from zarrgpu.kernels import gather


@pytest.mark.parametrize(("lane", "itemsize"), LANES)
@settings(max_examples=8)
@given(shape=st.tuples(st.integers(1, 7), st.integers(1, 11)), lead=st.integers(0, 5), order=st.sampled_from("CF"))
def test_slots_hold_what_numpy_cuts(lane: str, itemsize: int, shape: tuple[int, int], lead: int, order: str) -> None:
    grid = Grid(itemsize, shape, lead=lead, order=order)
    grid.inside()[:] = grid.values
    assert not any(grid.run(gather, lane))
    for chunk, values in zip(grid.chunks(), grid.pieces(grid.values), strict=True):
        np.testing.assert_array_equal(chunk, values)
    grid.slots.check_guards()
