"""What zarrgpu needs of zarr's internals: with `zarrgpu.pipeline` the only place that touches ``zarr.core``."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from numcodecs.checksum32 import CRC32C
from numcodecs.gzip import GZip
from numcodecs.zstd import Zstd
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.buffer import cpu
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs._v2 import V2Codec
from zarr.codecs.cast_value import CastValue
from zarr.codecs.scale_offset import ScaleOffset
from zarr.core import sync
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype, NDBuffer, default_buffer_prototype
from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding, V2ChunkKeyEncoding
from zarr.core.chunk_utils import ChunkTransform, evolve_codecs, fill_value_or_default
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.indexing import (
    ensure_tuple,
    is_mask_selection,
    is_pure_fancy_indexing,
    is_pure_orthogonal_indexing,
    pop_fields,
    replace_lists,
)
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.core.metadata.v3 import RegularChunkGridMetadata

from zarrgpu import _fork
from zarrgpu._counters import count
from zarrgpu.chain import Chain, Named, reordered
from zarrgpu.numcodecs import plain

cpu_prototype = cpu.buffer_prototype
Metadata = ArrayV2Metadata | ArrayV3Metadata
OWN: dict[type, Any] = {ZstdCodec: Zstd, GzipCodec: GZip, Crc32cCodec: CRC32C}  # in numcodecs, of the same name


def key_style(metadata: Metadata) -> tuple[str, str] | None:
    """What keys of chunks start with, and what is between two coordinates; None for other encodings than zarr's two."""
    if isinstance(metadata, ArrayV2Metadata):
        return "", metadata.dimension_separator
    encoding = metadata.chunk_key_encoding
    if type(encoding) is DefaultChunkKeyEncoding:
        return f"c{encoding.separator}", encoding.separator
    return ("", encoding.separator) if type(encoding) is V2ChunkKeyEncoding else None


class HostV2Codec(V2Codec):
    """zarr's codec for Zarr 2 that decodes into the buffers of its spec rather than the globally configured ones."""

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        decoded = super()._decode_sync(chunk_bytes, chunk_spec)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(decoded.as_numpy_array())


def host_codecs(codecs: Iterable[Codec]) -> list[Codec]:
    """`codecs`, with zarr's codec for Zarr 2 replaced by `HostV2Codec`, and codecs of ours in it by numcodecs' own."""

    def host(codec: V2Codec) -> HostV2Codec:
        filters = None if codec.filters is None else tuple(plain(f) for f in codec.filters)
        return HostV2Codec(filters, plain(codec.compressor))

    return [host(c) if type(c) is V2Codec else c for c in codecs]


def codecs_of(metadata: Metadata) -> tuple[Codec, ...]:
    """The codec chain of an array, as zarr gives it to a pipeline."""
    if isinstance(metadata, ArrayV2Metadata):
        return (V2Codec(filters=metadata.filters, compressor=metadata.compressor),)
    return tuple(metadata.codecs)


def evolved_codecs(metadata: Metadata) -> tuple[Codec, ...]:
    """`codecs_of`, with what the codecs infer from the array filled in."""
    return evolve_codecs(codecs_of(metadata), spec_of(metadata))


def spec_of(metadata: Metadata) -> ArraySpec:
    """The spec of an array's chunks; shape ``(1, ...)`` where the grid is not regular, as zarr has it."""
    order = {"order": metadata.order} if isinstance(metadata, ArrayV2Metadata) else {}
    return ArraySpec(
        shape=chunk_shape(metadata) or (1,) * len(metadata.shape),
        dtype=metadata.dtype,
        fill_value=metadata.fill_value,
        config=ArrayConfig.from_dict(order),  # type: ignore[arg-type]  # a TypedDict with optional keys
        prototype=default_buffer_prototype(),
    )


def config_of(array: zarr.Array[Any]) -> ArrayConfig:
    """The runtime configuration of an array; its order is that of its chunks, as `spec_of` has it."""
    return replace(array.async_array.config, order=spec_of(array.metadata).order)


def settings_of(array: zarr.Array[Any]) -> tuple[Hashable, ...]:
    """What the spec of an array depends on besides its metadata."""
    return array.async_array.config, default_buffer_prototype()


def chunk_shape(metadata: Metadata) -> tuple[int, ...] | None:
    """The shape of a chunk; None where chunks differ in shape."""
    if isinstance(metadata, ArrayV2Metadata):
        return tuple(metadata.chunks)
    grid = metadata.chunk_grid
    return tuple(grid.chunk_shape) if isinstance(grid, RegularChunkGridMetadata) else None


def chain_of(codecs: Iterable[Codec], spec: ArraySpec) -> Chain:
    """Describe the codecs of a pipeline, evolved to `spec`, to `zarrgpu.chain.bind`."""
    order: Literal["C", "F"] = "C"
    found: list[Named] = []  # in encoding order
    refused: list[str] = []
    level = spec  # what the codec decodes to
    for codec in codecs:
        # exact types: a class that a user registered in their place may do something else
        if type(codec) in (V2Codec, HostV2Codec):
            assert isinstance(codec, V2Codec)
            order = spec.order
            parts = [plain(part) for part in (*(codec.filters or ()), codec.compressor) if part is not None]
            found += [Named(_name_of(part), part.get_config(), library=part) for part in parts]
            continue
        named = _named(codec, level)
        if named is None:
            refused.append(str(codec.to_dict().get("name", type(codec).__name__)))
            break
        found.append(named)
        level = codec.resolve_metadata(level)
    unsupported = f"codec {refused[0]}" if refused else None
    return Chain(spec.dtype.to_native_dtype(), tuple(spec.shape), order, tuple(found[::-1]), unsupported)


def _name_of(part: Any) -> str:
    """The id of a numcodecs codec, or, where it is somebody else's, one that stands for no code of ours."""
    ours = type(part).__module__.partition(".")[0] == "numcodecs"
    return str(part.codec_id) if ours else f"{type(part).__module__}.{type(part).__name__}"


def _named(codec: Codec, spec: ArraySpec) -> Named | None:
    """One codec of Zarr 3 that decodes to `spec`; None where no program covers it."""
    dtype, shape = spec.dtype.to_native_dtype(), tuple(spec.shape)
    if type(codec).__module__ == "zarr.codecs.numcodecs._codecs":
        library: Any = plain(codec._codec)  # type: ignore[union-attr]  # all of that module have it
        level = (None, None) if isinstance(codec, BytesBytesCodec) else (dtype, shape)
        return Named(_name_of(library), library.get_config(), level[0], level[1], library)
    if type(codec) is BytesCodec:
        return Named("bytes", {"endian": codec.endian}, dtype, shape)
    if type(codec) is TransposeCodec:
        return Named("transpose", {"order": codec.order}, dtype, shape)
    if type(codec) is BloscCodec:
        return Named("blosc", {"cname": str(getattr(codec.cname, "value", codec.cname))})
    if type(codec) in OWN:
        return Named(OWN[type(codec)].codec_id, {}, library=OWN[type(codec)]())
    if type(codec) is ScaleOffset:
        numbers = {n: spec.dtype.from_json_scalar(getattr(codec, n), zarr_format=3) for n in ("scale", "offset")}
        return Named("scale_offset", numbers, dtype, shape, ArrayCodec(codec, spec))
    if type(codec) is CastValue:
        options: dict[str, Any] = {"rounding": codec.rounding, "out_of_range": codec.out_of_range}
        options |= {"scalar_map": (codec.scalar_map or {}).get("decode"), "source": codec.dtype.to_native_dtype()}
        return Named("cast_value", options, dtype, shape, ArrayCodec(codec, spec))
    return None


@dataclass(frozen=True)
class ArrayCodec:
    """A codec of Zarr 3 between arrays, with the interface of numcodecs."""

    codec: Any
    spec: ArraySpec

    @cached_property
    def specs(self) -> tuple[ArraySpec, ArraySpec]:
        """Of what is encoded, and of what it decodes to on the host; made once, since zarr casts fill values for it."""
        return self.codec.resolve_metadata(self.spec), replace_prototype(self.spec)

    def decode(self, buffer: Any) -> npt.NDArray[Any]:
        """Decode a chunk's elements, given as bytes in C order."""
        encoded, host = self.specs
        chunk = np.frombuffer(buffer, encoded.dtype.to_native_dtype()).reshape(encoded.shape)
        decoded = self.codec._decode_sync(cpu.NDBuffer.from_numpy_array(chunk), host)
        return np.ascontiguousarray(decoded.as_numpy_array())


def fill_bytes(spec: ArraySpec, dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """The fill value as the bytes of one element of `dtype`."""
    native = np.atleast_1d(np.asarray(fill_value_or_default(spec)).astype(dtype.newbyteorder("=")))
    return reordered(native, dtype).view(np.uint8).copy()


def decode_on_cpu(codecs: Iterable[Codec], spec: ArraySpec, encoded: bytes) -> npt.NDArray[Any]:
    """Decode a chunk by zarr's own codecs on the host."""
    transform = ChunkTransform(codecs=tuple(host_codecs(codecs)))
    return transform.decode_chunk(cpu.Buffer.from_bytes(encoded), replace_prototype(spec)).as_numpy_array()


def is_for_device(buffer: type) -> bool:
    """Whether a class of buffers keeps its data on a device."""
    return bool({c.__module__ for c in buffer.__mro__} & {"zarrgpu.buffer.gpu", "zarr.core.buffer.gpu"})


def host_prototype(prototype: BufferPrototype) -> BufferPrototype:
    """`prototype`, but zarr's classes for the host where its own are for a device."""
    buffer, nd_buffer = prototype
    return BufferPrototype(
        cpu.Buffer if is_for_device(buffer) else buffer, cpu.NDBuffer if is_for_device(nd_buffer) else nd_buffer
    )


def replace_prototype(spec: ArraySpec) -> ArraySpec:
    """`spec` with host buffers."""
    return replace(spec, prototype=host_prototype(spec.prototype))


class CountingPipeline(BatchedCodecPipeline):
    """zarr's own pipeline, its chunks counted."""

    async def read(self, batch_info: Iterable[Any], out: NDBuffer, drop_axes: tuple[int, ...] = ()) -> Any:
        """As in the base class."""
        batch = list(batch_info)
        count("chunks.zarr", len(batch))
        return await super().read(batch, out, drop_axes)


def read_with_zarr(array: zarr.Array[Any], selection: Any) -> Any:
    """``array[selection]`` through zarr's own pipeline, in host memory, however the array was opened."""
    inner: Any = array.async_array
    plain: Any = zarr.Array(zarr.AsyncArray(inner.metadata, inner.store_path, inner.config))
    pipeline = CountingPipeline.from_codecs(host_codecs(codecs_of(array.metadata)))
    object.__setattr__(plain.async_array, "codec_pipeline", pipeline.evolve_from_array_spec(spec_of(array.metadata)))
    fields, pure = pop_fields(selection)
    options: dict[str, Any] = {"fields": fields, "prototype": cpu_prototype}
    if is_pure_fancy_indexing(pure, array.ndim):
        arrays = replace_lists(ensure_tuple(pure))
        if is_mask_selection(arrays, array.shape):
            return plain.get_mask_selection(arrays, **options)
        return plain.get_coordinate_selection(arrays, **options)
    if is_pure_orthogonal_indexing(pure, array.ndim):
        return plain.get_orthogonal_selection(pure, **options)
    return plain.get_basic_selection(pure, **options)


def loop() -> asyncio.AbstractEventLoop:
    """Zarr's event loop, which runs on a thread of its own."""
    return sync._get_loop()


def _unlock() -> None:
    """Make anew what a fork leaves locked; zarr itself makes its loop and threads anew."""
    sync._lock = None
    zarr.config.config_lock = type(zarr.config.config_lock)()


_fork.in_child(_unlock)


def concurrency() -> int:
    """How many requests zarr may have under way in a store."""
    return int(zarr.config.get("async.concurrency"))
