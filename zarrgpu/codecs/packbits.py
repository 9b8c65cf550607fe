"""packbits: numcodecs' ``PackBits``: booleans, eight to a byte, after a byte that counts the unused bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Bytes, Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class PackBits(Values):
    """The first element is the highest bit."""

    name = "packbits"
    kernels = "unpacked"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(np.dtype("u1"), np.dtype("?"), spec)

    @property
    def encoded_nbytes(self) -> int | None:
        return None if self.spec.nbytes is None else 1 + -(-self.spec.nbytes // 8)

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        unused = int(encoded[0]) if encoded.size > 1 else 8
        return 8 * (encoded.size - 1) - unused if unused < 8 else None

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        with _fork.loading:
            from zarrgpu.kernels import values

        assert self.spec.nbytes is not None  # asked only where chunks are of one size
        return values.bits(self.spec.nbytes)
