"""Codec x dtype x byte order x order of elements x edge chunks x format: zarr's values, and nothing falls back."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as n3
from zarr.codecs.cast_value import CastValue
from zarr.codecs.scale_offset import ScaleOffset

import zarrgpu
from tests.engines import ENGINES, device, fates, same, smooth
from zarrgpu.codecs.preference import FEWEST_STREAMS

SHAPE, CHUNKS = (13, 11), (5, 4)  # chunks at two edges are cut
INTS = ["<i1", "<u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8"]
FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
OTHERS = ["?", "<c8", ">c8", "<c16", "<M8[ns]", ">M8[s]", "<m8[ms]"]
RAW = ["|V5", "|V1"]  # of Zarr 3
ALL = [*INTS, *FLOATS, *OTHERS]
Options = dict[str, Any]


class Case(NamedTuple):
    """A way to store arrays: the arguments of `zarr.create_array` for each format, given the dtype, and its dtypes."""

    v2: Callable[[np.dtype[Any]], Options] | None
    v3: Callable[[np.dtype[Any]], Options] | None
    dtypes: list[str] = ALL


def blosc(cname: Any, shuffle: int, blocksize: int = 0) -> Case:
    names: Any = ("noshuffle", "shuffle", "bitshuffle")
    return Case(
        lambda d: {"compressors": numcodecs.Blosc(cname, 5, shuffle, blocksize)},
        lambda d: {
            "compressors": BloscCodec(
                cname=cname, clevel=5, shuffle=names[shuffle], typesize=d.itemsize, blocksize=blocksize
            )
        },
        [*ALL, *RAW],
    )


def compressor(v2: Any, v3: Any) -> Case:
    return Case(lambda d: {"compressors": v2}, lambda d: {"compressors": v3})


def filters(*v2: Callable[[str], Any], v3: Any = None, dtypes: list[str] = ALL) -> Case:
    """Filters in encoding order, and LZ4 after them; each is made for a dtype given as a string."""
    return Case(
        lambda d: {"filters": [make(d.str) for make in v2], "compressors": numcodecs.LZ4()},
        None if v3 is None else lambda d: {"filters": v3(d.str), "compressors": n3.LZ4()},
        dtypes,
    )


def compressors(*v3: Any) -> Case:
    """Codecs between bytes, in encoding order."""
    return Case(None, lambda d: {"compressors": [c(d) if callable(c) else c for c in v3]})


CASES = {
    "uncompressed": Case(lambda d: {"compressors": None}, lambda d: {"compressors": None}, [*ALL, *RAW]),
    **{f"blosc {c} {s}": blosc(c, s) for c in ("lz4", "blosclz", "zstd", "zlib") for s in (0, 1, 2)},
    "blosc lz4hc": blosc("lz4hc", 1),
    "blosc of small blocks": blosc("blosclz", 2, 64),
    "zstd": compressor(numcodecs.Zstd(3), ZstdCodec(level=3, checksum=True)),
    "gzip": compressor(numcodecs.GZip(5), GzipCodec(level=5)),
    "zlib": compressor(numcodecs.Zlib(5), n3.Zlib(level=5)),
    "lz4": compressor(numcodecs.LZ4(), n3.LZ4()),
    "bz2": compressor(numcodecs.BZ2(), n3.BZ2()),
    "crc32c": compressors(Crc32cCodec()),
    "crc32c of zstd": compressors(ZstdCodec(level=1), Crc32cCodec()),
    "crc32c of blosc": compressors(lambda d: BloscCodec(cname="lz4", typesize=d.itemsize), Crc32cCodec()),
    "blosc of crc32": compressors(n3.CRC32(), lambda d: BloscCodec(cname="lz4", typesize=d.itemsize)),
    "crc32": filters(lambda d: numcodecs.CRC32()),
    "crc32 at the end": filters(lambda d: numcodecs.CRC32(location="end")),
    "crc32c of numcodecs": filters(lambda d: numcodecs.CRC32C()),
    "adler32": filters(lambda d: numcodecs.Adler32()),
    "fletcher32": filters(lambda d: numcodecs.Fletcher32()),
    "two checksums": compressors(n3.Fletcher32(), n3.Adler32()),
    "shuffle and zlib": Case(
        lambda d: {"filters": [numcodecs.Shuffle(d.itemsize)], "compressors": numcodecs.Zlib(1)},
        lambda d: {"compressors": [n3.Shuffle(elementsize=d.itemsize), n3.Zlib(level=1)]},
    ),
    "shuffle": filters(lambda d: numcodecs.Shuffle(np.dtype(d).itemsize)),
    "shuffle and crc32": filters(lambda d: numcodecs.Shuffle(np.dtype(d).itemsize), lambda d: numcodecs.CRC32()),
    "crc32 and shuffle of one byte": filters(lambda d: numcodecs.CRC32(), lambda d: numcodecs.Shuffle(1)),
    "delta": filters(numcodecs.Delta, v3=lambda d: [n3.Delta(dtype=d)], dtypes=[*INTS, "<f4", "<f8"]),
    "delta to less": filters(lambda d: numcodecs.Delta(d, "<i1"), dtypes=["<i2", ">i4", "<i8"]),
    "delta and shuffle": filters(
        numcodecs.Delta, lambda d: numcodecs.Shuffle(np.dtype(d).itemsize), dtypes=[*INTS, "<f4"]
    ),
    "fixedscaleoffset": filters(
        lambda d: numcodecs.FixedScaleOffset(scale=10, offset=-3.5, dtype=d, astype="<i2"),
        v3=lambda d: [n3.FixedScaleOffset(scale=10, offset=-3.5, dtype=d, astype="<i2")],
        dtypes=["<f4", ">f4", "<f8", ">f8"],
    ),
    "fixedscaleoffset to ints": filters(
        lambda d: numcodecs.FixedScaleOffset(scale=2, offset=1, dtype=d, astype="<i4"), dtypes=["<i2", "<i8"]
    ),
    "quantize": filters(
        lambda d: numcodecs.Quantize(2, d), v3=lambda d: [n3.Quantize(digits=2, dtype=d)], dtypes=FLOATS
    ),
    "quantize to less": filters(lambda d: numcodecs.Quantize(2, d, ">f4"), dtypes=["<f8", ">f8"]),
    "bitround": filters(
        lambda d: numcodecs.BitRound(3), v3=lambda d: [n3.BitRound(keepbits=3)], dtypes=["<f2", "<f4", "<f8"]
    ),
    "packbits": filters(lambda d: numcodecs.PackBits(), dtypes=["?"]),
    "astype": filters(
        lambda d: numcodecs.AsType("<i2", d),
        v3=lambda d: [n3.AsType(encode_dtype="<i2", decode_dtype=d)],
        dtypes=["<i4", ">i8", "<f4", ">f8", "<u1", "?"],
    ),
    "astype of floats": filters(lambda d: numcodecs.AsType("<f4", d), dtypes=["<f2", "<f8", ">f8", "<i4"]),
    "astype and delta": filters(lambda d: numcodecs.AsType(">i2", d), lambda d: numcodecs.Delta(">i2"), dtypes=["<f4"]),
    "scale_offset": Case(
        None,
        lambda d: {"filters": [ScaleOffset(offset=0 if d.kind == "u" else 3, scale=2)]},
        ["<i2", ">i4", "<i8", "<f4", ">f8", "<u8"],
    ),
    "cast_value": Case(
        None, lambda d: {"filters": [CastValue(data_type="int16", rounding="towards-zero")]}, [">f4", "<f8", "<i4"]
    ),
    "scale_offset and cast_value": Case(
        None,
        lambda d: {
            "filters": [
                ScaleOffset(offset=-40, scale=2),
                CastValue(
                    data_type="uint8", out_of_range="clamp", scalar_map={"encode": {"NaN": 0}, "decode": {0: "NaN"}}
                ),
            ]
        },
        ["<f4", "<f8"],
    ),
    "transpose": Case(None, lambda d: {"filters": [TransposeCodec(order=(1, 0))]}),
    "order F": Case(lambda d: {"order": "F", "compressors": numcodecs.Blosc("lz4")}, None),
    "order F and delta": Case(
        lambda d: {"order": "F", "filters": [numcodecs.Delta(d.str)], "compressors": numcodecs.Zlib(1)}, None, INTS
    ),
    "scale_offset and transpose": Case(
        None, lambda d: {"filters": [ScaleOffset(offset=3, scale=2), TransposeCodec(order=(1, 0))]}, ["<i4", "<f4"]
    ),
    "transpose and delta": Case(
        None, lambda d: {"filters": [TransposeCodec(order=(1, 0)), n3.Delta(dtype=d.str)]}, ["<i4", "<u2"]
    ),
}


def values_of(dtype: np.dtype[Any], plain: bool) -> Any:
    """What is stored; `plain` values can be cast and scaled without a warning."""
    if dtype.kind == "V":
        return smooth((*SHAPE, dtype.itemsize), "u1").view(dtype)[..., 0]
    if dtype.kind in "mM":
        return smooth(SHAPE, "i8").view(dtype.newbyteorder("=")).astype(dtype)
    values = smooth(SHAPE, dtype)
    return np.abs(smooth(SHAPE, "i2") % 50).astype(dtype) if plain else values


def arrays(case: Case, dtypes: list[str], plain: bool) -> Iterator[tuple[str, zarr.Array[Any]]]:
    """Arrays stored in a way by plain zarr, in each of the formats."""
    for name, (zarr_format, options) in itertools.product(dtypes, ((2, case.v2), (3, case.v3))):
        dtype = np.dtype(name)
        if options is None or (dtype.kind == "V" and zarr_format == 2):
            continue
        values, extra = values_of(dtype, plain), options(dtype if zarr_format == 2 else dtype.newbyteorder("="))
        if zarr_format == 3:
            extra["serializer"] = BytesCodec(endian="little" if dtype.isnative else "big")
            dtype = dtype.newbyteorder("=")
        z = zarr.create_array(
            {}, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, **{"compressors": None} | extra
        )
        z[...] = (
            values.astype(dtype) if dtype.kind not in "mMV" else values.view(dtype) if dtype.kind == "V" else values
        )
        yield f"{name}, format {zarr_format}", z


def dtypes_for(engine: str, case: Case) -> list[str]:
    """The simulator runs a few of each case's dtypes, and others where it can: with the same kernels."""
    return case.dtypes if engine != "sim" else case.dtypes[1::6] or case.dtypes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_every_codec_with_every_dtype(engine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for codec in FEWEST_STREAMS:
        monkeypatch.setitem(FEWEST_STREAMS, codec, 0)  # kernels, few as the chunks are
    converts = any(word in name for word in ("offset", "astype", "cast", "delta to", "quantize"))
    with device(engine) as where, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about codecs and dtypes without a specification
        for what, z in arrays(case, dtypes_for(engine, case), converts):
            want: Any = z[...]
            zarrgpu.reset_counters()
            kind = "host" if z.dtype.kind in "mMV" else where.partition(":")[0]
            assert same(zarrgpu.read(z, device=where), want), what
            assert same(zarrgpu.read(z, np.s_[1:12:3, 2], device=where), want[1:12:3, 2]), what
            with zarrgpu.enable(where, strict=True):
                assert same(zarr.open_array(z.store, mode="r")[2:, ::2], want[2:, ::2]), what
            assert fates().keys() == {f"chunks.{kind}"}, what
