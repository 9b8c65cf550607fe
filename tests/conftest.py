"""Picks the lanes that this machine can run, before anything imports numba; finds the corpus.

Without a GPU, numba's simulator (made fast and given a warp layer by `tests.fastsim`) runs the CUDA kernels; with one,
the GPU does. The host twins run on both.
"""

from __future__ import annotations

import ctypes
import os
import tarfile
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings


def has_gpu() -> bool:
    """Whether the driver sees a device; asked without numba or cupy, which must not be imported yet."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


GPU = has_gpu()
if not GPU:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from tests import fastsim  # noqa: F401  # patches the simulator

# The first example of a test compiles what the others only run.
settings.register_profile("zarrgpu", deadline=None)
settings.load_profile("zarrgpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--require-gpu`."""
    parser.addoption("--require-gpu", action="store_true", help="fail without a GPU and where a `gpu` test is skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Stop at once when a GPU is required and there is none."""
    if config.getoption("--require-gpu") and not GPU:
        raise pytest.UsageError("--require-gpu: the CUDA driver is missing or sees no device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of the cuda engine with `gpu`; skip what this machine cannot run or need not."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and any(isinstance(p, str) and p.split(":")[0] == "cuda" for p in callspec.params.values()):
            item.add_marker(pytest.mark.gpu)
        nogpu = item.get_closest_marker("nogpu")
        if nogpu and GPU:
            item.add_marker(pytest.mark.skip(reason=nogpu.args[0]))
        if not GPU and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a `gpu` test into a failure under `--require-gpu`."""
    report = yield
    if report.skipped and item.config.getoption("--require-gpu") and item.get_closest_marker("gpu"):
        report.outcome = "failed"
        report.longrepr = f"--require-gpu forbids this skip: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of real and hand-made Zarr data, unpacked once a session.

    ``ZARRGPU_CORPUS`` names the archive or the folder; by default it is looked for beside the checkout.
    """
    named = os.environ.get("ZARRGPU_CORPUS")
    beside = Path(__file__).parents[2] / "shared" / "corpus" / "corpus.tar.xz"
    if named is None and not beside.exists():
        pytest.skip("the corpus is not here: ZARRGPU_CORPUS is unset")
    source = Path(named) if named else beside
    if source.is_dir():
        return source
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    if not (shared / "corpus").exists():
        with tempfile.TemporaryDirectory(dir=shared) as folder, tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
            try:
                Path(folder, "corpus").rename(shared / "corpus")
            except OSError:  # another worker was faster
                assert (shared / "corpus").exists()
    return shared / "corpus"
