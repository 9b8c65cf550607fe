"""Decoders alone, on device memory: streams x data x kernels, with nvCOMP beside them where it is installed.

    python -m benchmarks.decoders [--only TEXT] [--json FILE] [--targets]

Each set is some hundred different pieces of data, compressed by the CPU's libraries and given again and again, each
time elsewhere in memory, up to the number of streams; those that do not shrink are left out, as Blosc stores them. All
decode them longest first, by CUDA events, and their bytes are compared before they are timed. What ours do on the host
before, to find blocks and sequences, runs while other waves decode and is not in these figures; it follows in a column
of its own.

Targets on one H200: LZ4 2.5 times nvCOMP on float32 fields with byte shuffle from 1000 streams on, 1.2 times on every
set; Zstandard 1.3 times at 1024 and 8192 frames, twice on 256 frames of 4.15 MB, with no more scratch than output;
Deflate twice for 100 to 1000 streams, 1.2 times for more.

On an H200, in GB/s and times nvCOMP. LZ4 by groups, of 100, 1000 and more streams: float32 with byte shuffle 10, 84 and
256 (3.8, 3.7, 2.5), with bit shuffle 19, 161 and 500 (3.8, 3.9, 2.3); uint16 8, 78 and 215 (1.6, 1.7, 1.0), and 29, 251
and 744 (4.6, 4.0, 2.2). Zstandard, of 1024 and 8192 frames, the lowest and the highest of three runs: 30 and 167-188
(1.3, 1.5-1.65), 41 and 206-211 (3.0, 2.2), 29 and 153-163 (1.35, 1.27-1.4), 63 and 321-327 (3.2, 2.7); of 256 large
ones 41 (2.3) of float32 and 93 (3.5) of int16 by crews, 27 and 66 by a warp each; its scratch is 0.1 to 0.9 of the
output. Deflate of float32 with byte shuffle, of 100, 1000 and 16000 streams: 2.7, 14 and 38 (2.6, 1.4, 1.0); that was
before its segments became longer, and its lanes more patient, see below.

What was learned:

* A block of output whose loads are issued while the block before it is made should hide them. LZ4 fell from 84 to 60 of
  1000 streams, Zstandard from 30 to 28: a warp waits for its own instructions, not for memory, and there are more.
* Of 256 frames of 4 MB of float32, *execute* took 34 of 38 ms, 71 ns a sequence, when a warp had a frame. A planner,
  four preparers and a committer, which meet at a barrier, take 21 of 25; but they hold 528 streams at once, so that
  1024 are faster by a warp each. Of 1024 of 128 KiB, *sequences* takes 3.0 of 4.5 ms, 340 ns a sequence, since a lane
  has a block.
* LZ4 gives up groups for 16 sequences when one has less than three. Less than four, five and six, 64 sequences, and
  longer or shorter ones to begin with made uint16 with byte shuffle slower by up to a quarter, and nothing faster.
* Noise in Deflate, which Blosc stores, and others do not: its codes have 8 bits, nearly all, and lanes that start at a
  wrong bit do not find back; a step took 14 turns. See `zarrgpu.kernels.deflate_agree`.
* In a model of the lanes, of float32 with byte shuffle, half of them do not come to a right token within 96 bits, which
  was all that a step's kilobyte of output left to each, and 6 of 100 not within 448. Single steps then took more than
  five turns, and whole blocks were spread, at an eighth of the pace. Steps of 4 kB and lanes that spread by an average
  of eight turns take half to a quarter of the instructions. To be measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import nvcomp
from benchmarks.pieces import ENCODERS, SETS, Pieces, Set
from benchmarks.waves import Enqueue, seconds, zstd_enqueue
from zarrgpu import engine
from zarrgpu._threads import cores
from zarrgpu.encoded import OnHost
from zarrgpu.engine.base import Lane, aligned
from zarrgpu.kernels import deflate, lz4, lz4_group, zstd
from zarrgpu.kernels import tables as t


@dataclass
class Row:
    """A line of the table: rates in GB/s decoded, `scratch` in bytes a byte of output."""

    codec: str
    data: str
    streams: int
    ratio: float
    kernels: dict[str, float]
    host: float
    scratch: float
    nvcomp: float
    nvcomp_scratch: float
    target: float = 0.0

    @property
    def times(self) -> float:
        """How many times as fast as nvCOMP the best of ours is; 0 where it is not installed."""
        return max(self.kernels.values()) / self.nvcomp if self.nvcomp else 0.0

    @property
    def met(self) -> bool:
        """Whether the targets are, as far as they can be told."""
        return self.scratch <= 1 and (not self.nvcomp or self.times >= self.target)


class Streams:
    """Encoded pieces in a lane's arenas.

    Parameters
    ----------
    lane : Lane
    pieces, encoded : list
        Different ones.
    n : int
        How many streams to make of them.
    """

    def __init__(self, lane: Lane, pieces: Pieces, encoded: list[bytes], n: int) -> None:
        self.lane, self.pieces, self.n = lane, pieces, n
        which = np.arange(n) % len(pieces)
        sizes, wants = (np.array([len(x) for x in xs])[which] for xs in (encoded, pieces))
        starts, dests = (np.concatenate([[0], np.cumsum(-(-x // 16) * 16)]) for x in (sizes, wants))
        arena = lane.reserve(int(starts[-1]))
        for k in range(n):
            arena[starts[k] : starts[k] + sizes[k]] = np.frombuffer(encoded[which[k]], np.uint8)
        self.streams = np.column_stack([starts[:-1], sizes, dests[:-1], wants, np.arange(n)])
        self.order = np.argsort(-sizes, kind="stable")
        self.host = OnHost(arena[: int(starts[-1])])
        source, self.nbytes = lane.upload(int(starts[-1])), int(wants.sum())
        self.scratch = lane.scratch(aligned(int(dests[-1])))
        self.arenas = (source, source.view(np.uint32), self.scratch, self.scratch.view(np.uint32))
        self.encoded = int(sizes.sum())

    def checked(self, enqueue: Enqueue, check: Callable[[], None]) -> float:
        """GB/s, once the bytes are right."""
        with self.lane.stream:  # type: ignore[attr-defined]  # a lane of a GPU
            self.scratch.fill(0xA5)
        enqueue()
        check()
        self.compare()
        return self.nbytes / seconds(self.lane, enqueue, 3) / 1e9

    def compare(self) -> None:
        """Raise unless each slot of the first ones holds its piece, and all others the same."""
        slots = self.streams[: len(self.pieces), [t.S_DEST, t.S_WANT]].tolist()
        period = slots[-1][0] + -(-slots[-1][1] // 16) * 16
        got = self.lane.download(self.scratch[:period])
        self.lane.wait()
        for k, (dest, want) in enumerate(slots):
            if not np.array_equal(got[dest : dest + want], self.pieces[k]):
                raise AssertionError(f"stream {k} has other bytes")
        for at in range(period, self.scratch.size, period):
            again = self.scratch[at : at + period]
            if not bool((again == self.scratch[: again.size]).all()):
                raise AssertionError(f"streams at {at} have other bytes")

    def no_faults(self, status: Any) -> Callable[[], None]:
        """Raises unless all of `status` is 0."""

        def check() -> None:
            found = self.lane.download(status)
            self.lane.wait()
            if found.any():
                raise AssertionError(f"good data is refused: {np.unique(found)}")

        return check

    def lz4(self) -> tuple[dict[str, float], float, float]:
        """Rates of our kernels, host seconds before them, bytes of scratch a byte of output."""
        rates = {}
        for kernel in (lz4_group.KERNEL, lz4.KERNEL):
            streams, order = self.lane.tables(self.streams, self.order)
            status = self.lane.zeros(self.n)

            def enqueue(kernel: Any = kernel, args: Any = (*self.arenas, streams, order, status)) -> None:
                self.lane.launch(kernel, self.n, *args)

            rates[kernel.name] = self.checked(enqueue, self.no_faults(status))
        return rates, 0.0, 0.0

    def zstd(self) -> tuple[dict[str, float], float, float]:
        """The same."""
        status = np.zeros(self.n, np.int32)

        def scan() -> list[zstd.Group]:
            counts = zstd.measure(self.host.run, self.streams, self.order, status, True)
            return zstd.group(self.host.run, self.streams, self.order, counts, status, True)

        host, groups = seconds_of(scan)
        found = self.lane.zeros(self.n)
        scratch = max(8 * g.sequences + 4 * g.blocks.size + 32 * g.n_blocks * g.checked for g in groups)
        rates = {}
        for form in sorted(zstd.FORMS, key=lambda name: name != zstd.choose(self.n)):
            enqueue = zstd_enqueue(self.lane, groups, self.arenas, self.streams, found, form=form)
            rates[form] = self.checked(enqueue, self.no_faults(found))
        return rates, host, scratch / self.nbytes

    def deflate(self) -> tuple[dict[str, float], float, float]:
        """The same; of all forms of the decoder, the one that is chosen first."""
        rates, chosen, (streams, order) = {}, deflate.choose(self.n), self.lane.tables(self.streams, self.order)
        for form in sorted(deflate.FORMS, key=lambda name: name != chosen):
            job = deflate.Job(deflate.RAW, self.n, int(self.streams[:, t.S_WANT].max()), form)
            members = self.lane.room(job.rows * deflate.MEMBER_COLUMNS, np.int64)
            rooms = (
                members[: job.rows * deflate.MEMBER_COLUMNS].reshape(job.rows, deflate.MEMBER_COLUMNS),
                self.lane.local(job.work),
                self.lane.room(job.partials, np.uint64),
            )
            status = self.lane.zeros(self.n)
            args = (job, self.arenas, streams, order, None, rooms, status)
            enqueue = partial(deflate.decode, self.lane.launch, *args)
            rates[form] = self.checked(enqueue, self.no_faults(status))
        return rates, 0.0, 0.0


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Time of a second run by the clock, and what it gives."""
    work()
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def target(codec: str, data: str, streams: int) -> float:
    """Times nvCOMP."""
    if codec == "deflate":
        return 2.0 if streams <= 1000 else 1.2
    if codec == "lz4":
        return 2.5 if data == "f4 shuffle" and streams >= 1000 else 1.2
    return 2.0 if "MB" in data else 1.3


def rows(chosen: list[Set], pool: ThreadPoolExecutor, lane: Lane) -> Iterator[Row]:
    """Measure."""
    for data in chosen:
        pieces = data.pieces(pool)
        for codec, counts in data.counts.items():
            encoded = list(pool.map(ENCODERS[codec], pieces))
            shrunk = [(piece, e) for piece, e in zip(pieces, encoded, strict=True) if len(e) < len(piece)]
            for n in counts:
                few = shrunk[:n]
                streams = Streams(lane, [piece for piece, _ in few], [e for _, e in few], n)
                rates, host, scratch = getattr(streams, codec)()
                theirs, temporary = 0.0, 0
                if nvcomp.library() is not None:
                    ordered = streams.streams[streams.order]
                    enqueue, check, temporary = nvcomp.decoder(
                        codec,
                        streams.arenas[0],
                        streams.scratch,
                        ordered,
                        lane.stream,  # type: ignore[attr-defined]
                    )
                    theirs = streams.checked(enqueue, check)
                ratio = streams.nbytes / streams.encoded
                yield Row(
                    codec, data.name, n, ratio, rates, host * 1e3, scratch, theirs, temporary / streams.nbytes,
                    target(codec, data.name, n),
                )  # fmt: skip
                lane.wait()


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoders", description="Decoders alone.")
    parser.add_argument("--only", default="", help="codecs and sets whose name contains this")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed")
    options = parser.parse_args()
    device = engine.available()[0]
    if device == "host":
        print("decoders are timed on a GPU, and there is none", file=sys.stderr)
        return 2
    chosen = []
    for data in SETS:
        counts = {c: n for c, n in data.counts.items() if options.only in f"{c}, {data.name}"}
        chosen += [Set(data.name, data.make, data.cut, counts)] if counts else []
    header = f"{'GB/s decoded':<28} {'streams':>7} {'ratio':>5} {'ours':>22} {'nvCOMP':>7} {'times':>5}"
    print(f"{header}  scratch (nvCOMP)  host ms", flush=True)
    done, missed = [], 0
    with ThreadPoolExecutor(cores()) as pool, engine.resolve(device).lanes() as lanes:
        for row in rows(chosen, pool, lanes[0]):
            ours = " ".join(f"{rate:.1f} {name}" for name, rate in row.kernels.items())
            print(
                f"{row.codec + ', ' + row.data:<28} {row.streams:>7} {row.ratio:5.2f} {ours:>22} {row.nvcomp:7.1f} "
                f"{row.times:5.2f}  {row.scratch:.2f} ({row.nvcomp_scratch:.2f})  {row.host:8.2f}"
                f"{'' if row.met else f'  target {row.target}: MISSED'}",
                flush=True,
            )
            done.append(row)
            missed += not row.met
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in done], indent=2) + "\n")
    return int(options.targets and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
