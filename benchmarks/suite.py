"""Six kinds of data, each read by every system that is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from benchmarks.six import SIX
from zarrgpu import engine
from zarrgpu.bench.examine import examine
from zarrgpu.bench.report import Findings

BUDGET = 12.0
"""Seconds of timed reads of a dataset; a system that needs more than its share of them is read less often."""


def run(only: str, repeats: int, small: bool = False) -> Iterator[tuple[str, Findings]]:
    """Measure each dataset whose name contains `only`; as little of it as the tests have if `small`."""
    available = engine.available()
    devices = list(dict.fromkeys([available[0], "host"]))
    for name, archive in SIX.items():
        if only not in name:
            continue
        n = archive.small if small else archive.large if devices == ["host"] else archive.huge
        with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
            array = archive.write(f"{folder}/a.zarr", n)
            yield name, examine(array, ..., devices, repeats, f"{archive.kind}: {name}", budget=BUDGET)
