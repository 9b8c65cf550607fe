"""Writing shards in host memory: zarr's sharding codec serves, and makes, globally configured buffers only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zarr.abc.buffer import Buffer
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec

from zarrgpu._compat import host_prototype, replace_prototype


class HostShardingCodec(ShardingCodec):
    """zarr's sharding codec, which encodes indexes and joins chunks on the host, whatever buffers are configured.

    In device buffers an index would travel to the device and back, and lose the byte order that its codecs gave it.
    """

    def _get_index_chunk_spec(self, chunks_per_shard: tuple[int, ...]) -> Any:
        return replace_prototype(super()._get_index_chunk_spec(chunks_per_shard))

    def _encode_shard_index_sync(self, index: Any) -> Buffer:
        spec = self._get_index_chunk_spec(index.chunks_per_shard)
        array = spec.prototype.nd_buffer.from_numpy_array(index.offsets_and_lengths)
        encoded: Buffer = self._get_index_chunk_transform(index.chunks_per_shard).encode_chunk(array, spec)
        return encoded

    def _assemble_shard(self, index_bytes: Any, buffers: Any, buffer_prototype: Any, **options: Any) -> Buffer:
        host = host_prototype(buffer_prototype)
        return super()._assemble_shard(index_bytes, buffers, host, **options)


def host_shards(codecs: Iterable[Codec]) -> list[Codec]:
    """`codecs`, with zarr's sharding codec replaced by `HostShardingCodec`."""

    def host(codec: ShardingCodec) -> HostShardingCodec:
        return HostShardingCodec(
            chunk_shape=codec.chunk_shape,
            codecs=codec.codecs,
            index_codecs=codec.index_codecs,
            index_location=codec.index_location,
            subchunk_write_order=codec.subchunk_write_order,
        )

    return [host(c) if type(c) is ShardingCodec else c for c in codecs]
