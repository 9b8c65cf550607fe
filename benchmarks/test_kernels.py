"""Each kernel alone, on data that is where it needs it. On a GPU, ``GB/s`` is by CUDA events around the launches.

What to expect on an H200: of float32 fields in 5632 streams of 128 KiB, LZ4 decodes 36 GB/s with a sequence a step
(`lz4`) and 237 with groups of them (`lz4_group`), of 1000 streams 6.6 and 54, of 100 0.7 and 5.9: latency decides. The
fast assemble moves 4000 GB/s, read and written, of the 4240 of a copy, the general one 750.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Arrays
from benchmarks.datasets import DATASETS
from benchmarks.waves import Enqueue, Wave, seconds
from zarrgpu.engine import resolve
from zarrgpu.engine.base import Lane
from zarrgpu.kernels import (
    assemble,
    assemble_words,
    bitshuffle,
    byteshuffle,
    byteswap,
    gather,
    lz4,
    lz4_group,
    scatter,
    stored,
)
from zarrgpu.kernels import boxes as b
from zarrgpu.kernels import tables as t

ROUNDS = 3
COMPRESSED = [name for name, dataset in DATASETS.items() if dataset.codec == "blosc lz4"]
SHUFFLES = {
    "byteshuffle": (byteshuffle.SHUFFLE, byteshuffle.groups),
    "byteunshuffle": (byteshuffle.UNSHUFFLE, byteshuffle.groups),
    "bitshuffle": (bitshuffle.BITSHUFFLE, bitshuffle.groups),
    "bitunshuffle": (bitshuffle.BITUNSHUFFLE, bitshuffle.groups),
}


@pytest.fixture(scope="module")
def lane(device: str) -> Iterator[Lane]:
    with resolve(device).lanes() as lanes:
        yield lanes[0]


def measure(benchmark: BenchmarkFixture, lane: Lane, enqueue: Enqueue, nbytes: int) -> None:
    """Time a launch that was checked before; `nbytes` are what it decodes, or reads and writes."""

    def run() -> None:
        enqueue()
        lane.wait()

    benchmark.pedantic(run, rounds=ROUNDS)  # type: ignore[no-untyped-call]  # it has no types
    benchmark.extra_info["bytes"] = nbytes
    if benchmark.enabled:
        benchmark.extra_info["GB/s"] = nbytes / seconds(lane, enqueue, ROUNDS) / 1e9


@pytest.mark.parametrize("kernel", [lz4.KERNEL, lz4_group.KERNEL], ids=lambda k: k.name)
@pytest.mark.parametrize("name", COMPRESSED)
def test_lz4(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane, name: str, kernel: Any) -> None:
    if device == "host" and not kernel.on_host:
        pytest.skip("a kernel for GPUs only")
    wave = Wave(arrays(name), resolve(device), lane)
    measure(benchmark, lane, *wave.decompress("lz4", kernel))


def test_stored(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane) -> None:
    wave = Wave(arrays("f4 fields, lz4, shuffle"), resolve(device), lane)
    measure(benchmark, lane, *wave.decompress("stored", stored.KERNEL))


@pytest.mark.parametrize("kernels", [assemble_words, assemble], ids=lambda m: m.__name__.rpartition(".")[2])
@pytest.mark.parametrize("name", DATASETS)
def test_assemble(
    benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane, name: str, kernels: Any
) -> None:
    wave = Wave(arrays(name), resolve(device), lane)
    wave.decompress_all()
    enqueue, nbytes = wave.assemble(kernels)
    got, want = np.asarray(lane.download(wave.out)), arrays(name)[...]
    lane.wait()
    assert np.array_equal(got, want)
    measure(benchmark, lane, enqueue, nbytes)


@pytest.mark.parametrize("name", COMPRESSED)
def test_locate(benchmark: BenchmarkFixture, arrays: Arrays, name: str) -> None:
    """Headers to streams; on the host whatever the engine."""
    engine = resolve("host")
    with engine.lanes() as lanes:
        wave = Wave(arrays(name), engine, lanes[0])
        arena = lanes[0].arena[: wave.used]
        located = benchmark(wave.program.container.locate, arena, wave.chunks)
    assert len(located.streams) == len(wave.located.streams)


@pytest.fixture
def plain(arrays: Arrays, device: str, lane: Lane) -> Wave:
    """Uncompressed chunks: their bytes are in the source arena, and the scratch arena has room for as many."""
    array: zarr.Array[Any] = arrays("f4 fields, uncompressed")
    wave = Wave(array, resolve(device), lane)
    scratch = lane.scratch(wave.used)
    wave.arenas = (*wave.arenas[:2], scratch, scratch.view(np.uint32))
    return wave


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffle(benchmark: BenchmarkFixture, lane: Lane, plain: Wave, name: str) -> None:
    """Blocks of 512 KiB, both ways."""
    kernel, groups = SHUFFLES[name]
    starts = np.arange(0, plain.used, 1 << 19)
    blocks = np.column_stack([starts, starts, np.minimum(1 << 19, plain.used - starts), np.full(len(starts), 4)])
    n = groups(blocks)
    (table,) = lane.tables(blocks)
    status = lane.zeros(len(blocks))
    enqueue = plain.checked(kernel, len(blocks) * n, status, plain.arenas[0], plain.arenas[2], table, n)
    measure(benchmark, lane, enqueue, 2 * plain.used)


def test_byteswap(benchmark: BenchmarkFixture, lane: Lane, plain: Wave) -> None:
    source, _, scratch, _ = plain.arenas
    items = byteswap.items(plain.used)
    enqueue = plain.checked(byteswap.KERNEL, items, lane.zeros(1), source, scratch, plain.used, 4)
    measure(benchmark, lane, enqueue, 2 * plain.used)


@pytest.mark.parametrize("kernels", [scatter, gather], ids=lambda m: m.__name__.rpartition(".")[2])
def test_boxes(benchmark: BenchmarkFixture, lane: Lane, plain: Wave, kernels: Any) -> None:
    """Chunks to the array and back, element by element."""
    own, src, dst = b.merge_axes(plain.plan.boxes, plain.plan.src_strides, plain.plan.dst_strides)
    layouts = plain.located.layouts.copy()
    layouts[:, t.L_ARENA] = t.SCRATCH
    flat = plain.engine.flat(plain.out)
    assert flat is not None
    groups, status = kernels.groups(own, 4), lane.zeros(len(own))
    tables = lane.tables(layouts, own, src, dst)
    arguments = (groups, *plain.arenas[2:], *tables, *flat)
    enqueue = plain.checked(kernels.kernel(4), len(own) * groups, status, *arguments)
    measure(benchmark, lane, enqueue, 2 * plain.decoded)
