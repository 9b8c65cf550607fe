"""Writes on an enabled process, from host and device arrays: the very keys and bytes that plain zarr stores."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.errors import ZarrUserWarning

import zarrgpu
from tests.engines import ENGINES, device, same, smooth
from tests.test_matrix import CASES, CHUNKS, SHAPE, Case, values_of
from zarrgpu.engine import CUDA_DTYPES, resolve

WRITERS = [ENGINES[0], ENGINES[2]]  # the twins are of no use here
Write = tuple[Any, npt.NDArray[Any] | Any]


def contents(z: zarr.Array[Any]) -> dict[str, bytes]:
    """Every key of an array's store, with its bytes."""
    store: Any = z.store

    async def all_of_it() -> dict[str, bytes]:
        from zarr.buffer import cpu

        keys = [key async for key in store.list()]
        return {key: (await store.get(key, cpu.buffer_prototype)).to_bytes() for key in keys}

    return asyncio.run(all_of_it())


def writes_to(values: npt.NDArray[Any]) -> list[Write]:
    """What is written, one after the other: whole and partial chunks, strides, scalars, in several layouts."""
    return [
        (np.s_[...], values),
        (np.s_[2:9, 3:5], np.asfortranarray(values[:7, 5:7])),
        (np.s_[1::4, ::3], values[::4, 1::3][:3]),
        (np.s_[4], values[7]),
        (np.s_[5:10, 4:8], values[0, 0]),
        (np.s_[:, 10], values[::-1, 0]),
        (np.s_[0, 0], values[3, 3]),
        (np.s_[8:12, 1:9], values.T[1:9, 3:7].T[::-1, ::-1]),
    ]


def there(value: Any, engine: str) -> Any:
    """A value in the memory of the engine, strides and all, where that can hold it."""
    if not isinstance(value, np.ndarray) or engine == "host" or value.dtype.char not in CUDA_DTYPES:
        return value
    if not value.flags.c_contiguous and value.flags.f_contiguous:
        return resolve(engine).from_host(np.ascontiguousarray(value.T)).T
    return resolve(engine).from_host(value.astype(value.dtype.newbyteorder("=")))


def agree(create: Callable[[], zarr.Array[Any]], writes: list[Write], engine: str) -> dict[str, bytes]:
    """Do the same writes to two new arrays, by plain zarr and on an enabled process; gives what is in the stores."""
    want = create()
    for selection, value in writes:
        want[selection] = value
    for place in {engine, "host"}:  # where the values are
        with zarrgpu.enable(engine, strict=False):
            got = create()
            for selection, value in writes:
                got[selection] = there(value, place)
        assert contents(got) == contents(want)
    return contents(want)


@pytest.mark.parametrize("engine", WRITERS)
@pytest.mark.parametrize("name", CASES)
def test_every_codec(engine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case: Case = CASES[name]
    monkeypatch.setattr("time.time", lambda: 0)  # which gzip stores
    plain = any(word in name for word in ("offset", "astype", "cast", "delta to", "quantize"))
    with device(engine) as where, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about codecs and dtypes without a specification
        for text in case.dtypes[1::6] or case.dtypes:
            for zarr_format, options in ((2, case.v2), (3, case.v3)):
                dtype = np.dtype(text)
                if options is None or (dtype.kind == "V" and zarr_format == 2):
                    continue
                extra: dict[str, Any] = {"compressors": None}
                if zarr_format == 3:
                    extra["serializer"] = BytesCodec(endian="little" if dtype.isnative else "big")
                    dtype = dtype.newbyteorder("=")
                extra |= options(dtype)

                def create(zarr_format: Any = zarr_format, dtype: Any = dtype, extra: Any = extra) -> zarr.Array[Any]:
                    return zarr.create_array(
                        {}, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, **extra
                    )

                agree(create, writes_to(values_of(dtype, plain)), where)


def shards(outside: list[Any], index_location: Any, inner: list[Any], index_codecs: list[Any]) -> dict[str, Any]:
    """Arguments of `zarr.create_array` for shards of 6 x 6 elements, of inner chunks of 3 x 2."""
    codec = ShardingCodec(chunk_shape=(3, 2), codecs=inner, index_codecs=index_codecs, index_location=index_location)
    return {"chunks": (6, 6), "filters": outside, "serializer": codec, "compressors": None}


LITTLE, BIG = BytesCodec(endian="little"), BytesCodec(endian="big")
NESTED = ShardingCodec(chunk_shape=(1, 2), codecs=[BIG, ZstdCodec()], index_codecs=[LITTLE], index_location="start")
SHARDED = {
    "index at the end": shards([], "end", [LITTLE, BloscCodec(typesize=4, cname="lz4")], [LITTLE, Crc32cCodec()]),
    "index at the start": shards([], "start", [BIG, Crc32cCodec()], [BIG]),
    "nested": shards([], "end", [NESTED], [LITTLE, Crc32cCodec()]),
    "transposed inside": shards([], "start", [TransposeCodec(order=(1, 0)), LITTLE, ZstdCodec()], [LITTLE]),
    "transposed outside": shards([TransposeCodec(order=(1, 0))], "end", [LITTLE], [LITTLE]),
}


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec:zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("engine", WRITERS)
@pytest.mark.parametrize("name", SHARDED)
def test_shards(engine: str, name: str) -> None:
    """Whole shards, and inner chunks written into shards that are there, by boxes and by arrays."""
    values = smooth(SHAPE, "i4")
    writes = [*writes_to(values), (([0, 12, 5], [1, 9, 5]), values[0, :3]), (np.s_[[1, 7]], values[2:4])]

    def create() -> zarr.Array[Any]:
        return zarr.create_array({}, shape=SHAPE, dtype="i4", fill_value=1, **SHARDED[name])

    with device(engine) as where:
        for some in (writes, writes[1:4]):  # shards that are whole, and shards that lack inner chunks
            agree(create, some, where)


FILLS: list[tuple[str, Any]] = [("<f4", np.nan), ("<f4", -0.0), (">i2", 7), ("?", True), ("<i8", 0), ("<M8[s]", "NaT")]


@pytest.mark.parametrize("engine", WRITERS)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("dtype", "fill"), FILLS)
def test_chunks_of_nothing_but_the_fill_value(engine: str, zarr_format: Any, dtype: str, fill: Any) -> None:
    """They are stored, not stored, or taken away again just as plain zarr does it, as is the value -0.0 for 0.0."""
    native = np.dtype(dtype).newbyteorder("=")
    value = native.type(fill)
    filled, zeros = np.full(SHAPE, value, native), np.zeros(SHAPE, native)
    writes = [(np.s_[:6], zeros[:6]), (np.s_[...], filled), (np.s_[2:, :4], zeros[2:, :4]), (np.s_[5:10], filled[5:10])]
    writes += [(np.s_[0], value), (np.s_[5:10, 4:8], value)]
    with device(engine) as where:
        for write_empty_chunks in (False, True):

            def create(write_empty_chunks: bool = write_empty_chunks) -> zarr.Array[Any]:
                return zarr.create_array(
                    {},
                    shape=SHAPE,
                    chunks=CHUNKS,
                    dtype=np.dtype(dtype) if zarr_format == 2 else native,
                    zarr_format=zarr_format,
                    fill_value=value,
                    config={"write_empty_chunks": write_empty_chunks},
                )

            keys = [key for key in agree(create, writes, where) if key[-1].isdigit()]
            assert (len(keys) == 9) == write_empty_chunks


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
@pytest.mark.parametrize("options", [{}, {"shards": (10, 8)}], ids=["chunks", "shards"])
def test_values_leave_the_device_once(layout: str, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chunks they go to."""
    with device(ENGINES[2]) as where:
        import cupy

        copies: list[int] = []
        asnumpy = cupy.asnumpy

        def counting(array: Any, **options: Any) -> Any:
            copies.append(array.nbytes)
            return asnumpy(array, **options)

        values = smooth(SHAPE, "f4")
        onto = resolve(where).from_host(values)
        if layout == "F":
            onto = resolve(where).from_host(np.ascontiguousarray(values.T)).T
        if layout == "strided":
            onto = resolve(where).from_host(smooth((2 * SHAPE[0], SHAPE[1]), "f4"))[::2]
        with zarrgpu.enable(where):
            z = zarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="f4", **options)
            monkeypatch.setattr(cupy, "asnumpy", counting)
            z[...] = onto
            assert copies == [onto.nbytes]
            z[2:9, 3:5] = onto[:7, 5:7]
            assert copies == [onto.nbytes, 7 * 2 * 4]
            z[3] = 7  # is on the host anyway
            assert len(copies) == 2
        monkeypatch.undo()
        assert not same(zarr.open_array(z.store, mode="r")[...], values)


@pytest.mark.parametrize("engine", WRITERS)
def test_arrays_of_other_dtypes_are_cast(engine: str) -> None:
    """As plain zarr casts them, on the device where the values are."""
    values = smooth(SHAPE, "i2")
    with device(engine) as where:
        for dtype in ("<f8", "<i4", "?"):
            agree(lambda d=dtype: zarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype=d), [(..., values)], where)  # type: ignore[misc]  # bound as it is


@pytest.mark.parametrize("engine", WRITERS)
def test_what_an_array_is_made_of(engine: str) -> None:
    """`zarr.create_array` of a device array's data, and appending one."""
    values = smooth(SHAPE, "f4")
    with device(engine) as where, zarrgpu.enable(where):
        z = zarr.create_array({}, data=there(values, where), chunks=CHUNKS)
        z.append(there(values, where))
    assert same(zarr.open_array(z.store, mode="r")[...], np.concatenate([values, values]))


@pytest.mark.parametrize(
    "options",
    [{"compressors": [BloscCodec(), Crc32cCodec(), GzipCodec(), ZstdCodec()]}, {"shards": (10, 8)}],
    ids=["chunks", "shards"],
)
def test_zarrs_own_device_buffers(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array written and read by the prototype that zarr has for GPUs, without the slow copies it warns of."""
    values = smooth(SHAPE, "u2")
    with device(ENGINES[2]) as where, warnings.catch_warnings():
        import cupy
        import zarr.core.buffer.gpu as zarrs

        warnings.simplefilter("error", ZarrUserWarning)
        warnings.filterwarnings("ignore", "Numcodecs codecs")
        monkeypatch.setattr(zarrs, "cp", cupy)
        with zarrgpu.enable(where):
            z = zarr.create_array(
                {}, shape=SHAPE, chunks=CHUNKS, dtype="u2", filters=[TransposeCodec(order=(1, 0))], **options
            )
            z.set_basic_selection(..., there(values, where), prototype=zarrs.buffer_prototype)
            got = z.get_basic_selection(..., prototype=zarrs.buffer_prototype)
        assert isinstance(got, cupy.ndarray)
        assert same(got, values)
    assert same(zarr.open_array(z.store, mode="r")[...], values)
