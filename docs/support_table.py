"""The table of codecs, dtypes and engines in ``reference/codecs.md``: made of what the code says, and written there.

    python docs/support_table.py            writes it; a test says when that is due

For each codec and dtype an array's metadata are made, and its codecs bound, as a read does, for both engines.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs.cast_value import CastValue
from zarr.codecs.scale_offset import ScaleOffset

from zarrgpu import _compat, _read
from zarrgpu.engine import CUDA_DTYPES
from zarrgpu.errors import UnsupportedError

PAGE = Path(__file__).parent / "reference" / "codecs.md"
BEGIN, END = "<!-- made by docs/support_table.py -->\n", "<!-- end -->\n"

KERNELS, BOTH, THREADS, HOST, ZARR, NONE = "kernels", "threads, kernels", "threads", "host", "zarr", "-"
DTYPES = {
    "bool": ("?",),
    "integers": ("<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", ">i2", ">i4", ">u8"),
    "floats": ("<f2", "<f4", "<f8", ">f4", ">f8"),
    "complex": ("<c8", "<c16", ">c8"),
    "times": ("<M8[ns]", "<m8[ms]"),
    "strings": ("<U4",),
}
SHAPE = (64, 64)

Options = dict[str, Any]
Make = Callable[[np.dtype[Any]], Options]


def v2(*codecs: Callable[[np.dtype[Any]], Any]) -> Make:
    """Zarr 2: filters, in encoding order, the last of them the compressor."""

    def make(dtype: np.dtype[Any]) -> Options:
        made = [codec(dtype) for codec in codecs]
        return {"zarr_format": 2, "filters": made[:-1] or None, "compressors": made[-1] if made else None}

    return make


def v3(*codecs: Callable[[np.dtype[Any]], Any], filters: Any = ()) -> Make:
    """Zarr 3: codecs between bytes, after filters between arrays."""

    def make(dtype: np.dtype[Any]) -> Options:
        endian = "little" if dtype.byteorder != ">" else "big"
        return {
            "zarr_format": 3,
            "dtype": dtype.newbyteorder("="),
            "filters": [make_filter(dtype) for make_filter in filters],
            "serializer": BytesCodec(endian=endian) if dtype.kind != "U" else "auto",
            "compressors": [codec(dtype) for codec in codecs] or None,
        }

    return make


def _blosc(cname: str, shuffle: int) -> Make:
    return v2(lambda d: numcodecs.Blosc(cname, 5, shuffle))


def _filter(make: Callable[[np.dtype[Any]], Any]) -> Make:
    """A filter, with LZ4 behind it."""
    return v2(make, lambda d: numcodecs.LZ4())


def _sharded(dtype: np.dtype[Any]) -> Options:
    inner: Any = [BytesCodec(), BloscCodec(cname="lz4", typesize=dtype.itemsize)]
    return {"dtype": dtype.newbyteorder("="), "serializer": ShardingCodec(chunk_shape=(16, 16), codecs=inner)} | {
        "compressors": None
    }


CODECS: dict[str, Make] = {
    "none, `bytes`": v2(),
    "`blosc`: lz4, lz4hc": _blosc("lz4", 1),
    "`blosc`: blosclz": _blosc("blosclz", 1),
    "`blosc`: zstd": _blosc("zstd", 2),
    "`blosc`: zlib": _blosc("zlib", 1),
    "`zstd`": v2(lambda d: numcodecs.Zstd(3)),
    "`lz4`": v2(lambda d: numcodecs.LZ4()),
    "`gzip`": v2(lambda d: numcodecs.GZip(5)),
    "`zlib`": v2(lambda d: numcodecs.Zlib(5)),
    "`bz2`": v2(lambda d: numcodecs.BZ2()),
    "`lzma`": v2(lambda d: numcodecs.LZMA()),
    "`sharding_indexed`": _sharded,
    "`crc32c`": v3(lambda d: ZstdCodec(), lambda d: Crc32cCodec()),
    "`crc32`": _filter(lambda d: numcodecs.CRC32()),
    "`adler32`": _filter(lambda d: numcodecs.Adler32()),
    "`fletcher32`": _filter(lambda d: numcodecs.Fletcher32()),
    "`shuffle`": _filter(lambda d: numcodecs.Shuffle(d.itemsize)),
    "`shuffle`, `zlib`": v2(lambda d: numcodecs.Shuffle(d.itemsize), lambda d: numcodecs.Zlib(5)),
    "`transpose`": v3(lambda d: ZstdCodec(), filters=[lambda d: TransposeCodec(order=(1, 0))]),
    "`delta`": _filter(lambda d: numcodecs.Delta(d.str)),
    "`fixedscaleoffset`": _filter(lambda d: numcodecs.FixedScaleOffset(scale=10, offset=0, dtype=d.str, astype="<i2")),
    "`quantize`": _filter(lambda d: numcodecs.Quantize(2, d.str)),
    "`bitround`": _filter(lambda d: numcodecs.BitRound(3)),
    "`packbits`": _filter(lambda d: numcodecs.PackBits()),
    "`astype`": _filter(lambda d: numcodecs.AsType("<i2", d.str)),
    "`scale_offset`": v3(lambda d: ZstdCodec(), filters=[lambda d: ScaleOffset(scale=2, offset=1)]),
    "`cast_value`": v3(lambda d: ZstdCodec(), filters=[lambda d: CastValue(data_type="float64")]),
}


def where(make: Make, dtype: np.dtype[Any], by_library: bool) -> str:
    """What decodes the chunks of such an array."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr, about codecs without a specification
            array = zarr.create_array({}, **{"shape": SHAPE, "chunks": SHAPE, "dtype": dtype} | make(dtype))
            # Some refuse a dtype only when they have values.
            array[...] = np.ones(SHAPE, dtype.newbyteorder("=")) if dtype.kind not in "U" else np.full(SHAPE, "a")
    except Exception:
        return NONE
    metadata: Any = array.metadata
    engine: Any = SimpleNamespace(by_library=by_library)
    try:
        bound = _read.bind_chunks(_compat.evolved_codecs(metadata), _compat.spec_of(metadata), engine)
    except UnsupportedError:
        return ZARR
    if by_library:
        return THREADS
    if bound.program.dtype.newbyteorder("=").char not in CUDA_DTYPES:
        return HOST
    program = bound.program
    mine = not program.container.does_nothing or program.after or program.checks or program.folded
    return (BOTH if mine else THREADS) if program.host else KERNELS


def cell(make: Make, kinds: tuple[str, ...], by_library: bool) -> str:
    """The same for dtypes of a kind: what most have, and which have another."""
    found = {kind: where(make, np.dtype(kind), by_library) for kind in kinds}
    answers = list(found.values())
    most = max(dict.fromkeys(answers), key=answers.count)
    others: dict[str, list[str]] = {}
    for kind, answer in found.items():
        if answer != most:
            others.setdefault(answer, []).append(f"`{kind.replace('<', '')}`")
    return "; ".join([most, *(f"{answer}: {' '.join(names)}" for answer, names in others.items())])


def table() -> str:
    """Markdown."""
    lines = ["| codec | " + " | ".join(f"GPU: {kind}" for kind in DTYPES) + " | without a GPU |"]
    lines.append("|---|" + "---|" * (len(DTYPES) + 1))
    for name, make in CODECS.items():
        cells = [cell(make, kinds, by_library=False) for kinds in DTYPES.values()]
        numbers = tuple(kind for kinds in list(DTYPES.values())[:-1] for kind in kinds)
        host = {answer for kind in numbers if (answer := where(make, np.dtype(kind), True)) != NONE}
        lines.append(f"| {name} | " + " | ".join([*cells, ", ".join(sorted(host))]) + " |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
