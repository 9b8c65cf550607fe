"""Any codec of numcodecs: decoded by its own library, chunk by chunk, on host threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu.codecs.base import Bytes, Spec, Stage, put


class ByLibrary(Stage):
    """What `Spec.library` decodes."""

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        return put(as_bytes(self.spec.library.decode(encoded)), out)


class Library(ByLibrary):
    """A codec of which we know but its library.

    Parameters
    ----------
    name : str
        Its name in Zarr.
    spec : Spec
    """

    def __init__(self, name: str, spec: Spec) -> None:
        super().__init__(spec)
        self.name = name


def as_bytes(buffer: Any) -> Bytes:
    """A buffer, or an array in C or Fortran order, as the bytes that lie in memory."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    return array.reshape(-1, order="A").view(np.uint8)
