"""Zarr arrays read into GPU memory at the speed of the machine; the same program on a host without a GPU.

Importing this package loads neither CUDA nor numba: engines and kernels come with the first read.
"""

from __future__ import annotations

from importlib.metadata import version

from zarrgpu import engine
from zarrgpu._counters import counters, reset_counters
from zarrgpu.api import Enabled, Explanation, enable, explain, read, read_many
from zarrgpu.errors import ChunkError, DecoderMismatchWarning, DeviceUnavailableError, UnsupportedError
from zarrgpu.opening import open_array, open_group
from zarrgpu.profiling import Profile, profile
from zarrgpu.store import DeviceStore

__version__ = version("zarrgpu")

__all__ = [
    "ChunkError",
    "DecoderMismatchWarning",
    "DeviceStore",
    "DeviceUnavailableError",
    "Enabled",
    "Explanation",
    "Profile",
    "UnsupportedError",
    "__version__",
    "counters",
    "enable",
    "engine",
    "explain",
    "open_array",
    "open_group",
    "profile",
    "read",
    "read_many",
    "reset_counters",
]
