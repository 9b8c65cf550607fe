"""Where to decode what holds compressed streams, on a GPU: what was measured, in one table."""

from __future__ import annotations

from typing import Final

FEWEST_STREAMS: Final[dict[str, int | None]] = {
    "blosc blosclz": 0,
    "blosc lz4": 0,
    "blosc lz4hc": 0,
    "blosc zlib": None,
    "blosc zstd": None,
    "gzip": None,
    "lz4": 256,
    "zlib": None,
    "zstd": None,
}
"""By codec, the streams that a wave must have for kernels to be preferred to the library on all cores; None where there
are no kernels. ``python -m benchmarks.preference`` and ``python -m benchmarks.codecs`` measure both ways."""
