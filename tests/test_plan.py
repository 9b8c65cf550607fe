"""Plans name every selected element once, from its place in its chunk to its place in the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zarrgpu
from tests.engines import make, smooth
from zarrgpu.plan import BOX, Axis, Plan, axes_of, plan_axes, plan_batch


def elements(plan: Plan) -> dict[int, tuple[tuple[int, ...], int]]:
    """Byte of the output -> chunk and element in it, one by one."""
    found = {}
    for grid, box in zip(plan.grid.tolist(), plan.boxes.tolist(), strict=True):
        for index in np.ndindex(*box[BOX:]):
            source = box[1] + int(np.dot(index, plan.src_strides))
            target = box[2] + int(np.dot(index, plan.dst_strides))
            assert target not in found
            found[target] = (tuple(grid), source)
    return found


@given(data=st.data())
def test_every_element_once(data: st.DataObject) -> None:
    """Against NumPy: the place in the array that each output element came from."""
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n + 2)) for n in shape)
    selection = tuple(
        data.draw(st.integers(0, n - 1) | st.builds(slice, st.integers(0, n), st.integers(0, n), st.integers(1, n)))
        for n in shape
    )
    axes = axes_of(selection, shape)
    want = np.arange(int(np.prod(shape))).reshape(shape)[selection]
    strides = [int(np.prod(chunks[k + 1 :])) for k in range(len(shape))]
    plan = plan_axes(axes, chunks, strides, np.empty(want.shape, "u1").strides)
    found = elements(plan)
    assert sorted(found) == list(range(want.size))
    for target, (chunk, source) in found.items():
        place = np.unravel_index(source, chunks)
        array_place = tuple(c * n + p for c, n, p in zip(chunk, chunks, place, strict=True))
        assert np.ravel_multi_index(array_place, shape) == want.ravel()[target]


@pytest.mark.parametrize(
    ("selection", "target", "reason"),
    [
        ((np.array([1]), slice(0, 2, 1)), (slice(0, 1), slice(0, 2)), "by arrays"),
        ((slice(0, 2, 1),), (slice(0, 2),), "by arrays"),
        ((slice(2, 0, -1), slice(0, 2, 1)), (slice(0, 2), slice(0, 2)), "negative step"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (np.array([0, 1]), slice(0, 2)), "by arrays"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (slice(0, 3), slice(0, 2)), "another shape"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (slice(0, 2), slice(0, 2), slice(0, 1)), "new axes"),
    ],
)
def test_what_has_no_plan_says_so(selection: Any, target: Any, reason: str) -> None:
    with pytest.raises(zarrgpu.UnsupportedError, match=reason):
        plan_batch([(selection, target)], (4, 4), (4, 1), (4, 1))


def test_boxes_of_several_steps_have_no_common_strides() -> None:
    batch = [((slice(0, 4, 2),), (slice(0, 2),)), ((slice(0, 4, 1),), (slice(2, 6),))]
    with pytest.raises(zarrgpu.UnsupportedError, match="several steps"):
        plan_batch(batch, (4,), (1,), (1,))


def test_an_output_of_other_axes_is_refused() -> None:
    with pytest.raises(zarrgpu.UnsupportedError, match="new axes"):
        plan_axes([Axis(0, 1, 4)], (4,), (1,), (4, 1))


def test_negative_steps_are_zarrs_error() -> None:
    z = make(smooth((6,)), (4,))
    with pytest.raises(IndexError, match="step >= 1"):
        zarrgpu.read(z, np.s_[::-1], device="host")
