"""assemble: decoded chunks into the output, in one pass: unshuffle, byte swap, clip, step, scatter, fill.

The general kernel, right for every item size, stride and layout; `zarrgpu.kernels.assemble_words` is the fast one for
the common cases. Both take the same arguments:

===============  ============================================================================================
``groups``       int64: work items of each box; items are ``boxes * groups``
``source``       uint8[]: the source arena; ``source32``: uint32[], its whole words, 4-byte aligned
``scratch``      uint8[]: the scratch arena; ``scratch32``: uint32[], its whole words, 4-byte aligned
``layouts``      int64[l, 6]: where the chunks' bytes lie, see `zarrgpu.kernels.tables`
``boxes``        int64[b, 3 + nd], nd >= 1: what to copy where, see `zarrgpu.kernels.boxes`
``src_strides``  int64[nd]: elements in the chunk for a step of a box along each axis, any sign
``dst_strides``  int64[nd]: bytes in the output for the same step, any sign
``fill``         uint8[itemsize]: the fill value as the output stores it (it is not swapped)
``out``          uint8[]: the output; ``out32``: uint32[], its whole words, 16-byte aligned
``status``       int32[b]: zeros; `Status.BAD_TABLE` is written where a box failed, nothing elsewhere
===============  ============================================================================================

No argument may alias ``out``, except ``out32``, and no two elements may share a byte of it. An element that lies
outside its chunk, its arena or ``out`` is skipped and its box called BAD_TABLE. Grid: one thread an item, which is
`group` consecutive elements of a box; blocks of 256, no shared memory. Limits: none but int64.

Where byte ``p`` of a decoded chunk lies before it is unshuffled is given by c-blosc 1.21 (``shuffle.c``,
``shuffle-generic.h``, ``bitshuffle-generic.c``) and by numcodecs' ``Shuffle``, which is the same with a single block:

* blocks of ``L_BLOCK`` bytes, the last one shorter, are shuffled separately; a block of ``s`` bytes holds
  ``n = s // L_TYPE`` elements, and what remains after them is stored as it is;
* BYTES: byte ``y`` of element ``j`` is byte ``y * n + j`` of the block;
* BITS: bit ``b`` of byte ``y`` of element ``j`` is bit ``j % 8`` of byte ``(8 * y + b) * (n // 8) + j // 8``; a block
  whose ``n`` is no multiple of eight is stored as it is.

An output element is ``itemsize`` bytes of the chunk, in which every ``swap`` bytes are reversed.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels.boxes import Table, element_groups, make_place, make_total
from zarrgpu.kernels.elements import make_bytes
from zarrgpu.kernels.tables import (
    B_COUNT,
    B_DEST,
    B_FIRST,
    B_LAYOUT,
    BITS,
    BYTES,
    FILL,
    L_ARENA,
    L_BASE,
    L_BLOCK,
    L_MODE,
    L_SIZE,
    L_TYPE,
    PLAIN,
    SOURCE,
    Status,
)

U = np.uint32
W = np.uint64
BAD = int(Status.BAD_TABLE)

_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
_table = types.Array(types.int64, 2, "C")
ARGUMENTS = (types.int64, _u1, _u4, _u1, _u4, _table, _table, _i8, _i8, _u1, _u1, _u4, _i4)


def unshuffled(block: npt.NDArray[np.uint8], kind: int, mode: int) -> npt.NDArray[np.uint8]:
    """The reference for one block: its bytes in the order of the elements."""
    n = block.size // kind
    elements, rest = block[: n * kind], block[n * kind :]
    if mode == BYTES:
        elements = elements.reshape(kind, n).T
    elif mode == BITS and n % 8 == 0:
        bits = np.unpackbits(elements.reshape(kind * 8, n // 8), axis=1, bitorder="little")
        elements = np.packbits(bits.T, axis=1, bitorder="little")
    return np.concatenate([elements.ravel(), rest])


def reference(
    arenas: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    layouts: Table,
    boxes: Table,
    src_strides: Table,
    dst_strides: Table,
    fill: npt.NDArray[np.uint8],
    swap: int,
    out: npt.NDArray[np.uint8],
) -> None:
    """The reference for good tables; `arenas` are source and scratch."""
    itemsize = fill.size
    for box in boxes:
        arena, base, size, block, kind, mode = (int(x) for x in layouts[box[B_LAYOUT]])
        counts = [int(n) for n in box[B_COUNT:]]
        if arena == FILL:
            elements = np.tile(fill, (1, 1))
        else:
            chunk = arenas[arena][base : base + size]
            if mode != PLAIN:
                chunk = np.concatenate([unshuffled(chunk[k : k + block], kind, mode) for k in range(0, size, block)])
            elements = chunk[: size // itemsize * itemsize].reshape(-1, itemsize)
            if swap > 1:
                elements = elements.reshape(-1, itemsize // swap, swap)[:, :, ::-1].reshape(-1, itemsize)
        for i in np.ndindex(*counts):
            element = 0 if arena == FILL else int(box[B_FIRST] + np.dot(i, src_strides))
            byte = int(box[B_DEST] + np.dot(i, dst_strides))
            out[byte : byte + itemsize] = elements[element]


def group(itemsize: int) -> int:
    """Elements of a work item: 16 bytes of them, at least one."""
    return max(1, 16 // itemsize)


def groups(boxes: Table, itemsize: int) -> int:
    """The argument ``groups``: work items that the largest of `boxes` needs."""
    return element_groups(boxes, group(itemsize))


def make_layout(target: Target, itemsize: int) -> Any:
    """Device function ``elements(source, scratch, layouts, row) -> int64``: whole elements in a chunk; -1: bad layout.

    A good layout lies in its arena, which is what makes every load of `make_element` safe.
    """

    @target.device
    def elements(source, scratch, layouts, row):
        if row < 0 or row >= layouts.shape[0]:
            return np.int64(-1)
        arena, base, size = layouts[row, L_ARENA], layouts[row, L_BASE], layouts[row, L_SIZE]
        mode = layouts[row, L_MODE]
        if arena == FILL:
            return np.int64(0)
        room = np.int64(source.size if arena == SOURCE else scratch.size)
        if arena < SOURCE or arena > FILL or base < 0 or size < 0 or size > room or base > room - size:
            return np.int64(-1)
        if mode != PLAIN and (mode < PLAIN or mode > BITS or layouts[row, L_BLOCK] <= 0 or layouts[row, L_TYPE] <= 0):
            return np.int64(-1)
        return size // itemsize

    return elements


def make_element(target: Target, itemsize: int, swap: int, unsigned: Any = W) -> tuple[Any, Any]:
    """Device functions that write one element at byte `d` of the output, which has room for it.

    ``copy(arena, layouts, row, e, out, out32, d)`` takes element `e` of the chunk in line `row` of `layouts`, which
    has it; ``blank(fill, out, out32, d)`` the fill value. Divides in the type `unsigned`, which holds a chunk's size.
    """
    device = target.device
    words = itemsize // 4
    tail = itemsize - 4 * words
    pieces = -(-itemsize // 4)
    origin, locate, scattered = make_bytes(target, itemsize, swap, unsigned)

    @device
    def copy(arena, layouts, row, e, out, out32, d):
        chunk, p, first, step = locate(layouts, row, e)
        if step == W(0):
            for o in range(itemsize):
                out[W(d + o)] = np.uint8(scattered(arena, chunk, unsigned(p + unsigned(origin(o)))))
            return
        whole = d % 4 == 0 and d + itemsize <= 4 * out32.size
        for w in range(pieces):
            count = 4 if w < words else tail
            value = U(0)
            for k in range(count):
                value |= U(U(arena[first + origin(4 * w + k) * step]) << U(8 * k))
            put(out, out32, d + 4 * w, count, value, whole)

    @device
    def put(out, out32, d, count, value, whole):
        if whole and count == 4:
            out32[W(d >> 2)] = value
        else:
            for k in range(count):
                out[W(d + k)] = np.uint8(value >> U(8 * k) & U(255))

    @device
    def blank(fill, out, out32, d):
        whole = d % 4 == 0 and d + itemsize <= 4 * out32.size
        for w in range(pieces):
            count = 4 if w < words else tail
            value = U(0)
            for k in range(count):
                value |= U(U(fill[4 * w + k]) << U(8 * k))
            put(out, out32, d + 4 * w, count, value, whole)

    return copy, blank


def make(target: Target, lanes: int, itemsize: int, swap: int) -> Any:
    """The body for elements of `itemsize` bytes of which every `swap` are reversed."""
    total, place = make_total(target), make_place(target)
    layout = make_layout(target, itemsize)
    copy, blank = make_element(target, itemsize, swap)
    size = group(itemsize)

    def body(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, fill,
        out, out32, status,
    ):  # fmt: skip
        box = item // groups
        axes = src_strides.size
        begin = (item - box * groups) * size
        end = min(begin + size, total(boxes, box, axes))
        if begin >= end:
            return
        row = boxes[box, B_LAYOUT]
        elements = layout(source, scratch, layouts, row)
        if elements < 0:
            status[box] = BAD
            return
        blanks = layouts[row, L_ARENA] == FILL
        arena = source if layouts[row, L_ARENA] == SOURCE else scratch
        corner, dest = boxes[box, B_FIRST], boxes[box, B_DEST]
        e, d, column = place(boxes, box, src_strides, dst_strides, axes, begin)
        for i in range(begin, end):
            if column == boxes[box, B_COUNT + axes - 1]:
                e, d, column = place(boxes, box, src_strides, dst_strides, axes, i)
            at, element = dest + d, corner + e
            if at < 0 or at > out.size - itemsize or (not blanks and (element < 0 or element >= elements)):
                status[box] = BAD
            elif blanks:
                blank(fill, out, out32, at)
            else:
                copy(arena, layouts, row, element, out, out32, at)
            e += src_strides[axes - 1]
            d += dst_strides[axes - 1]
            column += 1

    return body


@cache
def kernel(itemsize: int, swap: int = 0) -> Kernel:
    """The kernel for elements of `itemsize` bytes of which every `swap` are reversed (0 or 1: none)."""
    if itemsize < 1 or swap < 0 or (swap > 1 and itemsize % swap):
        raise ValueError(f"itemsize must be positive and a multiple of swap, not {itemsize} and {swap}")
    return Kernel(f"assemble_{itemsize}_{swap}", partial(make, itemsize=itemsize, swap=swap), ARGUMENTS)


KERNELS = (kernel(4), kernel(8, 8), kernel(16, 8), kernel(3))
