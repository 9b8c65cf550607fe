"""delta: differences between neighbours, summed up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Bytes, Spec, Transform
from zarrgpu.codecs.library import ByLibrary
from zarrgpu.codecs.values import resized
from zarrgpu.kernels import tables as t

if TYPE_CHECKING:
    from zarrgpu.batch import Batch


class Delta(ByLibrary, Transform):
    """Integers wrap around; sums of floats depend on their order, which is the library's."""

    name = "delta"
    kernels = "prefix sums"

    def __init__(self, source: np.dtype[Any], target: np.dtype[Any], spec: Spec) -> None:
        super().__init__(spec)
        self.source: np.dtype[Any] = source
        self.target: np.dtype[Any] = target

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        return cls(spec.library.astype, spec.library.dtype, spec)

    @property
    def encoded_nbytes(self) -> int | None:
        return resized(self.spec.nbytes, self.target.itemsize, self.source.itemsize)

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return resized(encoded.size, self.source.itemsize, self.target.itemsize)

    @property
    def on_device(self) -> bool:
        return (
            self.source.kind + self.target.kind in ("ii", "uu") and self.encoded_nbytes is not None
        )  # NumPy sums others up as floats

    def enqueue(self, batch: Batch, swap: int) -> None:
        with _fork.loading:
            from zarrgpu.kernels import delta, values

        assert self.spec.nbytes is not None
        source, target = (dtype.newbyteorder("=") for dtype in (self.source, self.target))
        lane, lines, itemsize = batch.lane, batch.active, target.itemsize
        if source == target:
            batch.own(self.name, itemsize, swap)
        else:
            conversion = values.cast(source, target)
            assert conversion is not None  # integers wrap around
            batch.convert(self.name, conversion, swap, self.spec.nbytes // itemsize)
        runs = np.column_stack([batch.layouts[lines, t.L_BASE], batch.layouts[lines, t.L_SIZE] // itemsize])
        groups, (table,), status = delta.groups(runs, itemsize), lane.tables(runs), lane.zeros(len(runs))
        words = batch.scratch.view(np.uint64 if itemsize == 8 else np.uint32)
        sums = lane.room(len(runs) * groups, np.uint64)
        segments = len(runs) * groups
        steps = [*zip(delta.kernels(itemsize), (segments, len(runs), segments), strict=True)]
        for kernel, n in steps if groups > 1 else steps[-1:]:
            lane.launch(kernel, n, groups, batch.scratch, words, table, sums, status)
        batch.report(self.name, lines, status)
