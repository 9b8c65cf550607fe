"""Keys of chunks: those that zarr makes, one by one and by compiled code."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import zarr

from zarrgpu import _compat
from zarrgpu.keys import Keys

ENCODINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "default, dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "v2 in v3": {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v2": {"zarr_format": 2},
    "v2, slashes": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
}


def keys_of(ndim: int, **options: Any) -> Keys:
    """Of the corners and of random chunks of a large grid; nothing is stored."""
    array: Any = zarr.create_array({}, shape=(10**6,) * ndim, chunks=(1,) * ndim, dtype="u1", **options)
    grid = np.random.default_rng(0).integers(0, 10**6, (50, ndim))
    grid[:3] = np.array([0, 9, 999_999])[:, None]
    return Keys(array.metadata.encode_chunk_key, grid, _compat.key_style(array.metadata))


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_they_are_zarr_s(name: str, ndim: int) -> None:
    keys = keys_of(ndim, **ENCODINGS[name])
    want = [keys.encode(tuple(line)) for line in keys.grid.tolist()]
    assert list(keys) == want
    assert list(keys[3:7]) == want[3:7]
    assert list(keys.under("/a/ö")) == [f"/a/ö/{key}" for key in want]
    assert (keys.style is None) == (ndim == 0)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("ndim", [1, 2, 4])
def test_compiled_code_writes_the_same(name: str, ndim: int) -> None:
    from zarrgpu import _native

    paths = keys_of(ndim, **ENCODINGS[name]).under("/a/ö")
    which = np.array([3, 0, 0, 2, 49, 1])
    blob, first = _native.key_table(paths, which)
    known, starts = _native.path_table([paths[i] for i in which.tolist()])
    assert first.tolist() == starts.tolist()
    assert blob[: len(known)].tobytes() == known.tobytes()
    assert known.tobytes().startswith(os.fsencode(paths[3]) + b"\0")
    assert len(_native.key_table(paths, which[:0])[1]) == 0


def test_encodings_of_others_are_asked_for_each_key() -> None:
    """One that is derived from zarr's may write other keys."""
    from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding

    class Padded(DefaultChunkKeyEncoding):
        def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> str:
            return "-".join(f"{i:04}" for i in chunk_coords)

    array: Any = zarr.create_array({}, shape=(4,), chunks=(1,), dtype="u1")
    object.__setattr__(array.metadata, "chunk_key_encoding", Padded())
    assert _compat.key_style(array.metadata) is None
    assert list(Keys(array.metadata.encode_chunk_key, np.arange(2)[:, None])) == ["0000", "0001"]
