"""What filters have in common that make one number of another: the kernel's `Conversion`, and sizes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from zarrgpu import _fork
from zarrgpu.codecs.base import Bytes, Spec, Transform
from zarrgpu.codecs.library import ByLibrary

if TYPE_CHECKING:
    from zarrgpu.batch import Batch
    from zarrgpu.kernels.values import Conversion


class Values(ByLibrary, Transform):
    """A filter that decodes each element by itself.

    Parameters
    ----------
    source, target : numpy.dtype
        What it views encoded bytes as, and what it decodes to, byte order included.
    spec : Spec
    """

    kernels = "converted"

    def __init__(self, source: np.dtype[Any], target: np.dtype[Any], spec: Spec) -> None:
        super().__init__(spec)
        self.source: np.dtype[Any] = source
        self.target: np.dtype[Any] = target

    @property
    def encoded_nbytes(self) -> int | None:
        return resized(self.spec.nbytes, self.target.itemsize, self.source.itemsize)

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        return resized(encoded.size, self.source.itemsize, self.target.itemsize)

    def convert(self, source: np.dtype[Any], target: np.dtype[Any]) -> Conversion | None:
        """What a kernel does between these dtypes in native order; None where it would not give the library's bits.

        A cast as NumPy's, where a filter says nothing else.
        """
        with _fork.loading:
            from zarrgpu.kernels import values

        return values.cast(source, target)

    @cached_property
    def conversion(self) -> Conversion | None:
        """What a kernel does."""
        return self.convert(self.source.newbyteorder("="), self.target.newbyteorder("="))

    @property
    def on_device(self) -> bool:
        return self.encoded_nbytes is not None and self.conversion is not None

    def enqueue(self, batch: Batch, swap: int) -> None:
        assert self.conversion is not None
        assert self.spec.nbytes is not None
        batch.convert(self.name, self.conversion, swap, self.spec.nbytes // self.target.itemsize)


def resized(nbytes: int | None, decoded: int, encoded: int) -> int | None:
    """Bytes of elements of `encoded` bytes each where `nbytes` hold as many of `decoded` bytes; None if they do not."""
    return None if nbytes is None or nbytes % decoded else nbytes // decoded * encoded
