"""quantize: numcodecs' ``Quantize``: floats of fewer digits, maybe stored as narrower ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values


class Quantize(Values):
    """What was rounded stays so; only the dtype changes."""

    name = "quantize"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.astype, spec.library.dtype, spec)

    @property
    def does_nothing(self) -> bool:
        return bool(self.source == self.target)
