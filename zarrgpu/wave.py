"""The scheduler: a request's plan in waves, each fetched, uploaded, located, decompressed, assembled and checked.

The next wave is fetched while this one decodes, and on a GPU several waves decode at once, each on its lane's stream.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu import assembly, libraries, sizing
from zarrgpu._counters import count
from zarrgpu._record import assembled_bytes, fetched_bytes, located_bytes, recorded, step
from zarrgpu.batch import Batch, Report, refusals
from zarrgpu.codecs import Checksum, Located
from zarrgpu.encoded import OnEngine, OnHost
from zarrgpu.engine.base import Array, Lane, aligned
from zarrgpu.fetch import MISSING, UNKNOWN, Source
from zarrgpu.kernels import tables as t
from zarrgpu.request import Request

Status = t.Status
Table = npt.NDArray[np.int64]


@dataclass
class Wave:
    """Chunks ``first:last`` of a request on their way through a lane.

    Attributes
    ----------
    chunks : int64[c, CHUNK_COLUMNS]
        As they were fetched.
    inner : int64[c, CHUNK_COLUMNS]
        What the program's container is given: decoded by what comes before it, without checksums.
    checks : list of (Checksum, chunks, spans, stored)
        Checksums that kernels verify: of which chunks, of which bytes in the arena, and where they are stored.
    unused, used : int
        Bytes of the lane's arena: up to `unused` nothing is to be uploaded, and after `used` there is nothing.
    gathered : bool
        Whether the chunks' encoded bytes are in the engine's source arena rather than in the lane's.
    done : bool[c]
        Which chunks are in the output.
    final : bool[c]
        Which are elements of the array by now, by the CPU's last word.
    located : Located
        Kept up to date as chunks are decoded on the host.
    reports : list of Report
    """

    lane: Lane
    first: int
    last: int
    chunks: Table
    inner: Table
    used: int
    done: npt.NDArray[np.bool_]
    final: npt.NDArray[np.bool_]
    unused: int = 0
    gathered: bool = False
    checks: list[tuple[Checksum, Table, Table, Table]] = field(default_factory=list)
    located: Located = field(init=False)
    reports: list[Report] = field(default_factory=list)

    def encoded(self, i: int, source: Source) -> npt.NDArray[np.uint8] | None:
        """The bytes of chunk `i` as they were fetched, or, where they were not, fetched now; None if it is missing."""
        if self.gathered or self.chunks[i, t.C_SIZE] == UNKNOWN:
            data = source.read(self.first + i)
            if data is None:
                self.chunks[i, t.C_SIZE] = MISSING
            return data
        start, size = self.chunks[i, t.C_START], self.chunks[i, t.C_SIZE]
        return None if size == MISSING else self.lane.arena[start : start + size]


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
    with request.engine.lanes(stream) as lanes, recorded(request, lanes):
        parts = list(sizing.waves(request, len(lanes)))
        if len(parts) == 1:  # which needs no other thread
            wave = _fetch(request, lanes[0], 0, n)
            _decode(request, wave)
            _finish(request, wave, present)
        else:
            _run_waves(request, lanes, parts, present)
    count(f"chunks.{request.engine.kind}", n)
    return present


def _run_waves(
    request: Request, lanes: list[Lane], parts: list[tuple[int, int]], present: npt.NDArray[np.bool_]
) -> None:
    """Keep every lane busy: some fetch, one is being enqueued, the others decode."""
    ahead = request.engine.ahead
    if request.program.host:  # more of them, since they end in any order and threads must not run out of chunks
        ahead = max(ahead, len(lanes) - 2)
    free, busy, fetched = deque(lanes), deque[Wave](), deque[Future[Wave]]()
    rest = iter(parts)
    with ThreadPoolExecutor(ahead, "zarrgpu-fetch", request.engine.use) as fetcher:

        def start() -> None:
            part = next(rest, None)
            if part is None:
                return
            if not free:
                free.append(_finish(request, busy.popleft(), present))
            fetched.append(fetcher.submit(_fetch, request, free.popleft(), *part))

        for _ in range(ahead):
            start()
        while fetched:
            wave = fetched.popleft().result()
            start()
            _decode(request, wave)
            busy.append(wave)
        for wave in busy:
            _finish(request, wave, present)


@step("fetch", 1, fetched_bytes, first=True)
def _fetch(request: Request, lane: Lane, first: int, last: int) -> Wave:
    """Fetch chunks, decode on the host what has no kernel, and locate the streams of the rest."""
    program, n = request.program, last - first
    gathered = request.source.on_engine and not program.host
    if gathered:
        starts, sizes, used = request.source.gather(lane, first, last)
    elif sizing.one_by_one(request):
        starts, sizes, used = np.zeros(n, np.int64), np.full(n, UNKNOWN), 0
    else:
        starts, sizes, used = request.source.load(first, last, lane.reserve)
    chunks = np.empty((n, t.CHUNK_COLUMNS), np.int64)
    chunks[:, t.C_START], chunks[:, t.C_SIZE] = starts, sizes
    chunks[:, t.C_SLOT] = np.arange(n) * aligned(program.scratch)
    chunks[:, t.C_WANT] = program.container.nbytes
    wave = Wave(lane, first, last, chunks, chunks.copy(), used, np.zeros(n, bool), np.zeros(n, bool))
    wave.gathered, wave.unused = gathered, used if gathered else 0
    refused = libraries.decode_first(request, wave) if program.host else {}
    for check in program.checks:
        refused |= _strip(wave, check)
    _locate(request, wave, refused)
    if refused:
        libraries.last_word(request, wave, refused)
    return wave


@step("locate", 0)
def _strip(wave: Wave, check: Checksum) -> dict[int, libraries.Verdict]:
    """Take a checksum off a wave's chunks, to be verified; the chunks that are too short for one."""
    inner = wave.inner
    short = (inner[:, t.C_SIZE] >= 0) & (inner[:, t.C_SIZE] < check.width)
    inner[short, t.C_SIZE] = MISSING
    lines = np.flatnonzero(inner[:, t.C_SIZE] >= 0)
    spans, stored = check.payload(inner[lines][:, [t.C_START, t.C_SIZE]])
    inner[lines, t.C_START], inner[lines, t.C_SIZE] = spans.T
    wave.checks.append((check, lines, spans, stored))
    return dict.fromkeys(np.flatnonzero(short).tolist(), (Status.TRUNCATED, check.name))


@step("locate", 1, located_bytes)
def _locate(request: Request, wave: Wave, refused: dict[int, libraries.Verdict]) -> None:
    """Find the streams of a wave; decode on the host those that have no kernel, or are too few for one."""
    container, lane, inner = request.program.container, wave.lane, wave.inner
    encoded = OnEngine(lane, lane.source(wave.used)) if wave.gathered else OnHost(lane.arena[: wave.used])
    wave.located = located = container.locate(encoded, inner)
    status, there = located.status, inner[:, t.C_SIZE] >= 0
    without = status == Status.UNSUPPORTED
    if without.any():
        without &= container.by_library(encoded, inner)
    if not wave.gathered and 0 < len(located.streams) < (container.fewest or 0):  # what is there stays there
        without |= there & (status == Status.OK)
        located.work.clear()
        located.zstd.clear()
    for i in np.flatnonzero(status.astype(bool) & there & ~without).tolist():
        refused[i] = Status(int(status[i])), container.name
    if without.any():
        if not wave.checks and (without | ~there).all():
            wave.unused = wave.used  # nothing of what was fetched is needed on the engine
        refused |= libraries.decode_instead(request, wave, np.flatnonzero(without))


@step("enqueue", 1)
def _decode(request: Request, wave: Wave) -> None:
    """Enqueue a fetched wave: upload, verify, decompress, transform, assemble, and the way back of the statuses."""
    program, lane, layouts = request.program, wave.lane, wave.located.layouts
    here = (layouts[:, t.L_ARENA] != t.FILL) & ~wave.done & ~wave.final
    source = lane.upload(wave.used, wave.unused)
    batch = Batch(request.engine, lane, source, layouts, np.flatnonzero(here), program.scratch)
    for check, lines, spans, stored in wave.checks:
        check.verify(batch, lines, np.full(len(lines), t.SOURCE), spans, stored)
    batch.decompress(program.container.name, wave.located)
    if here.any():
        batch.transform(program.after)
    wave.reports = batch.reports
    arenas, plain = batch.arenas, assembly.How(program.swap(request.out.dtype))
    if program.folded is None:
        _assemble(request, wave, arenas, ~wave.done, plain)
        return
    how = assembly.How(program.folded.swap, program.folded.stage.conversion, plain.swap)
    _assemble(request, wave, arenas, ~wave.done & ~wave.final, how)
    _assemble(request, wave, arenas, wave.final, plain)


@step("assemble", 1, assembled_bytes, device=True)
def _assemble(
    request: Request, wave: Wave, arenas: tuple[Array, ...], which: npt.NDArray[np.bool_], how: assembly.How
) -> None:
    """Enqueue the boxes of the chunks `which` of a wave."""
    lines = np.flatnonzero(which)
    own, gather = request.plan.part(wave.first + lines)
    own[:, t.B_LAYOUT] = lines
    layouts, name = wave.located.layouts, request.program.folded.stage.name if request.program.folded else "assemble"
    for part, status in assembly.copy(request.engine, wave.lane, arenas, layouts, own, request.target(gather), how):
        wave.reports.append(Report(name, lines[part], wave.lane.download(status)))


@step("check", 1)
def _finish(request: Request, wave: Wave, present: npt.NDArray[np.bool_]) -> Lane:
    """Wait for a wave, act on its statuses, and give its lane back."""
    lane = wave.lane
    lane.wait()
    refused = refusals(wave.reports, request.program.container.name)
    if refused:
        before = wave.used
        libraries.last_word(request, wave, refused)
        source = lane.upload(wave.used, before)
        again = np.zeros(wave.last - wave.first, bool)
        again[list(refused)] = True
        arenas = (source, source.view(np.uint32)) * 2
        wave.reports = []
        _assemble(request, wave, arenas, again, assembly.How(request.program.swap(request.out.dtype)))
        lane.wait()
        refusals(wave.reports, request.program.container.name)
    present[wave.first : wave.last] = wave.chunks[:, t.C_SIZE] != MISSING
    return lane
