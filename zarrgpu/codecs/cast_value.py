"""cast_value: Zarr 3's codec between dtypes, with a rule for what one of them cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values

if TYPE_CHECKING:
    from zarrgpu.kernels.values import Conversion


class CastValue(Values):
    """Rounding, range and special values as the metadata say.

    Parameters
    ----------
    source : numpy.dtype
        What is stored.
    options : mapping
        ``rounding``, ``out_of_range`` and ``scalar_map``, the last in decoding direction.
    spec : Spec
    """

    name = "cast_value"

    def __init__(self, source: np.dtype[Any], options: Mapping[str, Any], spec: Spec) -> None:
        assert spec.dtype is not None
        super().__init__(source, spec.dtype, spec)
        self.options = options

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        options = {name: config[name] for name in ("rounding", "out_of_range", "scalar_map")}
        return cls(np.dtype(config["source"]), options, spec)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        with _fork.loading:
            from zarrgpu.kernels import values

        return values.cast_value(source, target, **self.options)

    def on_host(self) -> str:
        return "cast-value-rs by zarr"
