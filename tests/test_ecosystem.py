"""xarray and dask on an enabled process: arrays of the device, the values that they have without us."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import fates, same, smooth, to_host

xarray = pytest.importorskip("xarray")
dask_array = pytest.importorskip("dask.array")

from zarrgpu.xarray import DeviceChunks  # noqa: E402  # it needs both

DEVICES = ["host", pytest.param("cuda:0", marks=pytest.mark.gpu)]
VALUES = {"t2m": smooth((12, 10, 8), "<f4"), "count": smooth((12,), ">i4")}


def dataset(path: Path, zarr_format: int, sharded: bool) -> Path:
    """A store that xarray wrote without us."""
    data = xarray.Dataset(
        {
            "t2m": (("time", "y", "x"), VALUES["t2m"], {"units": "K"}),
            "count": (("time",), VALUES["count"]),
            "packed": (("time",), np.where(np.arange(12) == 2, np.nan, np.arange(12) / 4)),
        },
        coords={"time": np.datetime64("2020-01-01", "ns") + np.arange(12).astype("m8[h]")},
    )
    encoding: dict[str, Any] = {
        "t2m": {"chunks": (2, 5, 4)},
        "packed": {"dtype": "i2", "scale_factor": 0.25, "add_offset": 1.0, "_FillValue": -1},
    }
    if sharded:
        encoding["t2m"]["shards"] = (4, 10, 8)
    data.to_zarr(path, zarr_format=zarr_format, encoding=encoding, consolidated=False)
    return path


def check_device(array: Any, device: str) -> None:
    """It is an array of the device, and only programs of ours have read."""
    assert (type(array).__module__.partition(".")[0] == "numpy") == (device == "host")
    assert fates().keys() == {f"chunks.{device.partition(':')[0]}"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("zarr_format", "sharded"), [(2, False), (3, False), (3, True)])
@pytest.mark.parametrize("chunks", [None, {}], ids=["lazy", "dask"])
def test_xarray(tmp_path: Path, device: str, zarr_format: int, sharded: bool, chunks: Any) -> None:
    store = dataset(tmp_path / "data.zarr", zarr_format, sharded)
    # xarray masks fill values by NumPy
    coding: dict[str, Any] = {"consolidated": False, "mask_and_scale": device == "host"}
    plain = xarray.open_zarr(store, chunks=None, **coding).load()
    with zarrgpu.enable(device, strict=True):
        options: Any = {} if chunks is None else {"chunked_array_type": DeviceChunks()}
        opened = xarray.open_zarr(store, chunks=chunks, **coding, **options)
        assert opened["time"].dtype.kind == "M"
        zarrgpu.reset_counters()
        for name in ("t2m", "count", "packed"):
            lazy = opened[name].isel(time=slice(1, 9, 2))
            assert (lazy.chunks is not None) == (chunks is not None)
            found = lazy.compute(scheduler="threads").data
            check_device(found, device)
            assert same(found, plain[name].data[1:9:2])
        found = opened["t2m"].isel(x=[5, 0, 0]).compute(scheduler="threads").data
        check_device(found, device)
        assert same(found, VALUES["t2m"][:, :, [5, 0, 0]])
        assert opened["t2m"].attrs["units"] == "K"
        total = opened["count"].sum().compute(scheduler="threads").data
        check_device(total, device)
        assert int(total) == VALUES["count"].sum()


@pytest.mark.parametrize("device", DEVICES)
def test_dask_arrays_of_xarrays_own_are_numpys(tmp_path: Path, device: str) -> None:
    """Xarray's manager copies each block to the host, whatever it is: the values are right there, too."""
    store = dataset(tmp_path / "data.zarr", 3, sharded=False)
    with zarrgpu.enable(device, strict=True):
        found = xarray.open_zarr(store, chunks={}, consolidated=False)["t2m"].compute(scheduler="threads").data
    assert isinstance(found, np.ndarray)
    assert same(found, VALUES["t2m"])


def test_blocks_are_what_was_read(tmp_path: Path) -> None:
    """Not a lazy array of xarray's, which dask would make one of NumPy."""
    store = dataset(tmp_path / "data.zarr", 3, sharded=False)
    with zarrgpu.enable("host", strict=True):
        options: Any = {"chunks": {}, "chunked_array_type": DeviceChunks(), "consolidated": False}
        lazy = xarray.open_zarr(store, **options)["t2m"].data
        sources: list[Any] = [getattr(node, "value", node) for node in dict(lazy.dask).values()]
        assert [type(a[0:3, 1:2]) for a in sources if hasattr(a, "lazy")] == [np.ndarray]


def test_arrays_that_are_not_stored_are_chunked_as_ever() -> None:
    data = xarray.Dataset({"a": ("x", np.arange(6.0))}).chunk({"x": 4}, chunked_array_type=DeviceChunks())
    assert data.a.chunks == ((4, 2),)
    assert data.a.sum().compute() == 15


def test_examples() -> None:
    import zarrgpu.xarray

    assert doctest.testmod(zarrgpu.xarray).failed == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sharded", [False, True])
def test_dask(tmp_path: Path, device: str, sharded: bool) -> None:
    store = dataset(tmp_path / "data.zarr", 3, sharded)
    with zarrgpu.enable(device, strict=True):
        zarrgpu.reset_counters()
        lazy = dask_array.from_zarr(zarr.open_array(store / "t2m", mode="r"))
        found = lazy.compute(scheduler="threads")
        check_device(found, device)
        assert same(found, VALUES["t2m"])
        mean = lazy[2:7].mean(axis=0).compute(scheduler="threads")
        check_device(mean, device)
        assert np.allclose(to_host(mean), VALUES["t2m"][2:7].mean(axis=0))
