"""Each kernel alone, on data that is where it needs it. On a GPU, ``GB/s`` is by CUDA events around the launches.

What to expect on an H200: of float32 fields in 5632 streams of 128 KiB, LZ4 decodes 36 GB/s with a sequence a step
(`lz4`) and 237 with groups of them (`lz4_group`), of 1000 streams 6.6 and 54, of 100 0.7 and 5.9: latency decides. The
fast assemble moves 4000 GB/s, read and written, of the 4240 of a copy, the general one 750, that with conversions 450
to 600. BloscLZ decodes 36 GB/s of 3000 streams. CRC-32 reads 2200 GB/s, Adler-32 3100, Fletcher-32 3400; delta moves
1600 in elements of 2 bytes and 1800 of 4, read and written once.
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
from zarrgpu.encoded import OnHost
from zarrgpu.engine import resolve
from zarrgpu.engine.base import Lane
from zarrgpu.kernels import (
    adler32,
    assemble,
    assemble_values,
    assemble_words,
    bitshuffle,
    blosclz,
    byteshuffle,
    byteswap,
    crc32,
    deflate,
    delta,
    fletcher32,
    gather,
    lz4,
    lz4_group,
    scatter,
    stored,
    values,
)
from zarrgpu.kernels import boxes as b
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.checksums import CHECK_COLUMNS, K_FIRST, K_SIZE, Checksum

ROUNDS = 3
CONTAINED = [
    name
    for name, dataset in DATASETS.items()
    if dataset.codec in ("none", "blosc lz4", "blosc blosclz", "blosc zlib", "gzip", "zstd", "blosc zstd")
]
COMPRESSED = [name for name, dataset in DATASETS.items() if dataset.codec == "blosc lz4"]
ZSTANDARD = [name for name, dataset in DATASETS.items() if dataset.codec in ("zstd", "blosc zstd")]
DEFLATED = ["f4 fields, blosc zlib, shuffle", "f4 fields, gzip", "i2 packed, shuffle + zlib, v2"]
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


def test_blosclz(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane) -> None:
    wave = Wave(arrays("f4 fields, blosclz, shuffle"), resolve(device), lane)
    measure(benchmark, lane, *wave.decompress("blosclz", blosclz.KERNEL))


@pytest.mark.parametrize("step", ["", "sequences", "place", "literals", "execute"])
@pytest.mark.parametrize("name", ZSTANDARD)
def test_zstd(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane, name: str, step: str) -> None:
    """All of its kernels, and each alone."""
    wave = Wave(arrays(name), resolve(device), lane)
    measure(benchmark, lane, *wave.zstd(step))


@pytest.mark.parametrize("form", deflate.FORMS)
@pytest.mark.parametrize("name", DEFLATED)
def test_deflate(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane, name: str, form: str) -> None:
    """Checksums included."""
    wave = Wave(arrays(name), resolve(device), lane)
    measure(benchmark, lane, *wave.deflate(form))


def test_stored(benchmark: BenchmarkFixture, arrays: Arrays, device: str, lane: Lane) -> None:
    wave = Wave(arrays("f4 fields, lz4, shuffle"), resolve(device), lane)
    measure(benchmark, lane, *wave.decompress("stored", stored.KERNEL))


@pytest.mark.parametrize("kernels", [assemble_words, assemble], ids=lambda m: m.__name__.rpartition(".")[2])
@pytest.mark.parametrize("name", CONTAINED)
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


@pytest.mark.parametrize("name", COMPRESSED + ZSTANDARD)
def test_locate(benchmark: BenchmarkFixture, arrays: Arrays, name: str) -> None:
    """Headers to streams; on the host whatever the engine."""
    engine = resolve("host")
    with engine.lanes() as lanes:
        wave = Wave(arrays(name), engine, lanes[0])
        arena = lanes[0].arena[: wave.used]
        located = benchmark(wave.program.container.locate, OnHost(arena), wave.chunks)
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


@pytest.mark.parametrize("checksum", [crc32.CRC32, adler32.ADLER32, fletcher32.FLETCHER32], ids=lambda c: c.name)
def test_checksum(benchmark: BenchmarkFixture, lane: Lane, plain: Wave, checksum: Checksum) -> None:
    """Chunks of 4 MB, in two launches; what is stored is not their checksum, which takes as long."""
    checks = np.zeros((len(plain.chunks), CHECK_COLUMNS), np.int64)
    checks[:, K_FIRST], checks[:, K_SIZE] = plain.chunks[:, t.C_START], plain.chunks[:, t.C_SIZE]
    groups, (table, constants) = checksum.groups(checks), lane.tables(checks, checksum.tables)
    partial, status = lane.room(checksum.partials(checks), np.uint64), lane.zeros(len(checks))

    def enqueue() -> None:
        lane.launch(checksum.partial, len(checks) * groups, groups, *plain.arenas, table, constants, partial)
        lane.launch(checksum.verdict, len(checks), groups, *plain.arenas[::2], table, constants, partial, status)

    measure(benchmark, lane, enqueue, plain.encoded)


@pytest.mark.parametrize("itemsize", [2, 4])
def test_delta(benchmark: BenchmarkFixture, lane: Lane, plain: Wave, itemsize: int) -> None:
    """Chunks of 4 MB, in three launches; GB/s read and written."""
    runs = np.column_stack([plain.chunks[:, t.C_START], plain.chunks[:, t.C_SIZE] // itemsize])
    groups, (table,), status = delta.groups(runs, itemsize), lane.tables(runs), lane.zeros(len(runs))
    sums, n = lane.room(len(runs) * groups, np.uint64), len(runs)

    def enqueue() -> None:
        for kernel, items in zip(delta.kernels(itemsize), (n * groups, n, n * groups), strict=True):
            lane.launch(kernel, items, groups, *plain.arenas[2:], table, sums, status)

    measure(benchmark, lane, enqueue, 2 * plain.encoded)


@pytest.mark.parametrize("source", ["i2", "f8"])
def test_assemble_values(benchmark: BenchmarkFixture, lane: Lane, plain: Wave, source: str) -> None:
    """Numbers made of the chunks' bytes, as float32; GB/s read and written."""
    conversion = values.divide_add(np.dtype(source), 10.0, 273.0, np.dtype("f4"))
    assert conversion is not None
    flat = plain.engine.flat(plain.out)
    assert flat is not None
    count = plain.program.nbytes // 8
    own = np.zeros((len(plain.chunks), t.B_COUNT + 1), np.int64)
    own[:, t.B_LAYOUT] = np.arange(len(own))
    own[:, t.B_DEST], own[:, t.B_COUNT] = own[:, t.B_LAYOUT] * plain.program.nbytes, count
    strides = np.ones(1, np.int64), np.full(1, 4, np.int64)
    tables = lane.tables(plain.located.layouts, own, *strides, np.zeros(4, np.uint8))
    groups, status, (parameters,) = (
        assemble_values.groups(own, conversion),
        lane.zeros(len(own)),
        lane.tables(conversion.parameters),
    )

    def enqueue() -> None:
        kernel = assemble_values.kernel(conversion)
        lane.launch(kernel, len(own) * groups, groups, *plain.arenas, *tables, *flat, status, parameters)

    measure(benchmark, lane, enqueue, len(own) * count * (conversion.source.itemsize + 4))
