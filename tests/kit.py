"""What kernel tests share: `run` a `Kernel` on every lane of this machine, guard bytes, mutated streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.conftest import GPU
from zarrgpu._cuda import Kernel

LANES = ["host", "cuda" if GPU else "sim"]
GUARD = 0xA5
GUARD_BYTES = 128

Array = npt.NDArray[Any]


def run(kernel: Kernel, lane: str, n: int, *args: Any) -> None:
    """Run `kernel` over `n` items; what it writes is in the NumPy arrays among `args` afterwards."""
    if lane == "host":
        kernel.host()(0, n, *(a if not isinstance(a, np.ndarray) or a.flags.writeable else a.copy() for a in args))
    elif lane == "sim":
        kernel.launch(n, args)
    else:
        import cupy

        memory: dict[int, Any] = {}  # views of the same bytes, such as an arena's words, share them on the device too
        device = []
        for a in args:
            if isinstance(a, np.ndarray):
                known = memory.setdefault(a.ctypes.data, cupy.asarray(a))
                device.append(known if known.dtype == a.dtype else known[: a.nbytes].view(a.dtype))
            else:
                device.append(a)
        kernel.launch(n, tuple(device), cupy.cuda.get_current_stream())
        for a, d in zip(args, device, strict=True):
            if isinstance(a, np.ndarray) and a.flags.writeable:
                a[...] = d.get()


def words(a: Array) -> Array:
    """The uint32 view of a uint8 array whose size is a multiple of four."""
    return a.view(np.uint32)


class Slots:
    """An output arena of slots with `GUARD_BYTES` guard bytes before, between and after them.

    Parameters
    ----------
    sizes : array of int
        Bytes of each slot.
    """

    def __init__(self, sizes: npt.ArrayLike) -> None:
        self.sizes = np.asarray(sizes, np.int64)
        steps = self.sizes + GUARD_BYTES
        self.starts = GUARD_BYTES + np.concatenate([[0], np.cumsum(steps)[:-1]]).astype(np.int64)
        total = int(GUARD_BYTES + steps.sum())
        self.arena = np.full((total + 15) // 16 * 16, GUARD, np.uint8)

    def __getitem__(self, i: int) -> Array:
        return self.arena[self.starts[i] : self.starts[i] + self.sizes[i]]

    def check_guards(self) -> None:
        """Fail when a byte outside every slot has changed."""
        inside = np.zeros(self.arena.size, bool)
        for start, size in zip(self.starts, self.sizes, strict=True):
            inside[start : start + size] = True
        changed = np.flatnonzero((self.arena != GUARD) & ~inside)
        assert changed.size == 0, f"{changed.size} bytes outside the slots were written, the first at {changed[0]}"


def mutate(stream: bytes, rng: np.random.Generator) -> bytes:
    """`stream` with a few bytes changed, cut short, or with bytes added."""
    b = bytearray(stream)
    how = rng.integers(0, 4)
    if how == 0 and len(b) > 1:
        del b[rng.integers(0, len(b)) :]
    elif how == 1:
        b += rng.bytes(int(rng.integers(1, 9)))
    else:
        for _ in range(int(rng.integers(1, 4))):
            if b:
                b[rng.integers(0, len(b))] = rng.integers(0, 256)
    return bytes(b)
