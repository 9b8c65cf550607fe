"""Measuring reads of one array by every system that is installed, side by side, correct before timed.

Every system's result is compared with plain zarr's, bit for bit, before any clock starts and after the last one has
stopped. The reads are timed in turn, round after round, so that what else the machine does falls on all of them; ratios
mean more than rates.
"""

from __future__ import annotations

from zarrgpu.bench.measure import WRONG, BenchMismatch, Measurement, compare, difference, on, one_line, to_host
from zarrgpu.bench.ways import System, plain_zarr, systems

__all__ = [
    "WRONG",
    "BenchMismatch",
    "Measurement",
    "System",
    "compare",
    "difference",
    "on",
    "one_line",
    "plain_zarr",
    "systems",
    "to_host",
]
