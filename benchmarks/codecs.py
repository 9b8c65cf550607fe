"""Every codec: `zarrgpu.read` beside numcodecs on all cores, and beside the CPU pipelines, in one run.

    python -m benchmarks.codecs [--only TEXT] [--repeats N] [--scale F] [--peers] [--targets]

"numcodecs" reads each chunk's file and decodes it by zarr's own codecs on a thread, on as many as there are cores, and
copies it into its place in pinned memory, and uploads that in one copy: what a careful user would write. ``--peers``
adds zarr's pipelines, zarrs and tensorstore where they are installed, each followed by a copy from pageable memory,
for the datasets that have a target.

Targets on one H200: as fast as numcodecs for every codec; 1.5 times the best of the CPU pipelines for Blosc-Zstd and
for shuffle + zlib. Three runs there, with 16 cores, gave 1.9-2.3 and 2.7-3.0 times the best of them, Deflate being
decoded by libraries on host threads then, and in times of numcodecs: kernels 2 to 5 (54 for cubes of 64 KB, where
Python is numcodecs' limit), LZ4 frames of 4 MB on host threads 1.25, Blosc-Zstd 1.0-1.2, Blosc-zlib 1.0, gzip and zlib
2.5-8 (libdeflate is what makes the difference), plain Zstd in frames of 4 MB 0.94-1.06.

What was learned about the last of these, whose decoding alone makes 7.4 GB/s on 16 threads, and 6.6 with the reading of
files by the same threads, whether into pinned memory or other:

* 4.9-5.2: waves of 64 MB, two fetched ahead: when the later one ended first, threads had nothing to do.
* 5.2-5.8: three ahead, each file read by the thread that decodes it.
* Waves of 16, 32, 128, 256 MB gave 5.1, 5.6, 5.8, 6.2 in one run; a switch interval of 0.5 ms instead of 5 gave 5 %:
  what is done for each wave takes the GIL from threads that decode. The waves are of 256 MB since.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import zarr

import zarrgpu
from benchmarks.datasets import DATASETS
from zarrgpu import _compat, engine
from zarrgpu._compat import store as stores
from zarrgpu._threads import cores
from zarrgpu.bench import System, compare, difference, on, systems, to_host

TARGETS = {"f4 fields, blosc zstd, shuffle": 1.5, "i2 packed, shuffle + zlib, v2": 1.5}
"""Datasets that are to be so many times as fast as the best of the CPU pipelines."""


class Numcodecs:
    """An array in a local store, decoded by zarr's codecs on all cores.

    Parameters
    ----------
    array : zarr.Array
    device : str
    """

    def __init__(self, array: zarr.Array[Any], device: str) -> None:
        self.array, self.device = array, device
        metadata: Any = array.metadata
        self.spec, self.codecs = _compat.spec_of(metadata), _compat.evolved_codecs(metadata)
        dtype = array.dtype.newbyteorder("=")
        if device == "host":
            self.out = np.empty(array.shape, dtype)
        else:
            import cupy

            nbytes = int(np.prod(array.shape)) * dtype.itemsize
            self.out = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), dtype, array.size).reshape(array.shape)
            self.target = cupy.empty(array.shape, dtype)
        root = stores.local_path(array.store_path)
        counts = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
        self.jobs = [
            (
                f"{root}/{metadata.encode_chunk_key(where)}",
                tuple(slice(i * c, (i + 1) * c) for i, c in zip(where, array.chunks, strict=True)),
            )
            for where in itertools.product(*map(range, counts))
        ]

    def read(self, pool: ThreadPoolExecutor) -> Any:
        """All of it."""

        def chunk(job: tuple[str, tuple[slice, ...]]) -> None:
            path, place = job
            with open(path, "rb") as file:
                part = self.out[place]
                part[...] = _compat.decode_on_cpu(self.codecs, self.spec, file.read())[tuple(map(slice, part.shape))]

        list(pool.map(chunk, self.jobs))
        if self.device == "host":
            return self.out
        self.target.set(self.out)
        return self.target


def peers(device: str) -> list[System]:
    """The CPU pipelines, each followed by a copy from pageable memory where the device is a GPU."""
    how = "" if device == "host" else " + copy"
    return [
        s
        for s in systems([device])
        if not s.ours
        and s.device == device
        and s.name.endswith(how)
        and "pinned" not in s.name
        and "enable" not in s.name
    ]


def median(read: Callable[[], Any], device: str, repeats: int) -> float:
    """Median time of a read that was done once before."""
    times = []
    with on(device) as synchronize:
        for _ in range(repeats):
            synchronize()
            begin = time.perf_counter()
            _kept = read()
            synchronize()
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codecs", description="Every codec, beside numcodecs.")
    device = engine.available()[0]
    parser.add_argument("--only", default="", help="datasets whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of chunks")
    parser.add_argument("--peers", action="store_true", help="also the CPU pipelines, for datasets with a target")
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed")
    options = parser.parse_args()
    missed = 0
    print(f"{'GB/s decoded, to ' + device:<50} {'zarrgpu':>8} {'numcodecs':>10} {'ratio':>6}", flush=True)
    with ThreadPoolExecutor(cores()) as pool:
        for name, dataset in DATASETS.items():
            if options.only not in name:
                continue
            with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
                n = max(1, int((dataset.large if device == "host" else dataset.huge) * options.scale))
                array = dataset.write(f"{folder}/a.zarr", n)
                baseline = Numcodecs(array, device)
                with on(device):
                    want = to_host(baseline.read(pool)).copy()
                    zarrgpu.reset_counters()
                    wrong = difference(to_host(zarrgpu.read(array, device=device)), want)
                if wrong:
                    raise AssertionError(f"{name}: {wrong}")
                fell = [k for k in zarrgpu.counters() if k.startswith("fallback")]
                ours, theirs = (
                    array.nbytes / median(read, device, options.repeats) / 1e9
                    for read in (partial(zarrgpu.read, array, device=device), partial(baseline.read, pool))
                )
                missed += ours < theirs
                print(f"{name:<50} {ours:8.2f} {theirs:10.2f} {ours / theirs:6.2f}  {' '.join(fell)}", flush=True)
                if options.peers and name in TARGETS:
                    measured = compare(array, systems=peers(device), repeats=options.repeats)
                    for m in measured:
                        print(f"    {m.system:<46} {m.rate:8.2f}  {m.failure or ''}", flush=True)
                    best = max((m.rate for m in measured if m.times), default=0.0)
                    missed += ours < TARGETS[name] * best
                    print(f"    {ours / best:.2f} times the best of them, target {TARGETS[name]}", flush=True)
    return int(options.targets and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
