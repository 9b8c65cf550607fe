"""Where to decode what holds compressed streams, on a GPU: what was measured, in one table."""

from __future__ import annotations

from typing import Final

FEWEST_STREAMS: Final[dict[str, int]] = {
    "blosc blosclz": 0,
    "blosc lz4": 0,
    "blosc lz4hc": 0,
    "blosc zlib": 64,
    "blosc zstd": 0,
    "gzip": 128,
    "lz4": 96,
    "zlib": 128,
    "zstd": 32,
}
"""By codec, the streams that a wave must have for kernels to be preferred to the library on all cores.

``python -m benchmarks.preference`` measures both ways. On an H200 with 16 cores, in GB/s by kernels and by the library:
LZ4 frames of 4 MB 0.09 and 0.74 for a single one, 7.4 and 12.2 for 128 in waves of 32; of 1 MB 2.0 and 4.5 for 32, 14.6
and 7.2 for 512 in waves of 126; of 132 kB 15 and 1.4 for 4160. Blosc with LZ4, whose chunk of 4 MB has 32 streams: 0.97
and 0.69 for a single one, 28 and 10.6 for 128. Zstandard's two numbers are guesses that it has not measured yet; by
``benchmarks.codecs``, frames of 4 MB came at 8.8 by kernels, and at 5.8 by libzstd in an earlier run; Blosc with Zstd
at 18 and at 9.

Deflate's are not measured either. A predecessor of its kernels took 48 MB/s from a stream, whatever its length, up to
250 streams; libdeflate on 16 cores came to 2.8 GB/s of float32 and 5.4 of int16, which are 58 and 113 streams, and
c-blosc's zlib to 2.9 at most, which are 60."""

AT_ONCE, AT_ONCE_BYTES = 256, 512 << 20


def streams_at_once(nbytes: int) -> int:
    """How many streams of Deflate, of `nbytes` decoded bytes each, a wave should have.

    It takes as long for a few of them as for `AT_ONCE`, so that fewer would be a waste; but no more than
    `AT_ONCE_BYTES` of them.
    """
    return min(AT_ONCE, AT_ONCE_BYTES // max(nbytes, 1))
