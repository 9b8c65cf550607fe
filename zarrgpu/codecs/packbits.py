"""packbits: numcodecs' ``PackBits``: booleans, eight to a byte, after a byte that counts the unused bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu.codecs.base import Spec
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

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        from zarrgpu.kernels import values

        return values.bits()
