"""astype: numcodecs' ``AsType``: elements of one dtype, stored as another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class AsType(Values):
    """As `numpy.ndarray.astype` does it."""

    name = "astype"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.encode_dtype, spec.library.decode_dtype, spec)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        from zarrgpu.kernels import values

        return values.cast(source, target)
