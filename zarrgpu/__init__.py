"""Zarr arrays read into GPU memory at the speed of the machine; the same program on a host without a GPU.

Importing this package loads neither CUDA nor numba: engines and kernels come with the first read.
"""

from __future__ import annotations

from importlib.metadata import version

from zarrgpu import engine
from zarrgpu._counters import counters, reset_counters
from zarrgpu.api import Enabled, Explanation, enable, explain, read, read_many
from zarrgpu.errors import ChunkError, DecoderMismatchWarning, DeviceUnavailableError, UnsupportedError

__version__ = version("zarrgpu")

__all__ = [
    "ChunkError",
    "DecoderMismatchWarning",
    "DeviceUnavailableError",
    "Enabled",
    "Explanation",
    "UnsupportedError",
    "__version__",
    "counters",
    "enable",
    "engine",
    "explain",
    "read",
    "read_many",
    "reset_counters",
]
