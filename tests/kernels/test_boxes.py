"""Axes merge, and tables shrink, only where nothing changes: the same elements go to the same bytes, in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.box_kit import by_index
from tests.kit import Array
from zarrgpu.kernels.boxes import cut_gather, element_groups, is_indexed, merge_axes, offsets
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, STRIDED


def moves(boxes: Array, src_strides: Array, dst_strides: Array) -> list[list[tuple[int, int]]]:
    """For each box the (element, byte) pairs in C order."""
    return [
        [
            (int(box[B_FIRST] + np.dot(i, src_strides)), int(box[B_DEST] + np.dot(i, dst_strides)))
            for i in np.ndindex(*box[B_COUNT:].tolist())
        ]
        for box in boxes
    ]


def test_full_chunks_have_one_axis() -> None:
    boxes = np.array([[0, 0, 0, 1, 721, 1440], [1, 0, 721 * 1440 * 4, 1, 721, 1440]])
    merged, src, dst = merge_axes(boxes, np.array([721 * 1440, 1440, 1]), np.array([721 * 1440 * 4, 1440 * 4, 4]))
    assert merged.tolist() == [[0, 0, 0, 721 * 1440], [1, 0, 721 * 1440 * 4, 721 * 1440]]
    assert (src.tolist(), dst.tolist()) == ([1], [4])


def test_clipped_chunks_keep_the_axes_that_differ() -> None:
    boxes = np.array([[0, 0, 0, 2, 8, 8], [1, 0, 32, 2, 8, 5]])
    merged, src, dst = merge_axes(boxes, np.array([64, 8, 1]), np.array([208, 26, 2]))
    assert merged.tolist() == [[0, 0, 0, 16, 8], [1, 0, 32, 16, 5]]
    assert (src.tolist(), dst.tolist()) == ([8, 1], [26, 2])


def test_single_elements_keep_one_axis() -> None:
    merged, src, dst = merge_axes(np.array([[0, 5, 7, 1, 1]]), np.array([3, 1]), np.array([12, 4]))
    assert (merged.tolist(), src.size, dst.size) == ([[0, 5, 7, 1]], 1, 1)


def test_no_boxes_merge_to_no_boxes() -> None:
    merged, src, dst = merge_axes(np.zeros((0, 5), np.int64), np.array([3, 1]), np.array([12, 4]))
    assert (len(merged), src.size, dst.size) == (0, merged.shape[1] - 3, merged.shape[1] - 3)
    assert element_groups(merged, 4) == 0


@given(st.data())
def test_merged_boxes_move_the_same(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 3), min_size=axes, max_size=axes)
    boxes = np.array([[0, 3, 5, *data.draw(counts)] for _ in range(data.draw(st.integers(1, 3)))])
    # Strides of arrays that hold the boxes exactly or with a gap, so that some axes merge.
    gaps = st.lists(st.sampled_from([0, 0, 1]), min_size=axes, max_size=axes)
    extents = boxes[:, B_COUNT:].max(axis=0)
    src, dst = (
        np.array([int(np.prod(extents[k + 1 :] + np.array(gap)[k + 1 :])) for k in range(axes)]) * unit
        for gap, unit in ((data.draw(gaps), 1), (data.draw(gaps), 4))
    )
    merged = merge_axes(boxes, src, dst)
    assert moves(*merged) == moves(boxes, src, dst)
    assert merged[0].shape[1] - 3 == merged[1].size == merged[2].size <= axes


@given(
    st.integers(0, 1 << 32), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from(["axes", "points"])
)
def test_cut_tables_move_the_same(seed: int, shape: list[int], how: str) -> None:
    """By the plain reference, which finds what NumPy's indexing does."""
    drawn = by_index(4, tuple(shape), "C", 2, 0, how, seed)
    assert drawn.gather is not None
    for some in (slice(None), slice(1, 3), slice(3, 4)):
        cut, *steps = cut_gather(drawn.boxes[some], drawn.src_strides, drawn.dst_strides, drawn.gather)
        assert is_indexed(cut, len(steps[0]))
        assert len(steps[-1]) <= len(drawn.gather)
        for box, want in zip(cut, drawn.places[some], strict=True):
            np.testing.assert_array_equal(box[[B_FIRST, B_DEST]] + offsets(box, *steps), want)


def test_cut_boxes_keep_what_they_need() -> None:
    """Of four axes the first and the last: the others count 1, without an index."""
    boxes = np.array([[0, 0, 0, 3, 1, 1, 2, 5, STRIDED, STRIDED, STRIDED], [1, 0, 0, 1, 1, 1, 4, 8, -1, -1, -1]])
    strides, gather = np.array([7, 5, 3, 1]), np.arange(20).reshape(10, 2)
    cut, src, dst, lines = cut_gather(boxes, strides, 2 * strides, gather)
    assert cut.tolist() == [[0, 0, 0, 3, 2, 0, STRIDED], [1, 0, 0, 1, 4, 3, STRIDED]]
    assert (src.tolist(), dst.tolist(), lines.tolist()) == ([7, 1], [14, 2], gather[5:9].tolist())
    assert element_groups(cut, 4, indexed=True) == 2
    single = np.array([[0, 5, 7, 1, 1, STRIDED, STRIDED]])
    assert [len(part) for part in cut_gather(single, strides[:2], strides[:2], gather)] == [1, 1, 1, 0]


@pytest.mark.parametrize("line", [8, 1 << 40, -2])
def test_lines_outside_a_table_are_not_cut(line: int) -> None:
    boxes = np.array([[0, 0, 0, 3, 1], [0, 0, 0, 3, line]])
    with pytest.raises(ValueError, match="gather table of 10"):
        cut_gather(boxes, np.ones(1, np.int64), np.ones(1, np.int64), np.zeros((10, 2), np.int64))
