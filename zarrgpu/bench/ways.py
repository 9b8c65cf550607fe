"""The ways to read an array: zarr's own, those of others that are installed, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import FsspecStore

import zarrgpu
from zarrgpu._compat import store as stores

Read = Callable[[Any, Any], Any]


@contextmanager
def plain_zarr(pipeline: str | None = None, gpu: bool = False) -> Iterator[None]:
    """Zarr as it is out of the box, or with another pipeline, or with its GPU buffers.

    Parameters
    ----------
    pipeline : str, optional
        A class of zarr's own, or the full name of another's.
    gpu : bool
        Whether zarr's GPU buffers are in force.
    """
    shipped = zarr.config.defaults[0]
    module, _, batched = str(shipped["codec_pipeline"]["path"]).rpartition(".")
    path = pipeline if pipeline and "." in pipeline else f"{module}.{pipeline or batched}"
    changes = {"codec_pipeline.path": path, "buffer": shipped["buffer"], "ndbuffer": shipped["ndbuffer"]}
    with zarr.config.set(changes), zarr.config.enable_gpu() if gpu else nullcontext():
        yield


def reopened(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array opened under the configuration in force: zarr chooses its pipeline then."""
    return zarr.open_array(array.store_path, mode="r", zarr_format=array.metadata.zarr_format)


@dataclass(frozen=True)
class System:
    """A way to read an array.

    Attributes
    ----------
    name : str
        Shown in tables.
    device : str
        Where its result is: ``"host"`` or ``"cuda:N"``.
    read : callable
        ``read(opened, selection) -> result``.
    configured : callable
        Gives the context in which the array is opened and read.
    ours : bool
        Whether it is zarrgpu.
    open : callable
        ``open(array) -> opened``, once, before anything is timed.
    """

    name: str
    device: str
    read: Read
    configured: Callable[[], AbstractContextManager[Any]] = nullcontext
    ours: bool = False
    open: Callable[[zarr.Array[Any]], Any] = reopened


def systems(devices: Sequence[str]) -> list[System]:
    """All ways to get an array to `devices` that are installed.

    Parameters
    ----------
    devices : sequence of str
        ``"host"`` or ``"cuda:N"`` each; the ways of others are listed for the host and for the first GPU, to which
        their results are copied, from pageable memory and from pinned memory.

    Returns
    -------
    list of System
        The first is plain zarr, to the host.
    """
    pipelines = {"zarr": None, "zarr fused": "FusedCodecPipeline"}
    if find_spec("zarrs") is not None:
        pipelines["zarrs"] = "zarrs.ZarrsCodecPipeline"
    found = [System(name, "host", _index, partial(plain_zarr, path)) for name, path in pipelines.items()]
    if find_spec("tensorstore") is not None:
        found.append(System("tensorstore", "host", _tensorstore_read, open=_tensorstore_open))
    gpu = next((d for d in devices if d != "host"), None)
    if gpu is not None:
        for host in tuple(found):
            for how, read in (("copy", _then_copy(host.read)), ("pinned copy", _then_copy_pinned(host))):
                found.append(System(f"{host.name} + {how}", gpu, read, host.configured, open=host.open))
        found.append(System("zarr enable_gpu", gpu, _index, partial(plain_zarr, gpu=True)))
    return found + [_ours(device) for device in devices]


def _ours(device: str) -> System:
    return System("zarrgpu", device, lambda array, selection: zarrgpu.read(array, selection, device=device), ours=True)


def _index(array: zarr.Array[Any], selection: Any) -> Any:
    return array[selection]


def _then_copy(read: Read) -> Read:
    """Read into host memory that the reader chose, and copy from there."""

    def copied(opened: Any, selection: Any) -> Any:
        import cupy

        host = np.asarray(read(opened, selection))
        return cupy.asarray(host.astype(host.dtype.newbyteorder("="), copy=False))

    return copied


def _then_copy_pinned(system: System) -> Read:
    """Read into pinned memory, by the reader where it can, by a copy of its result where not, and copy from there."""
    kept: list[npt.NDArray[np.uint8]] = []

    def pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        nbytes = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        if not kept or kept[0].size < nbytes:
            import cupy

            kept[:] = [np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)]
        count = int(np.prod(shape, dtype=np.int64))
        array: npt.NDArray[Any] = kept[0][: count * dtype.itemsize].view(dtype).reshape(shape)
        return array

    def copied(opened: Any, selection: Any) -> Any:
        import cupy

        shape = _shape(selection, opened.shape) if isinstance(opened, zarr.Array) and opened.dtype.isnative else None
        if shape:  # zarr's pipelines decode into it
            staged = pinned(shape, opened.dtype)
            opened.get_basic_selection(selection, out=zarr.buffer.cpu.NDBuffer.from_numpy_array(staged))
        else:
            host = np.asarray(system.read(opened, selection))
            staged = pinned(host.shape, host.dtype.newbyteorder("="))
            np.copyto(staged, host)
        target = cupy.empty(staged.shape, staged.dtype)
        target.set(staged)
        return target

    return copied


def absolute(selection: Any, shape: Sequence[int]) -> list[int | slice] | None:
    """A selection of ints, slices and an ellipsis, an entry for each axis, counted from its start; None for others."""
    parts = list(selection) if isinstance(selection, tuple) else [selection]
    if any(not isinstance(part, int | slice | type(...)) for part in parts):
        return None
    gap = len(shape) - sum(part is not ... for part in parts)
    at = next((i for i, part in enumerate(parts) if part is ...), len(parts))
    full = parts[:at] + [slice(None)] * gap + parts[at + 1 :]
    return [
        slice(*part.indices(n)) if isinstance(part, slice) else part + n * (part < 0)
        for part, n in zip(full, shape, strict=True)
    ]


def _shape(selection: Any, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The shape of what a selection gives; None for one by arrays of indices."""
    parts = absolute(selection, shape)
    if parts is None:
        return None
    return tuple(len(range(*part.indices(n))) for part, n in zip(parts, shape, strict=True) if isinstance(part, slice))


def _tensorstore_open(array: zarr.Array[Any]) -> Any:
    import tensorstore

    driver = "zarr" if array.metadata.zarr_format == 2 else "zarr3"
    return tensorstore.open({"driver": driver, "kvstore": _kvstore(array)}, read=True).result()


def _kvstore(array: zarr.Array[Any]) -> dict[str, str]:
    """Where tensorstore finds an array's keys."""
    path = stores.local_path(array.store_path)
    if path is not None:
        return {"driver": "file", "path": f"{path.rstrip('/')}/"}
    store = array.store_path.store
    if isinstance(store, FsspecStore) and store.path.startswith(("http://", "https://")):
        return {"driver": "http", "base_url": f"{store.path.rstrip('/')}/{array.store_path.path}".rstrip("/") + "/"}
    raise ValueError(f"tensorstore is given files and HTTP addresses here, not {store}")


def _tensorstore_read(opened: Any, selection: Any) -> Any:
    parts = absolute(selection, opened.shape)
    return opened[selection if parts is None else tuple(parts)].read().result()
