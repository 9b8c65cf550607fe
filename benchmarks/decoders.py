"""Decoders alone, on device memory: streams x data x kernels, with nvCOMP beside them where it is installed.

    python -m benchmarks.decoders [--only TEXT] [--json FILE] [--targets]

Each set is some hundred different pieces of data, compressed by the CPU's libraries and given again and again, each
time elsewhere in memory, up to the number of streams. All decode them longest first, by CUDA events, and their bytes
are compared before they are timed. What ours do on the host before, to find blocks and sequences, runs while other
waves decode and is not in these figures; it follows in a column of its own.

Targets on one H200: LZ4 2.5 times nvCOMP on float32 fields with byte shuffle from 1000 streams on, 1.2 times on every
set; Zstandard 1.3 times at 1024 and 8192 frames, twice on 256 frames of 4.15 MB, with no more scratch than output.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt

from benchmarks import nvcomp
from benchmarks.datasets import GRID, sea_temperature, volume
from benchmarks.waves import Enqueue, seconds, zstd_enqueue
from zarrgpu import engine
from zarrgpu.encoded import OnHost
from zarrgpu.engine.base import Lane, aligned, cores
from zarrgpu.kernels import lz4, lz4_group, zstd
from zarrgpu.kernels import tables as t
from zarrgpu.sample import Fields

PIECE = 1 << 17
DIFFERENT = 1024
"""Pieces of a set, at most."""

Pieces = list[npt.NDArray[np.uint8]]


def shuffled(itemsize: int, bits: bool) -> Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]:
    """Cuts an array as Blosc does: blocks are shuffled, and split into pieces."""

    def cut(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
        flat = values.reshape(-1).view(np.uint8)
        for at in range(0, flat.size - itemsize * PIECE + 1, itemsize * PIECE):
            block = flat[at : at + itemsize * PIECE].reshape(-1, itemsize)
            if bits:
                block = np.packbits(np.unpackbits(block, axis=1, bitorder="little").T, axis=1, bitorder="little")
                yield from block.reshape(itemsize, PIECE)
            else:
                yield from np.ascontiguousarray(block.T)

    return cut


def whole(itemsize: int) -> Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]:
    """Gives an array as one piece, byte-shuffled for elements of over a byte."""

    def cut(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
        yield np.ascontiguousarray(values.reshape(-1).view(np.uint8).reshape(-1, itemsize).T).reshape(-1)

    return cut


def field(seed: int) -> npt.NDArray[Any]:
    """Four time steps, so that few bytes are left over where they are cut."""
    fields = Fields(GRID, seed // 8)
    return np.concatenate([fields[4 * seed + k] for k in range(4)])


def cubes(seed: int) -> npt.NDArray[Any]:
    """Chunks of 128^3, one after the other."""
    return np.ascontiguousarray(volume(seed).reshape(128, 128, 4, 128).transpose(2, 0, 1, 3))


@dataclass(frozen=True)
class Set:
    """Streams of one kind.

    Attributes
    ----------
    name : str
    make : callable
        An array for each seed.
    cut : callable
        The array to pieces.
    counts : dict
        By codec, the numbers of streams.
    """

    name: str
    make: Callable[[int], npt.NDArray[Any]]
    cut: Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]
    counts: dict[str, tuple[int, ...]]

    def pieces(self, pool: ThreadPoolExecutor) -> Pieces:
        """Different ones, as many as the largest count asks for or `DIFFERENT`."""
        wanted = min(DIFFERENT, max(n for counts in self.counts.values() for n in counts))
        first = list(self.cut(self.make(0)))
        more = pool.map(lambda seed: list(self.cut(self.make(seed))), range(1, -(-wanted // len(first))))
        pieces = first + [piece for part in more for piece in part]
        return pieces[:wanted]


SETS = [
    Set("f4 shuffle", field, shuffled(4, False), {"lz4": (100, 1000, 5632), "zstd": (1024, 8192)}),
    Set("f4 bitshuffle", field, shuffled(4, True), {"lz4": (100, 1000, 6124), "zstd": (1024, 8192)}),
    Set("u2 128^3 shuffle", cubes, shuffled(2, False), {"lz4": (100, 1000, 7986), "zstd": (1024, 8192)}),
    Set("u2 128^3 bitshuffle", cubes, shuffled(2, True), {"lz4": (100, 1000, 8192), "zstd": (1024, 8192)}),
    Set("f4, 4.15 MB", lambda seed: Fields(GRID, 0)[seed], whole(1), {"zstd": (256,)}),
    Set("i2 shuffle, 4.19 MB", sea_temperature, whole(2), {"zstd": (256,)}),
]
ENCODERS: dict[str, Callable[[npt.NDArray[np.uint8]], bytes]] = {
    "lz4": lambda piece: bytes(numcodecs.LZ4().encode(piece))[4:],
    "zstd": lambda piece: bytes(numcodecs.Zstd(3).encode(piece)),
}


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
        got = self.lane.download(self.scratch)
        self.lane.wait()
        for k, (dest, want) in enumerate(self.streams[:, [t.S_DEST, t.S_WANT]].tolist()):
            if not np.array_equal(got[dest : dest + want], self.pieces[k % len(self.pieces)]):
                raise AssertionError(f"stream {k} has other bytes")
        return self.nbytes / seconds(self.lane, enqueue) / 1e9

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
        enqueue = zstd_enqueue(self.lane, groups, self.arenas, self.streams, found)
        scratch = max(8 * g.sequences + 4 * g.blocks.size + 32 * g.n_blocks * g.checked for g in groups)
        return {"zstd": self.checked(enqueue, self.no_faults(found))}, host, scratch / self.nbytes


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Time of a second run by the clock, and what it gives."""
    work()
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def target(codec: str, data: str, streams: int) -> float:
    """Times nvCOMP."""
    if codec == "lz4":
        return 2.5 if data == "f4 shuffle" and streams >= 1000 else 1.2
    return 2.0 if "MB" in data else 1.3


def rows(chosen: list[Set], pool: ThreadPoolExecutor, lane: Lane) -> Iterator[Row]:
    """Measure."""
    for data in chosen:
        pieces = data.pieces(pool)
        for codec, counts in data.counts.items():
            encoded = list(pool.map(ENCODERS[codec], pieces))
            for n in counts:
                streams = Streams(lane, pieces[:n], encoded[:n], n)
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
