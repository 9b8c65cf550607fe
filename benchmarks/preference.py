"""Kernels or host threads: where the table in `zarrgpu.codecs.preference` comes from.

    python -m benchmarks.preference [--only CODEC]

One array a line, float32 fields in chunks of some rows, read with all streams decoded by kernels and with all decoded
by the library on all cores. What counts is how many streams a wave has, since a GPU decodes few hardly faster than one.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial

from zarr.codecs import GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as n3

import zarrgpu
from benchmarks.codecs import median
from zarrgpu import engine
from zarrgpu.bench import difference, to_host
from zarrgpu.codecs import preference
from zarrgpu.sample import blosc, write_sample

SIZES = ((721, 1), (721, 8), (721, 32), (721, 128), (181, 32), (181, 512), (23, 512), (23, 4096))
"""Rows and number of chunks."""
COMPRESSORS = {
    "lz4": n3.LZ4(),
    "zstd": ZstdCodec(level=3),
    "gzip": GzipCodec(level=5),
    "zlib": n3.Zlib(level=6),
    "blosc lz4": blosc(),
    "blosc zstd": blosc(cname="zstd"),
    "blosc zlib": blosc(cname="zlib"),
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preference", description="Kernels or host threads.")
    parser.add_argument("--only", default="", help="codecs whose name contains this")
    only, device = parser.parse_args().only, engine.available()[0]
    print(f"{'GB/s decoded, to ' + device:<40} {'kernels':>8} {'library':>8}")
    for name, compressor in COMPRESSORS.items():
        for rows, n in SIZES if only in name else ():
            shape = (n * rows // 721 or 1, 721, 1440)
            with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
                array = write_sample(folder, shape, (1, rows, 1440), compressors=compressor)
                rates, results = [], []
                for fewest in (0, 1 << 60):
                    preference.FEWEST_STREAMS[name] = fewest
                    read = partial(zarrgpu.read, array, device=device)
                    results.append(to_host(read()))
                    rates.append(array.nbytes / median(read, device, 5) / 1e9)
                wrong = difference(*results)
                if wrong:
                    raise AssertionError(wrong)
            label = f"{name}, {array.nchunks} chunks of {rows * 1440 * 4 >> 10} KiB"
            print(f"{label:<40} {rates[0]:8.2f} {rates[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
