"""What a read is: the one thing that both front doors hand to the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu import assembly
from zarrgpu.chain import Program
from zarrgpu.engine.base import Array, Engine
from zarrgpu.fetch import Source
from zarrgpu.plan import Plan


@dataclass
class Request:
    """All that a read needs besides an engine's lanes.

    Attributes
    ----------
    program, plan, source, engine
        What to decode, which bytes, where from, where.
    chunk_shape : tuple of int
        Of a decoded chunk.
    out : Array
        The output, an array of the engine, contiguous and aligned as `Engine.flat` wants it.
    fill : uint8[itemsize]
        The fill value as bytes of `out`.
    decode_on_cpu : callable
        ``decode_on_cpu(encoded: bytes) -> numpy array`` of the chunk: zarr's own codecs, which have the last word.
    name : callable
        ``name(i) -> (store, key)`` of chunk ``i``, for messages.
    memory_limit : int or None
        Bytes of arenas that the request may take on the engine.
    """

    program: Program
    plan: Plan
    source: Source
    engine: Engine
    chunk_shape: tuple[int, ...]
    out: Array
    fill: npt.NDArray[np.uint8]
    decode_on_cpu: Callable[[bytes], npt.NDArray[Any]]
    name: Callable[[int], tuple[str, str]]
    memory_limit: int | None = None

    @cached_property
    def flat(self) -> tuple[Array, Array]:
        """The output as bytes and as words."""
        flat = self.engine.flat(self.out)
        assert flat is not None
        return flat

    def target(self, gather: npt.NDArray[np.int64] | None) -> assembly.Target:
        """The output as *assemble* takes it, with the lines that boxes name."""
        return assembly.Target(*self.flat, self.plan.src_strides, self.plan.dst_strides, self.fill, gather)
