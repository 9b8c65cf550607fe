"""Plans name every selected element once, from its place in its chunk to its place in the output."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zarrgpu
from tests.engines import make, smooth
from zarrgpu.plan import BOX, Plan, plan
from zarrgpu.selection import parse, parse_all


def strides(shape: tuple[int, ...]) -> list[int]:
    """Of an array in C order, in elements."""
    return [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]


def elements(plan: Plan) -> dict[int, tuple[int, tuple[int, ...], int]]:
    """Byte of the output -> selection, chunk and element in it, one by one."""
    found = {}
    nd = len(plan.src_strides)
    for i in range(len(plan)):
        boxes, gather = plan.part(np.array([i]))
        box = boxes[0]
        for index in np.ndindex(*box[BOX : BOX + nd]):
            source, target = int(box[1]), int(box[2])
            for k, j in enumerate(index):
                line = -1 if gather is None else int(box[BOX + nd + k])
                assert line == -1 or 0 <= line + j < len(gather)  # type: ignore[arg-type]  # lines are of a table
                step = (plan.src_strides[k] * j, plan.dst_strides[k] * j) if line < 0 else gather[line + j]  # type: ignore[index]
                source, target = source + int(step[0]), target + int(step[1])
            assert target not in found
            found[target] = (int(plan.owner[i]), tuple(plan.grid[i].tolist()), source)
    return found


def check(found: dict[int, Any], want: npt.NDArray[Any], shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """Whether an array of `shape` that counts its elements gives `want`, its bytes being places in the output."""
    assert sorted(found) == list(range(want.size))
    for target, (_, chunk, source) in found.items():
        place = np.unravel_index(source, chunks)
        array_place = tuple(c * n + p for c, n, p in zip(chunk, chunks, place, strict=True))
        assert np.ravel_multi_index(array_place, shape) == want.ravel()[target]


def an_axis(n: int) -> st.SearchStrategy[Any]:
    """An int, a slice or an array along an axis."""
    ints = st.integers(0, n - 1)
    slices = st.builds(slice, st.integers(0, n), st.integers(0, n), st.integers(1, n))
    return ints | slices | st.lists(ints, min_size=1, max_size=2 * n).map(np.array)


def as_indexed(selected: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays as `numpy.ix_` shapes them, which is how zarr gives several: flat ones are points."""
    return tuple(
        s.reshape([-1 if i == k else 1 for i in range(len(selected))]) if isinstance(s, np.ndarray) else s
        for k, s in enumerate(selected)
    )


@given(data=st.data())
def test_every_element_of_an_orthogonal_selection_once(data: st.DataObject) -> None:
    """Against NumPy: the place in the array that each output element came from; strides, lines or both."""
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n + 2)) for n in shape)
    selected = tuple(data.draw(an_axis(n)) for n in shape)
    kept = [k for k, s in enumerate(selected) if not isinstance(s, int)]
    every = [np.atleast_1d(np.arange(n)[s]) for s, n in zip(selected, shape, strict=True)]
    want = np.arange(int(np.prod(shape))).reshape(shape)[np.ix_(*every)].reshape([len(every[k]) for k in kept])
    order = [data.draw(st.permutations(range(len(every[k])))) if data.draw(st.booleans()) else None for k in kept]
    target = tuple(
        slice(0, len(every[k])) if o is None else np.array(o, np.int64) for k, o in zip(kept, order, strict=True)
    )
    out = np.empty_like(want)
    out[np.ix_(*(np.arange(len(every[k])) if o is None else o for k, o in zip(kept, order, strict=True)))] = want
    pair = as_indexed(selected), target
    planned = plan([parse(*pair, shape)], shape, chunks, strides(chunks), np.empty(out.shape, "u1").strides)
    check(elements(planned), out, shape, chunks)


@given(data=st.data())
def test_every_point_once(data: st.DataObject) -> None:
    """Coordinates in any order, repeated or not, in an output of one axis."""
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n + 2)) for n in shape)
    n = data.draw(st.integers(1, 20))
    points = tuple(np.array(data.draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))) for m in shape)
    places = np.array(data.draw(st.permutations(range(n))))
    out = np.empty(n, np.int64)
    out[places] = np.arange(int(np.prod(shape))).reshape(shape)[points]
    planned = plan([parse(points, places, shape)], shape, chunks, strides(chunks), [1])
    check(elements(planned), out, shape, chunks)


def test_selections_from_several_shards() -> None:
    """Each has its own boxes, in order, and they share one table; what steps differently is indexed."""
    pairs = [
        ((slice(0, 4, 2),), (slice(0, 2),)),
        ((slice(0, 4, 1),), (slice(2, 6),)),
        ((np.array([3, 0]),), (slice(6, 8),)),
    ]
    planned = plan([parse(*pair, (4,)) for pair in pairs], (4,), (2,), [1], [1])
    found = elements(planned)
    got = [(owner, chunk[0] * 2 + source) for _, (owner, chunk, source) in sorted(found.items())]
    assert got == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (2, 3), (2, 0)]
    assert (np.diff(planned.owner) >= 0).all()


def test_runs_of_positions_are_strided() -> None:
    """Zarr writes slices beside arrays as arrays of positions; they take no table, and dropped axes none either."""
    selected = tuple(np.ix_(np.arange(2, 5), np.array([1]), np.arange(0, 4)))
    planned = plan(
        [parse(selected, (slice(0, 3), slice(0, 4)), (6, 3, 4), (1,))], (6, 3, 4), (2, 2, 4), [8, 4, 1], [4, 1]
    )
    assert planned.gather is None


def test_whole_chunks() -> None:
    """What zarr asks chunk by chunk takes a box each; an array of no axes has a box of one element."""
    pairs = [((slice(1, 3), 2), (slice(0, 2),)), ((slice(0, 3), 2), (slice(2, 5),))]
    planned = plan([parse(*pair, (3, 4)) for pair in pairs], (3, 4), (3, 4), [4, 1], [8])
    assert planned.boxes.tolist() == [[0, 6, 0, 2, 1], [1, 2, 16, 3, 1]]
    assert plan([parse((), (), ())], (), (), [], []).boxes.tolist() == [[0, 0, 0, 1]]


@given(data=st.data())
def test_many_selections_are_planned_as_each_by_itself(data: st.DataObject) -> None:
    """Of a grid, whose selections share the objects along their axes, as zarr's do; some steps, arrays and integers."""
    n, size = 3, 6
    kinds = data.draw(st.lists(st.sampled_from(["slice", "step", "array", "int"]), min_size=1, max_size=3))
    columns = []
    for k, kind in enumerate(kinds):
        every: list[tuple[Any, Any]] = []
        for i in range(1 if kind == "int" else data.draw(st.integers(1, n))):
            step = data.draw(st.integers(1, 3)) if kind == "step" else 1
            start = data.draw(st.integers(0, size - 1))
            count = -(-(size - start) // step)
            selected: Any = slice(start, size, step)
            if kind == "array":
                found = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=4)))
                selected, count = found.reshape([-1 if j == k else 1 for j in range(max(2, len(kinds)))]), len(found)
            every.append((start, None) if kind == "int" else (selected, slice(i * size, i * size + count)))
        columns.append(every)
    pairs = [
        (tuple(s for s, _ in combined), tuple(t for _, t in combined if t is not None))
        for combined in itertools.product(*columns)
    ]
    shape, kept = (size,) * len(kinds), [k for k in kinds if k != "int"]
    out = strides((n * size,) * len(kept))
    chunks = data.draw(st.sampled_from([shape, (4,) * len(kinds)]))
    each = plan([parse(*pair, shape) for pair in pairs], shape, chunks, strides(chunks), out)
    selected, targets = zip(*pairs, strict=True)
    together = plan(parse_all(selected, targets, shape), shape, chunks, strides(chunks), out)
    assert elements(each) == elements(together)
    assert each.grid.tolist() == together.grid.tolist()
    assert each.owner.tolist() == together.owner.tolist()


@pytest.mark.parametrize(
    ("selected", "target", "reason"),
    [
        ((slice(0, 2), slice(0, 2), slice(0, 2)), (slice(0, 2), slice(0, 2)), "different numbers of axes"),
        ((slice(0, 2), slice(0, 2)), (slice(0, 2),), "different numbers of axes"),
        ((slice(0, 2), 1), (slice(0, 2), slice(0, 2)), "drop different axes"),
        ((np.array([0, 1]), np.array([0, 1])), (slice(0, 2), slice(0, 2)), "points beside other selections"),
    ],
)
def test_selections_that_do_not_go_together_are_refused(selected: Any, target: Any, reason: str) -> None:
    two = slice(0, 2), slice(0, 2)
    with pytest.raises(zarrgpu.UnsupportedError, match=reason):
        parse_all([two, selected], [two, target], (4, 4))


@pytest.mark.parametrize(
    ("selected", "target", "reason"),
    [
        ((slice(2, 0, -1), slice(0, 2, 1)), (slice(0, 2), slice(0, 2)), "negative step"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (slice(0, 3), slice(0, 2)), "another shape"),
        ((slice(0, 2, 1), np.array([[0, 1]])), (slice(0, 2), np.array([0])), "another shape"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (slice(0, 2), slice(0, 2), slice(0, 1)), "new axes"),
        ((slice(0, 2, 1), slice(0, 2, 1)), (slice(0, 2),), "fewer axes"),
        ((slice(0, 2, 1),), (slice(0, 2),), "another number of axes"),
        ((np.array([1, 2]), np.array([1, 2])), (slice(0, 2), slice(0, 2)), "points with an output of several axes"),
    ],
)
def test_what_has_no_plan_says_so(selected: Any, target: Any, reason: str) -> None:
    with pytest.raises(zarrgpu.UnsupportedError, match=reason):
        plan([parse(selected, target, (4, 4))], (4, 4), (2, 2), (2, 1), (4, 1))


def test_an_output_of_other_axes_is_refused() -> None:
    for pair, out in ((((slice(0, 4),), (slice(0, 4),)), (4, 1)), (((slice(0, 4),), (slice(0, 4),)), ())):
        with pytest.raises(zarrgpu.UnsupportedError, match="new axes"):
            plan([parse(*pair, (4,))], (4,), (4,), (1,), out)


@pytest.mark.parametrize("two", [[0, 1], [0, 2]])
def test_several_elements_of_a_dropped_axis_are_refused(two: list[int]) -> None:
    with pytest.raises(zarrgpu.UnsupportedError, match="dropped"):
        parse(tuple(np.ix_([0, 1], two)), (slice(0, 2),), (4, 4), (1,))


def test_negative_steps_are_zarrs_error() -> None:
    z = make(smooth((6,)), (4,))
    with pytest.raises(IndexError, match="step >= 1"):
        zarrgpu.read(z, np.s_[::-1], device="host")
