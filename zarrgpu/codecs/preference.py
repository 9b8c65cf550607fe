"""Where to decode what holds compressed streams, on a GPU: what was measured, in one table."""

from __future__ import annotations

from typing import Final

FEWEST_STREAMS: Final[dict[str, int]] = {
    "blosc blosclz": 64,
    "blosc lz4": 0,
    "blosc lz4hc": 0,
    "blosc zlib": 64,
    "blosc zstd": 0,
    "gzip": 128,
    "lz4": 96,
    "zlib": 128,
    "zstd": 48,
}
"""By codec, the streams that a wave must have for kernels to be preferred to the library on all cores.

``python -m benchmarks.preference`` measures both ways. On an H200 with 16 cores, in GB/s by kernels and by the library:
LZ4 frames of 4 MB 0.09 and 0.74 for a single one, 7.4 and 12.2 for 128 in waves of 32; of 1 MB 2.0 and 4.5 for 32, 14.6
and 7.2 for 512 in waves of 126; of 132 kB 15 and 1.4 for 4160. Blosc with LZ4, whose chunk of 4 MB has 32 streams: 0.97
and 0.69 for a single one, 28 and 10.6 for 128. Zstandard's frames of 4 MB 1.0 and 2.0 for 8, 3.5 and 3.9 for 32, 9.6
and 4.7 for 128, 16 and 5.5 for 400; of 1 MB 2.3 and 2.9 for 32, 14 and 4.3 for 512. Blosc with Zstd 0.89 and 0.54 for
one chunk of 4 MB, 5.5 and 3.2 for 8, 23 and 7.5 for 128; 9.9 and 1.5 for 512 of 129 kB. Of Blosc with BloscLZ a chunk
of 4 MB took kernels 12.5 ms, and a CPU pipeline with a copy 6.6; more of them were not measured so.

Gzip of 4 MB, float32: 0.29 and 1.4 for 8, 1.1 and 2.5 for 32, which is 36 MB/s a stream; the library comes to 2.9 at
most, or 5.4 of int16 with zlib, and c-blosc's zlib to 2.9, whose streams are shuffled and short."""

AT_ONCE, AT_ONCE_BYTES = 256, 512 << 20


def streams_at_once(nbytes: int) -> int:
    """How many streams of Deflate, of `nbytes` decoded bytes each, a wave should have.

    It takes as long for a few of them as for `AT_ONCE`, so that fewer would be a waste; but no more than
    `AT_ONCE_BYTES` of them.
    """
    return min(AT_ONCE, AT_ONCE_BYTES // max(nbytes, 1))
