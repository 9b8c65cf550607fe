"""Buffers in host memory: zarr's own, under names of ours, so that either engine is asked for in the same way."""

from __future__ import annotations

import zarr.buffer.cpu
from zarr.registry import register_buffer, register_ndbuffer

from zarrgpu.buffer import Prototype

__all__ = ["Buffer", "NDBuffer", "buffer_prototype"]


class Buffer(zarr.buffer.cpu.Buffer):
    """A flat piece of host memory."""


class NDBuffer(zarr.buffer.cpu.NDBuffer):
    """An N-d array in host memory."""


buffer_prototype = Prototype(buffer=Buffer, nd_buffer=NDBuffer)

register_buffer(Buffer, qualname="zarrgpu.buffer.cpu.Buffer")
register_ndbuffer(NDBuffer, qualname="zarrgpu.buffer.cpu.NDBuffer")
