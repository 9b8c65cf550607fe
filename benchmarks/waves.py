"""All chunks of an array as one wave on a lane, so that its kernels can be run and timed alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import zarr

from zarrgpu import _compat
from zarrgpu._compat import store as stores
from zarrgpu._cuda import Kernel
from zarrgpu.chain import bind
from zarrgpu.encoded import OnHost
from zarrgpu.engine.base import Engine, Lane, aligned
from zarrgpu.files import files
from zarrgpu.kernels import boxes as b
from zarrgpu.kernels import deflate, zstd
from zarrgpu.kernels import tables as t
from zarrgpu.plan import plan
from zarrgpu.selection import Axis

Enqueue = Callable[[], None]

LAUNCHES = 5
"""Launches between two events on a GPU: with the one before them they hide what it costs the host to launch."""


class Wave:
    """An array in a local store, fetched and located.

    Parameters
    ----------
    array : zarr.Array
        All of its chunks are in the store.
    engine : Engine
    lane : Lane
        One of the engine's.

    Attributes
    ----------
    decoded, encoded : int
        Bytes of all chunks.
    out : Array
        Where `assemble` puts them.
    """

    def __init__(self, array: zarr.Array[Any], engine: Engine, lane: Lane) -> None:
        metadata: Any = array.metadata
        self.engine, self.lane = engine, lane
        self.program = bind(_compat.chain_of(_compat.evolved_codecs(metadata), _compat.spec_of(metadata)), False)
        self.out = engine.empty(array.shape, self.program.stored)
        whole: list[Any] = [Axis(0, 1, n) for n in array.shape]
        strides = self.program.chunk_strides(array.chunks)
        self.plan = plan([whole], array.shape, array.chunks, strides, self.out.strides)
        root = stores.local_path(array.store_path)
        self.files = files([f"{root}/{metadata.encode_chunk_key(tuple(c))}" for c in self.plan.grid.tolist()])
        starts, sizes, self.used = self.fetch()
        if (sizes < 0).any():
            raise ValueError("chunks are missing")
        nbytes, slot = self.program.nbytes, aligned(self.program.scratch)
        self.chunks = np.column_stack([starts, sizes, np.arange(len(sizes)) * slot, np.full(len(sizes), nbytes)])
        self.decoded, self.encoded = nbytes * len(sizes), int(sizes.sum())
        self.located = self.program.container.locate(OnHost(lane.arena[: self.used]), self.chunks)
        if self.located.status.any():
            raise ValueError(f"chunks are refused: {self.located.status}")
        source, scratch = lane.upload(self.used), lane.scratch(len(sizes) * slot)
        self.arenas = (source, source.view(np.uint32), scratch, scratch.view(np.uint32))

    def fetch(self) -> tuple[Any, Any, int]:
        """Read the files into the arena."""
        return self.files.load(0, len(self.plan), self.lane.reserve)

    def decompress(self, kind: str, kernel: Kernel) -> tuple[Enqueue, int]:
        """What decodes the streams of a kind, and how many bytes come out."""
        lines = self.located.work[kind]
        streams, order = self.lane.tables(self.located.streams, lines)
        status = self.lane.zeros(len(self.located.streams))
        return self.checked(kernel, len(lines), status, *self.arenas, streams, order), int(
            self.located.streams[lines, t.S_WANT].sum()
        )

    def zstd(self, step: str = "") -> tuple[Enqueue, int]:
        """What decodes the streams of Zstandard, or the kernel of that name alone, and how many bytes come out."""
        status = self.lane.zeros(len(self.located.streams))
        enqueue = zstd_enqueue(self.lane, self.located.zstd, self.arenas, self.located.streams, status)
        enqueue()
        found = self.lane.download(status)
        self.lane.wait()
        if found.any():
            raise AssertionError(f"the kernels of zstd refuse good data: {np.unique(found)}")
        lines = np.concatenate([group.lines for group in self.located.zstd])
        return partial(enqueue, step), int(self.located.streams[lines, t.S_WANT].sum())

    def deflate(self, form: str = "") -> tuple[Enqueue, int]:
        """What decodes the streams of zlib or gzip and verifies them, and how many bytes come out."""
        ((kind, lines),) = ((k, lines) for k, lines in self.located.work.items() if k in deflate.FRAMINGS)
        sizes = self.located.streams[lines, t.S_WANT]
        job = deflate.Job(deflate.FRAMINGS[kind], len(lines), int(sizes.max()), form)
        assert job.checksum is not None
        streams, order, tables = self.lane.tables(self.located.streams, lines, job.checksum.tables)
        members = self.lane.room(job.rows * deflate.MEMBER_COLUMNS, np.int64)
        rooms = (
            members.reshape(job.rows, deflate.MEMBER_COLUMNS),
            self.lane.local(job.work),
            self.lane.room(job.partials, np.uint64),
        )
        status = self.lane.zeros(len(self.located.streams))

        def enqueue() -> None:
            deflate.decode(self.lane.launch, job, self.arenas, streams, order, tables, rooms, status)

        enqueue()
        found = self.lane.download(status)
        self.lane.wait()
        if found.any():
            raise AssertionError(f"the kernels of Deflate refuse good data: {np.unique(found)}")
        return enqueue, int(sizes.sum())

    def decompress_all(self) -> None:
        """Decode every stream, so that `assemble` finds what it needs."""
        for kind in self.located.work:
            if kind in deflate.FRAMINGS:
                self.deflate()
            else:
                self.decompress(kind, self.engine.decoders()[kind])
        if self.located.zstd:
            self.zstd()
        self.lane.wait()

    def assemble(self, kernels: Any) -> tuple[Enqueue, int]:
        """What assembles all chunks by `kernels` (a module), and how many bytes are read and written."""
        own, src, dst = b.merge_axes(self.plan.boxes, self.plan.src_strides, self.plan.dst_strides)
        itemsize, swap = self.out.dtype.itemsize, self.program.swap(self.out.dtype)
        groups, flat = kernels.groups(own, itemsize), self.engine.flat(self.out)
        assert flat is not None
        fill = np.zeros(itemsize, np.uint8)
        layouts, table, src, dst, fill = self.lane.tables(self.located.layouts, own, src, dst, fill)
        status = self.lane.zeros(len(own))
        with getattr(self.lane, "stream", nullcontext()):
            self.out.fill(0)  # what another kernel left there must not pass for this one's
        arguments = (groups, *self.arenas, layouts, table, src, dst, fill, *flat)
        enqueue = self.checked(kernels.kernel(itemsize, swap), len(own) * groups, status, *arguments)
        return enqueue, self.decoded + self.out.nbytes

    def checked(self, kernel: Kernel, n: int, status: Any, *arguments: Any) -> Enqueue:
        """What launches a kernel whose last argument is its status, after a first launch that must end well."""

        def enqueue() -> None:
            self.lane.launch(kernel, n, *arguments, status)

        enqueue()
        found = self.lane.download(status)
        self.lane.wait()
        if found.any():
            raise AssertionError(f"{kernel.name} refuses good data: {np.unique(found)}")
        return enqueue


def zstd_enqueue(
    lane: Lane, groups: list[zstd.Group], arenas: Any, streams: Any, status: Any, form: str | None = None
) -> Callable[..., None]:
    """What launches all kernels of Zstandard, or, given a part of a name, those whose names have it."""
    launches = []
    (table,) = lane.tables(streams)
    for group in groups:
        tables = lane.tables(group.lines, group.first, group.blocks, zstd.NUMBERS)
        pool, digests = (lane.room(n, np.uint64) for n in (group.sequences, 4 * group.n_blocks))
        rooms = pool, lane.local(group.work), digests
        launches += list(zstd.launches(group, arenas, table, tables, rooms, status, form))

    def enqueue(step: str = "") -> None:
        for kernel, n, args in launches:
            if step in kernel.name:
                lane.launch(kernel, n, *args)

    return enqueue


def seconds(lane: Lane, enqueue: Enqueue, repeats: int = 5) -> float:
    """Median time of what `enqueue` asks of a lane: by CUDA events on a GPU, by the clock on the host."""
    stream = getattr(lane, "stream", None)
    times = []
    for _ in range(repeats):
        if stream is None:
            begin = time.perf_counter()
            enqueue()
            times.append(time.perf_counter() - begin)
            continue
        import cupy

        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        enqueue()
        first.record(stream)
        for _ in range(LAUNCHES):
            enqueue()
        last.record(stream)
        last.synchronize()
        times.append(cupy.cuda.get_elapsed_time(first, last) / 1e3 / LAUNCHES)
    return statistics.median(times)
