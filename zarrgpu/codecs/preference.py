"""Where to decode: what was measured, in one table."""

from __future__ import annotations

from typing import Final

FEWEST_STREAMS: Final[dict[str, int]] = {"lz4": 256}
"""By codec, the streams of a wave from which on a GPU's kernels beat the library on all cores and a pinned copy."""
