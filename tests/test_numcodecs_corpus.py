"""Buffers that other programs encoded, through numcodecs with our decoders registered: what numcodecs' own give."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numcodecs
import numpy as np
import pytest

import zarrgpu
import zarrgpu.numcodecs
from tests.conftest import GPU
from tests.engines import device, to_host
from zarrgpu.numcodecs import CODECS, register

CORPUS = ["host", *(["cuda"] if GPU else [])]


@pytest.mark.parametrize("engine", [*CORPUS, "twins"])
def test_fixtures_of_numcodecs(engine: str, corpus: Path) -> None:
    """Each of its configurations and arrays, a configuration at once; Blosc with Snappy is refused."""
    folder, read = corpus / "numcodecs" / "fixture", 0
    with device(engine) as name, register(name):
        for path in sorted(folder.rglob("config.json")):
            codec: Any = numcodecs.get_codec(json.loads(path.read_text()))
            if codec.codec_id not in CODECS or (engine == "twins" and codec.codec_id not in ("blosc", "lz4")):
                continue
            arrays = [np.load(p, allow_pickle=True) for p in sorted(path.parents[1].glob("array.*.npy"))]
            encoded = [p.read_bytes() for p in sorted(path.parent.glob("encoded.*.dat"))]
            if codec.get_config().get("cname") == "snappy":
                with pytest.raises(zarrgpu.ChunkError, match=r"unsupported \(|refused"):
                    codec.decode_batch(encoded)
                continue
            lossy = codec.codec_id in ("astype", "fixedscaleoffset", "quantize")
            for got, array, data in zip(codec.decode_batch(encoded), arrays, encoded, strict=True):
                want = np.frombuffer(codec.plain().decode(data), array.dtype) if lossy else array.ravel(order="A")
                assert to_host(got).tobytes() == want.tobytes(), path
                read += 1
    assert read > 100


@pytest.mark.parametrize("engine", [*CORPUS, "twins"])
def test_blosc_buffers_of_every_version(engine: str, corpus: Path) -> None:
    """c-blosc 1.3 to 1.18, every inner codec, at once; Snappy is refused."""
    paths = sorted((corpus / "c-blosc" / "compat").glob("*.cdata"))
    snappy = [p.read_bytes() for p in paths if "snappy" in p.name]
    others = [p.read_bytes() for p in paths if "snappy" not in p.name]
    assert (len(snappy), len(others)) == (4, 25)
    want = np.arange(1_000_000, dtype="<i4").view(np.uint8)
    with device(engine) as name, register(name):
        codec = numcodecs.get_codec({"id": "blosc"})
        for got in codec.decode_batch(others):
            assert np.array_equal(to_host(got), want)
        for buffer in snappy:
            with pytest.raises(zarrgpu.ChunkError, match=r"unsupported \(|refused"):
                codec.decode(buffer)


def frames(corpus: Path) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Zstandard frames, each with what lies beside it."""
    for path in sorted(corpus.rglob("*.zst")):
        beside = path.with_suffix("")
        yield path.name, path.read_bytes(), beside.read_bytes() if beside.is_file() else None
    for path in sorted((corpus / "klauspost-compress").rglob("*.zip")):
        with ZipFile(path) as archive:
            names = archive.namelist()
            for name in (n for n in names if n.endswith(".zst")):
                original = name.removesuffix(".zst")
                there = original in names and path.name != "bad.zip"
                yield f"{path.name}/{name}", archive.read(name), archive.read(original) if there else None


@pytest.mark.parametrize("engine", CORPUS)
def test_frames_of_zstd(engine: str, corpus: Path) -> None:
    """What lies beside them, all at once; those without are numcodecs' or, like every one of bad.zip, refused."""
    good: list[tuple[str, bytes, bytes]] = []
    refused = 0
    with device(engine) as name, register(name):
        codec = numcodecs.get_codec({"id": "zstd"})
        for label, data, beside in frames(corpus):
            try:
                good.append((label, data, codec.plain().decode(data)))
                assert beside in (None, good[-1][2]), label
                assert not label.startswith("bad.zip")
            except (MemoryError, RuntimeError):
                refused += 1
                with pytest.raises(zarrgpu.ChunkError):
                    codec.decode(data)
        for (label, _, want), got in zip(good, codec.decode_batch([data for _, data, _ in good]), strict=True):
            assert to_host(got).tobytes() == want, label
    assert (len(good) > 15, refused > 20) == (True, True)


@pytest.mark.parametrize("engine", CORPUS)
def test_streams_of_deflate(engine: str, corpus: Path) -> None:
    """Of wuffs, what lies beside them; raw Deflate is that of zlib without header and checksum."""
    data = corpus / "wuffs" / "test" / "data"
    with device(engine) as name, register(name):
        for suffix in ("gz", "zlib"):
            codec = numcodecs.get_codec({"id": "gzip" if suffix == "gz" else "zlib"})
            paths = sorted(data.glob(f"*.{suffix}"))
            decompress = gzip.decompress if suffix == "gz" else zlib.decompress
            for path, got in zip(paths, codec.decode_batch([p.read_bytes() for p in paths]), strict=True):
                beside = path.with_suffix("")
                want = beside.read_bytes() if beside.exists() else decompress(path.read_bytes())
                assert to_host(got).tobytes() == want, path
        for path in sorted(data.rglob("*.deflate")):
            places = Path(f"{path}.decompressed"), data / f"{path.name.partition('.')[0]}.txt"
            for original in (p for p in places if p.exists()):
                want = original.read_bytes()
                stream = b"\x78\x01" + path.read_bytes() + zlib.adler32(want).to_bytes(4, "big")
                if path.name == "distance-code-31.deflate":
                    with pytest.raises(zarrgpu.ChunkError, match="invalid distance"):
                        codec.decode(stream)
                else:
                    assert to_host(codec.decode(stream)).tobytes() == want, path
        bad = (corpus / "klauspost-compress" / "gzip" / "testdata" / "issue6550.gz").read_bytes()
        with pytest.raises(zarrgpu.ChunkError, match="too many length"):
            numcodecs.get_codec({"id": "gzip"}).decode(bad)
