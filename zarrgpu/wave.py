"""The scheduler: a request's plan in waves, each fetched, uploaded, located, decompressed, assembled and checked.

The next wave is fetched while this one decodes, and on a GPU several waves decode at once, each on its lane's stream.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._counters import count
from zarrgpu.chain import Program, reordered
from zarrgpu.codecs import Located
from zarrgpu.engine.base import Array, Engine, Lane, aligned, workers
from zarrgpu.errors import ChunkError, DecoderMismatchWarning
from zarrgpu.fetch import MISSING, Source
from zarrgpu.kernels import assemble, assemble_words, boxes
from zarrgpu.kernels import tables as t
from zarrgpu.plan import Plan

WAVE_BYTES = 128 << 20
"""Decoded bytes of a wave: enough streams to fill a GPU, few enough that the first one starts soon."""

Status = t.Status


@dataclass
class Request:
    """All that a read needs besides an engine's lanes.

    Attributes
    ----------
    program, plan, source, engine
        What to decode, which bytes, where from, where.
    chunk_shape : tuple of int
        Of a decoded chunk.
    out : Array
        The output, an array of the engine, contiguous and aligned as `Engine.flat` wants it.
    fill : uint8[itemsize]
        The fill value as bytes of `out`.
    decode_on_cpu : callable
        ``decode_on_cpu(encoded: bytes) -> numpy array`` of the chunk: zarr's own codecs, which have the last word.
    name : callable
        ``name(i) -> (store, key)`` of chunk ``i``, for messages.
    memory_limit : int or None
        Bytes of arenas that the request may take on the engine.
    """

    program: Program
    plan: Plan
    source: Source
    engine: Engine
    chunk_shape: tuple[int, ...]
    out: Array
    fill: npt.NDArray[np.uint8]
    decode_on_cpu: Callable[[bytes], npt.NDArray[Any]]
    name: Callable[[int], tuple[str, str]]
    memory_limit: int | None = None

    @cached_property
    def flat(self) -> tuple[Array, Array]:
        """The output as bytes and as words."""
        flat = self.engine.flat(self.out)
        assert flat is not None
        return flat

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return int(np.prod(self.chunk_shape, dtype=np.int64)) * self.program.stored.itemsize


@dataclass
class Wave:
    """Chunks ``first:last`` of a request on their way through a lane; those that are `done` are in the output."""

    lane: Lane
    first: int
    last: int
    chunks: npt.NDArray[np.int64]
    used: int
    located: Located
    done: npt.NDArray[np.bool_]
    stream_status: npt.NDArray[np.int32] | None = None
    box_status: list[npt.NDArray[np.int32]] = field(default_factory=list)


def run(request: Request, stream: Any = None) -> npt.NDArray[np.bool_]:
    """Read a request into its output; what was asked of the engine is done when this returns.

    Returns
    -------
    bool[n]
        Which chunks were in the store.

    Raises
    ------
    ChunkError
        For a chunk that the CPU's codecs refuse too. Others of the request may have been written to the output.
    """
    n = len(request.plan)
    present = np.zeros(n, bool)
    if n == 0:
        return present
    with request.engine.lanes(stream) as lanes:
        per_wave = _chunks_per_wave(request, len(lanes))
        if n <= per_wave:  # a single wave needs no other thread
            wave = _fetch(request, lanes[0], 0, n)
            _decode(request, wave)
            _finish(request, wave, present)
        else:
            _run_waves(request, lanes, per_wave, present)
    count(f"chunks.{request.engine.kind}", n)
    return present


def _run_waves(request: Request, lanes: list[Lane], per_wave: int, present: npt.NDArray[np.bool_]) -> None:
    """Keep every lane busy: some fetch, one is being enqueued, the others decode."""
    n, ahead = len(request.plan), request.engine.ahead
    free, busy, fetched = deque(lanes), deque[Wave](), deque[Future[Wave]]()
    firsts = iter(range(0, n, per_wave))
    with ThreadPoolExecutor(ahead, "zarrgpu-fetch") as fetcher:

        def start() -> None:
            first = next(firsts, None)
            if first is None:
                return
            if not free:
                free.append(_finish(request, busy.popleft(), present))
            fetched.append(fetcher.submit(_fetch, request, free.popleft(), first, min(first + per_wave, n)))

        for _ in range(ahead):
            start()
        while fetched:
            wave = fetched.popleft().result()
            start()
            _decode(request, wave)
            busy.append(wave)
        for wave in busy:
            _finish(request, wave, present)


def _chunks_per_wave(request: Request, lanes: int) -> int:
    """Chunks whose scratch and encoded bytes fit a wave, all lanes being full; at least one."""
    room = WAVE_BYTES
    if request.memory_limit is not None:
        room = min(room, request.memory_limit // (2 * lanes))
    return max(1, room // max(request.chunk_nbytes, 1))


def _fetch(request: Request, lane: Lane, first: int, last: int) -> Wave:
    """Fetch chunks and locate their streams; what has no kernel is decoded here, on the host."""
    stage = request.program.stage
    starts, sizes, used = request.source.load(first, last, lane.reserve)
    chunks = np.empty((last - first, t.CHUNK_COLUMNS), np.int64)
    chunks[:, t.C_START], chunks[:, t.C_SIZE] = starts, sizes
    chunks[:, t.C_SLOT] = np.arange(last - first) * aligned(stage.scratch(request.chunk_nbytes))
    chunks[:, t.C_WANT] = request.chunk_nbytes
    located = stage.locate(lane.arena[:used], chunks, request.engine.by_library)
    wave = Wave(lane, first, last, chunks, used, located, np.zeros(last - first, bool))
    if len(located.whole):
        _decode_whole(request, wave)
    refused = np.flatnonzero(wave.located.status)
    if len(refused):
        _decode_on_host(request, wave, refused, wave.located.status[refused])
    return wave


def _decode_whole(request: Request, wave: Wave) -> None:
    """Decode chunks by the codec's library, each on a thread: into the output where they fill it, else into scratch."""
    stage, nbytes = request.program.stage, request.chunk_nbytes
    scratch = wave.lane.scratch(len(wave.chunks) * aligned(stage.scratch(nbytes)))
    fills = _fills_output(request, wave)

    def decode(i: int) -> None:
        start, size, slot = wave.chunks[i, [t.C_START, t.C_SIZE, t.C_SLOT]].tolist()
        first, target = (
            (int(request.plan.boxes[wave.first + i, t.B_DEST]), request.flat[0]) if fills[i] else (slot, scratch)
        )
        try:
            stage.decode(wave.lane.arena[start : start + size], target[first : first + nbytes])
            wave.done[i] = fills[i]
        except Exception:  # the last word is zarr's own decoder's, which says why
            wave.located.status[i] = Status.REFUSED

    list(workers().map(decode, wave.located.whole.tolist()))


def _fills_output(request: Request, wave: Wave) -> npt.NDArray[np.bool_]:
    """Which chunks of a wave lie in the output byte for byte as they are decoded."""
    plan, itemsize = request.plan, request.program.stored.itemsize
    shape = np.array(request.chunk_shape or (1,))
    own = plan.boxes[wave.first : wave.last]
    same = (plan.dst_strides == plan.src_strides * itemsize) | (shape == 1)
    if not same.all() or request.program.swap(request.out.dtype):
        return np.zeros(len(own), bool)
    whole: npt.NDArray[np.bool_] = (own[:, t.B_FIRST] == 0) & (own[:, t.B_COUNT :] == shape).all(axis=1)
    return whole


def _decode(request: Request, wave: Wave) -> None:
    """Enqueue a fetched wave: upload, decompress, assemble, and the way back of its statuses."""
    lane, located = wave.lane, wave.located
    source = lane.upload(wave.used)
    scratch = lane.scratch(len(wave.chunks) * aligned(request.program.stage.scratch(request.chunk_nbytes)))
    arenas = (source, source.view(np.uint32), scratch, scratch.view(np.uint32))
    if located.work:
        streams, *orders = lane.tables(located.streams, *located.work.values())
        status = lane.zeros(len(located.streams))
        decoders = request.engine.decoders()
        for (kind, lines), order in zip(located.work.items(), orders, strict=True):
            lane.launch(decoders[kind], len(lines), *arenas, streams, order, status)
        wave.stream_status = lane.download(status)
    _assemble(request, wave, arenas, np.flatnonzero(~wave.done))


def _assemble(request: Request, wave: Wave, arenas: tuple[Array, ...], which: npt.NDArray[np.int64]) -> None:
    """Enqueue the boxes of the chunks `which` of a wave."""
    if len(which) == 0:
        return
    lane, plan, itemsize = wave.lane, request.plan, request.program.stored.itemsize
    layouts = wave.located.layouts
    own = plan.boxes[wave.first + which]
    own[:, t.B_LAYOUT] = which
    own, src, dst = boxes.merge_axes(own, plan.src_strides, plan.dst_strides)
    fast = assemble_words.eligible(layouts, own, src, dst, itemsize)
    swap = request.program.swap(request.out.dtype)
    rest = np.flatnonzero(~fast)
    copied = request.engine.copy_boxes(arenas[::2], request.flat[0], layouts, own[rest], (src, dst), itemsize, swap)
    parts = [(k, own[m]) for k, m in ((assemble_words, np.flatnonzero(fast)), (assemble, rest[~copied])) if len(m)]
    tables = lane.tables(layouts, src, dst, request.fill, *(part for _, part in parts))
    device_layouts, *device_strides, fill = tables[:4]
    for (kernels, part), device_part in zip(parts, tables[4:], strict=True):
        groups, status = kernels.groups(part, itemsize), lane.zeros(len(part))
        args = (groups, *arenas, device_layouts, device_part, *device_strides, fill, *request.flat, status)
        lane.launch(kernels.kernel(itemsize, swap), len(part) * groups, *args)
        wave.box_status.append(lane.download(status))


def _finish(request: Request, wave: Wave, present: npt.NDArray[np.bool_]) -> Lane:
    """Wait for a wave, act on its statuses, and give its lane back."""
    lane, located = wave.lane, wave.located
    lane.wait()
    if wave.stream_status is not None and wave.stream_status.any():
        lines = np.flatnonzero(wave.stream_status)
        refused, first = np.unique(located.streams[lines, t.S_CHUNK], return_index=True)
        _decode_on_host(request, wave, refused, wave.stream_status[lines[first]])
        source = lane.upload(wave.used)
        arenas = (source, source.view(np.uint32)) * 2
        _assemble(request, wave, arenas, refused)
        lane.wait()
    if any(status.any() for status in wave.box_status):
        raise RuntimeError("assemble was given boxes outside its arenas: a bug of zarrgpu, please report it")
    present[wave.first : wave.last] = wave.chunks[:, t.C_SIZE] != MISSING
    return lane


def _decode_on_host(request: Request, wave: Wave, which: npt.NDArray[np.int64], status: npt.NDArray[np.int32]) -> None:
    """Let the CPU decode the chunks `which`, append them to the arena, and point their layouts there."""
    lane, size = wave.lane, aligned(request.chunk_nbytes)

    def decode(i: int, code: int) -> npt.NDArray[np.uint8]:
        start, nbytes = wave.chunks[i, t.C_START], wave.chunks[i, t.C_SIZE]
        return _last_word(request, wave.first + i, Status(code), lane.arena[start : start + nbytes].tobytes())

    decoded = list(workers().map(decode, which.tolist(), status.tolist()))
    arena = lane.reserve(wave.used + size * len(decoded), keep=wave.used)
    for i, data in zip(which, decoded, strict=True):
        arena[wave.used : wave.used + data.size] = data
        wave.located.layouts[i] = (t.SOURCE, wave.used, data.size, data.size, 1, t.PLAIN)
        wave.used += size


def _last_word(request: Request, i: int, status: Status, encoded: bytes) -> npt.NDArray[np.uint8]:
    """The bytes of a chunk that our decoders refused, decoded by zarr's own codecs, in the program's order."""
    program, (store, key) = request.program, request.name(i)
    reason = status.name.lower().replace("_", " ")
    if status is Status.CUT_SHORT:
        raise ChunkError(store, key, program.stage.name, f"{reason} at {len(encoded)} bytes")
    try:
        array = request.decode_on_cpu(encoded)
        if array.shape != request.chunk_shape:
            raise ValueError(f"decodes to shape {array.shape}, expected {request.chunk_shape}")
    except Exception as error:
        raise ChunkError(store, key, program.stage.name, f"{reason} ({type(error).__name__}: {error})") from error
    count(f"fallback.check:{reason}")
    if status is not Status.UNSUPPORTED:
        count("mismatch")
        message = f"{store}: chunk {key!r}: {program.stage.name}: our decoder says {reason}, the CPU decodes it"
        warnings.warn(message, DecoderMismatchWarning, stacklevel=2)
    return np.frombuffer(reordered(array, program.stored).tobytes(order=program.order), np.uint8)
