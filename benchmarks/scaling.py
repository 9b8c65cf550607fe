"""From 10 to 100,000 chunks: time and memory of a read, and memory after thousands of reads.

    python -m benchmarks.scaling [--most N] [--reads N] [--targets]

Chunks are float32 of (30, 30), 3.6 kB, Blosc with LZ4, in a temporary local store; the bytes are compared. Beside the
time is what a read takes besides its output: pinned memory, and device memory by the high water of cupy's pool, under a
limit of `LIMIT` bytes a request; then the memory of the process, and of the pool, after a tenth of so many reads of ten
chunks, and after all.

Targets: from 1000 chunks on the time of a chunk grows by no more than a half; no memory over the limit; no more than
`SLACK` bytes more after all reads.

On an H200: 158, 21.6, 4.6, 2.6 and 1.8 us a chunk of 10 to 100,000; 79 MB of pinned memory and 266 of the device's for
100,000; 0.3 MB more after 5000 reads.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import zarrgpu
from benchmarks.codecs import median
from benchmarks.throughput import repeat, tiles
from zarrgpu import engine
from zarrgpu.bench import difference, to_host

COUNTS = (10, 100, 1000, 10_000, 100_000)
ROW = 510
"""Chunks side by side in `tiles`."""

LIMIT = 256 << 20
SLACK = 16 << 20


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pool(device: str, trim: bool = False) -> int:
    """Bytes of cupy's pool on a device, without those that nobody uses if it is to be trimmed; 0 on the host."""
    if device == "host":
        return 0
    import cupy

    if trim:
        cupy.get_default_memory_pool().free_all_blocks()
    return int(cupy.get_default_memory_pool().total_bytes())


def arenas(device: str) -> int:
    """Bytes of the arenas for encoded chunks that an engine keeps: pinned memory on a GPU."""
    with engine.resolve(device).lanes() as lanes:
        return sum(lane.arena.size for lane in lanes)


def selection(array: Any, count: int) -> tuple[slice, slice]:
    """So many chunks, or a few more: part of a row of them, or whole rows."""
    if count < ROW:
        return slice(0, 30), slice(0, 30 * count)
    return slice(0, 30 * -(-count // ROW)), slice(0, array.shape[1])


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description="From few chunks to many.")
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="chunks of the largest read")
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed on a GPU")
    options = parser.parse_args()
    device, missed = engine.available()[0], 0
    with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
        z = tiles(f"{folder}/a.zarr", 10)
        want = np.asarray(z[...])
        repeat(z, max(1, -(-options.most // (10 * ROW))))
        array = zarrgpu.open_array(z.store, device=device, memory_limit=LIMIT)
        print(
            f"{'chunks, to ' + device:<20} {'ms':>8} {'us a chunk':>10} {'pinned MB':>9} {'device MB':>9}", flush=True
        )
        first = 0.0
        for count in COUNTS:
            if count > options.most:
                break
            read = partial(zarrgpu.read, array, selection(array, count), device=device)
            pool(device, trim=True)
            got = to_host(read())
            for k in range(0, len(got), len(want)):
                part = got[k : k + len(want)]
                wrong = difference(part, want[: len(part), : part.shape[1]])
                if wrong:
                    raise AssertionError(f"{count} chunks, from row {k}: {wrong}")
            seconds, nbytes, chunks = median(read, device, 5), got.nbytes, got.size // 900
            held = arenas(device)
            # Two outputs at once: the one that is read, and the last one that was timed.
            beside = max(0, pool(device) - 2 * nbytes)
            each = seconds / chunks
            first = each if count == 1000 else first
            missed += count > 1000 and each > 1.5 * first
            missed += device != "host" and (held > LIMIT or beside > LIMIT)
            print(
                f"{chunks:<20} {seconds * 1e3:8.2f} {each * 1e6:10.2f} {held / 1e6:9.1f} {beside / 1e6:9.1f}",
                flush=True,
            )
        few = partial(zarrgpu.read, array, selection(array, 10), device=device)
        seen = []
        for n in (options.reads // 10, options.reads - options.reads // 10):
            for _ in range(n):
                few()
            gc.collect()
            seen.append((resident(), pool(device)))
        grown = [after - before for before, after in zip(*seen, strict=True)]
        print(f"{options.reads} reads: process {grown[0] / 1e6:+.1f} MB, pool {grown[1] / 1e6:+.1f} MB", flush=True)
        missed += any(n > SLACK for n in grown)
    return int(options.targets and device != "host" and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
