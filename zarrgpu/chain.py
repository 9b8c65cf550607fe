"""Codec metadata -> `Program`, or `UnsupportedError` with the reason. Pure host code, once per array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs import (
    STAGES,
    ByteOrder,
    Checksum,
    Container,
    Library,
    Raw,
    Shuffle,
    Spec,
    Stage,
    Transform,
    Transpose,
    Values,
)
from zarrgpu.codecs.byte_order import reversed_unit
from zarrgpu.errors import UnsupportedError


class Named(NamedTuple):
    """A codec in an array's metadata.

    Attributes
    ----------
    name : str
        As in `zarrgpu.codecs.STAGES`.
    config : mapping
    dtype : numpy.dtype or None
        What it decodes to; None between bytes.
    shape : tuple of int or None
    library : object or None
        The codec itself, as `Spec.library`.
    """

    name: str
    config: Mapping[str, Any]
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    library: Any = None


@dataclass(frozen=True)
class Chain:
    """What an array's metadata say of its codecs, Zarr 2 and 3 alike.

    Attributes
    ----------
    dtype : numpy.dtype
        The elements of the array, byte order included.
    shape : tuple of int
        Of a chunk.
    order : {"C", "F"}
        Order of the elements in a chunk, once all codecs are undone.
    codecs : tuple of Named
        In decoding order.
    unsupported : str or None
        What else there is that no program covers.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    codecs: tuple[Named, ...]
    unsupported: str | None = None


class Swapped[T: Transform](NamedTuple):
    """A transform on a device, and how many bytes of what it is given are reversed together (0: none)."""

    stage: T
    swap: int


@dataclass(frozen=True)
class Program:
    """A codec chain bound to an engine: what libraries decode on the host, and what kernels do afterwards.

    Attributes
    ----------
    host : tuple of Stage
        Decoded first, by libraries, chunk by chunk on host threads.
    checks : tuple of Checksum
        Verified by kernels in what is left encoded then.
    container : Container
        Its streams are decoded by kernels; `Raw` where nothing is compressed any more.
    after : tuple of Swapped
        Undone by kernels afterwards.
    folded : Swapped or None
        A `Values` that *assemble* undoes on the way.
    dtype : numpy.dtype
        The elements of the array, byte order included.
    stored : numpy.dtype
        The same, in the order in which *assemble* finds them.
    axes : tuple of int
        Axes of the array in the order in which a decoded chunk has them, the slowest first.
    nbytes : int
        Of a chunk of the array.
    """

    host: tuple[Stage, ...]
    checks: tuple[Checksum, ...]
    container: Container
    after: tuple[Swapped[Transform], ...]
    folded: Swapped[Values] | None
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    axes: tuple[int, ...]
    nbytes: int

    @property
    def encoded_nbytes(self) -> int | None:
        """Bytes of an encoded chunk once `host` is done; None where that varies."""
        return self.host[-1].spec.nbytes if self.host else None

    @property
    def scratch(self) -> int:
        """Bytes of one scratch arena that a chunk needs."""
        still = all(isinstance(s.stage, Shuffle) for s in self.after)  # assemble undoes it
        return max([self.container.scratch(), *(0 if still else s.stage.spec.nbytes or 0 for s in self.after)])

    def chunk_strides(self, shape: Sequence[int]) -> list[int]:
        """Strides of a decoded chunk of this shape, in elements."""
        steps, step = [0] * len(shape), 1
        for axis in reversed(self.axes):
            steps[axis] = step
            step *= shape[axis]
        return steps

    def swap(self, dtype: np.dtype[Any]) -> int:
        """Bytes that are reversed together on the way into an output of `dtype`; 0 when none are."""
        return 0 if self.stored.isnative == dtype.isnative else reversed_unit(self.stored)

    def describe(self, by_library: bool) -> list[str]:
        """Lines for ``explain()``: each stage, where it is decoded, and what is folded into assemble."""
        lines = [f"{s.name}: on host threads, {s.on_host()}" for s in self.host]
        lines += [f"{s.name}: on the device, {s.kernels}" for s in self.checks]
        if not self.container.does_nothing:
            fewest = self.container.fewest
            few = f"; on host threads where a wave has fewer than {fewest} streams" if fewest else ""
            lines.append(f"{self.container.name}: on the device, {self.container.kernels}{few}")
        lines += [f"{s.stage.name}: on the device, {s.stage.kernels}" for s in self.after]
        folded = [self.folded.stage.name] if self.folded else []
        if self.swap(self.stored.newbyteorder("=")):
            folded.append("byte swap")
        if self.axes != tuple(range(len(self.axes))):
            folded.append("axis order")
        folded += ["clip", "steps", "scatter", "fill"]
        how = "rows by a compiled twin, strided boxes by NumPy" if by_library else "one launch"
        return [*lines, f"assemble: {', '.join(folded)}; {how}"]


def reordered(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """`array` in the byte order of `dtype`, bit for bit.

    `numpy.ndarray.astype` will not do: it swaps nothing between the byte orders of times without a unit.
    """
    return (array if array.dtype.isnative == dtype.isnative else array.byteswap()).view(dtype)


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether elements of `dtype` are plain numbers, times or raw bytes of one size."""
    return dtype.kind in "biufcmM" or (dtype.kind == "V" and dtype.names is None and dtype.itemsize > 0)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype` in this machine's byte order; as it is where it has none to change, as NumPy's strings."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def bind(chain: Chain, by_library: bool = True) -> Program:
    """Bind a chain to the stages that decode it.

    Parameters
    ----------
    chain : Chain
        From `zarrgpu._compat`.
    by_library : bool
        Whether libraries on the host decode all of it, or only what has no kernels.

    Raises
    ------
    UnsupportedError
        When zarr itself must decode it.
    """
    if chain.unsupported is not None:
        raise UnsupportedError(chain.unsupported)
    if not is_plain(chain.dtype):
        raise UnsupportedError(f"dtype {chain.dtype}")
    stages = _stages(chain)
    lazy = (ByteOrder, Transpose)  # these are never worth a pass of their own
    first = max((i + 1 for i, s in enumerate(stages) if by_library and not isinstance(s, lazy)), default=0)
    while True:
        try:
            return _program(chain, stages, first)
        except _NeedsHost as need:
            first = need.args[0] + 1


FLATTENING = frozenset({"delta", "fixedscaleoffset", "packbits"})
"""Filters that numcodecs decodes in the order of memory, which a transpose has made another than the chunk's."""


class _NeedsHost(Exception):  # a turn of `bind`, never seen outside
    """The stage of this index, and so all before it, must be decoded on the host."""


def _stages(chain: Chain) -> list[Stage]:
    """The stages of a chain in decoding order, each bound to what it decodes to."""
    nbytes: int | None = math.prod(chain.shape) * chain.dtype.itemsize
    stages: list[Stage] = []
    names = [named.name for named in chain.codecs]
    if "transpose" in names and not FLATTENING.isdisjoint(names[names.index("transpose") :]):
        raise UnsupportedError("codec transpose inside a filter of numcodecs")
    for named in reversed(chain.codecs):
        spec = Spec(nbytes, named.dtype, named.shape, named.library)
        kind = STAGES.get(named.name)
        stage = Library(named.name, spec) if kind is None else kind.from_config(named.config, spec)
        stages.append(stage)
        nbytes = stage.encoded_nbytes
    return stages[::-1]


def _program(chain: Chain, stages: list[Stage], first: int) -> Program:
    """Bind a chain of which libraries decode the stages before `first`; `_NeedsHost` where that is too few."""
    host = tuple(s for s in stages[:first] if not s.does_nothing)
    if host and host[-1].spec.nbytes is None:  # what is decoded there must have a place of a known size
        raise _NeedsHost(first)
    checks: list[Checksum] = []
    after: list[Swapped[Transform]] = []
    container: Container | None = None
    axes = list(range(len(chain.shape)))
    swapped = 0  # bytes that are reversed together in what the next stage sees
    for i, stage in enumerate(stages[first:], first):
        if stage.does_nothing:
            continue
        if isinstance(stage, Container):
            if container is not None or after or swapped or axes != sorted(axes):
                raise _NeedsHost(i - 1)
            if stage.fewest is None:
                raise _NeedsHost(i)
            container = stage
        elif isinstance(stage, ByteOrder):
            swapped = 0 if swapped else stage.swaps
        elif isinstance(stage, Transpose):
            axes = [stage.order[k] for k in axes]
        elif isinstance(stage, Checksum) and container is None and not after and not swapped:
            checks.append(stage)
        elif isinstance(stage, Transform) and stage.on_device:
            unit = reversed_unit(stage.source)
            if swapped not in (0, unit):
                raise _NeedsHost(i)
            foreign = stage.source is not None and not stage.source.isnative
            after.append(Swapped(stage, unit if foreign != bool(swapped) else 0))
            swapped = 0 if stage.target is None or stage.target.isnative else reversed_unit(stage.target)
        else:
            raise _NeedsHost(i)
    if swapped not in (0, reversed_unit(chain.dtype)):
        raise _NeedsHost(len(stages) - 1)
    nbytes = math.prod(chain.shape) * chain.dtype.itemsize
    raw = after[0].stage.encoded_nbytes if after else nbytes
    folded = None
    last = after[-1].stage if after else None
    if isinstance(last, Values) and last.target.itemsize == chain.dtype.itemsize:
        folded = Swapped(last, after.pop().swap)
    return Program(
        host=host,
        checks=tuple(checks),
        container=container or Raw(Spec(raw)),
        after=tuple(after),
        folded=folded,
        dtype=chain.dtype,
        stored=chain.dtype.newbyteorder("S") if swapped else chain.dtype,
        axes=tuple(axes if chain.order == "C" else axes[::-1]),
        nbytes=nbytes,
    )
