"""assemble, and a conversion of each value on the way: from the elements that a filter stored to those of the output.

The arguments are those of `zarrgpu.kernels.assemble`, also where boxes are indexed, and one more behind them:

===============  ============================================================================================
``boxes``        ``B_FIRST`` counts decoded elements of the chunk
``src_strides``  int64[nd]: decoded elements in the chunk for a step of a box along each axis, any sign
``fill``         uint8[]: the fill value as the output stores it: not converted, not swapped
``status``       int32[b]: zeros; written where a box failed
``parameters``   uint64[]: `Conversion.parameters`, see `zarrgpu.kernels.values`
===============  ============================================================================================

Elements of the chunk have the conversion's source dtype, those of the output its target dtype; either may be stored in
the other byte order: `swap` and `out_swap`. A value that the conversion refuses is skipped and its box called
BAD_VALUE; where a box has that fault and BAD_TABLE, as in `zarrgpu.kernels.assemble`, its status is either. Only what
the box holds is looked at.

Of `zarrgpu.kernels.values.bits` the chunk's elements are bytes, and its decoded elements are counted in the parameters:
a box whose chunk does not have the bytes for as many gets BAD_TABLE, one whose header says otherwise BAD_HEADER, and
nothing of it is written.

Grid: one thread an item, which is `group` consecutive elements of a box; blocks of 256, no shared memory. Limits: none
but int64.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import Kernel, Target
from zarrgpu.kernels import assemble, values
from zarrgpu.kernels.boxes import Table, element_groups
from zarrgpu.kernels.convert import make_convert, word_of
from zarrgpu.kernels.elements import make_bytes
from zarrgpu.kernels.tables import (
    FILL,
    L_ARENA,
    L_BASE,
    L_MODE,
    L_SIZE,
    PLAIN,
    SOURCE,
    Status,
)
from zarrgpu.kernels.values import Conversion

U = np.uint32
W = np.uint64
OK, BAD = int(Status.OK), int(Status.BAD_TABLE)
BAD_VALUE, BAD_HEADER = int(Status.BAD_VALUE), int(Status.BAD_HEADER)

_parameters = types.Array(types.uint64, 1, "C")
ARGUMENTS, INDEXED_ARGUMENTS = (*assemble.ARGUMENTS, _parameters), (*assemble.INDEXED_ARGUMENTS, _parameters)


def reference(
    conversion: Conversion,
    arenas: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    layouts: Table,
    boxes: Table,
    src_strides: Table,
    dst_strides: Table,
    fill: npt.NDArray[np.uint8],
    swaps: tuple[int, int],
    out: npt.NDArray[np.uint8],
    gather: Table | None = None,
) -> None:
    """The reference for good tables and values: whole chunks are converted, then assembled; `swaps` as for `kernel`."""
    converted, decoded, end = [], layouts.copy(), 0
    for row, (arena, base, size, block, kind, mode) in enumerate(layouts.tolist()):
        if arena != FILL:
            chunk = arenas[arena][base : base + size]
            if mode != PLAIN:
                pieces = [chunk[k : k + block] for k in range(0, size, block)]
                chunk = np.concatenate([assemble.unshuffled(piece, kind, mode) for piece in pieces])
            itemsize = conversion.source.itemsize
            stored = chunk[: size // itemsize * itemsize].copy().view(conversion.source)
            value = conversion.reference(stored.byteswap() if swaps[0] > 1 else stored)
            converted.append((value.byteswap() if swaps[1] > 1 else value).view(np.uint8))
            decoded[row, [L_ARENA, L_BASE, L_SIZE, L_MODE]] = SOURCE, end, converted[-1].size, PLAIN
            end += converted[-1].size
    source = np.concatenate([np.zeros(0, np.uint8), *converted])
    assemble.reference((source, source), decoded, boxes, src_strides, dst_strides, fill, 0, out, gather)


def group(conversion: Conversion) -> int:
    """Elements of a work item: 16 bytes of them, decoded or stored."""
    return 16 // max(conversion.source.itemsize, conversion.target.itemsize)


def groups(boxes: Table, conversion: Conversion, indexed: bool = False) -> int:
    """The argument ``groups``: work items that the largest of `boxes` needs."""
    return element_groups(boxes, group(conversion), indexed)


def make_fetch(target: Target, conversion: Conversion, swap: int) -> Any:
    """Device function ``fetch(arena, layouts, row, e)``: the bits of element `e` of the chunk in line `row`."""
    itemsize, word = conversion.source.itemsize, word_of(conversion.source)
    origin, locate, scattered = make_bytes(target, itemsize, swap)

    @target.device
    def fetch(arena, layouts, row, e):
        chunk, p, first, step = locate(layouts, row, e)
        value = word(0)
        for k in range(itemsize):
            if step == W(0):
                byte = scattered(arena, chunk, W(p + origin(k)))
            else:
                byte = U(arena[first + origin(k) * step])
            value |= word(word(byte) << word(8 * k))
        return value

    return fetch


def make_store(target: Target, dtype: values.DType, out_swap: int) -> Any:
    """Device function ``store(value, out, out32, d)``: a value's bits at byte `d` of the output, which has room."""
    itemsize, word, permute = dtype.itemsize, word_of(dtype), target.permute

    @target.device
    def half(value, k):
        """Four of its bytes, or as many as there are, as the output has them from byte ``4 * k`` on."""
        shift = itemsize - 4 - 4 * k if out_swap > 1 and itemsize == 8 else 4 * k
        part = U(word(value >> word(8 * shift)) & word(0xFFFFFFFF))
        if out_swap > 1:
            part = U(permute(part, U(0), U(0x0123 if itemsize >= 4 else 0x4401)))
        return part

    @target.device
    def store(value, out, out32, d):
        if itemsize >= 4 and d % 4 == 0 and d + itemsize <= 4 * out32.size:
            for k in range(itemsize // 4):
                out32[W((d >> 2) + k)] = half(value, k)
        else:
            for k in range(itemsize):
                out[W(d + k)] = np.uint8(U(half(value, k >> 2) >> U(8 * (k & 3))) & U(255))

    return store


def make_layout(target: Target, conversion: Conversion, fetch: Any) -> Any:
    """Device function ``layout(arenas, layouts, row, parameters) -> (elements, status)`` of a chunk."""
    stored = assemble.make_layout(target, conversion.source.itemsize)
    is_bits = conversion.operation == "bits"

    @target.device
    def layout(arenas, layouts, row, parameters):
        source, scratch = arenas
        elements = stored(source, scratch, layouts, row)
        if elements < 0:
            return elements, BAD
        if is_bits and layouts[row, L_ARENA] != FILL:
            count = np.int64(parameters[0])
            if count < 0 or elements != 1 + (count + 7) // 8:
                return elements, BAD
            if np.int64(fetch(source if layouts[row, L_ARENA] == SOURCE else scratch, layouts, row, 0)) != -count & 7:
                return elements, BAD_HEADER
            return count, OK
        return elements, OK

    return layout


def make(target: Target, lanes: int, conversion: Conversion, swap: int, out_swap: int, indexed: bool) -> Any:
    """The body for a conversion, its numbers apart."""
    fetch, store = make_fetch(target, conversion, swap), make_store(target, conversion.target, out_swap)
    convert, layout = make_convert(target, conversion), make_layout(target, conversion, fetch)
    is_bits = conversion.operation == "bits"

    @target.device
    def cut(arena, layouts, row, e):
        """What is stored of decoded element `e`."""
        if is_bits:
            byte = fetch(arena, layouts, row, 1 + (e >> 3))
            return U(U(byte >> U(7 - (e & 7))) & U(1))
        return fetch(arena, layouts, row, e)

    @target.device
    def write(arena, layouts, row, e, out, out32, d, parameters):
        value, good = convert(cut(arena, layouts, row, e), parameters)
        if not good:
            return BAD_VALUE
        store(value, out, out32, d)
        return OK

    share = assemble.make_body(target, conversion.target.itemsize, group(conversion), layout, write, indexed)

    def strided(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, fill,
        out, out32, status, parameters,
    ):  # fmt: skip
        steps = src_strides, dst_strides
        share(item, groups, (source, scratch), layouts, boxes, steps, fill, out, out32, status, parameters)

    def by_index(
        lane, item, groups, source, source32, scratch, scratch32, layouts, boxes, src_strides, dst_strides, gather,
        fill, out, out32, status, parameters,
    ):  # fmt: skip
        steps = src_strides, dst_strides, gather
        share(item, groups, (source, scratch), layouts, boxes, steps, fill, out, out32, status, parameters)

    return by_index if indexed else strided


@cache
def _kernel(conversion: Conversion, swap: int, out_swap: int, indexed: bool) -> Kernel:
    name = f"assemble{'_indexed' if indexed else ''}_{conversion.name}_{swap}_{out_swap}"
    make_it = partial(make, conversion=conversion, swap=swap, out_swap=out_swap, indexed=indexed)
    return Kernel(name, make_it, INDEXED_ARGUMENTS if indexed else ARGUMENTS)


def kernel(conversion: Conversion, swap: int = 0, out_swap: int = 0, indexed: bool = False) -> Kernel:
    """The kernel for all conversions like this one, whatever their numbers.

    `swap` is how many bytes of a stored element are reversed together, the item size or none (0 or 1), `out_swap` the
    same of the output's.
    """
    swaps = []
    for n, dtype in ((swap, conversion.source), (out_swap, conversion.target)):
        if n not in (0, 1, dtype.itemsize):
            raise ValueError(f"{n} bytes of a {dtype} cannot be reversed together")
        swaps.append(n if n > 1 else 0)
    return _kernel(replace(conversion, numbers=()), *swaps, indexed)


def _examples() -> tuple[Kernel, ...]:
    i2, f2, f4, f8, i8, u1 = (np.dtype(d) for d in ("i2", "f2", "f4", "f8", "i8", "u1"))
    chosen = (
        (values.cast(f4, f8), 4, 0),
        (values.cast(i8, f2), 0, 0),
        (values.divide_add(i2, 0.5, 1.5, f4), 2, 4),
        (values.divide_add(f2, 0.5, 1.5, f2), 0, 0),
        (values.scale_offset(i8, 2, 3), 0, 8),
        (values.cast_value(f8, i8, "nearest-even", None, {"NaN": 0}), 0, 0),
        (values.cast_value(i8, f4, "nearest-away", "clamp"), 0, 0),
        (values.cast_value(f4, f2, "towards-zero"), 0, 0),
        (values.cast_value(f4, u1, "nearest-even", "clamp"), 0, 0),
        (values.bits(8), 0, 0),
    )
    kernels = [kernel(c, swap, out_swap) for c, swap, out_swap in chosen if c is not None]
    indexed = [kernel(c, swap, out_swap, True) for c, swap, out_swap in chosen[4::2] if c is not None]
    return (*kernels, *indexed)


KERNELS = _examples()
