"""Arrays and selections for hypothesis: everything that zarr can store of plain numbers, and every way to index it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as n3

from tests.engines import smooth

DTYPES = ["?", "i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]
DTYPES += ["<M8[s]", ">m8[ns]", "S3", "<U2", "V5"]
SIDE = 9

Draw = st.DrawFn


def blosc(draw: Draw, zarr_format: int, itemsize: int) -> Any:
    """Any Blosc that our kernels know, and some that only libraries do."""
    cname, shuffle = draw(st.sampled_from(["lz4", "blosclz", "zstd", "zlib"])), draw(st.integers(0, 2))
    if zarr_format == 2:
        return numcodecs.Blosc(cname, 5, shuffle)
    names = ("noshuffle", "shuffle", "bitshuffle")
    config: Any = {"cname": cname, "shuffle": names[shuffle]}
    return BloscCodec(clevel=5, typesize=itemsize, **config)


def compressors(draw: Draw, dtype: np.dtype[Any]) -> list[Any]:
    """Codecs of Zarr 3 between bytes: none, a compressor, a checksum of either."""
    kind = draw(st.sampled_from(["none", "blosc", "zstd", "gzip", "lz4"]), label="compressor")
    found: Any = {"none": [], "zstd": [ZstdCodec(level=1)], "gzip": [GzipCodec(level=1)], "lz4": [n3.LZ4()]}
    codecs = [blosc(draw, 3, dtype.itemsize)] if kind == "blosc" else found[kind]
    return [*codecs, *([Crc32cCodec()] if draw(st.booleans(), label="crc32c") else [])]


def transposes(draw: Draw, ndim: int) -> list[Any]:
    """A transpose, or none."""
    if ndim < 2 or not draw(st.booleans(), label="transpose"):
        return []
    return [TransposeCodec(order=tuple(draw(st.permutations(range(ndim)))))]


def inner(draw: Draw, dtype: np.dtype[Any], chunk: tuple[int, ...], depth: int) -> list[Any]:
    """The codecs of a shard's inner chunks of this shape: maybe shards again."""
    outside = transposes(draw, len(chunk))
    if depth:
        return [*outside, sharding(draw, dtype, chunk, outside, depth - 1)]
    endian: Any = draw(st.sampled_from(["little", "big"]))
    return [*outside, BytesCodec(endian=endian), *compressors(draw, dtype)]


def sharding(draw: Draw, dtype: np.dtype[Any], shard: tuple[int, ...], outside: list[Any], depth: int) -> ShardingCodec:
    """A sharding codec for shards of this shape, which are transposed `outside` of it."""
    inside = [shard[k] for k in outside[0].order] if outside else shard
    both = [math.gcd(*sizes) for sizes in zip(shard, inside, strict=True)]  # zarr's validation forgets the transpose
    chunk = tuple(draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0])) for n in both)
    endian: Any = draw(st.sampled_from(["little", "big"]))
    index: list[Any] = [BytesCodec(endian=endian)]
    index += [Crc32cCodec()] if draw(st.booleans()) else []
    where: Any = draw(st.sampled_from(["start", "end"]), label="index")
    codecs = inner(draw, dtype, chunk, depth)
    return ShardingCodec(chunk_shape=chunk, codecs=codecs, index_codecs=index, index_location=where)


@st.composite
def shapes(draw: Draw) -> tuple[int, ...]:
    """From 0-d to 3-d, seldom with an axis of no length."""
    return tuple(
        draw(st.lists(st.integers(0, SIDE) if draw(st.integers(0, 7)) == 0 else st.integers(1, SIDE), max_size=3))
    )


def options(draw: Draw, shape: tuple[int, ...], dtype: np.dtype[Any], zarr_format: int) -> dict[str, Any]:
    """Arguments of `zarr.create_array`: chunks and codecs."""
    ndim, chunks = len(shape), tuple(draw(st.integers(1, SIDE - 1), label="chunk") for _ in shape)
    if zarr_format == 2:
        kind = draw(st.sampled_from([None, "blosc", "zstd", "zlib", "lz4", "delta"]), label="codecs")
        one: Any = {
            "zstd": numcodecs.Zstd(1),
            "zlib": numcodecs.Zlib(1),
            "lz4": numcodecs.LZ4(),
            "delta": numcodecs.LZ4(),
        }
        delta = kind == "delta" and dtype.kind in "iu"
        return {
            "chunks": chunks,
            "filters": [numcodecs.Delta(dtype.str)] if delta else None,
            "compressors": blosc(draw, 2, dtype.itemsize) if kind == "blosc" else one.get(kind),
            "order": draw(st.sampled_from("CF"), label="order"),
        }
    if ndim and draw(st.integers(0, 1), label="sharded"):
        outside = transposes(draw, ndim)
        depth = draw(st.integers(0, 1), label="nested")
        return {
            "chunks": chunks,
            "filters": outside,
            "serializer": sharding(draw, dtype, chunks, outside, depth),
            "compressors": None,
        }
    if ndim and 0 not in shape and draw(st.integers(0, 5), label="rectilinear") == 0:
        chunks = [list(draw(edges(n))) for n in shape]  # type: ignore[assignment]  # what zarr takes
    endian: Any = draw(st.sampled_from(["little", "big"]))
    return {
        "chunks": chunks,
        "filters": transposes(draw, ndim),
        "serializer": BytesCodec(endian=endian),
        "compressors": compressors(draw, dtype),
    }


@st.composite
def edges(draw: Draw, n: int) -> list[int]:
    """Lengths of chunks along an axis of length `n`."""
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=3))) if n > 1 else []
    return [b - a for a, b in itertools.pairwise([0, *cuts, n])]


def fill_of(draw: Draw, dtype: np.dtype[Any]) -> Any:
    """A fill value, not always one of zeros."""
    if not draw(st.booleans(), label="filled") or dtype.kind in "SUV":
        return None
    if dtype.kind in "fc" and draw(st.booleans()):
        return np.nan
    return np.array(7 if dtype.kind != "b" else 1).astype(dtype.newbyteorder("="))[()]


def some(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> npt.NDArray[Any]:
    """Values of any of the dtypes."""
    native = dtype.newbyteorder("=")
    if dtype.kind in "mM":
        return smooth(shape, "i8", seed).view(native)
    if dtype.kind in "SU":
        return smooth(shape, "u1", seed).astype(native)
    if dtype.kind == "V":
        return smooth((*shape, dtype.itemsize), "u1", seed).view(dtype)[..., 0]
    return smooth(shape, native, seed)


@st.composite
def stored(draw: Draw) -> zarr.Array[Any]:
    """An array, written by plain zarr into a dict, of which some chunks and some inner chunks are missing."""
    zarr_format = draw(st.sampled_from([2, 3, 3]), label="format")
    dtype = np.dtype(
        draw(st.sampled_from(DTYPES if zarr_format == 3 else [d for d in DTYPES if d != "V5"]), label="dtype")
    )
    if zarr_format == 3:
        dtype = dtype.newbyteorder("=")
    shape = draw(shapes(), label="shape")
    z = zarr.create_array(
        {},
        shape=shape,
        dtype=dtype,
        zarr_format=zarr_format,  # type: ignore[arg-type]  # 2 or 3
        fill_value=fill_of(draw, dtype),
        **options(draw, shape, dtype, zarr_format),
    )
    for seed in range(draw(st.integers(0, 3), label="writes")):
        box = tuple(slice(*sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)
        z[box] = some(tuple(b.stop - b.start for b in box), dtype, seed)
    return z


# Selections: what is indexed, as the name of an attribute of an array ("" is the array itself), and by what.


def ints(n: int) -> st.SearchStrategy[Any]:
    """An int for an axis, seldom out of range."""
    inside = st.integers(-n, n - 1) if n else st.integers(-1, 1)
    return st.one_of(inside, inside, inside.map(np.int64), inside, st.integers(-n - 2, n + 2))


def slices(n: int) -> st.SearchStrategy[slice]:
    """A slice for an axis, seldom of a step that zarr refuses."""
    ends = st.none() | st.integers(-n - 2, n + 2)
    steps = st.none() | st.integers(1, n + 1)
    return st.builds(slice, ends, ends, st.one_of(steps, steps, steps, st.sampled_from([-1, 0, 2])))


def index_arrays(n: int, size: int | None = None) -> st.SearchStrategy[Any]:
    """Ints for an axis, in any order and repeated, as an array or a list, seldom out of range."""
    low, high = (0, 0) if size is None else (size, size)
    inside = (
        st.lists(st.integers(-n, n - 1) if n else st.nothing(), min_size=low, max_size=high or 6) if n else st.just([])
    )
    outside = st.lists(st.integers(-n - 1, n), min_size=max(low, 1), max_size=high or 3)
    array = inside.map(lambda values: np.array(values, np.int64))
    return st.one_of(array, array, inside, array, outside)


def masks(shape: tuple[int, ...]) -> st.SearchStrategy[npt.NDArray[np.bool_]]:
    """Some elements of an array."""
    n = int(np.prod(shape, dtype=np.int64))
    kinds = st.integers(0, 5)
    return st.tuples(kinds, st.integers(0, 1 << 30)).map(
        lambda drawn: (np.random.default_rng(drawn[1]).random(n) < drawn[0] / 5).reshape(shape)
    )


def shortened(draw: Draw, items: list[Any]) -> Any:
    """The same items, some of them replaced by an ellipsis or left away, a single one maybe without its tuple."""
    if draw(st.integers(0, 3)) == 0:
        first = draw(st.integers(0, len(items)))
        items = [*items[:first], ..., *items[draw(st.integers(first, len(items))) :]]
    elif draw(st.integers(0, 3)) == 0:
        items = items[: draw(st.integers(0, len(items)))]
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@st.composite
def selections(draw: Draw, z: zarr.Array[Any]) -> tuple[str, Any]:
    """Any way to index an array."""
    shape = z.shape
    kind = draw(
        st.sampled_from(["basic", "basic", "oindex", "oindex", "vindex", "mask", "blocks", "fancy", "odd"]),
        label="kind",
    )
    if kind == "basic":
        return "", shortened(draw, [draw(ints(n) | slices(n)) for n in shape])
    if kind == "oindex":
        axis = [st.one_of(index_arrays(n), masks((n,)), slices(n), ints(n)) for n in shape]
        return "oindex", shortened(draw, [draw(a) for a in axis])
    if kind == "mask":
        return draw(st.sampled_from(["", "vindex", "oindex"])), draw(masks(shape))
    if kind == "blocks":
        counts = z.cdata_shape
        return "blocks", shortened(draw, [draw(ints(n) | slices(n)) for n in counts])
    if kind == "odd":
        return draw(st.sampled_from(["", "oindex", "vindex"])), draw(
            st.sampled_from([None, 1.5, "field", (0,) * 4, ([],), True])
        )
    size = draw(st.integers(1, 5))
    arrays = [draw(index_arrays(n, size)) for n in shape]
    if kind == "vindex":
        if len(arrays) == 2 and draw(st.booleans()):  # shapes that are broadcast
            arrays[0] = np.asarray(arrays[0]).reshape(-1, 1)
        return "vindex", tuple(arrays)
    which = draw(st.integers(0, max(0, len(shape) - 1)))
    mixed = draw(st.booleans())  # an array and slices, or arrays only
    return "", tuple(
        a if not mixed or k == which else draw(slices(n)) for k, (a, n) in enumerate(zip(arrays, shape, strict=True))
    )
