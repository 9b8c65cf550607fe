"""A pytest plugin for zarr-python's own suite, which `ci/upstream` runs: reads are ours, and are counted.

It is loaded by ``-p upstream`` with this folder on the path: ``tests`` is zarr's package there. ``--zarrgpu`` says
where arrays that are read live:

* ``host``: NumPy arrays, as everybody gets them.
* ``off``: the same, through zarr's own pipeline, to see whether a test fails there too.

``--zarrgpu-report`` names a folder for what came of it: ``failed``, a test a line; ``table``, what was counted;
``share``, how many in a hundred of the reads that we should cover went through programs of ours.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap, Counter
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import zarr

PIPELINE = "zarrgpu.pipeline.GpuCodecPipeline"
EXAMPLES = 100
"""Of each property, always the same ones; zarr's own CI takes 300."""
OURS, ZARRS, OTHERS = "reads by programs of ours", "reads by zarr's pipeline", "reads of dtypes that no program is for"

_ways: ContextVar[set[str] | None] = ContextVar("ways", default=None)
"""How the parts of the read that is under way went; None where there is none."""


class Report:
    """What failed and what was counted, in this process and in those that pytest-xdist started for it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed; pytest-xdist calls this in the process that it was started in, too."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a process of pytest-xdist counted; one that died has no output and fails its test."""
        self.counts.update(getattr(node, "workeroutput", {}).get("zarrgpu", {}))

    def pytest_sessionfinish(self) -> None:
        """Hand on what was counted, or write it."""
        import zarrgpu

        self.counts.update(zarrgpu.counters())
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["zarrgpu"] = dict(self.counts)
        elif (folder := self.config.getoption("--zarrgpu-report")) is not None:
            self.write(Path(folder))

    def write(self, folder: Path) -> None:
        """Write it all, the reasons of fallbacks last in the table."""
        folder.mkdir(parents=True, exist_ok=True)
        share = 100 * self.counts[OURS] / max(1, self.counts[OURS] + self.counts[ZARRS])
        table: Counter[str] = Counter()
        for name, n in self.counts.items():
            table[re.sub(r":dtype (?!.* on ).*", ":dtype of strings, structures or objects", name)] += n
        names = sorted(table, key=lambda name: (name.startswith("fallback"), not name.startswith("reads"), name))
        lines = [f"{table[name]:9d}  {name}" for name in names]
        (folder / "failed").write_text("".join(f"{name}\n" for name in sorted(self.failed)))
        (folder / "table").write_text("".join(f"{line}\n" for line in lines))
        (folder / "share").write_text(f"{int(share)}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ours."""
    parser.addoption("--zarrgpu", choices=["host", "off"], default="host")
    parser.addoption("--zarrgpu-report", metavar="FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    """Make zarr read through us, in this process only: tests start others, some with a zarr of long ago."""
    report = Report(config)
    config.pluginmanager.register(report)
    if config.getoption("--zarrgpu") != "off":
        watch(report.counts)
        zarr.config.env = ChainMap(os.environ, {"ZARR_CODEC_PIPELINE__PATH": PIPELINE})
        zarr.config.refresh()


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Set the properties' profile: zarr's conftest, which sets another, was imported by now, its tests were not."""
    profile = hypothesis.settings(hypothesis.settings.get_profile("ci"), max_examples=EXAMPLES, derandomize=True)
    hypothesis.settings.register_profile("upstream", profile)
    hypothesis.settings.load_profile("upstream")


def watch(counts: Counter[str]) -> None:
    """Count the reads of our pipeline by the way that they go, but not those that zarr's pipeline makes through ours."""
    from zarrgpu.chain import is_plain
    from zarrgpu.pipeline import GpuCodecPipeline

    read, through_zarr = GpuCodecPipeline.read, GpuCodecPipeline._read_through_zarr

    async def counted(self: Any, batch_info: Any, *rest: Any, **named: Any) -> Any:
        batch = list(batch_info)
        if not batch or _ways.get() is not None:
            return await read(self, batch, *rest, **named)
        token = _ways.set(ways := set[str]())
        try:
            return await read(self, batch, *rest, **named)
        finally:
            _ways.reset(token)
            plain = is_plain(batch[0][1].dtype.to_native_dtype())
            counts[OTHERS if not plain else ZARRS if ways else OURS] += 1

    async def noted(self: Any, *arguments: Any) -> Any:
        ways = _ways.get()
        assert ways is not None
        ways.add("zarr's")
        return await through_zarr(self, *arguments)

    GpuCodecPipeline.read = counted
    GpuCodecPipeline._read_through_zarr = noted
