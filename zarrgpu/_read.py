"""What `zarrgpu.read` does with what it was asked for: by a program of ours, or through zarr's own pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from zarr.errors import ChunkNotFoundError

from zarrgpu import _compat
from zarrgpu._counters import count
from zarrgpu.chain import DTYPE_KINDS, bind, reordered
from zarrgpu.engine.base import Array, Engine
from zarrgpu.errors import UnsupportedError
from zarrgpu.fetch import Objects, Source, files
from zarrgpu.plan import Axis, plan_axes


def run(
    array: zarr.Array[Any],
    axes: list[Axis],
    chunks: tuple[int, ...],
    program: Any,
    engine: Engine,
    out: Array,
    stream: Any,
) -> None:
    """Read `axes` of an array that has a program into `out`, contiguous and aligned."""
    from zarrgpu import wave

    metadata, store_path = array.metadata, array.store_path
    plan = plan_axes(axes, chunks, program.chunk_strides(chunks), out.strides)
    keys = [metadata.encode_chunk_key(tuple(c)) for c in plan.grid.tolist()]
    root = _compat.local_path(store_path)
    spec = _compat.spec_of(metadata)
    if root is not None:
        source: Source = files([f"{root}/{key}" for key in keys])
    else:
        source = Objects(
            lambda i: _compat.getter(store_path / keys[i], spec.prototype)(), _compat.loop(), _compat.concurrency()
        )
    present = wave.run(
        wave.Request(
            program=program,
            plan=plan,
            source=source,
            engine=engine,
            chunk_shape=chunks,
            out=out,
            fill=_compat.fill_bytes(spec, out.dtype),
            decode_on_cpu=_compat.cpu_decoder(_compat.evolved_codecs(metadata), spec),
            name=lambda i: _compat.name_of(store_path / keys[i]),
            memory_limit=zarr.config.get("zarrgpu.memory_limit", None),
        ),
        stream,
    )
    if not present.all() and not array.async_array.config.read_missing_chunks:
        missing = [keys[i] for i in np.flatnonzero(~present).tolist()]
        raise ChunkNotFoundError(f"{len(missing)} chunk(s) not found in store '{store_path}': {', '.join(missing)}")


def bind_array(metadata: Any, engine: Engine) -> tuple[tuple[int, ...], Any]:
    """The chunk shape and the program of an array on an engine, or `UnsupportedError`."""
    program = bind(_compat.chain_of(_compat.evolved_codecs(metadata), _compat.spec_of(metadata)))
    if not engine.supports(program.stored):
        raise UnsupportedError(f"dtype {program.stored} on {engine.kind}")
    chunks = _compat.chunk_shape(metadata)
    if chunks is None:
        raise UnsupportedError("chunks of several shapes")
    return chunks, program


def through_zarr(array: zarr.Array[Any], selection: Any, out: Array | None, engine: Engine, counter: str) -> Array:
    """Read by zarr's own pipeline on the host, then copy to the engine."""
    count(counter)
    if zarr.config.get("zarrgpu.strict", False):
        raise UnsupportedError(counter.partition(":")[2])
    host = np.asarray(_compat.read_with_zarr(array, selection))
    count("chunks.zarr", array.nchunks if selection is Ellipsis else 1)
    native = host.dtype.newbyteorder("=")
    host = reordered(host, native) if native.kind in DTYPE_KINDS else host.astype(native, copy=False)
    if out is None:
        return engine.from_host(host) if engine.supports(native) else host
    check_out(out, host.shape, native, engine)
    engine.assign(out, engine.from_host(host))
    return out


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], engine: Engine) -> None:
    """Raise unless `out` is an array of the engine, of this shape and dtype."""
    if not engine.owns(out):
        raise TypeError(f"out must be an array on {engine.name}, got {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}")
