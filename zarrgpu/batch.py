"""A wave's chunks on their way through the kernels, from encoded bytes to the elements that *assemble* reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from zarrgpu import _fork, assembly
from zarrgpu._record import step
from zarrgpu.codecs import Located
from zarrgpu.engine.base import Array, Engine, Lane, aligned
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.zstd_format import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarrgpu.codecs import Transform
    from zarrgpu.kernels import zstd
    from zarrgpu.kernels.values import Conversion

Table = npt.NDArray[np.int64]


class Report(NamedTuple):
    """Statuses that a step of a wave wrote, to be read once the lane has been waited for.

    Attributes
    ----------
    name : str
        The codec.
    chunks : int64[k]
        Lines of the wave's chunks.
    status : int32[k]
        `Status` of each.
    """

    name: str
    chunks: Table
    status: npt.NDArray[np.int32]


class Batch:
    """Chunks of a wave, and where their bytes lie by now.

    Parameters
    ----------
    engine, lane
        Where the kernels run.
    source : uint8[n]
        The source arena on the engine.
    layouts : int64[c, LAYOUT_COLUMNS]
        Where the chunks' bytes lie; kept up to date.
    active : int64[k]
        Lines of `layouts` that transforms apply to.
    scratch : int
        Bytes of a scratch arena that a chunk needs at most.

    Attributes
    ----------
    reports : list of Report
    """

    def __init__(self, engine: Engine, lane: Lane, source: Array, layouts: Table, active: Table, scratch: int) -> None:
        self.engine, self.lane, self.source, self.layouts, self.active = engine, lane, source, layouts, active
        self.slot = aligned(scratch)
        self.reports: list[Report] = []
        self._turn = 0
        self.scratch = lane.scratch(len(layouts) * self.slot, self._turn)

    @property
    def arenas(self) -> tuple[Array, Array, Array, Array]:
        """Source and scratch arena, each as bytes and as words."""
        return self.source, self.source.view(np.uint32), self.scratch, self.scratch.view(np.uint32)

    @step("decompress", 0, lambda _, batch, name, located: located.decoded(), device=True)
    def decompress(self, name: str, located: Located) -> None:
        """Decode the streams of the chunks into the scratch arena."""
        if not located.work and not located.zstd:
            return
        groups = located.zstd
        tables = [table for group in groups for table in (group.lines, group.first, group.blocks)]
        if groups:
            tables.append(NUMBERS)
        streams, *rest = self.lane.tables(located.streams, *located.work.values(), *tables)
        status = self.lane.zeros(len(located.streams))
        decoders = self.engine.decoders()
        for (kind, lines), order in zip(located.work.items(), rest, strict=False):
            if kind in decoders:
                self.lane.launch(decoders[kind], len(lines), *self.arenas, streams, order, status)
            else:
                self._inflate(kind, int(located.streams[lines, t.S_WANT].max()), len(lines), streams, order, status)
        if groups:
            self._decompress_zstd(groups, streams, rest[len(located.work) :], status)
        self.report(name, located.streams[:, t.S_CHUNK], status)

    def _inflate(self, kind: str, want: int, n: int, streams: Array, order: Array, status: Array) -> None:
        """Decode the `n` streams `order` of zlib or gzip, of up to `want` bytes, and verify their checksums."""
        with _fork.loading:
            from zarrgpu.kernels import deflate

        lane, job = self.lane, deflate.Job(deflate.FRAMINGS[kind], n, want)
        assert job.checksum is not None  # no codec has bare streams
        (tables,) = lane.tables(job.checksum.tables)
        members = lane.room(job.rows * deflate.MEMBER_COLUMNS, np.int64).reshape(job.rows, deflate.MEMBER_COLUMNS)
        rooms = members, lane.local(job.work), lane.room(job.partials, np.uint64)
        deflate.decode(lane.launch, job, self.arenas, streams, order, tables, rooms, status)

    def _decompress_zstd(self, groups: list[zstd.Group], streams: Array, tables: list[Array], status: Array) -> None:
        """Decode groups one after the other, in the same room; `tables` are theirs in a row, then `NUMBERS`."""
        with _fork.loading:
            from zarrgpu.kernels import zstd

        lane = self.lane
        rooms = (
            lane.room(max(group.sequences for group in groups), np.uint64),
            lane.local(max(group.work for group in groups)),
            lane.room(4 * max(group.n_blocks * group.checked for group in groups), np.uint64),
        )
        for i, group in enumerate(groups):
            own = (*tables[3 * i : 3 * i + 3], tables[-1])
            for kernel, n, args in zstd.launches(group, self.arenas, streams, own, rooms, status):
                lane.launch(kernel, n, *args)

    def _converted(self, stages: Sequence[Any]) -> int:
        return int(self.layouts[self.active, t.L_SIZE].sum()) if stages else 0

    @step("decompress", 0, lambda _, batch, stages: batch._converted(stages), device=True)
    def transform(self, stages: Sequence[tuple[Transform, int]]) -> None:
        """Undo the stages that have a pass of their own, each with the bytes of an element to swap before."""
        for stage, swap in stages:
            stage.enqueue(self, swap)

    @step("check", 0, lambda _, batch, name, chunks, status: 4 * len(chunks), device=True)
    def report(self, name: str, chunks: Table, status: Array) -> None:
        """Remember to read the statuses of `chunks`, lines of `layouts`."""
        self.reports.append(Report(name, chunks, self.lane.download(status)))

    def unshuffle(self, name: str) -> None:
        """Bring the bytes of the active chunks in order, where they are shuffled."""
        mine = self.layouts[self.active]
        shuffled = mine[:, t.L_MODE] != t.PLAIN
        if not shuffled.any():
            return
        kinds = np.unique(mine[shuffled, t.L_TYPE])
        width = int(kinds[0]) if len(kinds) == 1 and kinds[0] in (2, 4, 8) else 1
        width = 1 if (mine[:, t.L_SIZE] % width).any() else width
        self._move(name, width, mine[:, t.L_SIZE] // width, assembly.How())

    def own(self, name: str, itemsize: int, swap: int) -> None:
        """Bring the elements of the active chunks where they may be written to, aligned, in order and not swapped."""
        arena, base, mode = self.layouts[self.active][:, [t.L_ARENA, t.L_BASE, t.L_MODE]].T
        if swap or (arena != t.SCRATCH).any() or (base % itemsize).any() or (mode != t.PLAIN).any():
            self._move(name, itemsize, self.layouts[self.active, t.L_SIZE] // itemsize, assembly.How(swap))

    def convert(self, name: str, conversion: Conversion, swap: int, elements: int) -> None:
        """Make of every active chunk `elements` elements of another dtype, in native order."""
        count = np.full(len(self.active), elements)
        self._move(name, conversion.target.itemsize, count, assembly.How(swap, conversion))

    def _move(self, name: str, itemsize: int, elements: Table, how: assembly.How) -> None:
        """Assemble the active chunks into the other scratch arena, each into its slot."""
        lines, layouts = self.active, self.layouts
        self._turn = 1 - self._turn
        arena = self.lane.scratch(len(layouts) * self.slot, self._turn)
        boxes = np.zeros((len(lines), t.B_COUNT + 1), np.int64)
        boxes[:, t.B_LAYOUT], boxes[:, t.B_DEST], boxes[:, t.B_COUNT] = lines, lines * self.slot, elements
        strides = np.ones(1, np.int64), np.full(1, itemsize, np.int64)
        target = assembly.Target(arena, arena.view(np.uint32), *strides, np.zeros(itemsize, np.uint8))
        for which, status in assembly.copy(self.engine, self.lane, self.arenas, layouts, boxes, target, how):
            self.report(name, lines[which], status)
        self.scratch = arena
        layouts[lines, t.L_ARENA], layouts[lines, t.L_BASE] = t.SCRATCH, lines * self.slot
        layouts[lines, t.L_SIZE] = layouts[lines, t.L_BLOCK] = elements * itemsize
        layouts[lines, t.L_TYPE], layouts[lines, t.L_MODE] = 1, t.PLAIN


def refusals(reports: Iterable[Report], container: str) -> dict[int, tuple[t.Status, str]]:
    """The chunks that a kernel refused, each with the first verdict on it, and the codec that said so.

    Tables of streams are made of what the data say, and a stream too long for its decoder is the data's fault; all
    other tables are ours.
    """
    refused: dict[int, tuple[t.Status, str]] = {}
    for name, chunks, status in reports:
        for k in np.flatnonzero(status).tolist():
            verdict = t.Status(int(status[k]))
            if verdict is t.Status.BAD_TABLE and name != container:
                raise RuntimeError(f"{name} was given bytes outside its arenas: a bug of zarrgpu, please report it")
            refused.setdefault(int(chunks[k]), (verdict, name))
    return refused
