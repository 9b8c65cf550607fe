"""Whole arrays of 4 GB and small ones, from store to device: `zarrgpu.read` beside what the machine could do.

    python -m benchmarks.throughput [--only TEXT] [--scale F] [--repeats N] [--json FILE] [--targets]

Each array is a few different layers of chunks, whose files are copied again and again under the names of later layers,
in a temporary local store; the bytes of all layers are compared before anything is timed. Beside the rate is the
fraction that it is of the lowest ceiling: what the compiled workers read of these very files with nothing beside them,
and the upload of as many encoded bytes from pinned memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

import zarrgpu
from benchmarks.codecs import median
from benchmarks.datasets import micrograph, reanalysis, u2
from benchmarks.shards import SHARD
from benchmarks.shards import micrograph as sharded
from zarrgpu import engine
from zarrgpu._compat import store as stores
from zarrgpu._threads import cores
from zarrgpu.bench import ceilings, difference, on, to_host
from zarrgpu.files import files
from zarrgpu.sample import Fields, blosc
from zarrgpu.sizing import WAVE_BYTES


@dataclass(frozen=True)
class Case:
    """An array to read.

    Attributes
    ----------
    name : str
    write : callable
        ``write(store, n)``: an array of `n` layers.
    few, times : int
        Layers that are different, and how often they are there.
    target : float
        GB/s decoded on one H200, of 16 cores.
    how : str
        ``"read"``, ``"z[...]"`` or ``"device"``: `zarrgpu.read` of a local store, zarr's own indexing of it under
        `zarrgpu.enable`, and `zarrgpu.read` of a `zarrgpu.DeviceStore`.
    """

    name: str
    write: Callable[[Any, int], zarr.Array[Any]]
    few: int
    times: int
    target: float
    how: str = "read"


def tiles(store: Any, n: int) -> zarr.Array[Any]:
    """float32 in chunks of (30, 30): `n` layers of 510."""
    values = np.concatenate([Fields((30, 15300), seed)[0] for seed in range(n)])
    array = zarr.create_array(store, shape=values.shape, chunks=(30, 30), dtype="f4", compressors=blosc(3))
    array[...] = values
    return array


def shards(store: Any, n: int) -> zarr.Array[Any]:
    """uint16 in inner chunks of 32^3: `n` shards of (64, 512, 512)."""
    return sharded(store, (n * SHARD[0], *SHARD[1:]), SHARD)


CASES = [
    Case("f4 fields, blosc lz4", reanalysis(blosc()), 64, 16, 55),
    Case("f4 fields, blosc zstd", reanalysis(blosc(cname="zstd")), 64, 16, 60),
    Case("f4 fields, uncompressed", reanalysis(None), 64, 16, 28),
    Case("f4 fields, zstd", reanalysis(ZstdCodec(level=3)), 64, 16, 20),
    Case("u2 128^3, blosc lz4", micrograph(128, u2("shuffle")), 16, 16, 50),
    Case("u2 128^3, blosc zstd, bits", micrograph(128, u2("bitshuffle", "zstd")), 16, 16, 45),
    Case("u2 32^3, blosc lz4, 65536 files", micrograph(32, u2("shuffle")), 64, 256, 25),
    Case("u2 32^3, blosc lz4, z[...]", micrograph(32, u2("shuffle")), 64, 256, 4, "z[...]"),
    Case("u2 32^3, zstd, shards", shards, 8, 16, 20),
    Case("f4 (30, 30), blosc lz4, 260100 files", tiles, 10, 51, 2),
    Case("f4 fields, blosc lz4, on the device", reanalysis(blosc()), 64, 16, 150, "device"),
]


@dataclass
class Row:
    """A line of the table: GB/s decoded, but for `reading`, which is of encoded bytes."""

    name: str
    gigabytes: float
    ratio: float
    rate: float
    reading: float
    ceiling: float
    target: float

    @property
    def met(self) -> bool:
        """Whether the target is."""
        return self.rate >= self.target


def chunks_of(array: zarr.Array[Any]) -> Path:
    """The folder of an array's chunks."""
    path = stores.local_path(array.store_path)
    assert path is not None
    return Path(path) / "c"


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, in order."""
    return sorted(Path(where) / name for where, _, names in os.walk(folder) for name in names)


def put(layer: Path, content: dict[Path, bytes]) -> None:
    """Write files, by their paths within a folder."""
    for inner in {where.parent for where in content}:
        (layer / inner).mkdir(parents=True, exist_ok=True)
    for where, data in content.items():
        with open(layer / where, "wb", buffering=0) as file:
            file.write(data)


def repeat(array: zarr.Array[Any], times: int) -> None:
    """Make an array in a local store `times` as long, of the chunks that it has."""
    layers = -(-array.shape[0] // (array.shards or array.chunks)[0])
    folder = chunks_of(array)
    array.resize((array.shape[0] * times, *array.shape[1:]))
    with ThreadPoolExecutor(cores()) as pool:
        for i in range(layers):
            content = {path.relative_to(folder / str(i)): path.read_bytes() for path in files_in(folder / str(i))}
            copies = [folder / str(i + k * layers) for k in range(1, times)]
            list(pool.map(put, copies, [content] * len(copies)))


def reading(array: zarr.Array[Any], device: str) -> tuple[float, int]:
    """GB/s at which the workers read the files of an array in order, and how many bytes those are."""
    of = files([str(path) for path in files_in(chunks_of(array))])
    n, step = len(of.paths), max(1, len(of.paths) * WAVE_BYTES // array.nbytes)
    with engine.resolve(device).lanes() as lanes:

        def load() -> int:
            return sum(of.load(k, min(k + step, n), lanes[0].reserve)[2] for k in range(0, n, step))

        nbytes = load()
        return nbytes / ceilings.median(load) / 1e9, nbytes


def reader(case: Case, array: zarr.Array[Any], device: str) -> Callable[[], Any]:
    """What reads the array as the case says."""
    if case.how == "read":
        return partial(zarrgpu.read, array, device=device)
    if case.how == "device":
        store = zarrgpu.DeviceStore.load(array, device=device, read_only=True)
        return partial(zarrgpu.read, zarr.open_array(store, mode="r"), device=device)

    def indexed() -> Any:
        with zarrgpu.enable(device):
            return zarr.open_array(array.store, mode="r")[...]

    return indexed


def measure(case: Case, folder: str, device: str, times: int, repeats: int) -> Row:
    """Write, compare, time."""
    array = case.write(f"{folder}/a.zarr", case.few)
    want = np.asarray(array[...])
    repeat(array, times)
    read = reader(case, array, device)
    got = read()
    for k in range(times):
        wrong = difference(to_host(got[k * len(want) : (k + 1) * len(want)]), want)
        if wrong:
            raise AssertionError(f"{case.name}, repetition {k}: {wrong}")
    del got
    rate = array.nbytes / median(read, device, repeats) / 1e9
    with on(device):
        rate_of_files, nbytes = reading(array, device)
        upload = ceilings.upload(1 << 28, True) if device != "host" else rate_of_files
    ratio = array.nbytes / nbytes
    ceiling = ratio * min(rate_of_files, upload)
    return Row(case.name, array.nbytes / 1e9, ratio, rate, rate_of_files, ceiling, case.target)


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description="Whole arrays, to a device.")
    device = engine.available()[0]
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of layers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed on a GPU")
    options = parser.parse_args()
    print(
        f"{'GB/s decoded, to ' + device:<40} {'GB':>5} {'ratio':>5} {'rate':>7} {'of ceiling':>10} {'files':>6}",
        flush=True,
    )
    rows = []
    for case in CASES:
        if options.only not in case.name or (device == "host" and case.how == "device"):
            continue
        with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
            row = measure(case, folder, device, max(2, round(case.times * options.scale)), options.repeats)
        fraction = "" if case.how == "device" else f"{row.rate / row.ceiling:.0%}"
        remark = "" if device == "host" else f"  target {row.target:g}{'' if row.met else ': MISSED'}"
        print(f"{row.name:<40} {row.gigabytes:5.1f} {row.ratio:5.2f} {row.rate:7.2f} ", end="")
        print(f"{fraction:>10} {row.reading:6.1f}{remark}", flush=True)
        rows.append(row)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return int(options.targets and device != "host" and not all(row.met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
