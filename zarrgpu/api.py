"""What users call: `enable`, `read`, `read_many`, `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from os import PathLike
from types import TracebackType
from typing import Any, Self

import zarr
from zarr.storage import StorePath

from zarrgpu import _out, _read, _read_many
from zarrgpu._compat import store as stores
from zarrgpu._compat.points import adopted
from zarrgpu._settings import Settings
from zarrgpu.engine import resolve
from zarrgpu.engine.base import Array, Engine
from zarrgpu.errors import UnsupportedError
from zarrgpu.resident import resident

Source = str | PathLike[str] | zarr.Array[Any] | StorePath
PIPELINE = "zarrgpu.pipeline.GpuCodecPipeline"


class Enabled:
    """What `enable` changed, to be undone: by `disable`, or at the end of a ``with`` block.

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.
    """

    def __init__(self, device: str, change: ExitStack) -> None:
        self.device = device
        self._change: ExitStack | None = change

    def disable(self) -> None:
        """Put zarr's configuration back as it was; does nothing the second time."""
        if self._change is not None:
            self._change.close()
            self._change = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def __repr__(self) -> str:
        return f"<zarrgpu {'enabled' if self._change is not None else 'disabled'} on {self.device}>"


def enable(device: str = "auto", memory_limit: int | None = None, strict: bool = False) -> Enabled:
    """Make zarr read through zarrgpu: arrays opened from now on give arrays of `device` when they are indexed.

    zarr fixes an array's pipeline when it is opened: arrays opened before keep theirs and must be reopened; arrays
    opened while this is in force keep ours afterwards, and read into whatever buffers zarr is then configured for.

    Parameters
    ----------
    device : str, default "auto"
        ``"cuda"`` (the current device), ``"cuda:N"``, ``"host"``, or ``"auto"``: a GPU when there is one.
    memory_limit : int, optional
        Bytes of memory that the arenas of one read may take on the device. A chunk alone may exceed it.
    strict : bool, default False
        Raise `UnsupportedError` for reads that would go through zarr's own pipeline.

    Returns
    -------
    Enabled
        Undoes the change: ``enable().disable()``, or ``with enable(): ...``.

    Raises
    ------
    DeviceUnavailableError
        When the device is not there; the message says what is missing and how to get it.

    Examples
    --------
    >>> import zarr, zarrgpu
    >>> with zarrgpu.enable(device="host"):
    ...     z = zarr.create_array({}, shape=(4,), dtype="i4", fill_value=7)
    ...     z[1:3].tolist()
    [7, 7]
    """
    settings = Settings.chosen(device, memory_limit, strict)
    import_module(settings.buffers)  # registers them
    import_module("zarrgpu.pipeline")  # and the pipeline, where the package's entry points are not installed
    change = ExitStack()
    if settings.device != "host":
        change.enter_context(adopted())
    configuration = {
        "codec_pipeline.path": PIPELINE,
        "buffer": f"{settings.buffers}.Buffer",
        "ndbuffer": f"{settings.buffers}.NDBuffer",
        "zarrgpu": asdict(settings),
    }
    change.enter_context(zarr.config.set(configuration))
    return Enabled(settings.device, change)


def read(
    source: Source, selection: Any = ..., *, out: Any | None = None, device: str = "auto", stream: Any = None
) -> Array:
    """Read an array, or a part of it, into memory of a device.

    Parameters
    ----------
    source : path, zarr.Array or zarr.storage.StorePath
        The array.
    selection : optional
        As in ``z[selection]``: ints, slices with positive steps, an ellipsis, arrays of ints or bools; all of the array
        by default.
    out : array, optional
        What to write to, in place: an array in memory of the device, of any strides and any library that has
        ``__cuda_array_interface__`` or DLPack (cupy, torch, numba), for the host DLPack or the buffer protocol (NumPy,
        torch, memoryview). Of the selection's shape and the array's dtype in native byte order; of int64 for the bits
        of times (``datetime64``, ``timedelta64``), which a GPU has no dtype for.
    device : str, default "auto"
        As in `enable`.
    stream : optional
        A CUDA stream (cupy's, numba's, torch's, or a pointer): the read starts after the work that is already on it.
        The current cupy stream by default. The result is complete when this function returns.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        In native byte order, 0-d where every axis was selected by an int. Times, raw bits, strings, structures and
        objects, for which a GPU has no dtype, come as NumPy arrays on every device. The very `out`, if one was given.

    Raises
    ------
    ChunkError
        For a chunk that cannot be decoded.
    DeviceUnavailableError
        When the device is not there.
    IndexError
        For selections out of range, as zarr raises them.
    TypeError
        For an `out` that is no array in memory of the device's kind.
    ValueError
        For an `out` of another shape, dtype or device, one that is read-only, or whose elements overlap each other.

    Examples
    --------
    >>> import numpy as np, zarr, zarrgpu
    >>> z = zarr.create_array({}, shape=(4,), dtype="i4", fill_value=7)
    >>> out = np.zeros((4, 2), "i4")
    >>> _ = zarrgpu.read(z, out=out[:, 1], device="host")
    >>> out[0].tolist()
    [0, 7]
    """
    array, target, engine = _prepared(source, out, device, stream)
    result = _read_one(array, selection, target, engine, stream)
    return result if out is None else out


def read_many(
    source: Source, selections: Sequence[Any], *, out: Any | None = None, device: str = "auto", stream: Any = None
) -> Array:
    """Read several parts of an array that are of one shape, in one request: a batch of crops, for example.

    Where parts are small, that takes far less time than a `read` for each.

    Parameters
    ----------
    source : path, zarr.Array or zarr.storage.StorePath
        The array.
    selections : sequence
        One or more, each as in `read`.
    out : array, optional
        As in `read`, of the shape of the result.
    device, stream
        As in `read`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        ``shape (len(selections), *shape of each)``; line ``i`` is what `read` gives for ``selections[i]``.

    Raises
    ------
    ValueError
        For no selections, for some of different shapes, and for an `out` as in `read`.
    ChunkError, DeviceUnavailableError, IndexError, TypeError
        As in `read`.

    Examples
    --------
    >>> import zarr, zarrgpu
    >>> z = zarr.create_array({}, shape=(8, 8), dtype="i4", fill_value=7)
    >>> corners = [(slice(i, i + 2), slice(j, j + 3)) for i, j in [(0, 0), (3, 5), (6, 1)]]
    >>> zarrgpu.read_many(z, corners, device="host").shape
    (3, 2, 3)
    """
    if len(selections) == 0:
        raise ValueError("selections must be one or more")
    array, target, engine = _prepared(source, out, device, stream)

    def read_one(selection: Any, part: Array | None) -> Array:
        return _read_one(array, selection, part, engine, stream)

    result = None
    with suppress(UnsupportedError):  # then each is read by zarr, or refused
        result = _read_many.read_many(array, selections, target, engine, stream)
    if result is None:
        result = _read_many.one_by_one(selections, target, engine, read_one)
    return result if out is None else out


def _prepared(
    source: Source, out: Any | None, device: str, stream: Any
) -> tuple[zarr.Array[Any], Array | None, Engine]:
    """The array to read, `out` as an array of an engine, and the engine for its elements."""
    engine = resolve(device)
    if stream is not None and engine.kind == "host":
        raise ValueError("stream= needs a CUDA device")
    array = _open(source)
    target, engine = _out.adopt(out, array.dtype, engine)
    return array, target, engine


def _read_one(array: zarr.Array[Any], selection: Any, out: Array | None, engine: Engine, stream: Any) -> Array:
    """Read a selection into an adopted `out`, or a new array where it is None: by programs of ours, or by zarr."""
    try:
        return _read.read(array, selection, out, engine, stream)
    except UnsupportedError as error:
        return _read.through_zarr(array, selection, out, engine, stream, error.reason)


def _open(source: Source) -> zarr.Array[Any]:
    if isinstance(source, zarr.Array):
        return source
    return zarr.open_array(source, mode="r")


@dataclass(frozen=True)
class Explanation:
    """Which stage of an array's decoding runs where.

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.
    supported : bool
        Whether the array has a program here; if not, it is read through zarr's own pipeline.
    reason : str or None
        Why not.
    stages : tuple of str
        A line for each stage.
    """

    device: str
    supported: bool
    reason: str | None
    stages: tuple[str, ...]

    def __str__(self) -> str:
        head = f"on {self.device}" if self.supported else f"through zarr's own pipeline: {self.reason}"
        return "\n".join([head, *(f"  {i}. {s}" for i, s in enumerate(self.stages, 1))])


def explain(source: Source, device: str = "auto") -> Explanation:
    """Say which stage of an array's decoding runs where, and what would send it through zarr's own pipeline.

    Parameters
    ----------
    source : path, zarr.Array or zarr.storage.StorePath
        The array.
    device : str, default "auto"
        As in `enable`.

    Returns
    -------
    Explanation
        ``str()`` of it is a listing.
    """
    array = _open(source)
    _, engine = _out.adopt(None, array.dtype, resolve(device))
    try:
        bound = _read.bind_array(array, engine)
    except UnsupportedError as error:
        stages = ("zarr's codecs on the host",) + (("one copy to the device",) if engine.kind != "host" else ())
        return Explanation(engine.name, False, error.reason, stages)
    here = not bound.program.host and not any(level.decode for level in bound.levels)
    here = here and resident(array.store_path.store, (), engine) is not None
    upload = ("upload: one copy a wave from pinned memory",) if engine.kind == "cuda" and not here else ()
    files = stores.local_path(array.store_path) is not None
    fetch = f"copies on {engine.name}" if here else "files" if files else "the store's async API"
    shards = ", chunks as byte ranges of shards" * bool(bound.levels)
    stages = (f"fetch: {fetch}{shards} into the arena", *upload, *bound.program.describe(engine.by_library))
    return Explanation(engine.name, True, None, stages)
