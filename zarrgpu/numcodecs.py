"""Codecs of numcodecs that decode on a device, under numcodecs' own ids.

`register` puts them into numcodecs' registry, so that `numcodecs.get_codec` gives them; `get_codec` gives one without
that. They are subclasses of numcodecs' own classes and encode as those do. See `Decoder` for what they do otherwise.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from functools import cache
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self

from numcodecs import (
    LZ4,
    AsType,
    BitRound,
    Blosc,
    Delta,
    FixedScaleOffset,
    Fletcher32,
    GZip,
    PackBits,
    Quantize,
    Shuffle,
    Zlib,
    Zstd,
)
from numcodecs.checksum32 import CRC32, CRC32C, Adler32
from numcodecs.registry import codec_registry

from zarrgpu import _fork
from zarrgpu.engine import normalize, resolve

__all__ = ["CODECS", "Decoder", "Registered", "get_codec", "register"]

_OWN: tuple[Any, ...] = (
    *(Adler32, AsType, BitRound, Blosc, CRC32, CRC32C, Delta, FixedScaleOffset, Fletcher32, GZip, LZ4, PackBits),
    *(Quantize, Shuffle, Zlib, Zstd),
)

CODECS: dict[str, Any] = {own.codec_id: own for own in _OWN}
"""The classes of numcodecs, by their ids, that have a `Decoder`."""


class Decoder:
    """What our codecs add to the class of numcodecs that each of them also is.

    Config, repr, equality and what `encode` gives are numcodecs'. A pickle holds the config and the device.

    Where zarr itself decodes by such a codec - it found it in the registry when an array was opened -, `decode` gives
    what is in host memory back in host memory, as numcodecs does, since zarr goes on with it there. Arrays that are
    opened under `zarrgpu.enable`, or read by `zarrgpu.read`, are decoded as without `register`.

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``: where it decodes.
    own : type
        numcodecs' class.
    """

    device: ClassVar[str]
    own: ClassVar[Any]

    def plain(self) -> Any:
        """Return numcodecs' own codec of the same config."""
        config = self.own.get_config(self)
        return self.own.from_config({key: value for key, value in config.items() if key != "id"})

    def encode(self, buf: Any, **options: Any) -> Any:
        """Encode on the host, as numcodecs does.

        Parameters
        ----------
        buf : buffer
            In host or device memory; the latter is copied to the host.
        **options
            For numcodecs.
        """
        if _on_device(buf):
            with _fork.loading:
                from zarrgpu._buffers import to_host

            buf = to_host(buf)
        return self.own.encode(self, buf, **options)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode a buffer; `decode_batch` is what a GPU is good at.

        Parameters
        ----------
        buf : buffer
            What `encode` gave: bytes or anything with their interface, a NumPy array, or a device array, that is,
            anything with ``__cuda_array_interface__``. The latter is copied to the host for now, where headers are
            read.
        out : writable buffer, optional
            Where to, of any dtype but of exactly the decoded size, in memory of the host or of a GPU. What it is in
            decides where the buffer is decoded.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            `out`, if that was given; else a new array of `device`, of the dtype and shape that numcodecs' result has,
            where bytes count as ``uint8[n]``. On a GPU it is in native byte order; a NumPy array where a GPU lacks the
            dtype.

        Raises
        ------
        ChunkError
            For a buffer that numcodecs refuses too. It is a ValueError and a RuntimeError, as numcodecs' are.
        ValueError
            For an `out` of another size than the decoded one.
        DeviceUnavailableError
            When the device is not there, such as after unpickling elsewhere.

        Examples
        --------
        >>> import numcodecs, zarrgpu.numcodecs
        >>> encoded = numcodecs.LZ4().encode(b"zarr" * 4)
        >>> zarrgpu.numcodecs.get_codec({"id": "lz4"}, device="host").decode(encoded).tobytes()
        b'zarrzarrzarrzarr'
        """
        if out is None and not _on_device(buf) and _is_of_zarr(sys._getframe(1)):
            return self.own.decode(self, buf)
        return self.decode_batch([buf], [out])[0]

    def decode_batch(self, bufs: Sequence[Any], outs: Sequence[Any] | None = None) -> list[Any]:
        """Decode many buffers at once.

        Those that decode to one size travel and decode together, if their headers or sizes tell it: for Blosc, LZ4, the
        checksums and filters. Others are decoded on host threads first.

        Parameters
        ----------
        bufs : sequence of buffers
            As in `decode`.
        outs : sequence of writable buffer or None, optional
            One for each of `bufs`, as in `decode`.

        Returns
        -------
        list of numpy.ndarray or cupy.ndarray
            As `decode` gives them. New arrays of one size are parts of one block of memory, which lives as long as any
            of them.

        Raises
        ------
        ChunkError
            For a buffer that numcodecs refuses too; its `key` is the buffer's index. What others of the batch decode to
            may be in their `outs` or not.

        Examples
        --------
        >>> import numcodecs, zarrgpu.numcodecs
        >>> encoded = [numcodecs.Blosc().encode(bytes([i] * 100)) for i in range(3)]
        >>> decoded = zarrgpu.numcodecs.get_codec({"id": "blosc"}, device="host").decode_batch(encoded)
        >>> [int(array.max()) for array in decoded]
        [0, 1, 2]
        """
        if outs is None:
            outs = [None] * len(bufs)
        if len(outs) != len(bufs):
            raise ValueError(f"outs must be as many as bufs, {len(bufs)}, got {len(outs)}")
        with _fork.loading:
            from zarrgpu._buffers import decode  # with it come engines and kernels

        return decode(self.plain(), bufs, resolve(self.device), outs)

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any], str]]:
        return _restored, (self.own.get_config(self), self.device)


class Registered:
    """What `register` changed, to be undone: by `unregister`, or at the end of a ``with`` block.

    Attributes
    ----------
    device : str
        ``"host"`` or ``"cuda:N"``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._before = {codec_id: codec_registry.get(codec_id) for codec_id in CODECS}
        codec_registry.update({codec_id: _class(codec_id, device) for codec_id in CODECS})
        _active.append(self)

    def unregister(self) -> None:
        """Put back what numcodecs' registry had before; does nothing the second time.

        Later registrations stay in force, and so do classes that somebody else has registered meanwhile.
        """
        if self not in _active:
            return
        later = _active[_active.index(self) + 1 :]
        _active.remove(self)
        for codec_id, before in self._before.items():
            above = later[0]._before if later else codec_registry
            if above.get(codec_id) is not _class(codec_id, self.device):
                continue
            if before is None and above is codec_registry:
                del codec_registry[codec_id]
            else:
                above[codec_id] = before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def __repr__(self) -> str:
        return f"<zarrgpu {'registered' if self in _active else 'unregistered'} with numcodecs on {self.device}>"


_active: list[Registered] = []


def register(device: str = "auto") -> Registered:
    """Make numcodecs decode on a device: `numcodecs.get_codec` gives codecs of ours from now on.

    Codecs that were made before stay numcodecs' own; codecs made while this is in force stay ours afterwards.

    Parameters
    ----------
    device : str, default "auto"
        As in `zarrgpu.enable`.

    Returns
    -------
    Registered
        Undoes the change: ``register().unregister()``, or ``with register(): ...``.

    Raises
    ------
    DeviceUnavailableError
        When the device is not there; the message says what is missing and how to get it.

    Examples
    --------
    >>> import numcodecs, zarrgpu.numcodecs
    >>> encoded = numcodecs.Blosc().encode(b"zarr" * 4)
    >>> with zarrgpu.numcodecs.register(device="host"):
    ...     codec = numcodecs.get_codec({"id": "blosc"})
    >>> codec.decode(encoded).tobytes()
    b'zarrzarrzarrzarr'
    """
    return Registered(normalize(device))


def get_codec(config: Mapping[str, Any], device: str = "auto") -> Any:
    """Make a codec of ours, whatever is registered.

    Parameters
    ----------
    config : mapping
        As for `numcodecs.get_codec`; its ``"id"`` is one of `CODECS`.
    device : str, default "auto"
        As in `zarrgpu.enable`.

    Returns
    -------
    Decoder
        Which is a codec of numcodecs.
    """
    if config.get("id") not in CODECS:
        raise ValueError(f"id must be one of {', '.join(sorted(CODECS))}, got {config.get('id')!r}")
    return _restored(config, normalize(device))


def plain(codec: Any) -> Any:
    """Numcodecs' own codec for one of ours; any other codec as it is."""
    return codec.plain() if isinstance(codec, Decoder) else codec


@cache
def _class(codec_id: str, device: str) -> Any:
    """Our class for a codec and a device, by the name of numcodecs' own."""
    own = CODECS[codec_id]
    body = {"device": device, "own": own, "__doc__": own.__doc__, "__module__": __name__}
    return types.new_class(own.__name__, (Decoder, own), exec_body=lambda namespace: namespace.update(body))


def _restored(config: Mapping[str, Any], device: str) -> Any:
    rest = {key: value for key, value in config.items() if key != "id"}
    return _class(str(config["id"]), device).from_config(rest)


def _on_device(buffer: Any) -> bool:
    return hasattr(buffer, "__cuda_array_interface__")


def _is_of_zarr(caller: FrameType) -> bool:
    """Whether code of zarr is what calls: it says nowhere else what memory it wants."""
    return str(caller.f_globals.get("__name__")).partition(".")[0] == "zarr"
