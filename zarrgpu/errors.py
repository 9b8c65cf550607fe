"""What zarrgpu raises and warns about: one class per condition, each a subclass of the nearest builtin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["ChunkError", "DecoderMismatchWarning", "DeviceUnavailableError", "UnsupportedError"]


class UnsupportedError(NotImplementedError):
    """An array or a selection that has no program here; it goes through zarr's own pipeline unless ``strict=True``.

    Parameters
    ----------
    reason : str
        What is not supported, short: it is also the name of a counter.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ChunkError(ValueError, RuntimeError):
    """A chunk that cannot be decoded; a RuntimeError too, as numcodecs' decoders raise.

    Parameters
    ----------
    store : str
        The store and the array's path in it.
    key : str
        The chunk's key.
    codec : str
        The codec that refused it.
    reason : str
        Why.
    """

    def __init__(self, store: str, key: str, codec: str, reason: str) -> None:
        super().__init__(f"{store}: chunk {key!r}: {codec}: {reason}")
        self.store, self.key, self.codec, self.reason = store, key, codec, reason

    def __reduce__(self) -> tuple[type[ChunkError], tuple[str, str, str, str]]:
        return type(self), (self.store, self.key, self.codec, self.reason)


class DeviceUnavailableError(RuntimeError):
    """A device was asked for that this machine or this installation does not have."""


class DecoderMismatchWarning(RuntimeWarning):
    """A decoder of ours refused a chunk that the CPU decodes: the CPU's values were used; please report it."""


@contextmanager
def noted(name: Callable[[int], tuple[str, str]] | None, i: int) -> Iterator[None]:
    """Note on an error that passes, a store's own, which chunk it was about: ``name(i)`` gives store and key."""
    try:
        yield
    except Exception as error:
        if name is not None:
            store, key = name(i)
            error.add_note(f"{store}: chunk {key!r}")
        raise
