"""`open_array` and `open_group`: reads and writes through zarrgpu where zarr is configured for anything else."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth
from zarrgpu._compat import opened

VALUES = smooth((20, 11), "f4")


@pytest.fixture(autouse=True)
def _configuration_stays() -> Iterator[None]:
    """Nothing here changes zarr's configuration."""
    before = repr(zarr.config.config)
    yield
    assert repr(zarr.config.config) == before


def gives(found: Any, want: Any, where: str) -> bool:
    """Whether an array is the one wanted, in memory of the device."""
    return (where != "host") == hasattr(found, "__cuda_array_interface__") and same(found, np.asarray(want))


def there(values: Any, where: str) -> Any:
    """A host array as one of the device."""
    if where == "host":
        return values
    import cupy

    return cupy.asarray(values)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sharded", [False, True])
def test_every_way_to_read(engine: str, sharded: bool) -> None:
    """All that zarr's arrays have for it, with indices of the host and of the device, gives arrays of the device."""
    options: dict[str, Any] = {"shards": (10, 8)} if sharded else {}
    z: Any = make(VALUES, (5, 4), **options)
    rows, columns, mask = np.array([3, 19, 3, 0]), np.array([1, 10, 0, 4]), VALUES > 0
    with device(engine) as where:
        a: Any = zarrgpu.open_array(z.store, device=where, strict=True, mode="r")
        assert isinstance(a, zarr.Array)
        assert a.shape == z.shape
        zarrgpu.reset_counters()
        moves: list[Callable[[Any], Any]] = [lambda x: x, lambda x: there(x, where)]
        for move in moves:
            r, c, m = move(rows), move(columns), move(mask)
            reads = [
                (a[...], VALUES),
                (a[2:9:3, -1], VALUES[2:9:3, -1]),
                (a[r, c], VALUES[rows, columns]),
                (a[r], VALUES[rows]),
                (a[r, 2:5], VALUES[rows, 2:5]),
                (a[m], VALUES[mask]),
                (a.vindex[r, c], VALUES[rows, columns]),
                (a.vindex[r.reshape(2, 2), c.reshape(2, 2)], VALUES[rows.reshape(2, 2), columns.reshape(2, 2)]),
                (a.vindex[m], VALUES[mask]),
                (a.oindex[r, c], VALUES[np.ix_(rows, columns)]),
                (a.blocks[1, 0], VALUES[10:20, :8] if sharded else VALUES[5:10, :4]),
                (a.get_basic_selection((slice(1, 3), 2)), VALUES[1:3, 2]),
                (a.get_mask_selection(mask=m), VALUES[mask]),
                (a.with_config({"order": "F"})[...], VALUES),
            ]
            for i, (found, want) in enumerate(reads):
                assert gives(found, want, where), i
        assert same(a[3, 4], VALUES[3, 4])
        kind = where.partition(":")[0]
        assert zarrgpu.counters()[f"chunks.{kind}"] > 0
        assert not zarrgpu.counters().get("chunks.zarr")
        assert isinstance(z[...], np.ndarray)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_way_to_write(engine: str, zarr_format: int) -> None:
    """What is written from arrays of the device and of the host is what plain zarr writes."""
    plain: Any = make(VALUES, (5, 4), zarr_format)
    z: Any = make(VALUES, (5, 4), zarr_format)
    rows, columns, mask = np.array([3, 19, 0]), np.array([1, 10, 4]), VALUES > 3
    with device(engine) as where:
        a: Any = zarrgpu.open_array(z.store, device=where, mode="r+")

        def both(write: Any) -> None:
            write(plain, lambda x: x)
            write(a, lambda x: there(np.ascontiguousarray(x), where))
            stored: Any = zarr.open_array(z.store, mode="r")
            assert same(stored[...], plain[...])
            assert gives(a[...], plain[...], where)

        def assign(name: str, *key: Any) -> Any:
            def write(array: Any, move: Any) -> None:
                target = array if name == "self" else getattr(array, name)
                moved = tuple(move(k) if isinstance(k, np.ndarray) else k for k in key)
                index: Any = moved if len(moved) > 1 else moved[0]
                shape = np.shape(target[key if len(key) > 1 else key[0]])
                target[index] = move(np.arange(np.prod(shape), dtype="f4").reshape(shape))

            return write

        both(assign("self", ...))
        both(assign("self", slice(3, 12), slice(None, None, 2)))
        both(assign("self", rows, columns))
        both(assign("vindex", rows, columns))
        both(assign("vindex", mask))
        both(assign("oindex", rows, columns))
        both(assign("blocks", 1, 1))
        both(lambda array, move: array.__setitem__(slice(2, 4), 7))
        both(lambda array, move: array.append(move(VALUES[:3])))
        a[:5] = a[5:10]
        a[5:10] = VALUES[5:10]
        assert same(z[:5], plain[5:10])
        assert same(z[5:10], VALUES[5:10])
        other: Any = zarrgpu.open_array(make(VALUES[:2], (2, 2)).store, device=where)
        a[:2] = other
        assert same(z[:2], VALUES[:2])


@pytest.mark.parametrize("engine", ENGINES)
def test_members_of_groups(engine: str) -> None:
    """However an array or a group is got from a group, it has the group's settings."""
    with device(engine) as where:
        store = zarr.storage.MemoryStore()
        g: Any = zarrgpu.open_group(store, device=where, strict=True, memory_limit=1 << 20)
        assert issubclass(type(g), zarr.Group)
        settings = zarrgpu._settings.Settings(where if where != "cuda" else "cuda:0", 1 << 20, True)

        def fine(found: Any, want: Any = None) -> Any:
            assert found.settings == settings
            if want is not None:
                assert isinstance(found, zarr.Array)
                assert gives(found[...], want, where)
            return found

        fine(g.create_array("x", data=there(VALUES, where), chunks=(5, 4)), VALUES)
        g["y"] = there(VALUES[0], where)
        h = fine(g.create_group("h")).create_group("deep")
        fine(h.create_array("z", data=VALUES), VALUES)
        fine(g["x"], VALUES)
        fine(g["y"], VALUES[0])
        fine(g["h/deep/z"], VALUES)
        fine(g.get("x"), VALUES)
        fine(fine(g["h"])["deep"]["z"], VALUES)
        assert g.get("nothing", 5) == 5
        assert {name: fine(one).shape for name, one in g.arrays()} == {"x": (20, 11), "y": (11,)}
        assert [fine(one).shape for one in g.array_values() if one.ndim == 1] == [(11,)]
        assert {name: len(fine(one)) for name, one in g.groups()} == {"h": 1}
        assert [fine(one).basename for one in g.group_values()] == ["h"]
        found = {name: fine(one).basename for name, one in g.members(max_depth=None)}
        assert found == {"x": "x", "y": "y", "h": "h", "h/deep": "deep", "h/deep/z": "z"}
        fine(g.get_array("x"), VALUES)
        fine(g.get_group("h"))
        fine(g.require_group("h"))
        assert [fine(one).basename for one in g.require_groups("h", "new")] == ["h", "new"]
        fine(g.require_array("x", shape=VALUES.shape, dtype="f4"), VALUES)
        fine(g.zeros(name="zeros", shape=(3,), dtype="i2"), np.zeros(3, "i2"))
        fine(g.full_like(name="like", data=g["y"], fill_value=2), np.full(11, 2, "f4"))
        fine(g.update_attributes({"a": 1})["x"], VALUES)
        fine(asyncio.run(g.update_attributes_async({"a": 1}))["x"], VALUES)


def test_no_method_of_zarr_is_forgotten() -> None:
    """Whatever takes buffers, or gives arrays and groups, is of ours."""
    for base, ours in ((zarr.Array, opened.Array), (zarr.AsyncArray, opened.AsyncArray)):
        for name, method in inspect.getmembers(base, inspect.isfunction):
            if "prototype" in inspect.signature(method).parameters and not name.startswith("_"):
                assert name in vars(ours), name
    # made of others, or of the group itself
    composed = {"array_values", "group_values", "create", "create_dataset", "get", "require_dataset"}
    composed |= {"update_attributes", "update_attributes_async"}
    for name, method in inspect.getmembers(zarr.Group, inspect.isfunction):
        annotation = str(inspect.signature(method).return_annotation)
        if any(word in annotation for word in ("Array", "Group]", "| Group", "tuple[Group")) or annotation == "Group":
            assert name in vars(opened.Group) or name in composed or name.startswith("_"), name


@pytest.mark.parametrize("engine", ENGINES)
def test_asynchronous_arrays(engine: str) -> None:
    """`async_array` has the same settings."""
    z = make(VALUES, (5, 4))
    with device(engine) as where:
        a: Any = zarrgpu.open_array(z.store, device=where, strict=True).async_array
        rows = np.array([3, 19, 0])

        async def use() -> None:
            assert gives(await a.getitem((slice(2, 9), 3)), VALUES[2:9, 3], where)
            assert gives(await a.oindex.getitem((rows, rows // 2)), VALUES[np.ix_(rows, rows // 2)], where)
            points = await a.vindex.getitem((there(rows, where), rows // 2))
            assert gives(points, VALUES[rows, rows // 2], where)
            assert gives(await a.get_mask_selection(VALUES > 0), VALUES[VALUES > 0], where)
            await a.setitem((slice(0, 2), slice(None)), there(VALUES[4:6], where))

        asyncio.run(use())
        assert same(z[:2], VALUES[4:6])


@pytest.mark.parametrize("engine", ENGINES[-1:])
def test_arrays_of_several_settings_at_once(engine: str, tmp_path: Path) -> None:
    """Threads read one store with settings that differ; each gets its own, and `enable` changes none of them."""
    z = make(VALUES, (5, 4), store=tmp_path / "z", compressors=zarr.codecs.GzipCodec())
    failures: list[BaseException] = []
    with device(engine) as where:
        choices: list[dict[str, Any]] = [
            {"device": "host", "strict": True},
            {"device": where, "strict": True},
            {"device": where, "memory_limit": 1},
        ]

        def work(options: dict[str, Any]) -> None:
            try:
                a: Any = zarrgpu.open_array(tmp_path / "z", mode="r", **options)
                for k in range(6):
                    assert gives(a[k:, ::2], VALUES[k:, ::2], options["device"])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(choice,)) for choice in choices * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        on_host = zarrgpu.open_array(tmp_path / "z", mode="r", device="host")
        elsewhere = zarrgpu.open_array(tmp_path / "z", mode="r", device=where)
        with zarrgpu.enable(where):
            assert gives(on_host[...], VALUES, "host")
        with zarrgpu.enable("host"):
            assert gives(elsewhere[...], VALUES, where)
            assert gives(elsewhere.vindex[[1, 2], [3, 4]], VALUES[[1, 2], [3, 4]], where)
    assert same(z[...], VALUES)


def test_strict_is_an_array_s_own() -> None:
    """An array without a program raises where it was opened so, through every door, and only there."""
    words = ["a", "bc", "", "d"]
    z = zarr.create_array({}, shape=(4,), dtype="str", chunks=(2,))
    z[...] = np.array(words)
    lenient: Any = zarrgpu.open_array(z.store, device="host")
    strict: Any = zarrgpu.open_array(z.store, device="host", strict=True)
    assert lenient[...].tolist() == words
    with pytest.raises(zarrgpu.UnsupportedError):
        strict[...]
    with pytest.raises(zarrgpu.UnsupportedError):
        zarrgpu.read(strict, device="host")
    assert zarrgpu.read(lenient, device="host").tolist() == words


def test_a_memory_limit_is_an_array_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is told the limit of the array that is read."""
    from zarrgpu import wave

    seen: list[int | None] = []
    run = wave.run

    def spy(request: Any, stream: Any = None) -> Any:
        seen.append(request.memory_limit)
        return run(request, stream)

    monkeypatch.setattr(wave, "run", spy)
    z = make(VALUES, (5, 4))
    for limit in (None, 1000, 5000):
        a: Any = zarrgpu.open_array(z.store, device="host", memory_limit=limit)
        assert same(a[...], VALUES)
        assert same(zarrgpu.read(a, device="host"), VALUES)
        assert seen == [limit, limit]
        seen.clear()
    with pytest.raises(ValueError, match="memory_limit must be a positive number of bytes, got 0"):
        zarrgpu.open_array(z.store, device="host", memory_limit=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_pickles_keep_the_settings(engine: str, tmp_path: Path) -> None:
    """An array and a group come back as they were, buffers and all."""
    make(VALUES, (5, 4), store=tmp_path / "g" / "x")
    with device(engine) as where:
        zarr.open_group(tmp_path / "g", mode="a")
        g: Any = zarrgpu.open_group(tmp_path / "g", mode="r", device=where, strict=True)
        again = pickle.loads(pickle.dumps((g, g["x"], g["x"].prototype)))
        assert again[0].settings == again[1].settings == g.settings
        assert gives(again[0]["x"][...], VALUES, where)
        assert gives(again[1][...], VALUES, where)
        assert again[2] is g["x"].prototype


def test_parameters_of_zarr() -> None:
    """All others go to zarr, whose errors come back."""
    store = zarr.storage.MemoryStore()
    a: Any = zarrgpu.open_array(store, path="p/q", mode="w", shape=(3,), dtype="i4", fill_value=5, device="host")
    assert a.path == "p/q"
    assert a[...].tolist() == [5, 5, 5]
    g: Any = zarrgpu.open_group(store, path="p", mode="r", device="host")
    assert g["q"].shape == (3,)
    with pytest.raises(FileNotFoundError):
        zarrgpu.open_array(store, path="nothing", mode="r", device="host")
    with pytest.raises(zarrgpu.DeviceUnavailableError):
        zarrgpu.open_array(store, path="p/q", device="cuda:99")
