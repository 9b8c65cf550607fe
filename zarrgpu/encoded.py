"""Encoded chunks where *locate* reads them: in host memory, or on the engine, from where only small tables come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zarrgpu import _fork
from zarrgpu._threads import split
from zarrgpu.engine.base import Array, Lane
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu._cuda import Kernel

Bytes = npt.NDArray[np.uint8]
Lines = npt.NDArray[np.int64]


class Encoded(ABC):
    """An arena of encoded chunks."""

    @abstractmethod
    def pick(self, at: Lines, width: int) -> Bytes:
        """``uint8[k, width]``: the bytes from each of the places `at` (``int64[k]``) on, which lie in the arena."""

    @abstractmethod
    def run(self, kernel: Kernel, n: int, inputs: Sequence[Any], outputs: Sequence[npt.NDArray[Any]]) -> None:
        """Run ``kernel(arena, *inputs, *outputs)`` over `n` items; `outputs` are written to when this returns.

        Inputs are arrays and numbers.
        """


class OnHost(Encoded):
    """In host memory, where compiled twins read them.

    Parameters
    ----------
    arena : uint8[n]
    """

    PART = 2048
    """Items that are worth another worker: reading a header takes a microsecond, waking a worker many."""

    def __init__(self, arena: Bytes) -> None:
        self.arena = arena

    def pick(self, at: Lines, width: int) -> Bytes:
        """As in the base class."""
        picked: Bytes = self.arena[at[:, None] + np.arange(width)]
        return picked

    def run(self, kernel: Kernel, n: int, inputs: Sequence[Any], outputs: Sequence[npt.NDArray[Any]]) -> None:
        """As in the base class."""
        twin = kernel.host()
        split(n, lambda begin, end: twin(begin, end, self.arena, *inputs, *outputs), self.PART)


class OnEngine(Encoded):
    """In a lane's source arena, where kernels read them.

    Parameters
    ----------
    lane : Lane
        Is waited for by each call.
    arena : uint8[n]
        An array of its engine, of a multiple of `zarrgpu.engine.base.ALIGN` bytes.
    """

    def __init__(self, lane: Lane, arena: Array) -> None:
        self.lane, self.arena = lane, arena

    def pick(self, at: Lines, width: int) -> Bytes:
        """As in the base class."""
        streams = np.zeros((len(at), t.STREAM_COLUMNS), np.int64)
        streams[:, t.S_START], streams[:, t.S_DEST] = at, width * np.arange(len(at))
        streams[:, t.S_SIZE] = streams[:, t.S_WANT] = width
        room = self.lane.room(-(-width * len(at) // 4), np.uint32)
        copy(self.lane, self.arena, room, streams)
        picked = self.lane.download(room)
        self.lane.wait()
        return picked.view(np.uint8)[: width * len(at)].reshape(len(at), width)

    def run(self, kernel: Kernel, n: int, inputs: Sequence[Any], outputs: Sequence[npt.NDArray[Any]]) -> None:
        """As in the base class."""
        if n == 0:
            return
        tables = list(self.lane.tables(*(x for x in (*inputs, *outputs) if isinstance(x, np.ndarray))))
        rest = iter(tables)
        self.lane.launch(
            kernel, n, self.arena, *(next(rest) if isinstance(x, np.ndarray) else x for x in inputs), *rest
        )
        written = [self.lane.download(table) for table in tables[-len(outputs) :]]
        self.lane.wait()
        for output, table in zip(outputs, written, strict=True):
            output[...] = table


def copy(lane: Lane, source: Array, target: Array, streams: Lines) -> None:
    """Enqueue the copying of pieces of `source`, ``uint8[4 * n]``, into `target`, in one launch.

    `streams` are those of `zarrgpu.kernels.stored`, and must lie in the two arrays.
    """
    with _fork.loading:
        from zarrgpu.kernels import stored

    table, order = lane.tables(streams, np.arange(len(streams)))
    arenas = source, source.view(np.uint32), target.view(np.uint8), target.view(np.uint32)
    lane.launch(stored.KERNEL, len(streams), *arenas, table, order, lane.zeros(len(streams)))
