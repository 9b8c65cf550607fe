"""Boxes for tests of the kernels that copy them, and where NumPy's own indexing says that their elements are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests import kit
from tests.kit import Array
from zarrgpu.kernels.tables import B_COUNT, B_DEST, B_FIRST, B_LAYOUT, G_BYTE, G_ELEMENT, STRIDED


class Boxes(NamedTuple):
    """One box for each chunk, and what it means.

    Attributes
    ----------
    boxes, src_strides, dst_strides, gather
        As kernels take them; `gather` is None where boxes are strided.
    out : uint8[n]
        The output, of guards.
    places : list of int64[n, 2]
        For each box the element of the chunk and the byte of the output that its elements have.
    """

    boxes: Array
    src_strides: Array
    dst_strides: Array
    gather: Array | None
    out: Array
    places: list[Array]


def guards(nbytes: int) -> Array:
    """So many bytes of guards, and as many as make whole blocks of 16."""
    return np.full((nbytes + 15) // 16 * 16, kit.GUARD, np.uint8)


def numbered(shape: tuple[int, ...], order: Any) -> Array:
    """A chunk whose elements are their numbers."""
    return np.arange(int(np.prod(shape))).reshape(shape, order=order)


def windowed(
    n: int, shape: tuple[int, ...], order: str, itemsize: int, lead: int, window: tuple[Any, ...], gap: int
) -> Boxes:
    """What `window` selects of `n` chunks, one after the other, with a gap of elements between rows."""
    read = numbered(shape, order)[window]
    rows = [max(count, 1) for count in read.shape]  # NumPy gives empty arrays strides of zero
    rows[-1] += gap
    each, *steps = np.empty((n, *rows), f"V{itemsize}").strides
    starts = lead + kit.GUARD_BYTES + each * np.arange(n)
    boxes = np.zeros((n, B_COUNT + read.ndim), np.int64)
    boxes[:, B_LAYOUT], boxes[:, B_FIRST], boxes[:, B_DEST] = np.arange(n), read.flat[0] if read.size else 0, starts
    boxes[:, B_COUNT:] = read.shape
    to = np.zeros(read.shape, np.int64)
    for along, step in zip(np.indices(read.shape), steps, strict=True):
        to += along * step
    places = [np.column_stack([read.ravel(), start + to.ravel()]) for start in starts]
    src_strides = np.array(read.strides, np.int64) // read.itemsize
    out = guards(lead + each * n + 2 * kit.GUARD_BYTES)
    return Boxes(boxes, src_strides, np.array(steps, np.int64), None, out, places)


def by_index(n: int, shape: tuple[int, ...], order: str, itemsize: int, lead: int, how: str, seed: int) -> Boxes:
    """Random arrays of indices into `n` chunks: one for each of their ``"axes"``, or one that selects ``"points"``.

    Indices are in any order and more than once; what they select goes to any places of the box's own part of the
    output, in any order. Some axes of some boxes are strided, some boxes take the lines of an earlier one, and lines
    are relative to any place.
    """
    rng = np.random.default_rng(seed)
    chunk = numbered(shape, order)
    if how == "points":
        chunk = np.sort(chunk, axis=None)
    room = [size + 2 for size in chunk.shape]  # of a box in the output, along each axis
    slots = np.arange(int(np.prod(room))).reshape(room) * itemsize
    src, dst = np.array(chunk.strides, np.int64) // chunk.itemsize, np.array(slots.strides, np.int64) // 8 * itemsize
    boxes, places, lines = np.full((n, B_COUNT + 2 * chunk.ndim), STRIDED), [], [np.zeros((0, 2), np.int64)]
    known: dict[int, Any] = {}  # for each axis the latest lines: indices, slots, the place they are relative to, number
    for i, box in enumerate(boxes):
        start = lead + kit.GUARD_BYTES + i * slots.size * itemsize
        box[[B_LAYOUT, B_FIRST, B_DEST]] = i, 0, start
        selected = []
        for k, size in enumerate(chunk.shape):
            kind = rng.choice(["new"] + ["strided"] * (how == "axes") + ["known"] * (k in known))
            if kind == "strided":
                count = int(rng.integers(0, size + 1))
                origin = rng.integers(0, size - count + 1), rng.integers(0, 3)
                indices, to = (first + np.arange(count) for first in origin)
            else:
                if kind == "new":
                    count = int(rng.integers(0, room[k] + 1))
                    indices, to = rng.integers(0, size, count), rng.permutation(room[k])[:count]
                    origin = rng.integers(0, size), rng.integers(0, room[k])
                    known[k] = indices, to, origin, sum(map(len, lines))
                    lines.append((np.column_stack([indices, to]) - origin) * (src[k], dst[k]))
                indices, to, origin, box[B_COUNT + chunk.ndim + k] = known[k]
            box[B_COUNT + k] = len(indices)
            box[[B_FIRST, B_DEST]] += np.multiply(origin, (src[k], dst[k]))
            selected.append((indices, to))
        elements, offsets = chunk[np.ix_(*(s[0] for s in selected))], slots[np.ix_(*(s[1] for s in selected))]
        places.append(np.column_stack([elements.ravel(), start + offsets.ravel()]))
    out = guards(lead + n * slots.size * itemsize + 2 * kit.GUARD_BYTES)
    return Boxes(boxes, src, dst, np.concatenate(lines), out, places)


def lines_of(boxes: Array, src_strides: Array, dst_strides: Array) -> tuple[Array, Array]:
    """Strided boxes of one axis as indexed ones, each with lines of its own in an order of its own; and their table."""
    counts = boxes[:, B_COUNT].tolist()
    orders = [np.random.default_rng(i).permutation(count) for i, count in enumerate(counts)]
    firsts = np.cumsum([0, *counts[:-1]])
    return np.column_stack([boxes, firsts]), np.outer(np.concatenate(orders), (src_strides[0], dst_strides[0]))


GATHER_FAULTS = {
    "line_beyond_the_table": ("boxes", (1, B_COUNT + 1), 120),
    "line_before_the_table": ("boxes", (1, B_COUNT + 1), -2),
    "line_beyond_what_int64_adds": ("boxes", (1, B_COUNT + 1), (1 << 63) - 1),
    "lines_beyond_the_table": ("boxes", (1, B_COUNT + 1), 100),
    "element_beyond_the_chunk": ("gather", (45, G_ELEMENT), 40),
    "element_before_the_chunk": ("gather", (45, G_ELEMENT), -1),
    "element_far_away": ("gather", (45, G_ELEMENT), 1 << 62),
    "byte_beyond_the_output": ("gather", (45, G_BYTE), 1 << 20),
    "byte_before_the_output": ("gather", (45, G_BYTE), -1 << 20),
    "byte_far_away": ("gather", (45, G_BYTE), -1 << 62),
}
"""What to write into the tables of three boxes of 40 elements, made by `lines_of`: the second one's lines are bad."""


def left_by_fault(boxes: Array, gather: Array, want: Array, itemsize: int) -> Array:
    """The output in spite of a fault: elements whose line, place in the chunk and place in the output exist.

    `want` is the output without it, in which the second box is its chunk.
    """
    dest, first = int(boxes[1, B_DEST]), int(boxes[1, B_COUNT + 1])
    whole, left = want[dest : dest + 40 * itemsize].reshape(40, itemsize), want.copy()
    left[dest : dest + 40 * itemsize] = kit.GUARD
    for element, byte in gather[first : first + 40].tolist() if first >= 0 else []:
        if 0 <= element < 40 and 0 <= byte < 40 * itemsize:
            left[dest + byte : dest + byte + itemsize] = whole[element]
    return left
