"""astype: numcodecs' ``AsType``: elements of one dtype, stored as another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from zarrgpu.codecs.base import Spec
from zarrgpu.codecs.values import Values


class AsType(Values):
    """As `numpy.ndarray.astype` does it."""

    name = "astype"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.encode_dtype, spec.library.decode_dtype, spec)
