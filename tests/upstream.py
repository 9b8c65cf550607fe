"""A pytest plugin for zarr-python's own suite, which `ci/upstream` runs: reads are ours, and are counted.

It is loaded by ``-p upstream`` with this folder on the path: ``tests`` is zarr's package there. ``--zarrgpu`` says
where chunks are decoded and where the arrays are:

* ``host``: on the host, into NumPy arrays, as everybody gets them.
* ``cuda-host``: on the device, from where each read is copied into the NumPy array that zarr made for it.
* ``cuda``: on the device, into arrays that stay there; only what the test looks at is a NumPy array.
* ``off``: by zarr's own pipeline, to see whether a test fails there too.

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
import numpy as np
import pytest
import zarr
from zarr.registry import register_ndbuffer, register_pipeline

from zarrgpu.chain import is_plain
from zarrgpu.engine import resolve
from zarrgpu.pipeline import GpuCodecPipeline

EXAMPLES = {"host": 100, "off": 100}
"""Of each property, always the same ones, and 25 where a device decodes; zarr's own CI takes 300."""
OURS, ZARRS, OTHERS = "reads by programs of ours", "reads by zarr's pipeline", "reads of dtypes that no program is for"

counts: Counter[str] = Counter()
"""What was counted in this process, and at the end of the session in those that pytest-xdist started for it."""
_ways: ContextVar[set[str] | None] = ContextVar("ways", default=None)
"""How the parts of the read that is under way went; None where there is none."""


class Report:
    """What failed and what was counted."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed; pytest-xdist calls this in the process that it was started in, too."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a process of pytest-xdist counted; one that died has no output and fails its test."""
        counts.update(getattr(node, "workeroutput", {}).get("zarrgpu", {}))

    def pytest_sessionfinish(self) -> None:
        """Hand on what was counted, or write it."""
        import zarrgpu

        counts.update(zarrgpu.counters())
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["zarrgpu"] = dict(counts)
        elif (folder := self.config.getoption("--zarrgpu-report")) is not None:
            self.write(Path(folder))

    def write(self, folder: Path) -> None:
        """Write it all, the reasons of fallbacks last in the table."""
        folder.mkdir(parents=True, exist_ok=True)
        share = 100 * counts[OURS] / max(1, counts[OURS] + counts[ZARRS])
        table: Counter[str] = Counter()
        for name, n in counts.items():
            table[re.sub(r":dtype (?!.* on ).*", ":dtype of strings, structures or objects", name)] += n
        names = sorted(table, key=lambda name: (name.startswith("fallback"), not name.startswith("reads"), name))
        lines = [f"{table[name]:9d}  {name}" for name in names]
        (folder / "failed").write_text("".join(f"{name}\n" for name in sorted(self.failed)))
        (folder / "table").write_text("".join(f"{line}\n" for line in lines))
        (folder / "share").write_text(f"{int(share)}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ours."""
    parser.addoption("--zarrgpu", choices=["host", "cuda-host", "cuda", "off"], default="host")
    parser.addoption("--zarrgpu-report", metavar="FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    """Make zarr read through us, in this process only: tests start others, some with a zarr of long ago."""
    config.pluginmanager.register(Report(config))
    where = config.getoption("--zarrgpu")
    if where == "off":
        return
    pipeline = OnDevice if where == "cuda-host" else Counted
    register_pipeline(pipeline)
    settings = {"ZARR_CODEC_PIPELINE__PATH": f"{__name__}.{pipeline.__name__}"}
    if where == "cuda":
        settings["ZARR_NDBUFFER"] = device_buffers()
    zarr.config.env = ChainMap(os.environ, settings)
    zarr.config.refresh()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Set the properties' profile: zarr's conftest, which sets another, was imported by now, its tests were not."""
    examples = EXAMPLES.get(session.config.getoption("--zarrgpu"), 25)
    profile = hypothesis.settings(hypothesis.settings.get_profile("ci"), max_examples=examples, derandomize=True)
    hypothesis.settings.register_profile("upstream", profile)
    hypothesis.settings.load_profile("upstream")


class Counted(GpuCodecPipeline):
    """Our pipeline, its reads counted by the way that they go; those that zarr's makes through it are parts of one."""

    async def read(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
        """Read chunks into `out`."""
        batch = list(batch_info)
        if not batch or _ways.get() is not None:
            return await super().read(batch, out, drop_axes)
        token = _ways.set(ways := set[str]())
        try:
            return await super().read(batch, out, drop_axes)
        finally:
            _ways.reset(token)
            plain = is_plain(batch[0][1].dtype.to_native_dtype())
            counts[OTHERS if not plain else ZARRS if ways else OURS] += 1

    async def _read_through_zarr(self, *arguments: Any) -> Any:
        ways = _ways.get()
        assert ways is not None
        ways.add("zarr's")
        return await super()._read_through_zarr(*arguments)


class OnDevice(Counted):
    """The same, which reads into device memory whatever can be there and then copies it to a host array."""

    def _read(self, batch: Any, out: Any, drop_axes: Any, loop: Any) -> Any:
        host, engine = out._data, resolve("cuda")
        if not isinstance(host, np.ndarray) or not engine.supports(host.dtype):
            return super()._read(batch, out, drop_axes, loop)
        from zarrgpu.buffer.gpu import NDBuffer

        device = NDBuffer(engine.from_host(host))
        present = super()._read(batch, device, drop_axes, loop)
        host[...] = device.as_numpy_array()
        return present


def device_buffers() -> str:
    """Register buffers that are on the device; gives their name."""
    import zarrgpu.buffer.gpu

    class DeviceNDBuffer(zarrgpu.buffer.gpu.NDBuffer):
        """Device memory, as NumPy arrays for tests that look at it."""

        _asked: Any = None  # the dtype, which may have a byte order that no device has

        @classmethod
        def empty(cls, shape: tuple[int, ...], dtype: Any, order: Any = "C") -> Any:
            """As the class does it."""
            new = super().empty(shape, dtype, order)
            new._asked = np.dtype(dtype)
            return new

        @classmethod
        def create(cls, *, shape: Any, dtype: Any, order: Any = "C", fill_value: Any = None) -> Any:
            """As the class does it."""
            new = super().create(shape=shape, dtype=dtype, order=order, fill_value=fill_value)
            new._asked = np.dtype(dtype)
            return new

        def as_ndarray_like(self) -> Any:
            """Copy it to the host; data that are still there stay there."""
            array = self.as_numpy_array()
            return array if self._asked is None else array.astype(self._asked, copy=False)

    DeviceNDBuffer.__qualname__ = "DeviceNDBuffer"
    register_ndbuffer(DeviceNDBuffer)
    return f"{__name__}.DeviceNDBuffer"
