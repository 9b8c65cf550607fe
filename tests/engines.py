"""The engines that this machine can run whole programs on, and arrays to read with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from numcodecs import Blosc

import zarrgpu
import zarrgpu.engine
from tests import fake_cupy
from tests.conftest import GPU

ENGINES = ["host", "twins", "cuda" if GPU else "sim"]
"""``"twins"`` is the host engine with the kernels' compiled twins where it would prefer a library."""


CACHED = (zarrgpu.engine._choose, zarrgpu.engine._engine, zarrgpu.engine._installed)
"""What is remembered of the machine, to be forgotten where another one is pretended."""


@contextlib.contextmanager
def device(engine: str) -> Iterator[str]:
    """The ``device=`` argument for an engine; for ``"sim"``, the CUDA engine on the simulator while this is entered."""
    if engine == "twins":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zarrgpu.engine.resolve("host"), "by_library", False)
            yield "host"
        return
    if engine != "sim":
        yield engine
        return
    with pytest.MonkeyPatch.context() as patch, fake_cupy.installed():
        patch.setattr(zarrgpu.engine, "_driver_devices", lambda: 1)
        for cached in CACHED:
            cached.cache_clear()
        try:
            yield "cuda:0"
        finally:
            for cached in CACHED:
                cached.cache_clear()


def fates() -> dict[str, int]:
    """What became of chunks since the counters were reset; not the bytes that crossed PCIe, which a GPU always has."""
    return {name: n for name, n in zarrgpu.counters().items() if not name.startswith("bytes.")}


class Mine(zarr.codecs.BytesCodec):
    """A codec under the name of one that we know, which may do anything."""


def to_host(array: Any) -> npt.NDArray[Any]:
    """Any engine's array as a NumPy array."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def same(got: Any, want: npt.NDArray[Any]) -> bool:
    """Bit for bit, but for the byte order of the container."""
    got = to_host(got)
    native = want.dtype.newbyteorder("=")
    return bool(got.shape == want.shape) and got.astype(native).tobytes() == want.astype(native).tobytes()


def smooth(shape: tuple[int, ...], dtype: Any = "f4", seed: int = 0) -> npt.NDArray[Any]:
    """Values that compress: a random walk, in any dtype, with NaN payloads among floats."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    walk = np.cumsum(rng.integers(-2, 3, int(np.prod(shape, dtype=np.int64))))
    if dtype.kind == "b":
        values = walk % 2 == 0
    elif dtype.kind == "c":
        values = walk + 1j * walk[::-1]
    else:
        values = walk
    array = values.astype(dtype.newbyteorder("=") if dtype.kind != "b" else bool)
    if dtype.kind == "f" and array.size > 3:
        bits = array.view(f"u{dtype.itemsize}")
        bits[1] = {2: 0x7C01, 4: 0x7F800001, 8: 0x7FF0000000000001}[dtype.itemsize]  # a signalling NaN
        bits[2] |= 1 << (8 * dtype.itemsize - 1)
    shaped: npt.NDArray[Any] = array.astype(dtype).reshape(shape)
    return shaped


def blosc(
    zarr_format: int, itemsize: int, shuffle: int = 1, cname: str = "lz4", clevel: int = 5, blocksize: int = 0
) -> Any:
    """A Blosc compressor for an array of either format."""
    if zarr_format == 2:
        return Blosc(cname, clevel, shuffle, blocksize)
    names = ("noshuffle", "shuffle", "bitshuffle")
    config: Any = {"cname": cname, "clevel": clevel, "shuffle": names[shuffle], "blocksize": blocksize}
    return zarr.codecs.BloscCodec(typesize=itemsize, **config)


def make(
    values: npt.NDArray[Any],
    chunks: tuple[int, ...],
    zarr_format: int = 3,
    shuffle: int | None = 1,
    store: Any = None,
    **options: Any,
) -> zarr.Array[Any]:
    """An array of `values`, written by plain zarr; Blosc-LZ4 unless `shuffle` is None."""
    compressor = None if shuffle is None else blosc(zarr_format, values.dtype.itemsize, shuffle)
    if zarr_format == 3 and not values.dtype.isnative:
        options["serializer"] = zarr.codecs.BytesCodec(endian="big")
        values = values.astype(values.dtype.newbyteorder("="))
    z = zarr.create_array(
        {} if store is None else store,
        shape=values.shape,
        chunks=chunks,
        dtype=values.dtype,
        zarr_format=zarr_format,  # type: ignore[arg-type]  # 2 or 3
        compressors=options.pop("compressors", compressor),
        fill_value=options.pop("fill_value", 0),
        **options,
    )
    z[...] = values
    return z
