"""Many buffers that one codec of numcodecs encoded, decoded at once: groups of equal size -> requests -> arrays.

A buffer whose header or size tells what it decodes to is a chunk of a request. Others are decoded by the codec's
library first, on host threads, and what that gives travels as a chunk that is not encoded any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numcodecs.compat import ensure_ndarray

from zarrgpu import libraries, wave
from zarrgpu._read import writable
from zarrgpu._threads import on_all_cores
from zarrgpu.chain import Chain, Named, bind, is_plain
from zarrgpu.codecs import STAGES, Refused, Spec, Stage, Transform, Values
from zarrgpu.codecs.library import as_bytes
from zarrgpu.engine import resolve
from zarrgpu.engine.base import ALIGN, Array, Engine
from zarrgpu.errors import ChunkError
from zarrgpu.fetch import Buffers
from zarrgpu.kernels import tables as t
from zarrgpu.plan import Plan
from zarrgpu.request import Request

Bytes = npt.NDArray[np.uint8]
BYTE = np.dtype(np.uint8)

RATIO = 256
"""A buffer that says it holds more bytes for each of its own is not believed, and left to the library: no arena of
that size is made. LZ4 and BloscLZ cannot do it."""

SHAPED = frozenset({"astype", "bitround", "quantize"})
"""Filters that give what they decode the shape of what they are given."""


class Item(NamedTuple):
    """A buffer of a batch.

    Attributes
    ----------
    number : int
        Its place in the batch.
    data : uint8[n]
        What it holds.
    dtype, shape, order
        Of what it decodes to; the shape is -1 where the size decides.
    engine : Engine
        Where to decode.
    out : Array or None
        An array of the engine to fill.
    """

    number: int
    data: Bytes
    dtype: np.dtype[Any]
    shape: int | tuple[int, ...]
    order: Literal["C", "F"]
    engine: Engine
    out: Array | None


def decode(library: Any, buffers: Sequence[Any], engine: Engine, outs: Sequence[Any | None]) -> list[Any]:
    """Decode buffers.

    Parameters
    ----------
    library : numcodecs codec
        Of a class of numcodecs' own.
    buffers : sequence of buffers
        In host or device memory.
    engine : Engine
        Where to decode those without an `out`.
    outs : sequence of writable buffer or None
        One for each; its memory decides where the buffer is decoded.

    Returns
    -------
    list
        For each buffer its `out`, or a new array.

    Raises
    ------
    ChunkError
        For a buffer that numcodecs refuses too.
    ValueError
        For an `out` of another size, or one that cannot be written.
    """
    codec = library.codec_id
    stage = STAGES[codec].from_config(library.get_config(), Spec(None, library=library))
    known: list[tuple[Item, int]] = []
    unknown: list[Item] = []
    for i, (buffer, out) in enumerate(zip(buffers, outs, strict=True)):
        item = _item(stage, i, buffer, engine, out)
        n = stage.decoded_nbytes(item.data) if is_plain(item.dtype) else None
        if n and n <= RATIO * item.data.size and n % item.dtype.itemsize == 0:
            known.append((item, n))
        else:
            unknown.append(item)
    decoded = [(item, item.data.size) for item in _by_library(library, stage, unknown)]
    groups: dict[Any, list[Item]] = {}
    for encoded, items in ((True, known), (False, decoded)):
        for item, n in items:
            if item.out is not None and item.out.nbytes != n:
                raise ValueError(f"buffer {item.number} decodes to {n} bytes, out has {item.out.nbytes}")
            element = _element(stage if encoded else None, item, n)
            groups.setdefault((item.engine.name, encoded, n, element), []).append(item)
    results: list[Any] = list(outs)
    for (_, encoded, n, element), group in groups.items():
        for item, part in zip(group, _run(library if encoded else None, codec, group, n, element), strict=True):
            if item.out is None:
                typed = part if element == item.dtype else part.view(item.dtype)
                results[item.number] = typed.reshape(item.shape, order=item.order)
    return results


def to_host(buffer: Any) -> npt.NDArray[Any]:
    """A buffer as a NumPy array; a copy where it is in device memory."""
    if hasattr(buffer, "__cuda_array_interface__"):
        import cupy

        array: npt.NDArray[Any] = cupy.asarray(buffer).get(order="A")
    else:
        array = ensure_ndarray(buffer)
    if array.dtype == object:
        raise TypeError("object arrays are not supported")
    return array


def _item(stage: Stage, index: int, buffer: Any, engine: Engine, out: Any) -> Item:
    """What is to be decoded, to what, and where."""
    array = to_host(buffer)
    dtype = (stage.target if isinstance(stage, Transform) else None) or BYTE
    shape: int | tuple[int, ...] = -1
    if stage.name in SHAPED:
        try:
            if isinstance(stage, Values):
                array = array.view(stage.source)
            else:  # bitround: floats of the buffer's own width
                dtype = np.dtype(array.dtype.str.replace("i", "f"))
                array = array.view(dtype)
        except (TypeError, ValueError) as error:
            raise ChunkError("buffer", str(index), stage.name, f"refused ({error})") from error
        shape = array.shape
    if out is not None:
        engine, out = _adopt(out, dtype, engine)
    elif not engine.supports(dtype.newbyteorder("=")):
        engine = resolve("host")
    return Item(index, as_bytes(array), dtype, shape, "F" if _is_fortran(array) else "C", engine, out)


def _adopt(out: Any, dtype: np.dtype[Any], engine: Engine) -> tuple[Engine, Array]:
    """The engine whose memory `out` is in, and `out` as an array of it, in C order where it is in any."""
    if hasattr(out, "__cuda_array_interface__"):
        import cupy

        array = cupy.asarray(out)
        engine = engine if engine.owns(array) else resolve(f"cuda:{array.device.id}")
        if not engine.supports(dtype.newbyteorder("=")):
            raise TypeError(f"a GPU has no elements of dtype {dtype}: out must be in host memory")
    else:
        engine, array = resolve("host"), to_host(out)
        if not array.flags.writeable:
            raise ValueError("out is read-only")
    return engine, array.T if _is_fortran(array) else array


def _is_fortran(array: Array) -> bool:
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def _by_library(library: Any, stage: Stage, items: Sequence[Item]) -> list[Item]:
    """The items, decoded by the stage's library on host threads."""

    def one(item: Item) -> Item:
        try:
            return item._replace(data=as_bytes(stage.decode(item.data)))
        except Refused as refused:
            status = refused.status
        except Exception:  # the last word is numcodecs', which says why
            status = t.Status.REFUSED
        name = "buffer", str(item.number)
        decoded = libraries.by_cpu(library.decode, item.data.tobytes(), (status, stage.name), name)
        return item._replace(data=as_bytes(decoded))

    return on_all_cores(one, items)


def _element(stage: Stage | None, item: Item, n: int) -> np.dtype[Any]:
    """The elements by which to assemble `n` bytes: the item's own, or, of mere bytes, those that `stage` shuffles."""
    if not is_plain(item.dtype):
        return BYTE
    width = stage.itemsize(item.data) if stage is not None and item.dtype == BYTE else 1
    return np.dtype(f"u{width}") if width in (2, 4, 8) and n % width == 0 else item.dtype


def _run(library: Any, codec: str, group: Sequence[Item], n: int, element: np.dtype[Any]) -> list[Array]:
    """Decode items of `n` bytes of `element` each; those of a `library` of None are decoded already.

    Returns
    -------
    list of Array
        What each decodes to: parts of one array of the engine, which are copied into the items' `out` too.
    """
    engine, k, itemsize = group[0].engine, len(group), element.itemsize
    if n == 0:
        return [engine.empty((0,), element) for _ in group]
    whole = math.lcm(ALIGN, itemsize)
    step = -(-n // whole) * whole
    only = group[0].out if k == 1 else None
    target = None if only is None else writable(engine, only)
    if target is None:
        flat = engine.empty((k * step // itemsize,), element)
    else:
        flat = _bytes(engine, target).view(engine.empty((0,), element).dtype)  # in native order on a device
    codecs = () if library is None else (Named(codec, library.get_config(), library=library),)
    request = Request(
        program=bind(Chain(element, (n // itemsize,), "C", codecs), engine.by_library),
        plan=Plan.line(k, n // itemsize, itemsize, step),
        source=Buffers([item.data for item in group]),
        engine=engine,
        chunk_shape=(n // itemsize,),
        out=flat,
        fill=np.zeros(itemsize, np.uint8),
        decode_on_cpu=lambda encoded: as_bytes(library.decode(encoded)).view(element),
        name=lambda i: ("buffer", str(group[i].number)),
    )
    wave.run(request)
    if target is not None:
        if target is not only:
            engine.assign(only, target)
        return [flat]
    parts = [flat[i * step // itemsize :][: n // itemsize] for i in range(k)]
    for item, part in zip(group, parts, strict=True):
        if item.out is not None:
            target = writable(engine, item.out)
            engine.assign(_bytes(engine, target), part.view(np.uint8))
            if target is not item.out:
                engine.assign(item.out, target)
    return parts


def _bytes(engine: Engine, target: Array) -> Array:
    """A `writable` array as bytes."""
    flat = engine.flat(target)
    assert flat is not None
    return flat[0]
