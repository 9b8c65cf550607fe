"""One chunk of 4 MB by itself: `zarrgpu.read` beside the CPU pipelines, each followed by a copy from pinned memory.

    python -m benchmarks.latency [--only TEXT] [--repeats N] [--targets]

Where there is nothing to overlap with, kernels of few streams may take longer than a library on a core or two, which
is what `zarrgpu.codecs.preference` is for. Target: 0.95 times the fastest of the pipelines or better, for any codec.

In one run on an H200, times the fastest of them: Blosc with LZ4 1.0 and, with bit shuffle, 1.3, with Zstd 1.4; gzip
1.3, zlib 1.9, shuffle + zlib 1.8; but uncompressed 0.7, LZ4 0.8, Zstandard 0.8, Blosc with zlib 0.7 and, by kernels
then, with BloscLZ 0.5. Where a library decodes, what is missing is a millisecond or more, of reading and planning. The
blocks of a Blosc chunk are decoded side by side since, and callers share the work of readers: not yet run there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import numcodecs
from zarr.codecs import GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as n3

from benchmarks.datasets import packed, reanalysis
from zarrgpu import engine
from zarrgpu.bench import compare, systems
from zarrgpu.sample import blosc

CASES = {
    "uncompressed": reanalysis(None),
    "blosc lz4": reanalysis(blosc()),
    "blosc lz4, bitshuffle": reanalysis(blosc(3, "bitshuffle")),
    "blosc blosclz": reanalysis(blosc(cname="blosclz")),
    "blosc zstd": reanalysis(blosc(cname="zstd")),
    "blosc zlib": reanalysis(blosc(cname="zlib")),
    "lz4": reanalysis(n3.LZ4()),
    "zstd": reanalysis(ZstdCodec(level=3)),
    "gzip": reanalysis(GzipCodec(level=5)),
    "zlib": reanalysis(n3.Zlib(level=6)),
    "shuffle + zlib, v2": packed(numcodecs.Zlib(6), [numcodecs.Shuffle(2)]),
}
TARGET = 0.95


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description="One chunk, to a device.")
    parser.add_argument("--only", default="", help="codecs whose name contains this")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--targets", action="store_true", help="fail when the target is missed on a GPU")
    options = parser.parse_args()
    device, missed = engine.available()[0], 0
    print(f"{'ms, to ' + device:<28} {'zarrgpu':>8} {'fastest':>8} {'ratio':>6}", flush=True)
    for name, write in CASES.items():
        if options.only not in name:
            continue
        ways = [
            s for s in systems([device]) if s.device == device and (s.ours or device == "host" or "pinned" in s.name)
        ]
        with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
            found = [m for m in compare(write(folder, 1), systems=ways, repeats=options.repeats) if m.times]
        ours = next(m for m in found if m.ours)
        best = min((m for m in found if not m.ours), key=lambda m: m.seconds)
        ratio = best.seconds / ours.seconds
        missed += ratio < TARGET
        print(f"{name:<28} {ours.seconds * 1e3:8.2f} {best.seconds * 1e3:8.2f} {ratio:6.2f}  {best.system}", flush=True)
    return int(options.targets and device != "host" and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
