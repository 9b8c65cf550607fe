"""A Blosc chunk by c-blosc on several threads: its blocks, some of them at a time, as chunks of their own.

The format is that of c-blosc's ``README_CHUNK_FORMAT``: a header of 16 bytes, an ``int32`` for each block that says
where it starts, and the blocks in any order. numcodecs lets c-blosc use threads of its own only if all of the process
does, and zarr says no to that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import decompress

from zarrgpu._threads import share, workers

HEADER = 16
MEMCPYED, UNSPLIT = 1 << 1, 1 << 4
"""The flags of a chunk that is stored as it is, without blocks, and of one whose blocks are not split into streams."""

LEAST = 1 << 18
"""Decoded bytes that are worth a part of their own."""

Bytes = npt.NDArray[np.uint8]


def decompress_by(threads: int, encoded: Bytes, out: Bytes) -> Bytes:
    """Decode a chunk into `out`, which is as long as its header says, on so many threads.

    What does not look as blocks should, or is refused in one of them, is left to c-blosc as a whole, whose word counts.
    """
    blocks = _blocks(encoded, out.size) if threads > 1 and out.size >= 4 * LEAST else None
    if blocks is None:
        return decompress(encoded, out)  # type: ignore[no-any-return]  # it has no types
    size, starts, ends = blocks
    parts = min(len(starts), out.size // LEAST)
    bounds = [len(starts) * k // parts for k in range(parts + 1)]

    def one(k: int) -> None:
        first, last = bounds[k : k + 2]
        part = out[first * size : last * size]
        decompress(_chunk(encoded, size, part.size, starts[first:last], ends[first:last]), part)

    try:
        share(workers(), threads, parts, one)
    except RuntimeError:
        return decompress(encoded, out)  # type: ignore[no-any-return]  # as above
    return out


def _blocks(encoded: Bytes, nbytes: int) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Bytes of a block, and where in a chunk each begins and ends; None where there are not several in good order."""
    size, end = np.frombuffer(encoded[8:HEADER].tobytes(), "<i4").tolist()
    if encoded[2] & MEMCPYED or not 0 < 2 * size <= nbytes or end > encoded.size:
        return None
    n = -(-nbytes // size)
    table = encoded[HEADER : HEADER + 4 * n]
    if table.size < 4 * n:
        return None
    starts = np.frombuffer(table.tobytes(), "<i4").astype(np.int64)
    order = np.argsort(starts, kind="stable")
    ends = np.empty_like(starts)
    ends[order] = np.append(starts[order[1:]], end)
    if starts.min() < HEADER + 4 * n or (ends <= starts).any():
        return None
    return size, starts, ends


def _chunk(encoded: Bytes, size: int, nbytes: int, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Bytes:
    """A chunk of some blocks of another, with its flags."""
    places = HEADER + 4 * len(starts) + np.cumsum(ends - starts)
    chunk = np.empty(int(places[-1]), np.uint8)
    chunk[:4] = encoded[:4]
    if nbytes < size:  # the last block alone, which is never split into streams
        chunk[2] |= UNSPLIT
    places -= ends - starts
    numbers = np.concatenate([[nbytes, min(size, nbytes), chunk.size], places]).astype("<i4")
    chunk[4 : int(places[0])] = numbers.view(np.uint8)
    for place, start, end in zip(places.tolist(), starts.tolist(), ends.tolist(), strict=True):
        chunk[place : place + end - start] = encoded[start:end]
    return chunk
