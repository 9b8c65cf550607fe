"""Chunks that libraries decode on host threads: before the kernels do their part, and instead of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu._counters import count
from zarrgpu.chain import reordered
from zarrgpu.codecs import Refused, Stage
from zarrgpu.codecs.library import as_bytes
from zarrgpu.engine.base import aligned, workers
from zarrgpu.errors import ChunkError, DecoderMismatchWarning
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.request import Request
    from zarrgpu.wave import Wave

Bytes = npt.NDArray[np.uint8]
Lines = npt.NDArray[np.int64]
Verdict = tuple[Status, str]
"""What was said of a chunk, and the codec that said it."""


def decode(stages: Sequence[Stage], encoded: Sequence[Bytes], outs: Sequence[Bytes]) -> list[Verdict]:
    """Decode chunks by the libraries of `stages`, one after the other, each chunk on a thread and into its `out`."""

    def one(data: Bytes, out: Bytes) -> Verdict:
        for i, stage in enumerate(stages):
            try:
                data = as_bytes(stage.decode(data, out if i + 1 == len(stages) else None))
                if stage.spec.nbytes not in (None, data.size):
                    raise Refused(Status.WRONG_SIZE)
            except Refused as refused:
                return refused.status, stage.name
            except Exception:  # the last word is zarr's own decoder's, which says why
                return Status.REFUSED, stage.name
        return Status.OK, ""

    return list(workers().map(one, encoded, outs))


def decode_first(request: Request, wave: Wave) -> dict[int, Verdict]:
    """Decode what is fetched by the program's `host` stages: into the output where it fills that, else into the arena.

    Returns
    -------
    dict of int to (Status, str)
        The chunks of the wave that were refused.
    """
    program, n = request.program, request.program.encoded_nbytes
    assert n is not None
    which = np.flatnonzero(wave.chunks[:, t.C_SIZE] >= 0)
    fills = _fills_output(request, wave)[which]
    wave.unused = wave.used
    slots = _append(wave, n, int((~fills).sum()))
    starts = np.zeros(len(which), np.int64)
    starts[~fills] = slots
    to_output = request.plan.boxes[wave.first + which, t.B_DEST]
    out, arena = request.flat[0], wave.lane.arena
    places = [
        out[dest : dest + n] if direct else arena[start : start + n]
        for dest, start, direct in zip(to_output.tolist(), starts.tolist(), fills.tolist(), strict=True)
    ]
    verdicts = decode(program.host, [wave.encoded(i) for i in which.tolist()], places)
    good = np.array([status == Status.OK for status, _ in verdicts], bool)
    wave.inner[which, t.C_START] = starts
    wave.inner[which, t.C_SIZE] = np.where(good & ~fills, n, -1)
    wave.done[which] = good & fills
    return {i: verdict for i, verdict in zip(which.tolist(), verdicts, strict=True) if verdict[0] != Status.OK}


def decode_instead(request: Request, wave: Wave, which: Lines) -> dict[int, Verdict]:
    """Decode the chunks `which` by their container's library, into the arena; gives those refused, as above."""
    container = request.program.container
    n = container.nbytes
    starts = _append(wave, n, len(which))
    arena, inner = wave.lane.arena, wave.inner[which]
    encoded = [arena[start : start + size] for start, size in inner[:, [t.C_START, t.C_SIZE]].tolist()]
    verdicts = decode([container], encoded, [arena[start : start + n] for start in starts.tolist()])
    wave.located.layouts[which] = (t.SOURCE, 0, n, n, 1, t.PLAIN)
    wave.located.layouts[which, t.L_BASE] = starts
    return {i: verdict for i, verdict in zip(which.tolist(), verdicts, strict=True) if verdict[0] != Status.OK}


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
        array = by_cpu(decode, wave.encoded(i).tobytes(), refused[i], request.name(wave.first + i))
        return np.frombuffer(reordered(array, program.stored).transpose(program.axes).tobytes(), np.uint8)

    which = np.array(sorted(refused), np.int64)
    decoded = list(workers().map(one, which.tolist()))
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
    if not request.engine.by_library or not same.all() or program.swap(request.out.dtype):
        return np.zeros(len(own), bool)
    whole: npt.NDArray[np.bool_] = (own[:, t.B_FIRST] == 0) & (own[:, t.B_COUNT :] == shape).all(axis=1)
    return whole
