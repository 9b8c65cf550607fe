"""assemble_words: the fast `zarrgpu.kernels.assemble` for chunks and boxes that are contiguous along the last axis.

Arguments, results and limits are those of `zarrgpu.kernels.assemble`, for what `eligible` allows: elements of 1, 2, 4
or 8 bytes, shuffled as such in blocks of whole elements, chunks below 2 GiB, a last axis without a step in chunk and
output. An element may lie anywhere, aligned or not. On other tables it writes wrong values, but neither loads nor
stores outside the arenas and the output.

Grid: a warp an item, which is a tile of `WINDOWS` windows of 16 output bytes; blocks of 128, no shared memory.
Windows are counted along the rows of a box (its last axis) and lie on multiples of 16 bytes of the output, so that a
row starts and ends with a partial window if it is not aligned itself. A lane makes a unit of one, two or four windows
at a time:

* PLAIN: loads words, reverses their bytes;
* BYTES: loads a word (of four elements) from each of the planes, transposes bytes in registers;
* BITS: loads a byte (of eight elements) from each bit plane, transposes bits, then bytes;

then stores 16 bytes at once. Words that are not aligned in the arena are cut out of two. Partial units, and those
that span two blocks, are made element by element.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import WARP, Kernel, Target
from zarrgpu.kernels.assemble import ARGUMENTS, BAD, make_element, make_layout
from zarrgpu.kernels.boxes import Table, make_place, make_total
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
)
from zarrgpu.kernels.transpose import make_loops
from zarrgpu.kernels.transpose_registers import make_registers

U = np.uint32
W = np.uint64

WINDOW = 16
WINDOWS = 256
LIMIT = 2**31


def eligible(
    layouts: Table, boxes: Table, src_strides: Table, dst_strides: Table, itemsize: int
) -> npt.NDArray[np.bool_]:
    """Which boxes the kernel can assemble, as ``bool[b]``."""
    along = src_strides[-1] == 1 and dst_strides[-1] == itemsize
    if itemsize not in (1, 2, 4, 8) or not along or (dst_strides % itemsize).any():
        return np.zeros(len(boxes), bool)
    arena, size, block, kind, mode = layouts[:, [L_ARENA, L_SIZE, L_BLOCK, L_TYPE, L_MODE]].T
    whole = (kind == itemsize) & (block % itemsize == 0) & (size % itemsize == 0)
    good = (arena == FILL) | ((size < LIMIT) & ((mode == PLAIN) | whole))
    small = (boxes[:, B_COUNT:] + WINDOW).prod(axis=1, dtype=np.float64) < LIMIT
    result: npt.NDArray[np.bool_] = good[boxes[:, B_LAYOUT]] & small & (boxes[:, B_DEST] % itemsize == 0)
    return result


def unit_elements(itemsize: int, mode: int) -> int:
    """Elements that a lane makes at once: whole windows, whole words of each plane, whole bytes of each bit plane."""
    return max(WINDOW // itemsize, {PLAIN: 1, BYTES: 4, BITS: 8}[mode])


def groups(boxes: Table, itemsize: int) -> int:
    """The argument ``groups``: tiles that the largest of `boxes` needs at most, whatever the modes of its layouts."""
    if len(boxes) == 0:
        return 0
    window = WINDOW // itemsize
    unit = unit_elements(itemsize, BITS)
    counts = boxes[:, B_COUNT:]
    lead = boxes[:, B_DEST] % WINDOW // itemsize if counts.shape[1] == 1 else window - 1
    units = counts[:, :-1].prod(axis=1) * -(-(counts[:, -1] + lead) // unit)
    return int(-(-units.max() // (WINDOWS * window // unit)))


def make(target: Target, lanes: int, itemsize: int, swap: int) -> Any:
    """The body for elements of `itemsize` bytes of which every `swap` are reversed.

    It works in two passes, since the second is rare and would take registers from the first: whole units, in runs of as
    many as a row, a block and the tile allow; then the rest, element by element.
    """
    device = target.device
    total, place = make_total(target), make_place(target, U)
    layout = make_layout(target, itemsize)
    copy, blank = make_element(target, itemsize, swap, U)
    plain, planes, bits = (
        make_loops(target, itemsize, swap) if lanes == 1 else make_registers(target, lanes, itemsize, swap)
    )
    store16 = target.store16
    window = WINDOW // itemsize
    tile = WINDOWS * window
    # Elements of a unit as powers of two.
    plain_shift, bytes_shift, bits_shift = (unit_elements(itemsize, m).bit_length() - 1 for m in (PLAIN, BYTES, BITS))

    @device
    def units_of_row(boxes, box, dst_strides, axes, shift):
        """Units of each row of a box. The first may start before the row does."""
        length = boxes[box, B_COUNT + axes - 1]
        lead = boxes[box, B_DEST] & 15
        if axes > 1:
            for k in range(axes - 1):
                lead |= dst_strides[k] & 15
            lead = np.int64(0) if lead == 0 else np.int64(WINDOW - itemsize)
        return U((max(length, np.int64(0)) + lead // itemsize + (1 << shift) - 1) >> shift)

    @device
    def locate(boxes, box, src_strides, dst_strides, per_row, shift, u):
        """Where unit `u` of a box lies: its first element in the row, in the chunk, its first byte in the output."""
        axes = src_strides.size
        e, d, column = boxes[box, B_FIRST], boxes[box, B_DEST], u
        if axes > 1:
            row = U(u // per_row)
            across, down, _ = place(boxes, box, src_strides, dst_strides, axes - 1, row)
            e, d, column = e + across, d + down, U(u - row * per_row)
        first = np.int32(np.int32(column << shift) - np.int32(d & 15) // itemsize)
        return first, e + first, d + first * itemsize

    @device
    def block_of(layouts, row, e):
        """The first element of the block that holds element `e`, and its elements."""
        size, block = U(layouts[row, L_SIZE]), U(min(layouts[row, L_BLOCK], np.int64(LIMIT)))
        start = U(U(e * U(itemsize)) // block * block)
        return U(start // U(itemsize)), U(U(min(block, U(size - start))) // U(itemsize))

    @device
    def available(first, length, e, elements, d, out32):
        """Elements from a place in row, chunk and output that lie in all of them; none if the place does not."""
        if first < 0 or e < 0 or d < 0:
            return np.int64(0)
        return min(np.int64(length) - first, elements - e, (4 * np.int64(out32.size) - d) // itemsize)

    @device
    def pattern(fill, first):
        """Four bytes of the fill value, repeated, from byte `first` on."""
        value = U(0)
        for k in range(4):
            value |= U(U(fill[(first + k) % itemsize]) << U(8 * k))
        return value

    @device
    def elementwise(
        source, scratch, layouts, boxes, src_strides, dst_strides, fill, out, out32, status, box, elements, room, shift,
        u, end,
    ):  # fmt: skip
        """Units from `u` to `end` that the first pass left out."""
        axes = src_strides.size
        row = boxes[box, B_LAYOUT]
        blanks = layouts[row, L_ARENA] == FILL
        shuffled = not blanks and layouts[row, L_MODE] != PLAIN
        arena = source if layouts[row, L_ARENA] == SOURCE else scratch
        length = np.int32(boxes[box, B_COUNT + axes - 1])
        per_row = units_of_row(boxes, box, dst_strides, axes, shift)
        unit = np.int32(1 << shift)
        while u < end:
            first, e, d = locate(boxes, box, src_strides, dst_strides, per_row, shift, u)
            left = available(first, length, np.int64(0) if blanks else e, room, d, out32)
            if left >= unit and shuffled:
                start, n = block_of(layouts, row, U(e))
                left = np.int64(start) + np.int64(n) - e
            if left < unit:
                for i in range(max(first, 0) - first, min(first + unit, length) - first):
                    at = d + i * itemsize
                    if at < 0 or at > out.size - itemsize or (not blanks and (e + i < 0 or e + i >= elements)):
                        status[box] = BAD
                    elif blanks:
                        blank(fill, out, out32, at)
                    else:
                        copy(arena, layouts, row, e + i, out, out32, at)
            u = U(u + U(lanes))

    def body(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, fill,
        out, out32, status,
    ):  # fmt: skip
        box = item // groups
        axes = src_strides.size
        row = boxes[box, B_LAYOUT]
        elements = layout(source, scratch, layouts, row)
        if elements < 0:
            status[box] = BAD
            return
        blanks = layouts[row, L_ARENA] == FILL
        mode = np.int64(PLAIN) if blanks else layouts[row, L_MODE]
        shift = U(bits_shift if mode == BITS else bytes_shift if mode == BYTES else plain_shift)
        per_row = units_of_row(boxes, box, dst_strides, axes, shift)
        begin = (item - box * groups) * (tile >> shift)
        end = U(min(begin + (tile >> shift), total(boxes, box, axes - 1) * np.int64(per_row)))
        begin = U(begin + lane)
        length = np.int32(boxes[box, B_COUNT + axes - 1])
        here = layouts[row, L_ARENA] == SOURCE
        arena = source if here else scratch
        words = source32 if here else scratch32
        # Elements that the first pass may reach: those of the chunk, if it is small and whole words cover it.
        room = np.int64(LIMIT)
        if not blanks:
            covered = layouts[row, L_BASE] + layouts[row, L_SIZE] <= 4 * np.int64(words.size)
            room = elements if covered and layouts[row, L_SIZE] < LIMIT else np.int64(0)

        # The block that holds the elements from `start` on, `n` of them; kept from run to run.
        start, n = U(0), U(room) if mode == PLAIN else U(0)
        rest = False
        u = begin
        while u < end:
            first, e, d = locate(boxes, box, src_strides, dst_strides, per_row, shift, u)
            left = available(first, length, np.int64(0) if blanks else e, room, d, out32)
            if mode != PLAIN and left >= 1 << shift:
                if U(e) < start or U(e) >= start + n:
                    start, n = block_of(layouts, row, U(e))
                left = min(left, np.int64(start) + np.int64(n) - e)
            # Of the units that are left in a row, every lane makes one in turn.
            count = (min(left >> shift, np.int64(end) - np.int64(u)) + (lanes - 1)) // lanes
            if lanes > 1 and mode == BITS:
                count = min(count, np.int64(1))
            o = W(d >> 2)
            if count <= 0:
                rest = True
                count = np.int64(1)
            elif blanks:
                x, y = pattern(fill, 0), pattern(fill, 4)
                for i in range(count):
                    store16(out32, o + W(4 * lanes * i), x, y, x, y)
            elif mode == PLAIN or (mode == BITS and n & U(7) != U(0)):
                plain(arena, words, W(layouts[row, L_BASE] + e * itemsize), out32, o, count, (1 << shift) // window)
            else:
                block = W(layouts[row, L_BASE]) + W(start) * W(itemsize)
                j = U(U(e) - start)
                if mode == BYTES:
                    planes(arena, words, block + W(j), W(n), out32, o, count)
                else:
                    bits(arena, block + W(j >> U(3)), W(n >> U(3)), U(j & U(7)), out, out32, o, count)
            u = U(u + U(count * lanes))
        if rest:
            elementwise(
                source, scratch, layouts, boxes, src_strides, dst_strides, fill, out, out32, status, box, elements,
                room, shift, begin, end,
            )  # fmt: skip

    return body


@cache
def kernel(itemsize: int, swap: int = 0) -> Kernel:
    """The kernel for elements of `itemsize` bytes (1, 2, 4, 8) of which every `swap` are reversed (0 or 1: none)."""
    if itemsize not in (1, 2, 4, 8) or swap < 0 or (swap > 1 and itemsize % swap):
        raise ValueError(f"itemsize must be 1, 2, 4 or 8 and a multiple of swap, not {itemsize} and {swap}")
    return Kernel(
        f"assemble_words_{itemsize}_{swap}", partial(make, itemsize=itemsize, swap=swap), ARGUMENTS, WARP, 128
    )


KERNELS = (kernel(1), kernel(2, 2), kernel(4), kernel(8, 4))
