"""How many chunks each wave of a request has, from what they decode to and the memory that they may take."""

from __future__ import annotations

from collections.abc import Iterator

from zarrgpu._threads import cores
from zarrgpu.request import Request

WAVE_BYTES = 384 << 20
"""Decoded bytes of a wave: what each one costs in Python, about 3 ms, is then less than its files take to read, and
there are streams enough to fill a GPU. On an H200 with 16 cores, waves of 128, 256, 384 and 512 MB gave in one run 49,
73, 75 and 67 GB/s of float32 in Blosc with LZ4; 45, 63, 75 and 77 with Zstd; 50, 66, 84 and 85 of uint16 with Zstd; 30,
41, 47 and 47 of shards with chunks of 64 kB."""

UPLOAD_BYTES = 256 << 20
"""Bytes to upload in a wave, where they are known: 41 GB/s uncompressed by 256 MB in that run, 38 by 384 MB."""

RESIDENT_WAVE_BYTES = 4 << 30
"""The same where chunks lie on the engine: nothing is fetched beside which another wave could decode. An H200 gave 66,
93, 111 and 134 GB/s of float32 in Blosc with LZ4 in waves of 384 MB, 1, 2 and 5 GB."""

LIBRARY_WAVE_BYTES = 256 << 20
"""The same where libraries decode before an upload: what each wave costs takes the GIL from threads that decode."""

HOST_WAVE_BYTES = 32 << 20
"""The same where nothing is uploaded."""

CORES_BYTES = 1 << 30
"""Where libraries decode there is a chunk for each core all the same, up to so many bytes."""

LARGE = 1 << 18
"""Decoded bytes from which on a thread that decodes a chunk also reads its file, which is then in its core's cache."""

SHARE = 4
"""The first and the last waves are this many times smaller than the others; two of these make a request of one wave."""


def waves(request: Request, lanes: int) -> Iterator[tuple[int, int]]:
    """First chunk of each wave, and the one after its last.

    The first waves are small, so that the engine starts soon, and so are the last, since nothing is left to overlap
    with; unless they take as long as large ones.
    """
    n, most = len(request.plan), chunks_per_wave(request, lanes)
    even = bool(request.program.host) or request.program.container.at_once > 0 or n <= most // 2
    least = most if even else max(1, most // SHARE)
    first, size = 0, least
    while first < n:
        left = n - first
        size = left if left < 2 * least and left <= most else min(size, max(least, left // 2))
        yield first, first + min(size, left)
        first += size
        size = min(2 * size, most)


def chunks_per_wave(request: Request, lanes: int) -> int:
    """Chunks that make a wave at most, and whose bytes fit the memory limit, all lanes being full; at least one."""
    program = request.program
    nbytes = max(program.nbytes, 1)
    here = request.source.on_engine
    n = max((RESIDENT_WAVE_BYTES if here else WAVE_BYTES) // nbytes, program.container.at_once)
    if program.encoded_nbytes and not here:
        n = min(n, UPLOAD_BYTES // program.encoded_nbytes)
    if program.host:
        room = HOST_WAVE_BYTES if request.engine.by_library else LIBRARY_WAVE_BYTES
        n = max(room // nbytes, min(cores(), CORES_BYTES // nbytes))
    limit = request.memory_limit
    if limit is None and len(request.plan) > min(n, WAVE_BYTES // nbytes):
        limit = request.engine.budget()
    if limit is not None:
        each = (program.encoded_nbytes or program.nbytes) + program.scratch * (2 if program.after else 1)
        if program.host and not one_by_one(request):  # what libraries decode lies before it, hardly ever larger
            each += program.nbytes
        each += program.container.tables()
        n = min(n, limit // (lanes * max(each, 1)))
    return max(1, n)


def one_by_one(request: Request) -> bool:
    """Whether a thread that decodes a chunk reads it, too, into memory of its own."""
    program = request.program
    return bool(program.host) and request.source.one_by_one and program.nbytes >= LARGE
