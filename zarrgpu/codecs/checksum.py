"""Checksums: ``crc32c``, and numcodecs' ``crc32``, ``adler32`` and ``fletcher32``, verified where the bytes are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from zarrgpu._record import step
from zarrgpu.codecs.base import Bytes, Refused, Spec, Transform
from zarrgpu.codecs.library import ByLibrary
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.batch import Batch


class Checksum(ByLibrary, Transform):
    """Bytes with their checksum before or after them.

    Parameters
    ----------
    at_end : bool
        Whether the checksum comes after the bytes.
    spec : Spec
    """

    kernels = "verified"
    width: ClassVar[int] = 4
    """Bytes of a stored checksum, little endian."""
    module: ClassVar[tuple[str, str]]
    """Module of `zarrgpu.kernels` and its `Checksum`."""

    def __init__(self, at_end: bool, spec: Spec) -> None:
        super().__init__(spec)
        self.at_end = at_end

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(getattr(spec.library, "location", "end") == "end", spec)

    @property
    def encoded_nbytes(self) -> int | None:
        return None if self.spec.nbytes is None else self.spec.nbytes + self.width

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return encoded.size - self.width if encoded.size >= self.width else None

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if encoded.size < self.width:
            raise Refused(t.Status.TRUNCATED)
        return super().decode(encoded, out)

    def payload(self, chunks: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of lines ``(first byte, bytes)`` those without the checksum, and where that lies."""
        inner = chunks.copy()
        inner[:, 1] -= self.width
        if self.at_end:
            return inner, inner[:, 0] + inner[:, 1]
        inner[:, 0] += self.width
        return inner, chunks[:, 0]

    def enqueue(self, batch: Batch, swap: int) -> None:
        """Verify, and strip, what the batch's chunks decoded to."""
        batch.unshuffle(self.name)
        lines = batch.active
        layouts = batch.layouts
        inner, stored = self.payload(layouts[lines][:, [t.L_BASE, t.L_SIZE]])
        self.verify(batch, lines, layouts[lines, t.L_ARENA], inner, stored)
        layouts[lines, t.L_BASE], layouts[lines, t.L_SIZE] = inner.T
        layouts[lines, t.L_BLOCK] = layouts[lines, t.L_SIZE]

    @step("check", 1, lambda _, check, batch, lines, arena, inner, stored: inner[:, 1].sum(), device=True)
    def verify(
        self,
        batch: Batch,
        lines: npt.NDArray[np.int64],
        arena: npt.NDArray[np.int64],
        inner: npt.NDArray[np.int64],
        stored: npt.NDArray[np.int64],
    ) -> None:
        """Enqueue the comparison of chunks `lines`, whose bytes are `inner` and whose checksums lie at `stored`."""
        module, name = self.module
        checksum = getattr(import_module(f"zarrgpu.kernels.{module}"), name)
        checks = np.column_stack([arena, inner, stored])
        lane, groups, arenas = batch.lane, checksum.groups(checks), batch.arenas
        table, constants = lane.tables(checks, checksum.tables)
        partial, status = lane.room(checksum.partials(checks), np.uint64), lane.zeros(len(checks))
        lane.launch(checksum.partial, len(checks) * groups, groups, *arenas, table, constants, partial)
        lane.launch(checksum.verdict, len(checks), groups, *arenas[::2], table, constants, partial, status)
        batch.report(self.name, lines, status)


class CRC32(Checksum):
    """CRC-32 of zlib and gzip."""

    name = "crc32"
    module = ("crc32", "CRC32")


class CRC32C(Checksum):
    """CRC-32C, Zarr 3's and numcodecs'."""

    name = "crc32c"
    module = ("crc32", "CRC32C")


class Adler32(Checksum):
    """Adler-32 of zlib."""

    name = "adler32"
    module = ("adler32", "ADLER32")


class Fletcher32(Checksum):
    """Fletcher-32 as HDF5 has it."""

    name = "fletcher32"
    module = ("fletcher32", "FLETCHER32")
