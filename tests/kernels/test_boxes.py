"""Axes merge only where nothing changes: the same elements go to the same bytes, in the same order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import Array
from zarrgpu.kernels.boxes import element_groups, merge_axes
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST


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
