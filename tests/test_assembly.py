"""Boxes become launches: on every engine each element comes to its place, and tables that do not fit are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engines import ENGINES, device, to_host
from tests.kernels.box_kit import Boxes, by_index, windowed
from tests.kit import Array
from zarrgpu import assembly
from zarrgpu.engine import resolve
from zarrgpu.kernels import tables as t
from zarrgpu.kernels import values

SHAPE, CHUNKS = (4, 1, 7), 6
MISSING = 4

CONVERSION = values.divide_add(np.dtype("i2"), 4.0, 0.5, np.dtype("f4"))
HOWS: dict[str, tuple[assembly.How, np.dtype[Any]]] = {
    "as they are": (assembly.How(), np.dtype("=i4")),
    "swapped": (assembly.How(4), np.dtype("=i4").newbyteorder("S")),
    "converted": (assembly.How(2, CONVERSION), np.dtype("=i2").newbyteorder("S")),
}


def made(index: str, seed: int = 3) -> Boxes:
    if index == "window":
        return windowed(CHUNKS, SHAPE, "C", 4, 16, (slice(1, None), slice(None), slice(1, 6, 2)), 1)
    return by_index(CHUNKS, SHAPE, "F", 4, 16, index, seed)


def copy(engine: str, boxes: Boxes, which: Array, how: assembly.How, stored: np.dtype[Any]) -> tuple[Array, Array]:
    """Copy some of the boxes from chunks of numbers: the output, and what it must be."""
    count, native = int(np.prod(SHAPE)), stored.newbyteorder("=")
    numbers = np.arange(CHUNKS * count, dtype=native).reshape(CHUNKS, count)
    with device(engine) as name:
        where = resolve(name)
        with where.lanes() as lanes:
            lane, nbytes = lanes[0], numbers.nbytes
            lane.reserve(nbytes)[:nbytes] = numbers.astype(stored).view(np.uint8).ravel()
            arenas = (lane.upload(nbytes), lane.scratch(16))
            arenas = tuple(view for arena in arenas for view in (arena, arena.view(np.uint32)))
            layouts = np.zeros((CHUNKS, t.LAYOUT_COLUMNS), np.int64)
            layouts[:, t.L_BASE], layouts[:, t.L_SIZE] = nbytes // CHUNKS * np.arange(CHUNKS), nbytes // CHUNKS
            layouts[MISSING, t.L_ARENA] = t.FILL
            out = where.empty(boxes.out.shape, np.dtype("u1"))
            where.assign(out, where.from_host(boxes.out))
            flat = where.flat(out)
            assert flat is not None
            fill = np.arange(4, dtype=np.uint8)
            target = assembly.Target(*flat, boxes.src_strides, boxes.dst_strides, fill, boxes.gather)
            launched = assembly.copy(where, lane, arenas, layouts, boxes.boxes[which], target, how)
            statuses = [(lines, lane.download(status)) for lines, status in launched]
            lane.wait()
            assert not any(status[: len(lines)].any() for lines, status in statuses)
            got = to_host(out)
    decoded = numbers if how.conversion is None else how.conversion.reference(numbers)
    want = boxes.out.copy()
    for i in which.tolist():
        for element, byte in boxes.places[i].tolist():
            want[byte : byte + 4] = fill if i == MISSING else decoded[i, element : element + 1].view(np.uint8)
    return got, want


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("index", ["window", "axes", "points"])
@pytest.mark.parametrize("how", HOWS)
def test_every_element_comes_to_its_place(engine: str, index: str, how: str) -> None:
    """Of all boxes, and of those of a wave, which takes a part of the gather table."""
    for which in (np.arange(CHUNKS), np.array([1, 2]), np.array([5, MISSING])):
        np.testing.assert_array_equal(*copy(engine, made(index), which, *HOWS[how]))


def test_no_boxes_are_no_launch() -> None:
    for index in ("window", "axes"):
        got, want = copy("host", made(index), np.arange(0), *HOWS["as they are"])
        np.testing.assert_array_equal(got, want)


def test_strided_and_indexed_boxes_are_not_mistaken() -> None:
    which, how = np.arange(CHUNKS), HOWS["as they are"]
    with pytest.raises(ValueError, match="if, and only if"):
        copy("host", made("axes")._replace(gather=None), which, *how)
    with pytest.raises(ValueError, match="if, and only if"):
        copy("host", made("window")._replace(gather=made("axes").gather), which, *how)


def test_lines_outside_the_gather_table_are_refused() -> None:
    boxes = made("points")
    assert boxes.gather is not None
    with pytest.raises(ValueError, match=f"of a gather table of {len(boxes.gather) - 1}"):
        copy("host", boxes._replace(gather=boxes.gather[:-1]), np.arange(CHUNKS), *HOWS["as they are"])
