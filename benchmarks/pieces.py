"""What decoders are timed on: pieces of arrays, as their containers cut them, and the encoders for them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt

from benchmarks.datasets import GRID, sea_temperature, volume
from benchmarks.payloads import fluorescence
from zarrgpu.sample import Fields

PIECE = 1 << 17
DIFFERENT = 1024
"""Pieces of a set, at most."""

Pieces = list[npt.NDArray[np.uint8]]


def shuffled(itemsize: int, bits: bool) -> Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]:
    """Cuts an array as Blosc does: blocks are shuffled, and split into pieces."""

    def cut(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
        flat = values.reshape(-1).view(np.uint8)
        for at in range(0, flat.size - itemsize * PIECE + 1, itemsize * PIECE):
            block = flat[at : at + itemsize * PIECE].reshape(-1, itemsize)
            if bits:
                block = np.packbits(np.unpackbits(block, axis=1, bitorder="little").T, axis=1, bitorder="little")
                yield from block.reshape(itemsize, PIECE)
            else:
                yield from np.ascontiguousarray(block.T)

    return cut


def whole(itemsize: int) -> Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]:
    """Gives an array as one piece, byte-shuffled for elements of over a byte."""

    def cut(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
        yield np.ascontiguousarray(values.reshape(-1).view(np.uint8).reshape(-1, itemsize).T).reshape(-1)

    return cut


def plain(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """Cuts an array as it is."""
    flat = values.reshape(-1).view(np.uint8)
    yield from flat[: flat.size // (2 * PIECE) * (2 * PIECE)].reshape(-1, 2 * PIECE)


def bare(piece: npt.NDArray[np.uint8]) -> bytes:
    """A stream of Deflate without a frame."""
    encoder = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return encoder.compress(piece.tobytes()) + encoder.flush()


def field(seed: int) -> npt.NDArray[Any]:
    """Four time steps, so that few bytes are left over where they are cut."""
    fields = Fields(GRID, seed // 8)
    return np.concatenate([fields[4 * seed + k] for k in range(4)])


def cubes(seed: int) -> npt.NDArray[Any]:
    """Chunks of 128^3, one after the other."""
    return np.ascontiguousarray(volume(seed).reshape(128, 128, 4, 128).transpose(2, 0, 1, 3))


def light_sheet(seed: int) -> npt.NDArray[Any]:
    """A chunk of 128^3; byte-shuffled, LZ4 makes a seventh of the sequences of `cubes` of it."""
    return fluorescence(128, seed)


@dataclass(frozen=True)
class Set:
    """Streams of one kind.

    Attributes
    ----------
    name : str
    make : callable
        An array for each seed.
    cut : callable
        The array to pieces.
    counts : dict
        By codec, the numbers of streams.
    """

    name: str
    make: Callable[[int], npt.NDArray[Any]]
    cut: Callable[[npt.NDArray[Any]], Iterator[npt.NDArray[np.uint8]]]
    counts: dict[str, tuple[int, ...]]

    def pieces(self, pool: ThreadPoolExecutor) -> Pieces:
        """Different ones, as many as the largest count asks for or `DIFFERENT`."""
        wanted = min(DIFFERENT, max(n for counts in self.counts.values() for n in counts))
        first = list(self.cut(self.make(0)))
        more = pool.map(lambda seed: list(self.cut(self.make(seed))), range(1, -(-wanted // len(first))))
        pieces = first + [piece for part in more for piece in part]
        return pieces[:wanted]


SETS = [
    Set(
        "f4 shuffle",
        field,
        shuffled(4, False),
        {"lz4": (100, 1000, 5632), "zstd": (1024, 8192), "deflate": (100, 1000, 16000)},
    ),
    Set("f4 bitshuffle", field, shuffled(4, True), {"lz4": (100, 1000, 6124), "zstd": (1024, 8192)}),
    Set("u2 128^3 shuffle", cubes, shuffled(2, False), {"lz4": (100, 1000, 7986), "zstd": (1024, 8192)}),
    Set("u2 128^3 bitshuffle", cubes, shuffled(2, True), {"lz4": (100, 1000, 8192), "zstd": (1024, 8192)}),
    Set("u2 light sheet, shuffle", light_sheet, shuffled(2, False), {"lz4": (100, 1000, 7986), "zstd": (1024, 8192)}),
    Set("u2 light sheet, bitshuffle", light_sheet, shuffled(2, True), {"lz4": (100, 1000, 8192), "zstd": (1024, 8192)}),
    Set("f4, 4.15 MB", lambda seed: Fields(GRID, 0)[seed], whole(1), {"zstd": (256,)}),
    Set("f4 shuffle, 4.15 MB", lambda seed: Fields(GRID, 0)[seed], whole(4), {"deflate": (100, 256, 1000)}),
    Set("i2 shuffle, 4.19 MB", sea_temperature, whole(2), {"zstd": (256,), "deflate": (100, 1000)}),
    Set("i2, 256 KiB", sea_temperature, plain, {"deflate": (300, 4000)}),
]
ENCODERS: dict[str, Callable[[npt.NDArray[np.uint8]], bytes]] = {
    "lz4": lambda piece: bytes(numcodecs.LZ4().encode(piece))[4:],
    "zstd": lambda piece: bytes(numcodecs.Zstd(3).encode(piece)),
    "deflate": bare,
}
