"""bitround: numcodecs' ``BitRound``: floats whose last bits are zero; decoding has nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from zarrgpu.codecs.base import Bytes, Spec
from zarrgpu.codecs.library import ByLibrary


class BitRound(ByLibrary):
    """The same bytes, seen as floats."""

    name = "bitround"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec)

    @property
    def encoded_nbytes(self) -> int | None:
        return self.spec.nbytes

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return encoded.size

    @property
    def does_nothing(self) -> bool:
        return True
