"""shuffle: numcodecs' byte shuffle, HDF5's too; assemble undoes it on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numcodecs.shuffle import Shuffle as Numcodecs

from zarrgpu.codecs.base import Bytes, Refused, Spec, Transform
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.batch import Batch


class Shuffle(Transform):
    """The first bytes of all elements, then the second ones, and so on: a chunk is a single block.

    Parameters
    ----------
    elementsize : int
        Bytes of an element.
    spec : Spec
    """

    name = "shuffle"
    kernels = "unshuffled in assemble"
    keeps_size = True

    def __init__(self, elementsize: int, spec: Spec) -> None:
        super().__init__(spec)
        self.elementsize = elementsize

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(int(config.get("elementsize", 4)), spec)

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return encoded.size if encoded.size % max(self.elementsize, 1) == 0 else None

    def itemsize(self, encoded: Bytes) -> int:
        return max(self.elementsize, 1)

    @property
    def does_nothing(self) -> bool:
        return self.elementsize <= 1

    @property
    def on_device(self) -> bool:
        whole = self.spec.nbytes is not None and self.spec.nbytes % self.elementsize == 0
        return whole and self.elementsize <= 255  # numcodecs refuses chunks that end inside an element

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        if out is not None and encoded.size != out.size:
            raise Refused(t.Status.WRONG_SIZE)
        return Numcodecs(self.elementsize).decode(np.ascontiguousarray(encoded), out)

    def enqueue(self, batch: Batch, swap: int) -> None:
        batch.unshuffle(self.name)
        lines, layouts = batch.active, batch.layouts
        layouts[lines, t.L_BLOCK] = layouts[lines, t.L_SIZE]
        layouts[lines, t.L_TYPE] = self.elementsize
        layouts[lines, t.L_MODE] = t.BYTES
