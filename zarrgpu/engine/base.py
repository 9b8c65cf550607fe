"""The seam between what is done and where: `Engine` makes arrays and lanes, a `Lane` runs one wave at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from zarrgpu._cuda import Kernel
    from zarrgpu._record import Watch

Array = Any
"""A numpy.ndarray on the host, a cupy.ndarray on a GPU."""

ALIGN = 16
"""Arenas, and the chunks in them, start at multiples of so many bytes and end there too."""


def aligned(n: int) -> int:
    """`n` bytes, rounded up to `ALIGN`."""
    return -(-n // ALIGN) * ALIGN


def roomy(n: int) -> int:
    """`n` bytes, rounded up by an eighth at most, so that an arena seldom grows from wave to wave."""
    step = max(ALIGN, 1 << max(n.bit_length() - 4, 0))
    return -(-n // step) * step


class Lane(ABC):
    """One wave's place on an engine: its arenas, its stream, and the order of what was asked of it.

    Everything but `reserve` and `wait` may return before it is done; what is asked of one lane happens in that order.
    """

    arena: npt.NDArray[np.uint8]
    """Host memory from which uploads are fast: *fetch* writes the encoded chunks there."""

    watch: Watch | None = None
    """What records the steps of this lane's waves while somebody profiles."""

    def stamp(self) -> Any:
        """Mark a point in the order of what was asked of this lane; None where everything is done at once."""
        return None

    def elapsed(self, begin: Any, end: Any) -> float:
        """Seconds between two stamps of lanes of one engine, both of them passed."""
        raise NotImplementedError("what is done at once has no stamps")

    @abstractmethod
    def reserve(self, nbytes: int, keep: int = 0) -> npt.NDArray[np.uint8]:
        """Make `arena` at least `nbytes` long, keeping its first `keep` bytes as far as it has them, and return it."""

    @abstractmethod
    def upload(self, used: int, first: int = 0) -> Array:
        """Return the source arena, ``uint8[used]`` on the engine, whose bytes from `first` on are those of `arena`."""

    @abstractmethod
    def source(self, used: int) -> Array:
        """Return the source arena, ``uint8[used]`` on the engine; its contents are kept where it was as large before.

        What is written there stays when `upload` is told to begin after it.
        """

    @abstractmethod
    def tables(self, *tables: npt.NDArray[Any]) -> tuple[Array, ...]:
        """Return `tables` on the engine."""

    @abstractmethod
    def scratch(self, nbytes: int, which: int = 0) -> Array:
        """Return scratch arena 0 or 1, ``uint8[nbytes]``, contents undefined."""

    @abstractmethod
    def zeros(self, n: int) -> Array:
        """Return ``int32[n]`` of zeros."""

    @abstractmethod
    def room(self, n: int, dtype: npt.DTypeLike) -> Array:
        """Return `n` elements of `dtype`, contents undefined, for what kernels hand to each other."""

    @abstractmethod
    def local(self, n: int) -> Array:
        """Return ``uint32[n]`` for what kernels keep in shared memory where there is any; one element, then."""

    @abstractmethod
    def launch(self, kernel: Kernel, n: int, *args: Any) -> None:
        """Run `kernel` over `n` items; array arguments are arrays of this engine."""

    @abstractmethod
    def download(self, array: Array) -> npt.NDArray[Any]:
        """Return a host array that holds the contents of `array` after `wait`."""

    @abstractmethod
    def wait(self) -> None:
        """Return when all that was asked of this lane is done."""


class Engine(ABC):
    """Where a program runs.

    Attributes
    ----------
    name : str
        ``"host"`` or ``"cuda:N"``, as in ``device=``.
    kind : str
        ``"host"`` or ``"cuda"``, as in the counters.
    by_library : bool
        Whether codecs decode by a library on host threads where they can, rather than by kernels.
    ahead : int
        Waves to fetch at once, fewer than there are lanes.
    """

    name: str
    kind: str
    ahead: int
    by_library: bool

    @abstractmethod
    def supports(self, dtype: np.dtype[Any]) -> bool:
        """Whether arrays of `dtype`, in native byte order, can live here."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
        """Return a new output array."""

    @abstractmethod
    def from_host(self, array: npt.NDArray[Any]) -> Array:
        """Return `array` as an array of this engine, copied if it must be; done when this returns."""

    @abstractmethod
    def to_host(self, array: Array) -> npt.NDArray[Any]:
        """Return `array`, of this engine, as a host array, copied if it must be."""

    @abstractmethod
    def assign(self, out: Array, value: Array) -> None:
        """Copy an array of this engine into another of its shape; done when this returns."""

    @abstractmethod
    def owns(self, array: object) -> bool:
        """Whether `array` is an array of this engine."""

    @abstractmethod
    def adopt(self, out: Any) -> Array:
        """View an array of any library, which is to be written to, as an array of this engine.

        Raises
        ------
        TypeError
            For what is no array in the kind of memory that the engine fills.
        ValueError
            For an array on another device, or one that is read-only.
        """

    @abstractmethod
    def lanes(self, stream: Any = None) -> Any:
        """Return a context manager that lends a list of lanes.

        Their work comes after what is already on `stream` and on the caller's current one.
        """

    @abstractmethod
    def decoders(self) -> dict[str, Kernel]:
        """Return the kernel for each kind of stream that *locate* finds here."""

    def copy_boxes(
        self,
        arenas: Sequence[Array],
        out: Array,
        layouts: npt.NDArray[np.int64],
        boxes: npt.NDArray[np.int64],
        strides: Sequence[npt.NDArray[np.int64]],
        itemsize: int,
        swap: int,
    ) -> npt.NDArray[np.bool_]:
        """Copy what a library does faster than the general *assemble*; return which boxes are done.

        The arguments are that kernel's: source and scratch arena, output bytes, strides in the chunk and the output.
        """
        return np.zeros(len(boxes), bool)

    def flat(self, out: Array) -> tuple[Array, Array] | None:
        """View a contiguous array as bytes and as words.

        Returns
        -------
        tuple of (uint8[n], uint32[n // 4]) or None
            None when `out` is neither C- nor F-contiguous or does not start at a multiple of `ALIGN` bytes.
        """
        if out.flags.c_contiguous:
            line = out.reshape(-1)
        elif out.flags.f_contiguous:
            line = out.T.reshape(-1)
        else:
            return None
        data = line.view(np.uint8)
        if data.size and self.address(data) % ALIGN:
            return None
        return data, data[: data.size // 4 * 4].view(np.uint32)

    @staticmethod
    @abstractmethod
    def address(array: Array) -> int:
        """Return where the first byte of `array` lies."""

    @abstractmethod
    def window(self, address: int, nbytes: int) -> Array:
        """View the engine's memory as bytes from `address` on, a multiple of `ALIGN` as `nbytes` is.

        Only what is known to belong to arrays may be touched through it, or lies with their bytes in one word.
        """

    def budget(self) -> int | None:
        """Bytes of the engine's memory that the waves of a request may take where nobody says; None for any number."""
        return None

    def settle(self) -> None:  # noqa: B027  # nothing is to be done where nothing is late
        """Wait for what any thread has asked of the default stream."""

    def use(self) -> None:  # noqa: B027  # nothing is to be done where there is one device
        """Make lanes usable by the calling thread."""


@contextmanager
def lent(shelf: list[list[Any]], make: Any) -> Iterator[list[Any]]:
    """Lend a set of lanes from `shelf`, made when none is there; it goes back only after a use without error.

    A lane that failed may still be writing: it is waited for, and dropped.
    """
    try:
        lanes = shelf.pop()  # atomic, as asking first would not be
    except IndexError:
        lanes = make()
    try:
        yield lanes
    except BaseException:
        for lane in lanes:
            lane.wait()
        raise
    shelf.append(lanes)
