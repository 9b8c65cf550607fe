"""Any codec of numcodecs: decoded by its own library, chunk by chunk, on host threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from zarrgpu.codecs.base import Bytes, Refused, Spec, Stage
from zarrgpu.kernels.tables import Status


class ByLibrary(Stage):
    """What `Spec.library` decodes."""

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        decoded = as_bytes(self.spec.library.decode(encoded))
        if out is None:
            return decoded
        if decoded.size != out.size:
            raise Refused(Status.WRONG_SIZE)
        np.copyto(out, decoded)
        return out


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

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(str(config["id"]), spec)


def as_bytes(buffer: Any) -> Bytes:
    """A buffer, or an array in C or Fortran order, as the bytes that lie in memory."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    return array.reshape(-1, order="A").view(np.uint8)
