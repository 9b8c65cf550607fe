"""Six kinds of data, stored as their archives store them: what ``python -m benchmarks`` compares all systems on.

Chunks have from 3.6 kB to 150 MB, and a read has from 1 to 10,000 of them. `ratio` is what the codec makes of the
values, as it does of the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec

from benchmarks import payloads
from benchmarks.datasets import Write, reanalysis
from zarrgpu.sample import blosc

Block = npt.NDArray[Any]


@dataclass(frozen=True)
class Archive:
    """An array as an archive holds it.

    Attributes
    ----------
    kind : str
        Which of the six it belongs to.
    write : callable
        ``write(store, n)``: an array of `n` blocks.
    small, large, huge : int
        That `n`, for a run as a test, for a measurement without a GPU and for one with it.
    ratio : (float, float)
        Between which bounds decoded bytes by stored ones are.
    """

    kind: str
    write: Write
    small: int
    large: int
    huge: int
    ratio: tuple[float, float]


def tiled(make: Callable[[int], Block], axis: int = 0, few: int = 3, **options: Any) -> Write:
    """`n` blocks along an axis, of which there are a few different ones, each again and again but turned."""

    def write(store: Any, n: int) -> zarr.Array[Any]:
        blocks = [make(seed) for seed in range(min(n, few))]
        extent = blocks[0].shape[axis]
        shape = [size * (n if k == axis else 1) for k, size in enumerate(blocks[0].shape)]
        array = zarr.create_array(store, shape=shape, dtype=blocks[0].dtype, fill_value=0, **options)
        place: list[slice] = [slice(None)] * len(shape)
        for i in range(n):
            place[axis] = slice(i * extent, (i + 1) * extent)
            array[tuple(place)] = np.roll(blocks[i % few], i // few, axis=-1)
        return array

    return write


def sharded(chunk: Sequence[int], inner: Any) -> dict[str, Any]:
    """Options for shards of such chunks."""
    sharding = ShardingCodec(chunk_shape=tuple(chunk), codecs=[BytesCodec(), inner])
    return {"serializer": sharding, "compressors": None}


def _forecast(seed: int) -> Block:
    """A shard of 3 x 3 chunks, turned a little each."""
    chunk = payloads.forecast(105, 121, seed)
    rows = [np.concatenate([np.roll(chunk, 7 * (3 * i + j), axis=1) for j in range(3)], axis=2) for i in range(3)]
    return np.concatenate(rows, axis=1)


ERA5, FORECAST, HDF5, IMAGES, BRAIN, TABLES = (
    "ERA5",
    "forecasts in shards",
    "HDF5, seen as Zarr",
    "microscopy",
    "electron microscopy",
    "genotypes and satellites",
)
BIT_ZSTD = partial(blosc, 3, "bitshuffle", cname="zstd")
SHUFFLED: Any = {"zarr_format": 2, "filters": [numcodecs.Shuffle(2)], "compressors": numcodecs.Zlib(6)}
BIG_ENDIAN: Any = {"serializer": BytesCodec(endian="big"), "compressors": BIT_ZSTD(itemsize=2)}

SIX = {
    "ERA5 fields, 4 MB chunks": Archive(ERA5, reanalysis(blosc()), 1, 28, 192, (1.8, 2.6)),
    "ERA5 days, a 150 MB chunk": Archive(
        ERA5, lambda store, n: reanalysis(blosc(), chunks=(36 * n, 721, 1440))(store, 36 * n), 1, 1, 1, (1.8, 2.6)
    ),
    "forecasts, 6 MB chunks in shards": Archive(
        FORECAST,
        tiled(_forecast, 1, 1, chunks=(105, 363, 363), **sharded((105, 121, 121), blosc(3, "shuffle", 4, "zstd"))),
        1,
        2,
        16,
        (6.0, 9.0),
    ),
    "sea surface, 4 MB chunks": Archive(
        HDF5,
        tiled(lambda k: payloads.sea_surface(1023, 2047, k)[None], chunks=(1, 1023, 2047), **SHUFFLED),
        1,
        16,
        128,
        (2.4, 3.6),
    ),
    "sea surface, 3.6 kB chunks": Archive(
        HDF5,
        tiled(lambda k: payloads.sea_surface(900, 1800, k)[None], chunks=(1, 30, 60), **SHUFFLED),
        1,
        2,
        12,
        (2.4, 3.6),
    ),
    "big-endian OME, 4 MB chunks": Archive(
        IMAGES, tiled(lambda k: payloads.fluorescence(128, k), chunks=(128,) * 3, **BIG_ENDIAN), 1, 24, 128, (2.8, 4.2)
    ),
    "light sheet, 64 kB chunks in shards": Archive(
        IMAGES,
        tiled(lambda k: payloads.fluorescence(128, k), chunks=(128,) * 3, **sharded((32,) * 3, BIT_ZSTD(itemsize=2))),
        1,
        16,
        128,
        (2.8, 4.2),
    ),
    "electron micrographs, 256 kB chunks": Archive(
        BRAIN,
        tiled(lambda k: payloads.electrons(128, k), chunks=(64,) * 3, compressors=GzipCodec(level=6)),
        1,
        16,
        96,
        (1.1, 1.25),
    ),
    "labels, 1 MB chunks": Archive(
        BRAIN,
        tiled(lambda k: payloads.labels(64, k), chunks=(64,) * 3, compressors=blosc(3, "shuffle", 4, "zstd")),
        1,
        64,
        512,
        (18.0, 30.0),
    ),
    "genotypes, 20 MB chunks": Archive(
        TABLES,
        tiled(
            lambda k: payloads.genotypes(1000, 10_000, k), chunks=(1000, 10_000, 2), compressors=BIT_ZSTD(itemsize=1)
        ),
        1,
        4,
        32,
        (60.0, 110.0),
    ),
    "Sentinel-2, 7 MB chunks": Archive(
        TABLES,
        tiled(lambda k: payloads.reflectance(1830, k)[None], chunks=(1, 1830, 1830), compressors=BIT_ZSTD(itemsize=2)),
        1,
        12,
        96,
        (1.5, 2.1),
    ),
}
