"""Keys of chunks, and the paths of their files: made for each chunk when it is asked for, for many by compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Encode = Callable[[tuple[int, ...]], str]
Style = tuple[str, str]
"""What a key is before its first coordinate, and between two: ``("c/", "/")`` by Zarr 3's default."""


class Keys(Sequence[str]):
    """The keys of chunks, under a folder or not.

    Parameters
    ----------
    encode : callable
        ``encode(coordinates)``: the key of a chunk.
    grid : int64[n, ndim]
        Coordinates of the chunks.
    style : Style or None
        How `encode` writes them, where that is known.
    root : str
        Before each key.
    """

    def __init__(self, encode: Encode, grid: npt.NDArray[np.int64], style: Style | None = None, root: str = "") -> None:
        self.encode, self.grid, self.root = encode, grid, root
        self.style = style if grid.shape[1] else None  # without an axis there is one key, of another form

    def under(self, folder: str) -> Keys:
        """Paths of files in a folder."""
        return Keys(self.encode, self.grid, self.style, f"{folder}/{self.root}")

    def __len__(self) -> int:
        return len(self.grid)

    def __iter__(self) -> Iterator[str]:
        return (self.root + self.encode(tuple(where)) for where in self.grid.tolist())

    @overload
    def __getitem__(self, i: int) -> str: ...

    @overload
    def __getitem__(self, i: slice) -> Keys: ...

    def __getitem__(self, i: int | slice) -> str | Keys:
        if isinstance(i, slice):
            return Keys(self.encode, self.grid[i], self.style, self.root)
        return self.root + self.encode(tuple(self.grid[i].tolist()))
