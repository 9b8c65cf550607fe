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
``gather``       int64[m, 2]: only where boxes are indexed, ``boxes`` then being int64[b, 3 + 2 * nd]
``fill``         uint8[itemsize]: the fill value as the output stores it (it is not swapped)
``out``          uint8[]: the output; ``out32``: uint32[], its whole words, 16-byte aligned
``status``       int32[b]: zeros; `Status.BAD_TABLE` is written where a box failed, nothing elsewhere
===============  ============================================================================================

No argument may alias ``out``, except ``out32``, and no two elements may share a byte of it. An element that lies
outside its chunk, its arena or ``out``, or takes a line outside ``gather``, is skipped and its box called BAD_TABLE.
Grid: one thread an item, which is `group` consecutive elements of a box; blocks of 256, no shared memory. Limits: none
but int64.

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
from zarrgpu.kernels.box_loop import make_loop, make_span
from zarrgpu.kernels.boxes import Table, element_groups, offsets
from zarrgpu.kernels.elements import make_bytes
from zarrgpu.kernels.tables import (
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
OK, BAD = int(Status.OK), int(Status.BAD_TABLE)

_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
_table = types.Array(types.int64, 2, "C")
_to_boxes, _from_fill = (types.int64, _u1, _u4, _u1, _u4, _table, _table, _i8, _i8), (_u1, _u1, _u4, _i4)
ARGUMENTS = (*_to_boxes, *_from_fill)
INDEXED_ARGUMENTS = (*_to_boxes, _table, *_from_fill)


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
    gather: Table | None = None,
) -> None:
    """The reference for good tables; `arenas` are source and scratch."""
    itemsize = fill.size
    for box in boxes:
        arena, base, size, block, kind, mode = (int(x) for x in layouts[box[B_LAYOUT]])
        if arena == FILL:
            elements = np.tile(fill, (1, 1))
        else:
            chunk = arenas[arena][base : base + size]
            if mode != PLAIN:
                chunk = np.concatenate([unshuffled(chunk[k : k + block], kind, mode) for k in range(0, size, block)])
            elements = chunk[: size // itemsize * itemsize].reshape(-1, itemsize)
            if swap > 1:
                elements = elements.reshape(-1, itemsize // swap, swap)[:, :, ::-1].reshape(-1, itemsize)
        for element, byte in (box[[B_FIRST, B_DEST]] + offsets(box, src_strides, dst_strides, gather)).tolist():
            out[byte : byte + itemsize] = elements[0 if arena == FILL else element]


def group(itemsize: int) -> int:
    """Elements of a work item: 16 bytes of them, at least one."""
    return max(1, 16 // itemsize)


def groups(boxes: Table, itemsize: int, indexed: bool = False) -> int:
    """The argument ``groups``: work items that the largest of `boxes` needs."""
    return element_groups(boxes, group(itemsize), indexed)


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


def make_body(target: Target, itemsize: int, group: int, layout: Any, write: Any, indexed: bool) -> Any:
    """Device function with the arguments of a kernel, its arenas and steps in tuples, and one for `layout` and `write`.

    Both are device functions. ``layout(arenas, layouts, row, more) -> (elements, status)`` says what the chunk in line
    `row` of `layouts` holds; ``write(arena, layouts, row, e, out, out32, d, more) -> status`` writes its element `e` to
    byte `d` of the output; `more` is what either needs besides. Items are `group` elements of `itemsize` bytes.
    """
    device = target.device
    _, blank = make_element(target, itemsize, 0)

    @device
    def put(context, e, d):
        arena, layouts, row, blanks, fill, out, out32, more = context
        if blanks:
            blank(fill, out, out32, d)
            return OK
        return write(arena, layouts, row, e, out, out32, d, more)

    span, loop = make_span(target, group), make_loop(target, itemsize, put, indexed)

    @device
    def body(item, groups, arenas, layouts, boxes, steps, fill, out, out32, status, more):
        box, begin, end = span(item, groups, boxes, steps[0].size)
        if begin >= end:
            return
        row = boxes[box, B_LAYOUT]
        elements, wrong = layout(arenas, layouts, row, more)
        if wrong != OK:
            status[box] = wrong
            return
        blanks = layouts[row, L_ARENA] == FILL
        arena = arenas[0] if layouts[row, L_ARENA] == SOURCE else arenas[1]
        context = arena, layouts, row, blanks, fill, out, out32, more
        loop(boxes, box, begin, end, steps, np.int64(-1) if blanks else elements, out.size, status, context)

    return body


def make(target: Target, lanes: int, itemsize: int, swap: int, indexed: bool) -> Any:
    """The body for elements of `itemsize` bytes of which every `swap` are reversed."""
    elements_of = make_layout(target, itemsize)
    copy, _ = make_element(target, itemsize, swap)

    @target.device
    def layout(arenas, layouts, row, more):
        elements = elements_of(arenas[0], arenas[1], layouts, row)
        return elements, OK if elements >= 0 else BAD

    @target.device
    def write(arena, layouts, row, e, out, out32, d, more):
        copy(arena, layouts, row, e, out, out32, d)
        return OK

    share = make_body(target, itemsize, group(itemsize), layout, write, indexed)

    def strided(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, fill,
        out, out32, status,
    ):  # fmt: skip
        steps = src_strides, dst_strides
        share(item, groups, (source, scratch), layouts, boxes, steps, fill, out, out32, status, ())

    def by_index(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, gather,
        fill, out, out32, status,
    ):  # fmt: skip
        steps = src_strides, dst_strides, gather
        share(item, groups, (source, scratch), layouts, boxes, steps, fill, out, out32, status, ())

    return by_index if indexed else strided


@cache
def kernel(itemsize: int, swap: int = 0, indexed: bool = False) -> Kernel:
    """The kernel for elements of `itemsize` bytes of which every `swap` are reversed (0 or 1: none)."""
    if itemsize < 1 or swap < 0 or (swap > 1 and itemsize % swap):
        raise ValueError(f"itemsize must be positive and a multiple of swap, not {itemsize} and {swap}")
    name = f"assemble{'_indexed' if indexed else ''}_{itemsize}_{swap}"
    arguments = INDEXED_ARGUMENTS if indexed else ARGUMENTS
    return Kernel(name, partial(make, itemsize=itemsize, swap=swap, indexed=indexed), arguments)


KERNELS = (kernel(4), kernel(8, 8), kernel(16, 8), kernel(3), *(kernel(n, indexed=True) for n in (3, 4, 16)))
