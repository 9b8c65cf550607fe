"""Arrays to read, made from a seed: each a kind of data that Zarr holds a lot of, in one way of storing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import Crc32cCodec, GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as n3

from zarrgpu.sample import Fields, blosc, spectral_field, write_sample


@dataclass(frozen=True)
class Dataset:
    """A recipe for an array.

    Attributes
    ----------
    name : str
        What it holds and how.
    codec : str
        What it exercises.
    write : callable
        ``write(store, n)``: an array of `n` chunks, or layers of chunks, along its first axis.
    small, large : int
        That `n`, for a run as a test and for a measurement without a GPU.
    huge : int
        And for one with a GPU, which needs thousands of streams.
    """

    name: str
    codec: str
    write: Callable[[Any, int], zarr.Array[Any]]
    small: int
    large: int
    huge: int


Write = Callable[[Any, int], zarr.Array[Any]]
GRID = (721, 1440)


def reanalysis(compressors: Any, zarr_format: int = 3, chunks: tuple[int, ...] = (1, *GRID), **options: Any) -> Write:
    """float32 fields of the sample, a chunk each."""

    def write(store: Any, n: int) -> zarr.Array[Any]:
        shape = (n, *GRID)
        return write_sample(store, shape, chunks, compressors=compressors, zarr_format=zarr_format, **options)

    return write


def written(store: Any, chunks: Iterable[npt.NDArray[Any]], n: int, **options: Any) -> zarr.Array[Any]:
    """An array of `n` chunks along its first axis, of which there are a few different ones."""
    few = list(chunks)
    array = zarr.create_array(
        store, shape=(n * len(few[0]), *few[0].shape[1:]), chunks=few[0].shape, fill_value=0, **options
    )
    for i in range(n):
        size = len(few[0])
        array[i * size : (i + 1) * size] = np.roll(few[i % len(few)], i // len(few), axis=1)
    return array


def big_endian(store: Any, n: int) -> zarr.Array[Any]:
    """The fields of the sample as NetCDF files of old have them: big-endian, Zarr 2."""
    fields = Fields((361, 720), seed=1)
    few = (fields[step][None] for step in range(min(n, 8)))
    return written(store, few, n, dtype=">f4", zarr_format=2, compressors=blosc(2))


def sea_temperature(seed: int) -> npt.NDArray[np.int16]:
    """``int16[1023, 2047]``: temperatures of the sea, packed; land is one value."""
    rng = np.random.default_rng((3, seed))
    noise = rng.normal(0, 3, (1023, 2047))
    values = np.rint(spectral_field((1023, 2047), rng) * 900 + noise).astype("i2")
    values[spectral_field((1023, 2047), rng) > 0.45] = -32768
    return values


def packed(compressors: Any, filters: Any = None, dtype: str = "i2") -> Write:
    """Temperatures of the sea as HDF5 files have them, in Zarr 2."""

    def write(store: Any, n: int) -> zarr.Array[Any]:
        few = [sea_temperature(seed)[None].astype(dtype) for seed in range(min(n, 4))]
        return written(store, few, n, dtype=dtype, zarr_format=2, filters=filters, compressors=compressors)

    return write


def volume(seed: int, side: int = 128) -> npt.NDArray[np.uint16]:
    """``uint16[side, side, 4 * side]``: photon counts with camera noise."""
    rng = np.random.default_rng((2, seed))
    light = np.exp(spectral_field((side, 4 * side), rng))
    counts = rng.poisson(light, (side, side, 4 * side)) + rng.normal(0, 2, (side, side, 4 * side))
    return np.clip(100 + counts, 0, 65535).astype("u2")


def micrograph(side: int, compressors: Any) -> Write:
    """Volumes in cubes of `side`, four of them side by side."""

    def write(store: Any, n: int) -> zarr.Array[Any]:
        array = zarr.create_array(
            store, shape=(n * side, side, 4 * side), chunks=(side,) * 3, dtype="u2", compressors=compressors
        )
        volumes = [volume(seed, side) for seed in range(min(n, 4))]
        for i in range(n):
            array[i * side : (i + 1) * side] = np.roll(volumes[i % 4], i // 4, axis=1)
        return array

    return write


def mask(store: Any, n: int) -> zarr.Array[Any]:
    """Booleans, packed."""
    few = [spectral_field(GRID, np.random.default_rng((4, seed)))[None] > 0.2 for seed in range(min(n, 4))]
    return written(store, few, n, dtype="?", zarr_format=2, filters=[numcodecs.PackBits()], compressors=numcodecs.LZ4())


def u2(shuffle: str, cname: str = "lz4") -> Any:
    """Blosc for uint16."""
    return blosc(3, shuffle, itemsize=2, cname=cname)


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("f4 fields, lz4, shuffle", "blosc lz4", reanalysis(blosc()), 1, 16, 256),
        Dataset("f4 fields, lz4, bitshuffle", "blosc lz4", reanalysis(blosc(3, "bitshuffle")), 1, 16, 256),
        Dataset("f4 fields, uncompressed", "none", reanalysis(None), 1, 16, 128),
        Dataset("f4 big-endian fields, lz4, shuffle, v2", "blosc lz4", big_endian, 2, 32, 256),
        Dataset("u2 cubes of 128, lz4, shuffle", "blosc lz4", micrograph(128, u2("shuffle")), 1, 2, 32),
        Dataset("u2 cubes of 32, lz4, bitshuffle", "blosc lz4", micrograph(32, u2("bitshuffle")), 1, 64, 1024),
        Dataset("f4 fields, blosclz, shuffle", "blosc blosclz", reanalysis(blosc(cname="blosclz")), 1, 16, 128),
        Dataset("f4 fields, blosc zstd, shuffle", "blosc zstd", reanalysis(blosc(cname="zstd")), 1, 16, 128),
        Dataset("f4 fields, blosc zlib, shuffle", "blosc zlib", reanalysis(blosc(cname="zlib")), 1, 8, 128),
        Dataset(
            "u2 cubes of 128, blosc zstd, bitshuffle", "blosc zstd", micrograph(128, u2("bitshuffle", "zstd")), 1, 2, 32
        ),
        Dataset("f4 fields, zstd", "zstd", reanalysis(ZstdCodec(level=3)), 1, 16, 128),
        Dataset("u2 cubes of 32, zstd", "zstd", micrograph(32, ZstdCodec(level=3)), 1, 64, 1024),
        Dataset("f4 fields, gzip", "gzip", reanalysis(GzipCodec(level=1)), 1, 8, 64),
        Dataset("f4 fields, lz4 frames", "lz4", reanalysis(n3.LZ4()), 1, 16, 128),
        Dataset("u2 cubes of 32, lz4 frames", "lz4", micrograph(32, n3.LZ4()), 1, 64, 1024),
        Dataset("i2 packed, shuffle + zlib, v2", "zlib", packed(numcodecs.Zlib(6), [numcodecs.Shuffle(2)]), 1, 8, 128),
        Dataset(
            "i2 packed, shuffle + zlib + fletcher32, v2",
            "zlib",
            packed(numcodecs.Fletcher32(), [numcodecs.Shuffle(2), numcodecs.Zlib(1)]),
            1,
            8,
            64,
        ),
        Dataset("f4 fields, lz4 + crc32c", "crc32c", reanalysis([blosc(), Crc32cCodec()]), 1, 16, 128),
        Dataset("f4 fields, uncompressed + crc32", "crc32", reanalysis(n3.CRC32()), 1, 16, 128),
        Dataset("f4 fields, uncompressed + adler32", "adler32", reanalysis(n3.Adler32()), 1, 16, 128),
        Dataset("f4 fields, uncompressed + fletcher32", "fletcher32", reanalysis(n3.Fletcher32()), 1, 16, 128),
        Dataset(
            "i4 packed, delta + blosc lz4, v2", "delta", packed(blosc(2), [numcodecs.Delta("<i4")], "i4"), 1, 8, 128
        ),
        Dataset(
            "f4 fields as u2, fixedscaleoffset + blosc lz4",
            "fixedscaleoffset",
            reanalysis(u2("shuffle"), filters=n3.FixedScaleOffset(scale=10.0, offset=273.0, dtype="<f4", astype="<u2")),
            1,
            16,
            128,
        ),
        Dataset("bool, packbits + lz4, v2", "packbits", mask, 1, 16, 256),
        Dataset("f4 fields in Fortran order, blosc lz4, v2", "order F", reanalysis(blosc(2), 2, order="F"), 1, 16, 128),
    )
}
