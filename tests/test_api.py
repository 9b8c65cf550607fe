"""`enable`, `explain`, `counters`: what is set is seen, and undone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.storage import StorePath

import zarrgpu
from tests.engines import ENGINES, Mine, device, make, same, smooth


def configured() -> tuple[Any, ...]:
    """What `enable` may change."""
    return tuple(zarr.config.get(k, None) for k in ("codec_pipeline.path", "buffer", "ndbuffer", "zarrgpu"))


def test_enable_is_undone_by_its_token_once() -> None:
    before = configured()
    token = zarrgpu.enable(device="host", memory_limit=1 << 20, strict=True)
    assert configured() == (
        "zarrgpu.pipeline.GpuCodecPipeline",
        "zarrgpu.buffer.cpu.Buffer",
        "zarrgpu.buffer.cpu.NDBuffer",
        {"device": "host", "memory_limit": 1 << 20, "strict": True},
    )
    assert (token.device, repr(token)) == ("host", "<zarrgpu enabled on host>")
    token.disable()
    assert configured() == before
    assert repr(token) == "<zarrgpu disabled on host>"
    with zarrgpu.enable(device="host"):
        token.disable()
        assert configured() != before
    assert configured() == before


def test_enable_nests_and_survives_errors() -> None:
    before = configured()

    def fail() -> None:
        with zarrgpu.enable(device="host"), zarrgpu.enable(device="host", strict=True):
            assert zarr.config.get("zarrgpu.strict") is True
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert configured() == before


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="memory_limit must be a positive"):
        zarrgpu.enable(device="host", memory_limit=0)
    with pytest.raises(ValueError, match="device must be"):
        zarrgpu.enable(device="gpu")
    with pytest.raises(ValueError, match="stream= needs a CUDA device"):
        zarrgpu.read(make(smooth((4,)), (2,)), device="host", stream=0)


def test_arrays_keep_the_pipeline_that_they_were_opened_with() -> None:
    """As documented: opened before, zarr's; opened inside, ours, also afterwards."""
    values = smooth((6,), "i4")
    before = make(values, (4,))
    zarrgpu.reset_counters()
    with zarrgpu.enable(device="host"):
        assert same(before[...], values)
        assert zarrgpu.counters() == {}
        inside = zarr.open_array(before.store, mode="r")
    assert same(inside[...], values)
    assert zarrgpu.counters() == {"chunks.host": 2}


@pytest.mark.parametrize("engine", ENGINES)
def test_explain(engine: str, tmp_path: Path) -> None:
    """A listing of the stages, or the reason why there are none."""
    z = make(smooth((8, 3), ">i4"), (4, 3), 2, order="F", store=tmp_path / "a")
    with device(engine) as name:
        told = zarrgpu.explain(tmp_path / "a", device=name)
        own = zarrgpu.engine.normalize(name)
        assert (told.device, told.supported, told.reason) == (own, True, None)
        decoded = "by numcodecs" if engine == "host" else "unshuffled in assemble"
        for part in ("fetch: files", "blosc", decoded, "byte swap, axis order", f"on {own}"):
            assert part in str(told)
        assert ("upload" in str(told)) == (name != "host")
        assert "async API" in str(zarrgpu.explain(make(smooth((8,)), (4,), 3, None), device=name))
        frames = str(zarrgpu.explain(make(smooth((8,)), (4,), 2, compressors=numcodecs.LZ4()), device=name))
        assert ("fewer than 96 streams" in frames) == (engine != "host")
        values = make(np.arange(8, dtype="<f4"), (4,), 2, filters=[numcodecs.FixedScaleOffset(1, 2, "<f4", "<i2")])
        assert ("assemble: fixedscaleoffset, clip" in str(zarrgpu.explain(values, device=name))) == (engine != "host")
        other = zarrgpu.explain(make(smooth((8,)), (4,), serializer=Mine(endian="little")), device=name)
        assert (other.supported, other.reason) == (False, "codec bytes")
        assert str(other).startswith("through zarr's own pipeline: codec bytes\n")
        assert ("copy to the device" in str(other)) == (name != "host")
    assert z.shape == (8, 3)


def test_sources(tmp_path: Path) -> None:
    """An array by path, as text, as a zarr array, as a store path."""
    values = smooth((6,), "i4")
    z = make(values, (4,), store=tmp_path / "a")
    for source in (tmp_path / "a", str(tmp_path / "a"), z, z.store_path, StorePath(z.store)):
        assert same(zarrgpu.read(source, device="host"), values)
    with pytest.raises(FileNotFoundError):
        zarrgpu.read(tmp_path / "nothing", device="host")


def test_results_in_native_byte_order() -> None:
    """`read` gives native numbers; ``z[...]`` keeps the array's dtype on the host, as zarr does."""
    z = make(smooth((6,), ">i4"), (4,), 2)
    assert zarrgpu.read(z, device="host").dtype == np.dtype("i4")
    with zarrgpu.enable(device="host", strict=True):
        assert np.asarray(zarr.open_array(z.store, mode="r")[...]).dtype == np.dtype(">i4")


def test_other_dtypes_go_through_zarr() -> None:
    """Strings and structures come as zarr gives them, counted; `out` works for what has one size."""
    words = np.array(["a", "bcd", ""], "<U4")
    z = make(words, (2,), 2)
    zarrgpu.reset_counters()
    assert (zarrgpu.read(z, device="host") == words).all()
    assert zarrgpu.counters() == {"fallback.bind:dtype <U4": 1, "chunks.zarr": 2}
    pairs = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])
    assert (zarrgpu.read(make(pairs, (2,), 2), device="host") == pairs).all()
    z = make(pairs, (2,), 2)
    out = np.empty(2, pairs.dtype)
    assert zarrgpu.read(z, out=out, device="host") is out
    assert (out == pairs).all()
    with pytest.raises(ValueError, match="out must have"):
        zarrgpu.read(z, out=np.empty(5, pairs.dtype), device="host")
    with zarrgpu.enable(device="host", strict=True), pytest.raises(zarrgpu.UnsupportedError, match="dtype"):
        zarrgpu.read(z, device="host")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_strings_of_any_length_come_through_zarr(engine: str, zarr_format: Any) -> None:
    array = zarr.create_array({}, shape=(3,), chunks=(2,), dtype=str, zarr_format=zarr_format)
    array[...] = np.array(["a", "bcd", "é"], object)
    with device(engine) as where, zarrgpu.enable(where):
        opened = zarr.open_array(array.store, mode="r")
        assert zarrgpu.read(opened, device=where).tolist() == ["a", "bcd", "é"]
        if where == "host":  # a GPU's buffers have no strings, as zarr's own have none
            assert np.asarray(opened[...]).tolist() == ["a", "bcd", "é"]


def test_pipelines_are_values() -> None:
    """Equal for equal codecs, picklable, and no runtime choice is in them."""
    z = make(smooth((6,)), (4,))
    with zarrgpu.enable(device="host"):
        a, b = (zarr.open_array(z.store, mode="r").async_array.codec_pipeline for _ in range(2))
    assert a == b
    assert pickle.loads(pickle.dumps(a)) == a
