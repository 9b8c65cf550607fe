"""The corpus of real and hand-made arrays, by every writer that we have: zarr's values on each engine.

What no program of ours covers goes through zarr's own pipeline, so that every array must come out right.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc
from zarr.buffer import cpu
from zarr.errors import UnknownCodecError

import zarrgpu
from tests.conftest import GPU
from tests.engines import device, fates, same, to_host
from zarrgpu.codecs.preference import FEWEST_STREAMS

ENGINES = ["host", *(["cuda"] if GPU else [])]
ZARRS = re.compile(r"codec (sharding_indexed|vlen-\w+)|dtype ([<>|][US]\d+|StringDType\(\)|object|\[.*\])")
"""What goes through zarr: shards, strings, objects and structures."""
PARTS: dict[str, Any] = {"huge_sparse_1d_u1": np.s_[2**32 - 3 :], "huge_sparse_2d_f4": np.s_[69996:70000, 69998:]}


def read(path: Path, zarr_format: Any, selection: Any = ...) -> Any:
    """An array through the configured pipeline, in host memory."""
    return to_host(zarr.open_array(str(path), mode="r", zarr_format=zarr_format)[selection])


def is_expected(got: Any, row: dict[str, Any]) -> bool:
    """Whether an array has the digest that plain zarr's had, in the dtype it is stored in."""
    dtype = row["dtype"]
    stored = np.dtype(dtype) if isinstance(dtype, str) and dtype[:1] in "<>|" else got.dtype
    data = np.ascontiguousarray(got.astype(stored, copy=False)).tobytes()
    return "sha" not in row or hashlib.sha256(data).hexdigest()[:16] == row["sha"]


def faults_of_arrays(root: Path) -> Iterator[str]:
    """What is wrong with the real stores."""
    for row in json.loads((root / "EXPECTED.json").read_text())["zarr_arrays"]:
        name = f"{row['repo']}/{row['path']}"
        try:
            got = read(root / row["repo"] / row["path"], row["fmt"])
        except UnknownCodecError:
            continue  # numcodecs without the extra that the array needs
        except Exception as error:
            if row["ok"]:
                yield f"{name}: {error!r}"
            continue
        if row["ok"] and not is_expected(got, row):
            yield f"{name}: values differ"


def faults_of_edges(root: Path) -> Iterator[str]:
    """What is wrong with the stores that were made by hand, some of which must be refused."""
    folder = root / "generated-edge"
    for case in json.loads((folder / "cases.json").read_text()):
        name, store = case["case"], folder / case["case"] / "store.zarr"
        expected = store.parent / "expected.npy"
        try:
            got = read(store, case["zarr_format"], PARTS.get(name, ...))
        except Exception as error:
            if case["expect"] != "error":
                yield f"{name}: {error!r}"
            continue
        if case["expect"] == "error":
            yield f"{name}: no error ({case['error_hint']})"
        elif expected.exists() and not same(got, np.load(expected)):
            yield f"{name}: values differ"


@pytest.mark.parametrize("engine", [*ENGINES, "twins"])
def test_every_array_has_zarrs_values(engine: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No value differs, nothing that must fail is read, and our decoders refuse nothing that the CPU decodes."""
    if engine != "host":
        for codec in FEWEST_STREAMS:
            monkeypatch.setitem(FEWEST_STREAMS, codec, 0)  # kernels, few as the chunks are
    zarrgpu.reset_counters()
    with warnings.catch_warnings(), device(engine) as name, zarrgpu.enable(device=name):
        warnings.simplefilter("ignore")  # zarr's, about the odder of these arrays
        warnings.simplefilter("error", zarrgpu.DecoderMismatchWarning)
        faults = [*faults_of_arrays(corpus), *faults_of_edges(corpus)]
    assert not faults, "\n".join(faults)
    counters = zarrgpu.counters()
    assert counters[f"chunks.{name.partition(':')[0]}"] > 2000
    fell = [k.removeprefix("fallback.bind:") for k in counters if k.startswith("fallback")]
    assert not [reason for reason in fell if not ZARRS.fullmatch(reason)], "these should have had a program"


def chunk_as_array(chunk: bytes, values: Any) -> zarr.Array[Any]:
    """An array of a single chunk that somebody else encoded, its metadata saying Blosc-LZ4."""
    z = zarr.create_array(
        {}, shape=values.shape, chunks=values.shape, dtype=values.dtype, zarr_format=2, compressors=Blosc("lz4")
    )
    asyncio.run(z.store.set(".".join("0" * max(values.ndim, 1)), cpu.Buffer.from_bytes(chunk)))
    return z


@pytest.mark.parametrize("engine", [*ENGINES, "twins"])
def test_blosc_chunks_of_every_version(engine: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """c-blosc 1.3 to 1.18, every inner codec, without zarr's help; Snappy is refused."""
    for codec in FEWEST_STREAMS:
        monkeypatch.setitem(FEWEST_STREAMS, codec, 0)  # kernels, whose choice is by what the metadata promise
    want = np.arange(1_000_000, dtype="<i4")
    chunks = sorted((corpus / "c-blosc" / "compat").glob("*.cdata"))
    assert len(chunks) > 20
    with device(engine) as name:
        for path in chunks:
            z = chunk_as_array(path.read_bytes(), want)
            zarrgpu.reset_counters()
            if "snappy" in path.name:
                with pytest.raises(zarrgpu.ChunkError, match=r"unsupported|refused"):
                    zarrgpu.read(z, device=name)
                continue
            assert same(zarrgpu.read(z, device=name), want), path.name
            assert fates().keys() == {f"chunks.{name.partition(':')[0]}"}, path.name


@pytest.mark.parametrize("engine", [*ENGINES, "twins"])
def test_blosc_fixtures_of_numcodecs(engine: str, corpus: Path) -> None:
    """Each of numcodecs' configurations and arrays: the array, or the CPU's error for a codec that it lacks."""
    folder = corpus / "numcodecs" / "fixture" / "blosc"
    read = 0
    with device(engine) as name:
        for encoded in sorted(folder.glob("codec.*/encoded.*.dat")):
            want = np.load(folder / f"array.{encoded.suffixes[0][1:]}.npy", allow_pickle=True)
            if want.dtype.kind not in "biufc":
                continue
            z = chunk_as_array(encoded.read_bytes(), want.ravel(order="A"))
            try:
                Blosc().decode(encoded.read_bytes())
            except RuntimeError:  # Snappy, unless the chunk is stored
                with pytest.raises(zarrgpu.ChunkError, match=r"unsupported|refused"):
                    zarrgpu.read(z, device=name)
                continue
            assert same(zarrgpu.read(z, device=name), want.ravel(order="A")), encoded
            read += 1
    assert read > 50
