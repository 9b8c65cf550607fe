"""bytes: Zarr 3's codec between bytes and elements, for as much as it does: their byte order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from zarrgpu.codecs.base import Bytes, Refused, Spec, Stage, put
from zarrgpu.kernels.tables import Status


class ByteOrder(Stage):
    """Elements stored in another byte order than their dtype's.

    Parameters
    ----------
    endian : {"little", "big"} or None
        Order of the stored bytes; None where elements are single bytes.
    spec : Spec
        With a dtype.
    """

    name = "bytes"
    kernels = "byte order"
    keeps_size = True

    def __init__(self, endian: str | None, spec: Spec) -> None:
        super().__init__(spec)
        assert spec.dtype is not None
        stored = spec.dtype.newbyteorder("<" if endian == "little" else ">") if endian else spec.dtype
        self.swaps = 0 if stored.isnative == spec.dtype.isnative else reversed_unit(spec.dtype)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(config.get("endian"), spec)

    @property
    def does_nothing(self) -> bool:
        return not self.swaps

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if encoded.size != self.spec.nbytes:
            raise Refused(Status.WRONG_SIZE)
        chunk = encoded.view(f"u{self.swaps}").byteswap().view(np.uint8) if self.swaps else encoded
        return put(chunk, out)

    def on_host(self) -> str:
        return "NumPy"


def reversed_unit(dtype: np.dtype[Any] | None) -> int:
    """Bytes that the byte orders of `dtype` have reversed, 0 where it has none; complex numbers are two parts."""
    if dtype is None or dtype.byteorder == "|":
        return 0
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)
