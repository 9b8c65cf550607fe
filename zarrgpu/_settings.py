"""How arrays are read: as `enable` was told, or as `open_array` and `open_group` were for arrays of their own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import zarr
from zarr.abc.buffer import BufferPrototype

from zarrgpu.engine import normalize


@dataclass(frozen=True)
class Settings:
    """What users choose.

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.
    memory_limit : int or None
        Bytes of memory that the arenas of one read may take on the device.
    strict : bool
        Whether reads that would go through zarr's own pipeline raise `UnsupportedError`.
    """

    device: str
    memory_limit: int | None = None
    strict: bool = False

    @classmethod
    def chosen(cls, device: str, memory_limit: int | None, strict: bool) -> Self:
        """Of what a user asked for.

        Raises
        ------
        DeviceUnavailableError
            When the device is not there.
        ValueError
            For a limit that is no number of bytes.
        """
        if memory_limit is not None and memory_limit <= 0:
            raise ValueError(f"memory_limit must be a positive number of bytes, got {memory_limit}")
        return cls(normalize(device), memory_limit, strict)

    @property
    def buffers(self) -> str:
        """The module of buffers for the device."""
        return f"zarrgpu.buffer.{'cpu' if self.device == 'host' else 'gpu'}"

    @property
    def prototype(self) -> BufferPrototype:
        """Buffers for that very device."""
        module = import_module(self.buffers)
        if self.device == "host":
            host: BufferPrototype = module.buffer_prototype
            return host
        there: BufferPrototype = module.on(int(self.device.removeprefix("cuda:")))
        return there


def configured() -> Settings:
    """What is in zarr's configuration, where `enable` puts it."""
    found: dict[str, Any] = zarr.config.get("zarrgpu", {})
    return Settings(found.get("device", "auto"), found.get("memory_limit"), found.get("strict", False))


def of(array: zarr.Array[Any]) -> Settings:
    """Those of an array: its own, or what is configured."""
    own: Settings | None = getattr(array.async_array, "settings", None)
    return own or configured()
