"""fixedscaleoffset: numcodecs' ``FixedScaleOffset``: ``encoded / scale + offset``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class FixedScaleOffset(Values):
    """In the dtypes that NumPy chooses for it."""

    name = "fixedscaleoffset"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.astype, spec.library.dtype, spec)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        with _fork.loading:
            from zarrgpu.kernels import values

        return values.divide_add(source, self.spec.library.scale, self.spec.library.offset, target)
