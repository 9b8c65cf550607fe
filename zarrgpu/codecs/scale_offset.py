"""scale_offset: Zarr 3's codec: ``encoded / scale + offset``, or an error where that is not exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class ScaleOffset(Values):
    """In the array's dtype.

    Parameters
    ----------
    scale, offset : numpy.generic
        Of that dtype.
    spec : Spec
    """

    name = "scale_offset"

    def __init__(self, scale: Any, offset: Any, spec: Spec) -> None:
        assert spec.dtype is not None
        super().__init__(spec.dtype, spec.dtype, spec)
        self.scale, self.offset = scale, offset

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(config["scale"], config["offset"], spec)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        with _fork.loading:
            from zarrgpu.kernels import values

        return values.scale_offset(target, self.scale, self.offset)

    def on_host(self) -> str:
        return "zarr"
