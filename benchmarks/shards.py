"""Sharded stores: all of one, and crops from one, by `zarrgpu.read` and the CPU pipelines, side by side in one run.

    python -m benchmarks.shards [--repeats N] [--small] [--peers] [--targets]

The arrays are uint16 micrographs in inner chunks of 32^3, Zstandard, shards of (64, 512, 512), in a temporary local
store: (64, 2048, 2048) is read whole; of (256, 1024, 1024) a thousand random crops of 128^3, each by its own `read`,
on several threads, and some at once, by `read_many`. Rates count the bytes of results; the chunks that crops touch, all
of which are decoded, have twice as many, and that rate follows.

Targets on one H200: 10 GB/s for all of it, 5 GB/s for crops.

By libzstd on 16 cores, all of it came at 0.9 GB/s and crops at 0.2: chunks of 64 kB cost more in Python's lock than in
libzstd, which alone does no more than 5. By our kernels it is 14 to 15, with tensorstore at 2.3 to 2.7 and zarrs at 1.5
to 2.0 in the same runs. A crop by itself takes 6 ms, of which it waits 3 for some 125 frames, which are too few to fill
a GPU; the rest is Python, so that threads do not help. In batches of 16 and more, crops come at 4 to 6.6 GB/s, twice
that decoded.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

import zarrgpu
from benchmarks.codecs import peers
from zarrgpu import engine
from zarrgpu._threads import cores
from zarrgpu.bench import compare, difference, on, to_host
from zarrgpu.sample import spectral_field

WHOLE, CROPS = 10.0, 5.0
CHUNK, SHARD, CROP = 32, (64, 512, 512), 128


def micrograph(store: Any, shape: tuple[int, ...], shard: tuple[int, ...]) -> zarr.Array[Any]:
    """Photon counts with camera noise: a few different shards, again and again."""
    sharding = ShardingCodec(chunk_shape=(CHUNK,) * 3, codecs=[BytesCodec(), ZstdCodec(level=3)])
    array = zarr.create_array(store, shape=shape, chunks=shard, dtype="u2", serializer=sharding, compressors=None)

    def volume(seed: int) -> npt.NDArray[np.uint16]:
        rng = np.random.default_rng((5, seed))
        light = np.exp(spectral_field((shard[1], shard[2]), rng))
        counts = rng.poisson(light, shard) + rng.normal(0, 2, shard)
        return np.clip(100 + counts, 0, 65535).astype("u2")

    corners = list(np.ndindex(*(n // s for n, s in zip(shape, shard, strict=True))))
    volumes = [volume(seed) for seed in range(min(len(corners), 2))]

    def write(k: int) -> None:
        place = tuple(slice(c * s, (c + 1) * s) for c, s in zip(corners[k], shard, strict=True))
        array[place] = np.roll(volumes[k % len(volumes)], k, axis=1)

    with ThreadPoolExecutor(min(cores(), 8)) as pool:
        list(pool.map(write, range(len(corners))))
    return array


def crops(array: zarr.Array[Any], side: int, n: int) -> list[tuple[slice, ...]]:
    """Random boxes."""
    rng = np.random.default_rng(6)
    corners = np.column_stack([rng.integers(0, size - side + 1, n) for size in array.shape])
    return [tuple(slice(a, a + side) for a in corner) for corner in corners.tolist()]


def touched(box: tuple[slice, ...]) -> int:
    """Chunks that have a part of it."""
    return math.prod(-(-s.stop // CHUNK) - s.start // CHUNK for s in box)


def seconds(read: Callable[[Any], Any], boxes: Sequence[Any], threads: int, device: str) -> float:
    """How long it takes to read all boxes, once a few were read before."""

    def drop(box: Any) -> None:
        read(box)

    with on(device) as synchronize, ThreadPoolExecutor(threads) as pool:
        list(pool.map(drop, boxes[: 2 * threads]))
        synchronize()
        begin = time.perf_counter()
        list(pool.map(drop, boxes))
        synchronize()
        return time.perf_counter() - begin


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description="Sharded stores.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="an eighth of each array, and few crops")
    parser.add_argument("--peers", action="store_true", help="also the CPU pipelines, each followed by a copy")
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed on a GPU")
    options = parser.parse_args()
    device = engine.available()[0]
    sizes = ((64, 1024, 256), (128, 256, 256)) if options.small else ((64, 2048, 2048), (256, 1024, 1024))
    shard, side = ((64, 256, 128), 64) if options.small else (SHARD, CROP)
    rates = []
    with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
        array = micrograph(f"{folder}/whole.zarr", sizes[0], shard)
        expected = np.asarray(array[...])
        with on(device):
            wrong = difference(to_host(zarrgpu.read(array, device=device)), expected)
        if wrong:
            raise AssertionError(wrong)
        print(f"GB/s to {device}, all of {sizes[0]}", flush=True)
        with on(device) as synchronize:
            times = []
            for _ in range(2 * options.repeats):
                synchronize()
                begin = time.perf_counter()
                _kept = zarrgpu.read(array, device=device)
                synchronize()
                times.append(time.perf_counter() - begin)
        rates.append(array.nbytes / statistics.median(times) / 1e9)
        print(f"  {'zarrgpu':<40} {rates[0]:8.2f}", flush=True)
        if options.peers:
            for m in compare(array, systems=peers(device), repeats=1):
                print(f"  {m.system:<40} {m.rate:8.2f}  {m.failure or ''}", flush=True)
        array = micrograph(f"{folder}/crops.zarr", sizes[1], shard)
        boxes = crops(array, side, 16 if options.small else 1000)
        with on(device):
            for box in boxes[:5]:
                wrong = difference(to_host(zarrgpu.read(array, box, device=device)), np.asarray(array[box]))
                if wrong:
                    raise AssertionError(wrong)
        print(f"GB/s to {device}, {len(boxes)} crops of {side}^3: results, decoded", flush=True)
        nbytes, decoded = len(boxes) * 2 * side**3, 2 * CHUNK**3 * sum(map(touched, boxes))

        def show(name: str, taken: float) -> None:
            rates.append(nbytes / taken / 1e9)
            print(f"  {name:<40} {rates[-1]:8.2f} {decoded / taken / 1e9:8.2f}", flush=True)

        for threads in (1, 2, 4, 8):
            taken = seconds(partial(zarrgpu.read, array, device=device), boxes, threads, device)
            show(f"read, {threads} threads", taken)
        for n in (16, 128):
            batches = [boxes[k : k + n] for k in range(0, len(boxes), n)]
            for threads in (1, 2):
                taken = seconds(partial(zarrgpu.read_many, array, device=device), batches, threads, device)
                show(f"read_many, {n} at once, {threads} threads", taken)
        with zarrgpu.enable(device=device):
            opened = zarr.open_array(array.store, mode="r")
            show("z[...], 4 threads", seconds(opened.__getitem__, boxes, 4, device))
    missed = rates[0] < WHOLE or max(rates[1:]) < CROPS
    return int(options.targets and device != "host" and missed)


if __name__ == "__main__":
    sys.exit(main())
