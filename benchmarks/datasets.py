"""Arrays to read, made from a seed: each a kind of data that Zarr holds a lot of, in one way of storing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from zarrgpu.sample import Fields, blosc, spectral_field, write_sample


@dataclass(frozen=True)
class Dataset:
    """A recipe for an array.

    Attributes
    ----------
    name : str
        What it holds and how.
    write : callable
        ``write(store, n)``: an array of `n` chunks along its first axis.
    small, large : int
        That `n`, for a run as a test and for a measurement without a GPU.
    huge : int
        And for one with a GPU, which needs thousands of streams.
    """

    name: str
    write: Callable[[Any, int], zarr.Array[Any]]
    small: int
    large: int
    huge: int


def reanalysis(
    shuffle: str | None, zarr_format: int = 3, shape: tuple[int, int] = (721, 1440)
) -> Callable[[Any, int], zarr.Array[Any]]:
    """float32 fields of the sample, a chunk each; uncompressed when `shuffle` is None."""

    def write(store: Any, n: int) -> zarr.Array[Any]:
        compressor = None if shuffle is None else blosc(zarr_format, shuffle)
        return write_sample(store, (n, *shape), (1, *shape), compressors=compressor, zarr_format=zarr_format)

    return write


def big_endian(store: Any, n: int) -> zarr.Array[Any]:
    """The fields of the sample as NetCDF files of old have them: big-endian, Zarr 2."""
    fields = Fields((361, 720), seed=1)
    array = zarr.create_array(
        store, shape=(n, 361, 720), chunks=(1, 361, 720), dtype=">f4", zarr_format=2, compressors=blosc(2), fill_value=0
    )
    for step in range(n):
        array[step] = fields[step]
    return array


def micrograph(side: int, shuffle: str) -> Callable[[Any, int], zarr.Array[Any]]:
    """uint16 volumes of photon counts with camera noise, in cubes of `side`, four of them side by side."""

    def volume(seed: int) -> npt.NDArray[np.uint16]:
        rng = np.random.default_rng((2, seed))
        light = np.exp(spectral_field((side, 4 * side), rng))
        counts = rng.poisson(light, (side, side, 4 * side)) + rng.normal(0, 2, (side, side, 4 * side))
        return np.clip(100 + counts, 0, 65535).astype("u2")

    def write(store: Any, n: int) -> zarr.Array[Any]:
        array = zarr.create_array(
            store,
            shape=(n * side, side, 4 * side),
            chunks=(side,) * 3,
            dtype="u2",
            compressors=blosc(3, shuffle, itemsize=2),
        )
        volumes = [volume(seed) for seed in range(min(n, 4))]
        for i in range(n):
            array[i * side : (i + 1) * side] = np.roll(volumes[i % 4], i // 4, axis=1)
        return array

    return write


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("f4 fields, lz4, shuffle", reanalysis("shuffle"), 1, 16, 256),
        Dataset("f4 fields, lz4, bitshuffle", reanalysis("bitshuffle"), 1, 16, 256),
        Dataset("f4 fields, uncompressed", reanalysis(None), 1, 16, 128),
        Dataset("f4 big-endian fields, lz4, shuffle, v2", big_endian, 2, 32, 256),
        Dataset("u2 cubes of 128, lz4, shuffle", micrograph(128, "shuffle"), 1, 2, 32),
        Dataset("u2 cubes of 32, lz4, bitshuffle", micrograph(32, "bitshuffle"), 1, 64, 1024),
    )
}
