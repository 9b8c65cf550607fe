"""A read by programs of ours, for both front doors: chunks and shards bound, selections planned, requests run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import zarr
from zarr.errors import ChunkNotFoundError

from zarrgpu import _compat, _fork, _out, _settings
from zarrgpu._compat import store as stores
from zarrgpu._compat.select import Part, Selected, select
from zarrgpu._compat.shards import flatten
from zarrgpu._counters import count
from zarrgpu._memo import Memo
from zarrgpu.chain import Program, bind, is_plain, native, reordered
from zarrgpu.engine.base import Array, Engine
from zarrgpu.errors import UnsupportedError
from zarrgpu.fetch import Source
from zarrgpu.keys import Keys
from zarrgpu.plan import Plan, plan
from zarrgpu.selection import Orthogonal, Selection, parse
from zarrgpu.shards import Level, Shards, places

Lines = npt.NDArray[np.int64]


class Bound(NamedTuple):
    """The chunks of an array, all of one shape, on an engine.

    Attributes
    ----------
    program : Program
        Of a chunk; where there are shards, of an inner chunk.
    spec, codecs : ArraySpec, tuple of Codec
        The same in zarr's words.
    levels : tuple of Level
        The shards that hold the chunks.
    shape : tuple of int
        Of what is one value in the store, a chunk or a shard.
    """

    program: Program
    spec: Any
    codecs: tuple[Any, ...]
    levels: tuple[Level, ...]
    shape: tuple[int, ...]


def bind_chunks(codecs: Sequence[Any], spec: Any, engine: Engine) -> Bound:
    """Bind chunks, or shards, of a spec to an engine; `UnsupportedError` where they have no program there."""
    inner, chunk, levels = flatten(codecs, spec)
    return Bound(bind(_compat.chain_of(inner, chunk), engine.by_library), chunk, inner, levels, tuple(spec.shape))


_bound = Memo[Bound]()


def bind_array(array: zarr.Array[Any], engine: Engine) -> Bound:
    """Bind an array to an engine, once; where its chunks differ in shape, chunks of one element."""

    def make() -> Bound:
        spec = replace(_compat.spec_of(array.metadata), config=_compat.config_of(array))
        return bind_chunks(_compat.evolved_codecs(array.metadata), spec, engine)

    return _bound.get(array.metadata, (*_compat.settings_of(array), engine.by_library), make)


def read(array: zarr.Array[Any], selection: Any, out: Array | None, engine: Engine, stream: Any) -> Array:
    """What `zarrgpu.read` does, by programs of ours; `UnsupportedError` where there is none."""
    with counted("fallback.bind"):
        bound = bind_array(array, engine)
        regular = _compat.chunk_shape(array.metadata) is not None
    with counted("fallback.plan"):
        selected = select(array, selection, bound.spec, regular)
        groups = _parts_by_shape(selected, array, bound, engine)
    dtype = bound.program.dtype.newbyteorder("=")
    if out is None:
        out = engine.empty(selected.shape, dtype)
    else:
        _out.check(out, selected.shape, dtype)
    target = writable(engine, out, flat=selected.flat)
    for one, extent, parts in groups:
        _read_parts(array, one, extent, parts, engine, target, stream)
    finish(engine, out, target)
    return out


def _parts_by_shape(
    selected: Selected, array: zarr.Array[Any], bound: Bound, engine: Engine
) -> list[tuple[Bound, tuple[int, ...], list[tuple[Part, Selection]]]]:
    """The parts of a selection, those from chunks of one shape together; the shape of what each selects from."""
    groups: dict[tuple[int, ...], tuple[Bound, tuple[int, ...], list[tuple[Part, Selection]]]] = {}
    for part in selected.parts:
        extent = array.shape if part.spec is None else tuple(part.spec.shape)
        if extent not in groups:
            one = bound if part.spec is None else bind_chunks(_compat.evolved_codecs(array.metadata), part.spec, engine)
            groups[extent] = one, extent, []
        groups[extent][2].append((part, parse(part.selected, part.target, extent, selected.drop_axes)))
    return list(groups.values())


def _read_parts(
    array: zarr.Array[Any],
    bound: Bound,
    extent: tuple[int, ...],
    parts: Sequence[tuple[Part, Selection]],
    engine: Engine,
    target: Array,
    stream: Any,
) -> None:
    """Read the parts of a selection that come from chunks of one shape."""
    planned = plan_for(bound, [selection for _, selection in parts], extent, target.strides)
    # each part is all of the array, or from a chunk of its own
    chunks = None if parts[0][0].spec is None else np.array([part.coordinates for part, _ in parts], np.int64)
    read_planned(array, bound, planned, engine, target, stream, chunks)


def read_planned(
    array: zarr.Array[Any],
    bound: Bound,
    planned: Plan,
    engine: Engine,
    target: Array,
    stream: Any,
    chunks: Lines | None = None,
) -> None:
    """Run a plan of an array; where its selections are from chunks, `chunks` has the coordinates for each."""
    planned, of, owner, grid, entries = in_shards(planned, bound.levels)
    if chunks is not None:
        grid = chunks[owner]
    metadata, store_path = array.metadata, array.store_path
    keys = Keys(metadata.encode_chunk_key, grid, _compat.key_style(metadata))
    source = stores.source_in(store_path, keys, bound.spec, _compat.loop(), engine)
    limit = _settings.of(array).memory_limit
    present = execute(
        engine, target, planned, of, entries, source, bound, lambda i: store_path / keys[i], limit, stream
    )
    if not present.all() and not bound.spec.config.read_missing_chunks:
        missing = sorted({keys[i] for i in of[~present].tolist()})
        raise ChunkNotFoundError(f"{len(missing)} chunk(s) not found in store '{store_path}': {', '.join(missing)}")


def plan_for(
    bound: Bound, selections: Sequence[Selection] | Orthogonal, extent: tuple[int, ...], strides: Sequence[int]
) -> Plan:
    """Plan selections from things of the shape `extent`, a whole array or its chunks; `strides` are the output's."""
    chunks = bound.spec.shape
    return plan(selections, extent, chunks, bound.program.chunk_strides(chunks), strides)


def in_shards(planned: Plan, levels: Sequence[Level]) -> tuple[Plan, Lines, Lines, Lines, list[Lines]]:
    """Find the chunks of a plan in the store.

    Returns
    -------
    planned : Plan
        The same, chunks of a shard together.
    of : int64[n]
        Which value of the store holds each chunk.
    owner, grid : int64[c], int64[c, ndim]
        For each value, as in the plan.
    entries : list of int64[n]
        As of `zarrgpu.shards.places`.
    """
    if not levels:
        return planned, np.arange(len(planned)), planned.owner, planned.grid, []
    shard, entries = places(levels, planned.grid)
    lines = np.column_stack([planned.owner, shard])
    extent = lines.max(axis=0, initial=0) + 1
    _, first, of = np.unique(np.ravel_multi_index(tuple(lines.T), extent), return_index=True, return_inverse=True)
    order = np.argsort(of, kind="stable")
    ordered = planned if (order[1:] > order[:-1]).all() else planned.reordered(order)
    return ordered, of[order], lines[first, 0], lines[first, 1:], [entry[order] for entry in entries]


def writable(engine: Engine, out: Array, flat: bool = False) -> Array:
    """`out`, or a new array like it where kernels cannot write to `out` itself; of one axis if `flat`."""
    if flat and out.ndim != 1:
        return out.reshape(-1) if out.flags.c_contiguous else engine.empty((out.size,), out.dtype)
    return out if engine.flat(out) is not None else engine.empty(out.shape, out.dtype)


def finish(engine: Engine, out: Array, target: Array) -> None:
    """Bring what was read into `target`, which `writable` gave, to `out`."""
    if engine.address(target) != engine.address(out):
        engine.assign(out, target.reshape(out.shape))


def execute(
    engine: Engine,
    target: Array,
    planned: Plan,
    of: Lines,
    entries: Sequence[Lines],
    source: Source,
    bound: Bound,
    place: Callable[[int], Any],
    memory_limit: int | None,
    stream: Any = None,
) -> npt.NDArray[np.bool_]:
    """Run a plan, its chunks found by `in_shards`; gives for each of them whether the store has the value it is in.

    ``place(i)`` is the store path, or another byte getter, of value ``i`` of `source`.
    """
    with _fork.loading:
        from zarrgpu import wave  # numba, only once something is read
        from zarrgpu.request import Request

    program, spec, codecs, levels, _ = bound

    def named(i: int) -> tuple[str, str]:
        return stores.name_of(place(i))

    def name(i: int) -> tuple[str, str]:
        store, key = named(int(of[i]))
        return store, f"{key}[{', '.join(str(entry[i]) for entry in entries)}]" if entries else key

    source.name = named
    shards = Shards(source, levels, of, entries, named) if levels else None
    request = Request(
        program=program,
        plan=planned,
        source=shards or source,
        engine=engine,
        chunk_shape=spec.shape,
        out=target,
        fill=_compat.fill_bytes(spec, target.dtype),
        decode_on_cpu=partial(_compat.decode_on_cpu, codecs, spec),
        name=name,
        memory_limit=memory_limit,
    )
    present = wave.run(request, stream)
    return shards.present() if shards else present


@contextmanager
def counted(kind: str) -> Iterator[None]:
    """Count an `UnsupportedError` under its reason as it passes."""
    try:
        yield
    except UnsupportedError as error:
        count(f"{kind}:{error.reason}")
        raise


def through_zarr(
    array: zarr.Array[Any], selection: Any, out: Array | None, engine: Engine, stream: Any, reason: str
) -> Array:
    """Read by zarr's own pipeline on the host, then copy to the engine."""
    if _settings.of(array).strict:
        raise UnsupportedError(reason)
    host = np.asarray(_compat.read_with_zarr(array, selection))
    dtype = native(host.dtype)
    host = reordered(host, dtype) if is_plain(dtype) else host.astype(dtype, copy=False)
    if out is None:
        return engine.from_host(host) if engine.supports(dtype) else host
    _out.check(out, host.shape, dtype)
    if stream is not None:  # what is on it may still use `out`
        with engine.lanes(stream) as lanes:
            lanes[0].wait()
    engine.assign(out, engine.from_host(host.view(out.dtype)))  # of times maybe the bits
    return out
