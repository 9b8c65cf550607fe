"""Engines: where a program runs. Only here do host and device differ.

`resolve` turns a ``device=`` argument into an engine; asking what there is imports neither cupy nor numba.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from zarrgpu import _fork
from zarrgpu.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from zarrgpu.engine.base import Engine

__all__ = ["available", "missing", "resolve"]

CUDA_DTYPES = "?bhilqBHILQefdFD"
"""Characters of the dtypes that cupy has."""

FORKED = (
    "this process was forked from one that had used CUDA, which cannot be used after a fork; "
    "start processes by the method 'spawn' or 'forkserver' of multiprocessing, or use device='host'"
)

_log = logging.getLogger("zarrgpu")


@cache
def _driver_devices() -> int | str:
    """How many devices the driver sees, or why it sees none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1) was found; install one, or use device='host'"
    code = driver.cuInit(0)
    n = ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(n))
    if code == 3:  # CUDA_ERROR_NOT_INITIALIZED: somebody else's fork
        return FORKED
    if code != 0 or n.value == 0:
        return f"the NVIDIA driver reports no usable device (code {code}); use device='host'"
    return n.value


_user: int | None = None
"""The process that found devices, and thereby uses CUDA."""


def _devices() -> int | str:
    """How many devices this process may use, or why none."""
    global _user
    if is_forked():
        return FORKED
    devices = _driver_devices()
    if isinstance(devices, int):
        _user = os.getpid()
    return devices


def is_forked() -> bool:
    """Whether a fork has taken the driver away from this process."""
    return _user not in (None, os.getpid())


def _driver_major() -> int:
    """The newest CUDA major version that the driver runs; 13 when there is no driver to ask."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 13
    version = ctypes.c_int(0)
    return min(13, version.value // 1000) if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else 13


@cache
def _installed(module: str) -> bool:
    """Whether there is such a module; looked for once, since every read asks for its engine."""
    return find_spec(module) is not None


def missing() -> str | None:
    """Say what device ``"cuda"`` lacks here: the driver, cupy or numba-cuda, and the command that brings it.

    Returns
    -------
    str or None
        None when nothing is missing.
    """
    lacks = [name for name, module in (("cupy", "cupy"), ("numba-cuda", "numba_cuda")) if not _installed(module)]
    parts = []
    devices = _devices()
    if isinstance(devices, str):
        parts.append(devices)
    if lacks:
        parts.append(f"{' and '.join(lacks)} not installed: pip install 'zarrgpu[cuda{_driver_major()}]'")
    return "; ".join(parts) or None


def available() -> list[str]:
    """Name the devices that can be asked for here, the preferred one first.

    Returns
    -------
    list of str
        Such as ``["cuda:0", "host"]``.
    """
    devices = _devices()
    return ([f"cuda:{i}" for i in range(devices)] if missing() is None and isinstance(devices, int) else []) + ["host"]


@cache
def _choose() -> str:
    name = available()[0]
    why = "" if name != "host" else f" ({missing()})"
    _log.info("device 'auto' is %s%s", name, why)
    return name


_fork.in_child(_choose.cache_clear)


def normalize(device: str) -> str:
    """Turn a ``device=`` argument into ``"host"`` or ``"cuda:N"``.

    Parameters
    ----------
    device : str
        ``"auto"`` (a GPU when there is one that this process may use: a process forked from one that had used CUDA may
        not), ``"cuda"`` (the current device), ``"cuda:N"`` or ``"host"``.

    Raises
    ------
    ValueError
        For another name.
    DeviceUnavailableError
        For a device that is not there; the message says what is missing.
    """
    if device == "auto":
        return _choose()
    if device == "host":
        return device
    match = re.fullmatch(r"cuda(?::(\d+))?", device)
    if match is None:
        raise ValueError(f"device must be 'auto', 'host', 'cuda' or 'cuda:N', got {device!r}")
    lack = missing()
    if lack is not None:
        raise DeviceUnavailableError(f"device {device!r} cannot be used: {lack}")
    if match[1] is None:
        import cupy

        return f"cuda:{cupy.cuda.runtime.getDevice()}"
    if f"cuda:{int(match[1])}" not in available():
        raise DeviceUnavailableError(f"device {device!r} does not exist; this machine has {', '.join(available())}")
    return f"cuda:{int(match[1])}"


def resolve(device: str) -> Engine:
    """Return the engine of a ``device=`` argument; errors as in `normalize`."""
    return _engine(normalize(device))


@cache
def _engine(name: str) -> Engine:
    with _fork.loading:
        if name == "host":
            from zarrgpu.engine.host import HostEngine

            return HostEngine()
        from zarrgpu.engine.cuda import CudaEngine

    return CudaEngine(int(name.removeprefix("cuda:")))
