"""Reads come after the work that is already on the caller's streams, and are complete when they return."""

from __future__ import annotations

import threading
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
        crops = cupy.empty((2, 8, 50), np.float32)
        with stream:
            busy.fill(4.0)
            crops.fill(-4.0)
        zarrgpu.read_many(z, [np.s_[3:11], np.s_[40:48]], out=crops, device=name, stream=stream)
        assert same(crops, np.stack([VALUES[3:11], VALUES[40:48]]))
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


@pytest.mark.parametrize("engine", ENGINES[-1:])
def test_threads_with_streams_of_their_own(engine: str) -> None:
    """Reads of several threads at once, each into its own array after work on its own stream, do not meet."""
    z = make(VALUES, (16, 50))
    failures: list[BaseException] = []
    with device(engine) as name, zarrgpu.enable(name):
        import cupy

        opened = zarr.open_array(z.store, mode="r")

        def work(k: int) -> None:
            try:
                stream = cupy.cuda.Stream(non_blocking=True)
                for i in range(6):
                    rows = slice(k + i, 40 + i)
                    with stream:
                        out = cupy.empty((40 - k, 100), np.float32)[:, ::2] if i % 2 else cupy.empty((40 - k, 50), "f4")
                        out.fill(-1.0)
                    given = stream if i % 3 else None
                    if given is None:
                        stream.synchronize()
                    assert zarrgpu.read(z, rows, out=out, device=name, stream=given) is out
                    assert same(out, VALUES[rows])
                    assert same(opened[rows], VALUES[rows])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compressor", ["lz4", "gzip", "zstd", "none"])
@pytest.mark.parametrize("incompressible", [False, True])
def test_the_memory_limit_holds(engine: str, compressor: str, incompressible: bool) -> None:
    """The arenas of a read that takes many waves stay within the limit, but for what rounding adds."""
    values = smooth((64, 1024), "u4")
    if incompressible:
        values = np.random.default_rng(0).integers(0, 1 << 32, values.shape, "u4")
    options: dict[str, Any] = {
        "gzip": {"compressors": zarr.codecs.GzipCodec()},
        "zstd": {"compressors": zarr.codecs.ZstdCodec()},
        "none": {"compressors": None},
    }
    z = make(values, (4, 1024), **options.get(compressor, {}))
    limit = 320 << 10
    with device(engine) as name:
        made = zarrgpu.engine.resolve(name)
        made._shelf.clear()  # type: ignore[attr-defined]  # every engine has one
        with zarrgpu.enable(name, memory_limit=limit):
            assert same(zarrgpu.read(z, device=name), values)
        (lanes,) = made._shelf  # type: ignore[attr-defined]  # as above
        arenas = [_arenas(lane) for lane in lanes]
        assert sum(arena.nbytes for lane in arenas for arena in lane) <= limit * 9 / 8
        assert sum(len(lane) > 0 for lane in arenas) > 1


def _arenas(lane: Any) -> list[Any]:
    """What a lane keeps on its engine."""
    kept = [lane._source, *lane._scratch] if hasattr(lane, "_source") else [lane.arena, *lane._scratch]
    return [arena for arena in kept if arena is not None and arena.nbytes > 16]
