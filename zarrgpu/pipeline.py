"""zarr's codec pipeline: ``z[...]`` through programs of ours, and zarr's own pipeline for everything that has none.

Reads are planned at once for the whole request and run on a thread of ours, since zarr calls `read` on its event
loop's. The output decides the engine: a device array is filled by that device, a host array by the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, ByteSetter, Store
from zarr.buffer import cpu
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline

from zarrgpu import _compat, _fork
from zarrgpu._async import on_thread
from zarrgpu._compat.host_shards import host_shards
from zarrgpu._compat.store import host_getter, host_setter, source_of
from zarrgpu._counters import count
from zarrgpu._read import bind_chunks, counted, execute, finish, in_shards, plan_for, writable
from zarrgpu._settings import Settings, configured
from zarrgpu.buffer import expected_uploads
from zarrgpu.engine import resolve
from zarrgpu.errors import UnsupportedError
from zarrgpu.selection import parse_all

ReadItem = tuple[ByteGetter, ArraySpec, Any, Any, bool]
WriteItem = tuple[ByteSetter, ArraySpec, Any, Any, bool]

REQUESTS = 64
"""Requests that may run at once; more wait for a thread."""


@cache
def _requests() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix="zarrgpu-request")


_fork.in_child(_requests.cache_clear)  # threads do not survive a fork: the child makes its own


@dataclass(frozen=True)
class GpuCodecPipeline(CodecPipeline):
    """A codec pipeline that decodes on the device which holds the output.

    Parameters
    ----------
    zarr : BatchedCodecPipeline
        zarr's own pipeline for the same codecs: it validates, writes, and reads what has no program.
    settings : Settings, optional
        How to read; by default as zarr is configured at each read.
    """

    zarr: BatchedCodecPipeline
    settings: Settings | None = field(default=None, compare=False)

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Make a pipeline of a codec chain."""
        return cls(BatchedCodecPipeline.from_codecs(host_shards(_compat.host_codecs(codecs))))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Store) -> Self:
        """Make the pipeline of an array, its codecs evolved to the array's chunks."""
        spec = _compat.spec_of(array_metadata)
        return cls.from_codecs(_compat.codecs_of(array_metadata)).evolve_from_array_spec(spec)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Fill in what the codecs infer from an array's spec."""
        return type(self)(self.zarr.evolve_from_array_spec(array_spec), self.settings)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.zarr)

    @property
    def supports_partial_decode(self) -> bool:
        """Whether parts of a chunk can be read without the rest."""
        return self.zarr.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """Whether parts of a chunk can be written without the rest."""
        return self.zarr.supports_partial_encode

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        """Raise when a codec does not fit the array's metadata."""
        self.zarr.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        """Return the encoded size of a chunk of `byte_length` bytes; `NotImplementedError` where it varies."""
        return self.zarr.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        """Decode chunks on the host, into the buffers that their specs ask for."""
        pairs = list(chunk_bytes_and_specs)
        with expected_uploads():
            decoded = await self.zarr.decode([(_host_bytes(b), _compat.replace_prototype(s)) for b, s in pairs])
        return [
            spec.prototype.nd_buffer.from_numpy_array(chunk.as_numpy_array())
            if chunk is not None and _compat.is_for_device(spec.prototype.nd_buffer)
            else chunk
            for chunk, (_, spec) in zip(decoded, pairs, strict=True)
        ]

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        """Encode chunks on the host, into the buffers that their specs ask for."""
        pairs = list(chunk_arrays_and_specs)
        with expected_uploads():
            encoded = await self.zarr.encode([(_host_array(a), _compat.replace_prototype(s)) for a, s in pairs])
        return [
            spec.prototype.buffer.from_bytes(memoryview(data.as_numpy_array()))
            if data is not None and _compat.is_for_device(spec.prototype.buffer)
            else data
            for data, (_, spec) in zip(encoded, pairs, strict=True)
        ]

    async def read(
        self, batch_info: Iterable[ReadItem], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        """Read chunks into `out`.

        Raises
        ------
        ChunkError
            For a chunk that neither our decoders nor zarr's can decode.
        UnsupportedError
            When `enable` was told to be strict and the read has no program.
        ValueError
            For an `out` that is read-only.
        """
        batch = list(batch_info)
        if not batch:
            return ()
        if _is_read_only(out):
            raise ValueError("out is read-only")
        loop = asyncio.get_running_loop()
        try:
            present = await on_thread(_requests(), self._read, batch, out, drop_axes, loop)
        except UnsupportedError:
            if (self.settings or configured()).strict:
                raise
            count("chunks.zarr", len(batch))
            with expected_uploads():
                return await self._read_through_zarr(batch, out, drop_axes)
        return tuple(GetResult(status="present" if p else "missing") for p in present.tolist())

    async def write(self, batch_info: Iterable[WriteItem], value: NDBuffer, drop_axes: tuple[int, ...] = ()) -> None:
        """Encode chunks on the host by zarr's own pipeline and write them."""
        batch: Any = [
            (host_setter(setter), _compat.replace_prototype(spec), *rest) for setter, spec, *rest in batch_info
        ]
        host = _host_array(value)
        assert host is not None
        with expected_uploads():
            await self.zarr.write(batch, host, drop_axes)

    def _read(
        self, batch: list[ReadItem], out: NDBuffer, drop_axes: tuple[int, ...], loop: asyncio.AbstractEventLoop
    ) -> npt.NDArray[np.bool_]:
        """Read by programs of ours, on a thread of its own; gives which chunks or shards there were."""
        array = cast("Any", out._data)
        engine = resolve("host" if isinstance(array, np.ndarray) else f"cuda:{array.device.id}")
        shapes: dict[tuple[int, ...], list[int]] = {}
        for i, item in enumerate(batch):
            shapes.setdefault(item[1].shape, []).append(i)
        bounds = []
        for mine in shapes.values():
            with counted("fallback.bind"):
                bounds.append(bind_chunks(tuple(self.zarr), batch[mine[0]][1], engine))
                dtype = bounds[-1].program.dtype
                if not engine.supports(array.dtype) or array.dtype != dtype.newbyteorder(array.dtype.byteorder):
                    raise UnsupportedError(f"dtype {array.dtype} on {engine.kind}")
        target, present, jobs = writable(engine, array), np.ones(len(batch), bool), []
        for (shape, mine), bound in zip(shapes.items(), bounds, strict=True):
            with counted("fallback.plan"):
                selected, places = [batch[i][2] for i in mine], [batch[i][3] for i in mine]
                selections = parse_all(selected, places, shape, drop_axes)
                planned = plan_for(bound, selections, shape, target.strides)
                jobs.append((bound, mine, in_shards(planned, bound.levels)))
        for bound, mine, (planned, of, owner, _, entries) in jobs:
            getters = [batch[mine[i]][0] for i in owner.tolist()]
            source = source_of(getters, batch[mine[0]][1], loop, engine)
            limit = (self.settings or configured()).memory_limit
            found = execute(engine, target, planned, of, entries, source, bound, getters.__getitem__, limit)
            present[np.array(mine)[owner[of]]] = found
        finish(engine, array, target)
        return present

    async def _read_through_zarr(
        self, batch: list[ReadItem], out: NDBuffer, drop_axes: tuple[int, ...]
    ) -> tuple[GetResult, ...]:
        """Read by zarr's own pipeline into host memory, then into `out` in one copy."""
        items: Any = [(host_getter(getter), _compat.replace_prototype(spec), *rest) for getter, spec, *rest in batch]
        if isinstance(out._data, np.ndarray):
            host = cpu.NDBuffer(out._data) if _compat.is_for_device(type(out)) else out
            return await self.zarr.read(items, host, drop_axes)
        dtype = batch[0][1].dtype.to_native_dtype()
        host = cpu.NDBuffer.empty(shape=out.shape, dtype=dtype)
        results = await self.zarr.read(items, host, drop_axes)
        engine = resolve(f"cuda:{cast('Any', out._data).device.id}")
        engine.assign(out._data, engine.from_host(host.as_numpy_array()))
        return results


def _is_read_only(buffer: NDBuffer) -> bool:
    """Whether a buffer's array must not be written: NumPy says so of its own, our buffers of a device's."""
    flags = getattr(buffer._data, "flags", None)
    return getattr(buffer, "_read_only", False) or not getattr(flags, "writeable", True)


def _host_bytes(data: Buffer | None) -> Buffer | None:
    if data is None or not _compat.is_for_device(type(data)):
        return data
    return cpu.Buffer.from_array_like(data.as_numpy_array())


def _host_array(array: NDBuffer | None) -> NDBuffer | None:
    if array is None or not _compat.is_for_device(type(array)):
        return array
    return cpu.NDBuffer.from_numpy_array(array.as_numpy_array())


register_pipeline(GpuCodecPipeline)
