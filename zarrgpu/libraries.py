"""Chunks that libraries decode on host threads: before the kernels do their part, and instead of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu._counters import count
from zarrgpu._record import aside, step
from zarrgpu._threads import cores, on_all_cores
from zarrgpu.chain import reordered
from zarrgpu.codecs import Refused, Stage
from zarrgpu.codecs.library import as_bytes
from zarrgpu.engine.base import aligned
from zarrgpu.errors import ChunkError, DecoderMismatchWarning
from zarrgpu.fetch import MISSING, UNKNOWN
from zarrgpu.kernels import boxes
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.request import Request
    from zarrgpu.wave import Wave

Bytes = npt.NDArray[np.uint8]
Lines = npt.NDArray[np.int64]
Verdict = tuple[Status, str]
"""What was said of a chunk, and the codec that said it."""


def decode(stages: Sequence[Stage], data: Bytes, out: Bytes, threads: int = 1) -> Verdict:
    """Decode a chunk by the libraries of `stages`, one after the other, the last of them into `out`."""
    for i, stage in enumerate(stages):
        try:
            data = as_bytes(stage.decode_by(threads, data, out if i + 1 == len(stages) else None))
            if stage.spec.nbytes not in (None, data.size):
                raise Refused(Status.WRONG_SIZE)
        except Refused as refused:
            return refused.status, stage.name
        except Exception:  # the last word is zarr's own decoder's, which says why
            return Status.REFUSED, stage.name
    return Status.OK, ""


def _decoded_first(_: object, request: Request, wave: Wave) -> int:
    nbytes = request.program.encoded_nbytes or 0
    return nbytes * int(wave.done.sum() + (wave.inner[:, t.C_SIZE] != MISSING).sum())


@step("decompress", 1, _decoded_first)
def decode_first(request: Request, wave: Wave) -> dict[int, Verdict]:
    """Decode a wave by the program's `host` stages: into the output where a chunk fills that, else into the arena.

    Each chunk has a thread, which also fetches it where that was not done yet.

    Returns
    -------
    dict of int to (Status, str)
        The chunks of the wave that were refused.
    """
    program, n = request.program, request.program.encoded_nbytes
    assert n is not None
    fills = _fills_output(request, wave)
    wave.unused = wave.used
    kept = ~fills & (wave.chunks[:, t.C_SIZE] != MISSING)
    wave.inner[kept, t.C_START] = _append(wave, n, int(kept.sum()))
    out, arena, threads = request.flat[0], wave.lane.arena, cores() // len(fills)

    encoded = wave.encoded
    if wave.lane.watch is not None and (wave.chunks[:, t.C_SIZE] == UNKNOWN).all():  # it fetches, too
        encoded = aside("fetch", wave.lane, encoded, "decompress", lambda data: 0 if data is None else data.size)

    def one(i: int, start: int, direct: bool) -> Verdict | None:
        data = encoded(i, request.source)
        if data is None:
            return None
        place = out if direct else arena
        return decode(program.host, data, place[start : start + n], threads)

    starts = np.where(fills, request.plan.boxes[wave.first : wave.last, t.B_DEST], wave.inner[:, t.C_START])
    work = aside("decompress", wave.lane, one)
    verdicts = on_all_cores(work, range(len(starts)), starts.tolist(), fills.tolist())
    good = np.array([verdict is not None and verdict[0] == Status.OK for verdict in verdicts], bool)
    wave.inner[:, t.C_SIZE] = np.where(good & ~fills, n, MISSING)
    wave.done |= good & fills
    return {i: verdict for i, verdict in enumerate(verdicts) if verdict is not None and verdict[0] != Status.OK}


@step("decompress", 1, lambda _, request, wave, which: request.program.container.nbytes * len(which))
def decode_instead(request: Request, wave: Wave, which: Lines) -> dict[int, Verdict]:
    """Decode the chunks `which` by their container's library, into the arena; gives those refused, as above."""
    container = request.program.container
    n = container.nbytes
    starts = _append(wave, n, len(which))
    arena, threads = wave.lane.arena, cores() // len(which)

    def one(i: int, start: int) -> Verdict:
        return decode([container], _given(request, wave, i), arena[start : start + n], threads)

    verdicts = on_all_cores(one, which.tolist(), starts.tolist())
    wave.located.layouts[which] = (t.SOURCE, 0, n, n, 1, t.PLAIN)
    wave.located.layouts[which, t.L_BASE] = starts
    return {i: verdict for i, verdict in zip(which.tolist(), verdicts, strict=True) if verdict[0] != Status.OK}


@step("decompress", 1, lambda _, request, wave, refused: request.program.nbytes * len(refused))
def last_word(request: Request, wave: Wave, refused: dict[int, Verdict]) -> None:
    """Let zarr's own codecs decode the chunks that ours refused, and point their layouts to what they give.

    Raises
    ------
    ChunkError
        For a chunk that zarr's codecs refuse too.
    """
    program = request.program

    def decode(encoded: bytes) -> npt.NDArray[Any]:
        array = request.decode_on_cpu(encoded)
        if array.shape != request.chunk_shape:
            raise ValueError(f"decodes to shape {array.shape}, expected {request.chunk_shape}")
        return array

    def one(i: int) -> Bytes:
        encoded = wave.encoded(i, request.source)
        assert encoded is not None
        array = by_cpu(decode, encoded.tobytes(), refused[i], request.name(wave.first + i))
        return np.frombuffer(reordered(array, program.stored).transpose(program.axes).tobytes(), np.uint8)

    which = np.array(sorted(refused), np.int64)
    decoded = on_all_cores(one, which.tolist())
    starts = _append(wave, program.nbytes, len(which))
    for start, data in zip(starts.tolist(), decoded, strict=True):
        wave.lane.arena[start : start + data.size] = data
    wave.located.layouts[which] = (t.SOURCE, 0, program.nbytes, program.nbytes, 1, t.PLAIN)
    wave.located.layouts[which, t.L_BASE] = starts
    wave.final[which] = True


def by_cpu(decode: Callable[[bytes], Any], encoded: bytes, verdict: Verdict, name: tuple[str, str]) -> Any:
    """What ``decode(encoded)`` gives, for a chunk of this `name`, store and key, that ours refused.

    Raises
    ------
    ChunkError
        When `decode` refuses it too.
    """
    (status, codec), (store, key) = verdict, name
    reason = status.name.lower().replace("_", " ")
    if status is Status.CUT_SHORT:
        raise ChunkError(store, key, codec, f"{reason} at {len(encoded)} bytes")
    try:
        decoded = decode(encoded)
    except Exception as error:
        raise ChunkError(store, key, codec, f"{reason} ({type(error).__name__}: {error})") from error
    count(f"fallback.check:{reason}")
    if status is not Status.UNSUPPORTED:
        count("mismatch")
        message = f"{store}: chunk {key!r}: {codec}: our decoder says {reason}, the CPU decodes it"
        warnings.warn(message, DecoderMismatchWarning, stacklevel=3)
    return decoded


def _given(request: Request, wave: Wave, i: int) -> Bytes:
    """What the program's container is given of chunk `i`."""
    start, size = wave.inner[i, t.C_START], wave.inner[i, t.C_SIZE]
    if not wave.gathered:
        return wave.lane.arena[start : start + size]
    encoded = wave.encoded(i, request.source)
    assert encoded is not None
    return encoded[start - wave.chunks[i, t.C_START] :][:size]


def _append(wave: Wave, nbytes: int, n: int) -> Lines:
    """Room for `n` times `nbytes` at the end of a wave's arena: the first byte of each."""
    size = aligned(nbytes)
    wave.lane.reserve(wave.used + n * size, keep=wave.used)
    starts = wave.used + size * np.arange(n)
    wave.used += n * size
    return starts


def _fills_output(request: Request, wave: Wave) -> npt.NDArray[np.bool_]:
    """Which chunks of a wave lie in the output, in this process' memory, byte for byte as they are decoded."""
    plan, program = request.plan, request.program
    shape = np.array(request.chunk_shape or (1,))
    own = plan.boxes[wave.first : wave.last]
    same = (plan.dst_strides == plan.src_strides * program.stored.itemsize) | (shape == 1)
    indexed = boxes.is_indexed(own, plan.src_strides.size)
    if not request.engine.by_library or indexed or not same.all() or program.swap(request.out.dtype):
        return np.zeros(len(own), bool)
    whole: npt.NDArray[np.bool_] = (own[:, t.B_FIRST] == 0) & (own[:, t.B_COUNT :] == shape).all(axis=1)
    return whole
