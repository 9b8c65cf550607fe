"""What `zarrgpu.read` does with what it was asked for: by a program of ours, or through zarr's own pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import zarr
from zarr.errors import ChunkNotFoundError

from zarrgpu import _compat
from zarrgpu._counters import count
from zarrgpu.chain import Program, bind, is_plain, reordered
from zarrgpu.engine import resolve
from zarrgpu.engine.base import Array, Engine
from zarrgpu.errors import UnsupportedError
from zarrgpu.fetch import Objects, Source, files
from zarrgpu.plan import Axis, Plan, plan_axes
from zarrgpu.resident import resident


class Bound(NamedTuple):
    """An array on an engine: its program, the spec of its chunks and its codecs."""

    program: Program
    spec: Any
    codecs: tuple[Any, ...]


def engine_for(metadata: Any, engine: Engine, out: Any = None) -> Engine:
    """`engine`, or the host's for elements that are no numbers there, unless `out` takes their bits."""
    dtype = metadata.dtype.to_native_dtype().newbyteorder("=")
    takes = engine.supports(dtype) or (engine.owns(out) and out.dtype == bits_of(dtype))
    return engine if takes else resolve("host")


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the bits of times, int64; `dtype` for everything else."""
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def bind_array(metadata: Any, engine: Engine) -> Bound:
    """Bind an array to an engine; `UnsupportedError` where it has no program there."""
    spec, codecs = _compat.spec_of(metadata), _compat.evolved_codecs(metadata)
    program = bind(_compat.chain_of(codecs, spec), engine.by_library)
    if _compat.chunk_shape(metadata) is None:
        raise UnsupportedError("chunks of several shapes")
    return Bound(program, spec, codecs)


def run(array: zarr.Array[Any], axes: list[Axis], bound: Bound, engine: Engine, out: Array, stream: Any) -> None:
    """Read `axes` of an array into `out`."""
    metadata, store_path, (program, spec, _) = array.metadata, array.store_path, bound
    target = writable(engine, out)
    plan = plan_axes(axes, spec.shape, program.chunk_strides(spec.shape), target.strides)
    keys = [metadata.encode_chunk_key(tuple(c)) for c in plan.grid.tolist()]
    root, folder = _compat.local_path(store_path), f"{store_path.path}/" if store_path.path else ""
    here = resident(store_path.store, (f"{folder}{key}" for key in keys), engine)
    if here is not None:
        source: Source = here
    elif root is not None:
        source = files([f"{root}/{key}" for key in keys])
    else:
        source = Objects(
            lambda i: _compat.getter(store_path / keys[i], spec.prototype)(), _compat.loop(), _compat.concurrency()
        )
    present = execute(engine, out, target, plan, source, bound, lambda i: store_path / keys[i], stream)
    if not present.all() and not array.async_array.config.read_missing_chunks:
        missing = [keys[i] for i in np.flatnonzero(~present).tolist()]
        raise ChunkNotFoundError(f"{len(missing)} chunk(s) not found in store '{store_path}': {', '.join(missing)}")


def writable(engine: Engine, out: Array) -> Array:
    """`out`, or a new array like it where kernels cannot write to `out` itself."""
    return out if engine.flat(out) is not None else engine.empty(out.shape, out.dtype)


def execute(
    engine: Engine,
    out: Array,
    target: Array,
    plan: Plan,
    source: Source,
    bound: Bound,
    place: Callable[[int], Any],
    stream: Any = None,
) -> npt.NDArray[np.bool_]:
    """Run a plan that was made for `target`, which `writable` gave for `out`; gives which chunks were in the store.

    ``place(i)`` is the store path, or another byte getter, of chunk ``i``.
    """
    from zarrgpu import wave  # numba, only once something is read
    from zarrgpu.request import Request

    program, spec, codecs = bound
    source.name = lambda i: _compat.name_of(place(i))
    request = Request(
        program=program,
        plan=plan,
        source=source,
        engine=engine,
        chunk_shape=spec.shape,
        out=target,
        fill=_compat.fill_bytes(spec, target.dtype),
        decode_on_cpu=partial(_compat.decode_on_cpu, codecs, spec),
        name=source.name,
        memory_limit=zarr.config.get("zarrgpu.memory_limit", None),
    )
    present = wave.run(request, stream)
    if target is not out:
        engine.assign(out, target)
    return present


def through_zarr(
    array: zarr.Array[Any], selection: Any, out: Array | None, engine: Engine, stream: Any, counter: str
) -> Array:
    """Read by zarr's own pipeline on the host, then copy to the engine."""
    count(counter)
    if zarr.config.get("zarrgpu.strict", False):
        raise UnsupportedError(counter.partition(":")[2])
    host = np.asarray(_compat.read_with_zarr(array, selection))
    native = host.dtype.newbyteorder("=")
    host = reordered(host, native) if is_plain(native) else host.astype(native, copy=False)
    if out is None:
        return engine.from_host(host) if engine.supports(native) else host
    check_out(out, host.shape, native, engine)
    if stream is not None:  # what is on it may still use `out`
        with engine.lanes(stream) as lanes:
            lanes[0].wait()
    engine.assign(out, engine.from_host(host.view(out.dtype)))  # of times maybe the bits
    return out


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], engine: Engine) -> None:
    """Raise unless `out` is an array of the engine, of this shape and dtype."""
    if not engine.owns(out):
        raise TypeError(f"out must be an array on {engine.name}, got {type(out).__name__}")
    if out.shape != shape or out.dtype not in (dtype, bits_of(dtype)):
        raise ValueError(f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}")
