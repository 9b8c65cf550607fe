"""xarray and dask on an enabled process: arrays of the device, the values that they have without us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import fates, same, smooth

xarray = pytest.importorskip("xarray")
dask_array = pytest.importorskip("dask.array")

DEVICES = ["host", pytest.param("cuda:0", marks=pytest.mark.gpu)]
VALUES = {"t2m": smooth((12, 10, 8), "<f4"), "count": smooth((12,), ">i4")}


def dataset(path: Path, zarr_format: int, sharded: bool) -> Path:
    """A store that xarray wrote without us."""
    data = xarray.Dataset(
        {
            "t2m": (("time", "y", "x"), VALUES["t2m"], {"units": "K"}),
            "count": (("time",), VALUES["count"]),
        },
        coords={"time": np.arange(12, dtype="i8")},
    )
    encoding: dict[str, Any] = {"t2m": {"chunks": (2, 5, 4)}}
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
    with zarrgpu.enable(device, strict=True):
        opened = xarray.open_zarr(store, chunks=chunks, consolidated=False)
        zarrgpu.reset_counters()
        for name, want in VALUES.items():
            found = opened[name].isel(time=slice(1, 9, 2)).compute(scheduler="threads").data
            check_device(found, device)
            assert same(found, want[1:9:2])
        found = opened["t2m"].isel(x=[5, 0, 0]).compute(scheduler="threads").data
        check_device(found, device)
        assert same(found, VALUES["t2m"][:, :, [5, 0, 0]])
        assert opened["t2m"].attrs == {"units": "K"}


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
        assert np.allclose(mean.get() if device != "host" else mean, VALUES["t2m"][2:7].mean(axis=0))
