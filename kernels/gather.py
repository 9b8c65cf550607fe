"""gather: boxes of a strided array, element by element as they are, into chunks' slots; what a write sends to encoders.

Arguments, results and limits are those of `zarrgpu.kernels.scatter`, but ``array`` is read and ``slots`` is written to.
"""

from __future__ import annotations

from functools import cache, partial

from zarrgpu._cuda import Kernel
from zarrgpu.kernels.scatter import ARGUMENTS, group, groups, make

__all__ = ["KERNELS", "group", "groups", "kernel"]


@cache
def kernel(itemsize: int) -> Kernel:
    """The kernel for elements of `itemsize` bytes."""
    if itemsize < 1:
        raise ValueError(f"itemsize must be positive, not {itemsize}")
    return Kernel(f"gather_{itemsize}", partial(make, itemsize=itemsize, to_array=False), ARGUMENTS)


KERNELS = (kernel(4), kernel(16))
