"""`read_many`: what `read` gives for each selection, in one array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import ENGINES, Mine, device, fates, smooth, to_host

SHAPE = (9, 20, 14)


@pytest.fixture(params=ENGINES)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    with device(request.param) as name:
        yield name


def make(store: Any, **options: Any) -> zarr.Array[Any]:
    values = smooth(SHAPE, "<u2")
    array = zarr.create_array(store, shape=SHAPE, dtype="u2", fill_value=3, **options)
    array[:, :15] = values[:, :15]
    return array


def check(array: zarr.Array[Any], selections: list[Any], where: str, **options: Any) -> None:
    want = np.stack([np.asarray(array[s]) for s in selections])
    found = zarrgpu.read_many(array, selections, device=where, **options)
    np.testing.assert_array_equal(to_host(found), want, strict=True)


CROPS: list[Any] = [tuple(slice(a, a + n) for a, n in zip(at, (3, 9, 5), strict=True)) for at in [(0, 0, 0), (5, 8, 9)]]
ALIKE: dict[str, list[Any]] = {
    "crops": CROPS * 3,
    "one": CROPS[:1],
    "overlapping": [slice(0, 6), slice(3, 9), slice(0, 6)],
    "lines": [(i, ..., 2) for i in range(9)],
    "elements": [(1, 2, 3), (8, 0, 13)],
    "steps": [(slice(0, 8, 2), slice(0, 12, 3)), (slice(1, 9, 2), slice(4, 20, 4))],
    "arrays": [(slice(0, 2), [3, 1, 1], slice(None)), (slice(7, 9), [19, 0, 5], slice(None))],
    "nothing": [slice(2, 2), slice(9, 9)],
}


@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
@pytest.mark.parametrize("name", ALIKE)
def test_as_read_gives_each(where: str, name: str, sharded: bool, tmp_path: Path) -> None:
    shards = (6, 14, 14) if sharded else None
    array = make(tmp_path / "a.zarr", chunks=(3, 7, 7), shards=shards)
    with zarr.config.set({"zarrgpu.strict": True}):
        check(array, ALIKE[name], where)


@pytest.mark.parametrize(
    "selections",
    [
        [(0, slice(0, 9)), (slice(0, 9), 0)],
        [(slice(0, 2), [1, 5]), (slice(0, 2), slice(3, 5))],
        [([0, 1], [2, 3], [4, 5]), ([8, 8], [0, 1], [13, 0])],
    ],
    ids=["integers of different axes", "arrays and slices", "points"],
)
def test_selections_that_are_not_alike(where: str, selections: list[Any]) -> None:
    array = zarr.create_array({}, shape=(9, 9, 14), chunks=(3, 4, 5), dtype="u2")
    array[...] = smooth((9, 9, 14), "<u2")
    zarrgpu.reset_counters()
    with zarr.config.set({"zarrgpu.strict": True}):
        check(array, selections, where)
    assert fates().keys() == {f"chunks.{where.partition(':')[0]}"}  # a request for each is no fallback


def test_chunks_that_differ_in_shape(where: str) -> None:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array({}, shape=(9, 6), chunks=[[2, 3, 4], [6]], dtype="i4")
        array[...] = np.arange(54, dtype="i4").reshape(9, 6)
        with zarr.config.set({"zarrgpu.strict": True}):
            check(array, [slice(0, 5), slice(4, 9)], where)


def test_codecs_without_a_program(where: str) -> None:
    array = zarr.create_array({}, shape=(8,), chunks=(4,), dtype="u2", serializer=Mine(), compressors=None)
    array[...] = np.arange(8, dtype="u2")
    check(array, [slice(0, 3), slice(5, 8)], where)
    with pytest.raises(zarrgpu.UnsupportedError), zarr.config.set({"zarrgpu.strict": True}):
        zarrgpu.read_many(array, [slice(0, 3)], device=where)


def test_into_an_output(where: str) -> None:
    array = make({}, chunks=(3, 7, 7))
    engine = zarrgpu.engine.resolve(where)
    out = engine.empty((2, 3, 9, 5), np.dtype("u2"))
    check(array, CROPS, where, out=out)
    assert zarrgpu.read_many(array, CROPS, device=where, out=out) is out
    with pytest.raises(ValueError, match=r"shape \(2, 3, 9, 5\)"):
        zarrgpu.read_many(array, CROPS, device=where, out=engine.empty((3, 3, 9, 5), np.dtype("u2")))


def test_wrong_selections(where: str) -> None:
    array = make({}, chunks=(3, 7, 7))
    with pytest.raises(ValueError, match="one or more"):
        zarrgpu.read_many(array, [], device=where)
    with pytest.raises(ValueError, match="of one shape"):
        zarrgpu.read_many(array, [slice(0, 2), slice(0, 3)], device=where)
    points = [([0, 1], [2, 3], [4, 5])]
    for out in (np.empty((2, 2), "u2"), np.empty((), "u2")):
        with pytest.raises(ValueError, match="a line for each of 1"):
            zarrgpu.read_many(array, points, device="host", out=out)
    with pytest.raises(IndexError):
        zarrgpu.read_many(array, [0, 9], device=where)
