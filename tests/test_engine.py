"""Devices: which there are, what is missing and how to get it, and that asking costs nothing."""

from __future__ import annotations

import ctypes
import logging
import types
from typing import Any

import pytest

import zarrgpu
from tests.conftest import GPU
from tests.engines import CACHED
from zarrgpu import engine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend: ``machine(devices=..., packages=...)``."""

    def pretend(devices: int | str, packages: tuple[str, ...] = ("cupy", "numba_cuda")) -> None:
        monkeypatch.setattr(engine, "_driver_devices", lambda: devices)
        monkeypatch.setattr(engine, "find_spec", lambda name: name if name in packages else None)
        for cached in CACHED:
            cached.cache_clear()

    yield pretend
    monkeypatch.undo()
    for cached in CACHED:
        cached.cache_clear()


def test_auto_takes_the_gpu_when_there_is_one_and_says_so_once(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine(2)
    with caplog.at_level(logging.INFO, "zarrgpu"):
        assert engine.available() == ["cuda:0", "cuda:1", "host"]
        assert engine.normalize("auto") == engine.normalize("auto") == "cuda:0"
    assert [r.message for r in caplog.records] == ["device 'auto' is cuda:0"]
    assert engine.normalize("cuda:1") == "cuda:1"
    with pytest.raises(
        zarrgpu.DeviceUnavailableError, match="'cuda:2' does not exist; this machine has cuda:0, cuda:1"
    ):
        engine.normalize("cuda:2")


def test_auto_is_the_host_without_a_gpu_and_says_why(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine("no NVIDIA driver (libcuda.so.1) was found", ())
    with caplog.at_level(logging.INFO, "zarrgpu"):
        assert engine.normalize("auto") == "host"
    assert "no NVIDIA driver" in caplog.text
    assert engine.available() == ["host"]
    with pytest.raises(zarrgpu.DeviceUnavailableError, match=r"driver.*cupy and numba-cuda not installed: pip install"):
        engine.normalize("cuda")


def test_a_missing_package_comes_with_its_command(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(1, ("numba_cuda",))
    monkeypatch.setattr(engine, "_driver_major", lambda: 12)
    assert engine.missing() == "cupy not installed: pip install 'zarrgpu[cuda12]'"
    with pytest.raises(zarrgpu.DeviceUnavailableError, match=r"zarrgpu\[cuda12\]"):
        zarrgpu.enable("cuda")


def test_other_names_are_refused() -> None:
    for name in ("gpu", "cuda:", "cuda:-1", "HOST", ""):
        with pytest.raises(ValueError, match="device must be"):
            engine.normalize(name)


def test_the_driver_is_asked_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of a driver: none, an error, a number of devices, a version."""

    class Driver:
        def __init__(self, code: int, devices: int, version: int) -> None:
            self.code, self.devices, self.version = code, devices, version

        def cuInit(self, flags: int) -> int:  # the driver's names
            return self.code

        def cuDeviceGetCount(self, target: Any) -> int:
            target._obj.value = self.devices
            return self.code

        def cuDriverGetVersion(self, target: Any) -> int:
            target._obj.value = self.version
            return self.code

    def none(name: str) -> Any:
        raise OSError(name)

    ask = engine._driver_devices.__wrapped__ if hasattr(engine._driver_devices, "__wrapped__") else None
    assert ask is not None
    for driver, devices, major in (
        (none, "no NVIDIA driver", 13),
        (lambda name: Driver(100, 0, 0), "no usable device", 13),
        (lambda name: Driver(0, 0, 12080), "no usable device", 12),
        (lambda name: Driver(0, 3, 13000), 3, 13),
        (lambda name: Driver(0, 3, 14000), 3, 13),
    ):
        monkeypatch.setattr(
            engine, "ctypes", types.SimpleNamespace(CDLL=driver, c_int=ctypes.c_int, byref=ctypes.byref)
        )
        found = ask()
        assert found == devices if isinstance(devices, int) else devices in str(found)
        assert engine._driver_major() == major


def test_this_machine() -> None:
    """What the test's own look at the driver says, zarrgpu says too."""
    assert (engine.missing() is None) >= GPU
    assert engine.available()[-1] == "host"
    assert zarrgpu.engine.resolve("host") is zarrgpu.engine.resolve("host")
