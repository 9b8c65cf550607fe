"""zarr's sharding codec -> `zarrgpu.shards.Level`: a chain with shards as one of inner chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.buffer import cpu
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.chunk_utils import ChunkTransform, evolve_codecs
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.dtype import UInt64

from zarrgpu._compat import cpu_prototype, replace_prototype
from zarrgpu._compat.host_shards import HostShardingCodec
from zarrgpu.errors import UnsupportedError
from zarrgpu.fetch import Bytes
from zarrgpu.shards import Index, Level


def flatten(codecs: Sequence[Codec], spec: ArraySpec) -> tuple[tuple[Codec, ...], ArraySpec, tuple[Level, ...]]:
    """Take the shards off a chain.

    Parameters
    ----------
    codecs : sequence of Codec
        Of an array, evolved to `spec`.
    spec : ArraySpec
        Of the array's chunks, which are shards if there is a sharding codec.

    Returns
    -------
    codecs, spec : tuple of Codec, ArraySpec
        Of the inner chunks. Transposes outside the shards are done chunk by chunk.
    levels : tuple of Level
        The outermost shards first; none where there are no shards.

    Raises
    ------
    UnsupportedError
        For codecs between arrays that are outside the shards and cannot be done chunk by chunk.
    """
    codecs, levels = tuple(codecs), list[Level]()
    while True:
        at = next((k for k, codec in enumerate(codecs) if type(codec) in (ShardingCodec, HostShardingCodec)), None)
        if at is None:
            return codecs, spec, tuple(levels)
        before, sharding, around = codecs[:at], codecs[at], codecs[at + 1 :]
        assert isinstance(sharding, ShardingCodec)
        order, inside = tuple(range(len(spec.shape))), spec
        for codec in before:
            if type(codec) is not TransposeCodec:
                raise UnsupportedError(f"codec {codec.to_dict().get('name')} outside shards")
            order = tuple(order[axis] for axis in codec.order)
            inside = codec.resolve_metadata(inside)
        counts, chunks = [0] * len(order), [0] * len(order)
        for k, axis in enumerate(order):
            chunks[axis] = sharding.chunk_shape[k]
            counts[axis] = inside.shape[k] // sharding.chunk_shape[k]
        levels.append(_level(sharding, around, inside, tuple(counts), order))
        spec = replace(spec, shape=tuple(chunks))
        codecs = evolve_codecs((*before, *sharding.codecs), spec)


def _level(
    sharding: ShardingCodec, around: tuple[Any, ...], spec: ArraySpec, counts: tuple[int, ...], order: tuple[int, ...]
) -> Level:
    shape = (*(counts[axis] for axis in order), 2)
    index = ArraySpec(
        shape=shape,
        dtype=UInt64(endianness="little"),
        fill_value=np.uint64(2**64 - 1),
        config=ArrayConfig(order="C", write_empty_chunks=False),
        prototype=cpu_prototype,
    )
    codecs = evolve_codecs(sharding.index_codecs, index)
    nbytes = BatchedCodecPipeline.from_codecs(codecs).compute_encoded_size(8 * int(np.prod(shape)), index)
    first, checks = codecs[0], [type(codec) for codec in codecs[1:]]
    if type(first) is BytesCodec and checks in ([], [Crc32cCodec]):
        dtype = np.dtype(">u8" if first.endian == "big" else "<u8")
        decode_index: Any = partial(_plain_index, dtype=dtype, checked=bool(checks))
    else:
        decode_index = partial(_any_index, transform=ChunkTransform(codecs=codecs), spec=index)
    host = replace_prototype(spec)
    decode = partial(_undo, codecs=around[::-1], spec=host) if around else None
    return Level(counts, order, nbytes, sharding.index_location == "end", decode_index, decode)


def _plain_index(data: Bytes, dtype: np.dtype[Any], checked: bool) -> Index:
    """An index of bytes alone, maybe with a CRC-32C behind it."""
    if checked:
        stored = int.from_bytes(data[-4:].tobytes(), "little")
        data = data[:-4]
        actual = google_crc32c.value(data.tobytes())
        if actual != stored:
            raise ValueError(f"checksum {actual:#010x}, and {stored:#010x} is stored")
    return np.frombuffer(data.tobytes(), dtype).astype(np.uint64).reshape(-1, 2)


def _any_index(data: Bytes, transform: Any, spec: ArraySpec) -> Index:
    """An index by zarr's own codecs."""
    found: npt.NDArray[Any] = transform.decode_chunk(cpu.Buffer.from_bytes(data.tobytes()), spec).as_numpy_array()
    return found.astype(np.uint64).reshape(-1, 2)


def _undo(data: Bytes, codecs: Sequence[Any], spec: ArraySpec) -> Bytes:
    """Decode the codecs around a shard."""
    buffer: Any = cpu.Buffer.from_bytes(data.tobytes())
    for codec in codecs:
        buffer = codec._decode_sync(buffer, spec)
    return np.frombuffer(buffer.as_numpy_array(), np.uint8)
