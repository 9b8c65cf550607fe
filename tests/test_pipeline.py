"""`GpuCodecPipeline` has every member that zarr's base class names, and each does as zarr's own."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import numpy as np
import pytest
import zarr
from zarr.abc.codec import CodecPipeline
from zarr.buffer import cpu
from zarr.core.codec_pipeline import BatchedCodecPipeline

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth
from zarrgpu import _compat
from zarrgpu.pipeline import GpuCodecPipeline


def pipeline(z: zarr.Array[Any]) -> GpuCodecPipeline:
    """Ours, for an array."""
    return GpuCodecPipeline.from_array_metadata_and_store(z.metadata, z.store)


def test_every_member_of_the_base_class_is_ours() -> None:
    names = [n for n, _ in inspect.getmembers(CodecPipeline) if not n.startswith("_")]
    assert not [n for n in names if getattr(GpuCodecPipeline, n) is getattr(CodecPipeline, n)]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_asked_of_codecs_is_answered_as_zarr_answers(zarr_format: Any) -> None:
    z = make(smooth((8, 6)), (4, 4), zarr_format)
    ours, zarrs = pipeline(z), cast("BatchedCodecPipeline", z.async_array.codec_pipeline)
    assert [type(c).__name__.removeprefix("Host") for c in ours] == [type(c).__name__ for c in zarrs]
    assert ours.supports_partial_decode == zarrs.supports_partial_decode
    assert ours.supports_partial_encode == zarrs.supports_partial_encode
    plain = make(smooth((8, 6)), (4, 4), shuffle=None)
    assert pipeline(plain).compute_encoded_size(64, _compat.spec_of(plain.metadata)) == 64
    with pytest.raises(NotImplementedError):
        ours.compute_encoded_size(64, _compat.spec_of(z.metadata))
    if zarr_format == 3:
        ours.validate(shape=z.shape, dtype=z.metadata.dtype, chunk_grid=z.metadata.chunk_grid)
        bad = GpuCodecPipeline.from_codecs([zarr.codecs.TransposeCodec(order=(0,)), zarr.codecs.BytesCodec()])
        with pytest.raises(ValueError, match="order"):
            bad.validate(shape=z.shape, dtype=z.metadata.dtype, chunk_grid=z.metadata.chunk_grid)


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_decode_and_encode(engine: str, zarr_format: Any) -> None:
    """Single chunks, there and back, in the buffers that the spec asks for; None stays None."""
    values = smooth((4, 4), "i4")
    z = make(values, (4, 4), zarr_format)
    with device(engine) as name, zarrgpu.enable(device=name):
        p = pipeline(z)
        spec = _compat.spec_of(z.metadata)

        async def work() -> None:
            array = spec.prototype.nd_buffer.from_numpy_array(values)
            data, nothing = await p.encode([(array, spec), (None, spec)])
            assert nothing is None
            assert isinstance(data, spec.prototype.buffer)
            chunk, neither = await p.decode([(data, spec), (None, spec)])
            assert neither is None
            assert isinstance(chunk, spec.prototype.nd_buffer)
            assert same(chunk.as_numpy_array(), values)

        asyncio.run(work())


def test_an_empty_batch_reads_nothing() -> None:
    z = make(smooth((4,)), (4,))
    out = cpu.NDBuffer.from_numpy_array(np.zeros(4, "f4"))
    assert asyncio.run(pipeline(z).read([], out)) == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_of_several_shapes(engine: str) -> None:
    """Chunks of a rectilinear grid are read by the programs of their shapes, in shards or not."""
    values = smooth((10, 12), "i4")
    with zarr.config.set({"array.rectilinear_chunks": True}), device(engine) as name:
        sharding = zarr.codecs.ShardingCodec(chunk_shape=(1, 2))
        for serializer, compressors in (("auto", "auto"), (sharding, None)):
            options: Any = {"serializer": serializer, "compressors": compressors}
            z = zarr.create_array({}, shape=(10, 12), chunks=[[3, 3, 4], [2, 6, 4]], dtype="i4", **options)
            z[:7] = values[:7]
            z[7:, 3:] = values[7:, 3:]
            want = values.copy()
            want[7:, :3] = 0
            with zarrgpu.enable(device=name, strict=True):
                again: Any = zarr.open_array(z.store, mode="r")
                for selection in (
                    np.s_[...],
                    np.s_[2:9, 1:12:3],
                    np.s_[4],
                    ([9, 0, 9], [11, 3, 0]),
                    np.s_[:, [7, 7, 1]],
                ):
                    assert same(again[selection], np.asarray(want[selection]))
                    assert same(zarrgpu.read(z, selection, device=name), np.asarray(want[selection]))


def test_many_threads_read_at_once() -> None:
    """Requests of several threads share the workers and nothing else."""
    from concurrent.futures import ThreadPoolExecutor

    values = smooth((40, 30))
    z = make(values, (7, 9))
    with zarrgpu.enable(device="host", strict=True):
        again = zarr.open_array(z.store, mode="r")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: again[i : i + 5], range(30)))
    for i, part in enumerate(found):
        assert same(part, values[i : i + 5])
