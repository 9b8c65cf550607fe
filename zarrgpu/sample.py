"""Sample data: fields that compress as a weather reanalysis does, made from a seed, without further packages.

A field is Gaussian with random phases and a power-law spectrum; each time step is packed to 16 bits as GRIB's simple
packing does it, value = R + X * 2**E, and stored as float32. Blosc-LZ4 with byte shuffle makes it 2.2 times smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec

MEAN, SPREAD = 280.0, 15.0
SLOPE = 3.0
BITS = 16
FIELDS = 4
STEPS = 28


def spectral_field(shape: tuple[int, int], rng: np.random.Generator, slope: float = SLOPE) -> npt.NDArray[np.float32]:
    """Random field of variance 1 whose power falls with wave number ``k`` as ``k**-slope``, periodic in both axes.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    rng : numpy.random.Generator
        Where the phases come from.
    slope : float
        Of the one-dimensional power spectrum.

    Returns
    -------
    float32[shape]
    """
    rows, columns = shape
    k = np.hypot(np.fft.fftfreq(rows)[:, None] * rows, np.fft.rfftfreq(columns) * columns)
    k[0, 0] = 1.0
    amplitude = np.maximum(k, 1.0) ** (-(slope + 1) / 2)
    amplitude[0, 0] = 0.0
    phases = rng.normal(size=k.shape) + 1j * rng.normal(size=k.shape)
    field = np.fft.irfft2(amplitude * phases, s=shape)
    return (field / field.std()).astype(np.float32)


def pack(values: npt.NDArray[np.float32], bits: int = BITS) -> npt.NDArray[np.float32]:
    """Round `values` to what GRIB's simple packing keeps of them in `bits` bits."""
    low = values.min()
    packed = values - low
    high = float(packed.max())
    if high > 0:
        scale = np.float32(2.0 ** np.ceil(np.log2(high / (2**bits - 1))))
        packed /= scale
        np.rint(packed, out=packed)
        packed *= scale
    packed += low
    return packed


class Fields:
    """Any number of different fields out of a few: each is a sum of two of them, turned and shifted.

    A sum of such fields has their spectrum, and costs no Fourier transform.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    seed : int
        The same seed gives the same fields.
    fields : int
        How many to draw.
    """

    def __init__(self, shape: tuple[int, int], seed: int = 0, fields: int = FIELDS) -> None:
        self._seed = seed
        self._columns = shape[1]
        self._fields = [spectral_field(shape, np.random.default_rng((seed, i))) for i in range(fields)]

    def __getitem__(self, step: int) -> npt.NDArray[np.float32]:
        """Field number `step`, packed."""
        rng = np.random.default_rng((self._seed, len(self._fields), step))
        one, other = rng.choice(len(self._fields), 2, replace=False)
        angle, shift = rng.uniform(0, 2 * np.pi), int(rng.integers(self._columns))
        mixed = np.roll(self._fields[other], shift, axis=1)
        mixed *= np.float32(SPREAD * np.sin(angle))
        mixed += np.float32(SPREAD * np.cos(angle)) * self._fields[one]
        mixed += np.float32(MEAN)
        return pack(mixed)


def write_sample(
    store: str | PathLike[str] | Any,
    shape: Sequence[int] = (STEPS, 721, 1440),
    chunks: Sequence[int] = (1, 721, 1440),
    *,
    seed: int = 0,
    compressors: Any = "auto",
    zarr_format: int = 3,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> zarr.Array[Any]:
    """Write an ERA5-like float32 array.

    Parameters
    ----------
    store : path or zarr store
        Where to; it is overwritten.
    shape, chunks : sequence of int
        Time steps, rows, columns.
    seed : int
        The same seed gives the same bytes.
    compressors : optional
        As in `zarr.create_array`; Blosc with LZ4, level 5 and byte shuffle by default.
    zarr_format : {2, 3}
        Of the array.
    progress : callable, optional
        Called as ``progress(done, steps)``.
    **options
        More for `zarr.create_array`.

    Returns
    -------
    zarr.Array
    """
    steps, rows, columns = shape
    if compressors == "auto":
        compressors = blosc(zarr_format)
    array = zarr.create_array(
        store,
        shape=(steps, rows, columns),
        chunks=tuple(chunks),
        dtype="float32",
        compressors=compressors,
        zarr_format=zarr_format,  # type: ignore[arg-type]  # 2 or 3
        fill_value=0.0,
        overwrite=True,
        **options,
    )
    fields = Fields((rows, columns), seed)
    bounds = [*range(0, steps, chunks[0]), steps]
    for begin, end in itertools.pairwise(bounds):
        array[begin:end] = np.stack([fields[step] for step in range(begin, end)])
        if progress is not None:
            progress(end, steps)
    return array


def blosc(zarr_format: int = 3, shuffle: str = "shuffle", itemsize: int = 4, cname: str = "lz4") -> Any:
    """Blosc at level 5, as a compressor of either format."""
    if zarr_format == 2:
        import numcodecs

        return numcodecs.Blosc(cname, 5, ("noshuffle", "shuffle", "bitshuffle").index(shuffle))
    return BloscCodec(cname=cname, clevel=5, shuffle=shuffle, typesize=itemsize)  # type: ignore[arg-type]  # literals
