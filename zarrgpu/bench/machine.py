"""What there is on this machine, and what is missing: for ``zarrgpu info``, and beside every figure."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from importlib import metadata
from pathlib import Path

import zarrgpu
from zarrgpu._threads import cores

PACKAGES = ("zarrgpu", "zarr", "numcodecs", "numpy", "numba", "numba-cuda")
PEERS = ("zarrs", "tensorstore")


def facts() -> dict[str, str]:
    """Versions and devices."""
    found = {"python": platform.python_version(), "processor": _processor()}
    for name in PACKAGES:
        found[name] = _version(name) or "not installed"
    found["cupy"] = next((v for n in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if (v := _version(n))), "not installed")
    found |= {name: _version(name) or "not installed" for name in PEERS}
    names = zarrgpu.engine.available()
    found["driver"] = _driver()
    found["devices"] = ", ".join(_described(name) for name in names)
    found["threads"] = str(cores())
    found["missing"] = zarrgpu.engine.missing() or "nothing"
    return found


def _version(distribution: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def _processor() -> str:
    """What the kernel calls it, where it says so."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _described(device: str) -> str:
    if device == "host":
        return device
    import cupy

    return f"{device} ({cupy.cuda.runtime.getDeviceProperties(int(device.removeprefix('cuda:')))['name'].decode()})"


def _driver() -> str:
    """The version of the NVIDIA driver, as its management library gives it."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "not found"
    text = ctypes.create_string_buffer(80)
    if library.nvmlInit_v2() != 0 or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "does not answer"
    return text.value.decode()
