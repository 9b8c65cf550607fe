"""Picks the lanes that this machine can run, before anything imports numba.

Without a GPU, numba's simulator (made fast and given a warp layer by `tests.fastsim`) runs the CUDA kernels; with one,
the GPU does. The host twins run on both.
"""

from __future__ import annotations

import ctypes
import os


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
