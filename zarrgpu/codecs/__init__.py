"""Codecs: how each one's config is parsed, where its streams are, which kernels decode them. One file per codec.

`STAGES` names every codec that has code of its own here; adding one is a file and a line. Others of numcodecs are
decoded by numcodecs on host threads.
"""

from __future__ import annotations

from zarrgpu.codecs.astype import AsType
from zarrgpu.codecs.base import Container, Located, Refused, Spec, Stage, Transform
from zarrgpu.codecs.bitround import BitRound
from zarrgpu.codecs.blosc import Blosc
from zarrgpu.codecs.byte_order import ByteOrder
from zarrgpu.codecs.cast_value import CastValue
from zarrgpu.codecs.checksum import CRC32, CRC32C, Adler32, Checksum, Fletcher32
from zarrgpu.codecs.delta import Delta
from zarrgpu.codecs.fixedscaleoffset import FixedScaleOffset
from zarrgpu.codecs.gzip import GZip
from zarrgpu.codecs.library import Library
from zarrgpu.codecs.lz4 import LZ4
from zarrgpu.codecs.packbits import PackBits
from zarrgpu.codecs.quantize import Quantize
from zarrgpu.codecs.raw import Raw
from zarrgpu.codecs.scale_offset import ScaleOffset
from zarrgpu.codecs.shuffle import Shuffle
from zarrgpu.codecs.transpose import Transpose
from zarrgpu.codecs.values import Values
from zarrgpu.codecs.zlib import Zlib
from zarrgpu.codecs.zstd import Zstd

STAGES: dict[str, type[Stage]] = {
    "adler32": Adler32,
    "astype": AsType,
    "bitround": BitRound,
    "blosc": Blosc,
    "bytes": ByteOrder,
    "cast_value": CastValue,
    "crc32": CRC32,
    "crc32c": CRC32C,
    "delta": Delta,
    "fixedscaleoffset": FixedScaleOffset,
    "fletcher32": Fletcher32,
    "gzip": GZip,
    "lz4": LZ4,
    "packbits": PackBits,
    "quantize": Quantize,
    "scale_offset": ScaleOffset,
    "shuffle": Shuffle,
    "transpose": Transpose,
    "zlib": Zlib,
    "zstd": Zstd,
}

__all__ = [
    "STAGES",
    "Blosc",
    "ByteOrder",
    "Checksum",
    "Container",
    "Library",
    "Located",
    "Raw",
    "Refused",
    "Shuffle",
    "Spec",
    "Stage",
    "Transform",
    "Transpose",
    "Values",
]
