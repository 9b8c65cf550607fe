"""Buffers for zarr: `cpu` in host memory, `gpu` in device memory, each with a ``buffer_prototype``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from zarr.abc.buffer import BufferPrototype

uploads_are_expected: ContextVar[bool] = ContextVar("uploads_are_expected", default=False)
"""Whether host data may go to a device without a warning: zarr's codecs are at work for a pipeline of ours."""


@contextmanager
def expected_uploads() -> Iterator[None]:
    """Make what goes on inside, on all threads and tasks that it starts, upload without warnings.

    Codecs of zarr give bytes to the configured buffers as arrays of the host, those of a shard's index for instance.
    """
    token = uploads_are_expected.set(True)
    try:
        yield
    finally:
        uploads_are_expected.reset(token)


class Prototype(BufferPrototype):
    """The ``buffer_prototype`` of a module: pickled by its name, so that it comes back as the very same."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _of_module, (self.buffer.__module__,)


def _of_module(name: str) -> BufferPrototype:
    prototype: BufferPrototype = import_module(name).buffer_prototype
    return prototype
