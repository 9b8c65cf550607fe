"""Reads come after the work that is already on the caller's streams, and are complete when they return."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth

VALUES = smooth((64, 50), "f4")


@pytest.mark.parametrize("engine", ENGINES[-1:])
def test_a_read_waits_for_what_is_on_the_stream(engine: str) -> None:
    """Work that would overwrite `out` later is done first, on a stream of the caller's and on the current one."""
    z = make(VALUES, (16, 50))
    with device(engine) as name:
        import cupy

        out = cupy.empty((64, 50), np.float32)
        busy = cupy.zeros((256, 1 << 16), np.float32)
        stream = cupy.cuda.Stream(non_blocking=True)
        for given in (stream, stream.ptr, types.SimpleNamespace(cuda_stream=stream.ptr)):
            with stream:
                busy.fill(1.0)
                out.fill(-1.0)
            zarrgpu.read(z, out=out, device=name, stream=given)
            assert same(out, VALUES)
        with stream:
            busy.fill(2.0)
            out.fill(-2.0)
            zarrgpu.read(z, out=out, device=name)
        assert same(out, VALUES)
        zstd = make(VALUES, (16, 50), compressors=zarr.codecs.ZstdCodec())
        with stream:
            busy.fill(3.0)
            out.fill(-3.0)
        zarrgpu.read(zstd, out=out, device=name, stream=stream)  # through zarr's own pipeline
        assert same(out, VALUES)
        strided = cupy.zeros((64, 100), np.float32)[:, ::2]
        zarrgpu.read(z, out=strided, device=name)
        with cupy.cuda.Stream(non_blocking=True):
            assert same(strided.copy(), VALUES)


@pytest.mark.parametrize("engine", ENGINES[-1:])
def test_streams_of_every_library(engine: str) -> None:
    """cupy's, torch's, numba's, the CUDA stream protocol's, and pointers; anything else is refused."""
    with device(engine):
        import cupy

        from zarrgpu.engine.cuda import as_stream

        class Protocol:
            def __cuda_stream__(self) -> tuple[int, int]:
                return (0, 5)

        own = cupy.cuda.Stream(non_blocking=True)
        assert as_stream(own) is own
        known: list[tuple[Any, int]] = [
            (own, own.ptr),
            (7, 7),
            (0, 0),
            (types.SimpleNamespace(cuda_stream=8), 8),
            (types.SimpleNamespace(handle=types.SimpleNamespace(value=9)), 9),
            (Protocol(), 5),
        ]
        for stream, pointer in known:
            assert as_stream(stream).ptr == pointer
        with pytest.raises(TypeError, match="stream must be a cupy, torch or numba stream or a pointer, got str"):
            as_stream("0")
