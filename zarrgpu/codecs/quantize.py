"""quantize: numcodecs' ``Quantize``: floats of fewer digits, maybe stored as narrower ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class Quantize(Values):
    """What was rounded stays so; only the dtype changes."""

    name = "quantize"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.astype, spec.library.dtype, spec)

    @property
    def does_nothing(self) -> bool:
        return bool(self.source == self.target)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        from zarrgpu.kernels import values

        return values.cast(source, target)
