"""transpose: the order of a chunk's axes, which assemble follows by strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from zarrgpu.codecs.base import Bytes, Refused, Spec, Stage, put
from zarrgpu.kernels.tables import Status


class Transpose(Stage):
    """Axis ``k`` of the encoded chunk is axis ``order[k]`` of the decoded one.

    Parameters
    ----------
    order : tuple of int
    spec : Spec
        With dtype and shape.
    """

    name = "transpose"
    kernels = "axis order"
    keeps_size = True

    def __init__(self, order: tuple[int, ...], spec: Spec) -> None:
        super().__init__(spec)
        self.order = order

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(tuple(int(k) for k in config["order"]), spec)

    @property
    def does_nothing(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        dtype, shape = self.spec.dtype, self.spec.shape
        assert dtype is not None
        assert shape is not None
        if encoded.size != self.spec.nbytes:
            raise Refused(Status.WRONG_SIZE)
        stored = encoded.view(f"V{dtype.itemsize}").reshape([shape[k] for k in self.order])
        chunk = np.ascontiguousarray(stored.transpose(np.argsort(self.order))).reshape(-1).view(np.uint8)
        return put(chunk, out)

    def on_host(self) -> str:
        return "NumPy"
