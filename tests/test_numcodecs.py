"""numcodecs with our decoders under its ids: numcodecs' own results, as arrays of a device, for every codec."""

from __future__ import annotations

import asyncio
import copy
import doctest
import pickle
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import zarr
import zarr.codecs.numcodecs
from numcodecs.registry import codec_registry
from zarr.buffer import cpu

import zarrgpu
import zarrgpu.numcodecs
from tests.conftest import GPU
from tests.engines import ENGINES, device, same, smooth, to_host
from zarrgpu.numcodecs import CODECS, Decoder, get_codec, register

INTEGERS, FLOATS = smooth((48,), "<i4"), np.linspace(0, 9, 48)
FLAGS = INTEGERS % 3 == 0

CASES: list[tuple[dict[str, Any], npt.NDArray[Any]]] = [
    ({"id": "blosc"}, INTEGERS),
    ({"id": "blosc", "cname": "zstd", "shuffle": 2}, smooth((2, 3, 8), "<i8")),
    ({"id": "blosc", "shuffle": 0, "blocksize": 32}, INTEGERS[:47].astype("<i2")),
    ({"id": "zstd", "level": 3}, INTEGERS),
    ({"id": "lz4"}, INTEGERS),
    ({"id": "gzip"}, INTEGERS),
    ({"id": "zlib", "level": 9}, INTEGERS),
    ({"id": "shuffle"}, INTEGERS),
    ({"id": "shuffle", "elementsize": 3}, INTEGERS),
    ({"id": "shuffle", "elementsize": 1}, INTEGERS),
    ({"id": "crc32"}, INTEGERS),
    ({"id": "crc32c"}, INTEGERS),
    ({"id": "adler32", "location": "end"}, INTEGERS),
    ({"id": "fletcher32"}, INTEGERS),
    ({"id": "delta", "dtype": "<i4"}, INTEGERS),
    ({"id": "delta", "dtype": ">i4", "astype": ">i2"}, INTEGERS.astype(">i4")),
    ({"id": "fixedscaleoffset", "offset": -1, "scale": 10, "dtype": "<f8", "astype": "<i2"}, FLOATS),
    ({"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}, FLOATS.reshape(6, 8)),
    ({"id": "quantize", "digits": 2, "dtype": "<f8"}, FLOATS.reshape(6, 8).T),
    ({"id": "bitround", "keepbits": 4}, FLOATS.astype("f4").reshape(2, 24)),
    ({"id": "packbits"}, FLAGS),
    ({"id": "packbits"}, FLAGS[:43]),
    ({"id": "astype", "encode_dtype": "<i2", "decode_dtype": "<i4"}, INTEGERS.reshape(4, 12)),
    ({"id": "astype", "encode_dtype": "<i4", "decode_dtype": ">f8"}, INTEGERS.astype(">f8")),
    ({"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<M8[s]"}, INTEGERS.astype("<M8[s]")),
    ({"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<U12"}, INTEGERS.astype("<U12")),
]
NAMES = ["-".join(str(v) for v in config.values()) for config, _ in CASES]
TWINS = (0, 1, 4, 10, 14)
"""Enough of them: what a kernel's twin decodes is tested with the kernel, and each takes seconds to compile."""

RUNS = [
    pytest.param(e, i, id=f"{e}-{NAMES[i]}") for e in ENGINES for i in (TWINS if e == "twins" else range(len(CASES)))
]


def as_array(decoded: Any) -> npt.NDArray[Any]:
    """What numcodecs gives, as an array."""
    return decoded if isinstance(decoded, np.ndarray) else np.frombuffer(decoded, np.uint8)


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    """The registry is after a test as it was before."""
    before = dict(codec_registry)
    yield
    assert codec_registry == before


def test_every_codec_has_a_case() -> None:
    assert {config["id"] for config, _ in CASES} == set(CODECS)


@pytest.mark.parametrize(("engine", "case"), RUNS)
def test_decodes_as_numcodecs_does(engine: str, case: int) -> None:
    """The same bytes, dtype and shape, from bytes and arrays, into every kind of `out` on the host."""
    config, values = CASES[case]
    own = numcodecs.get_codec(config)
    encoded = own.encode(values)
    want = as_array(own.decode(encoded))
    with device(engine) as name, register(name):
        codec = numcodecs.get_codec(config)
        assert isinstance(codec, Decoder)
        for buffer in (encoded, np.array(as_array(encoded))):
            got = codec.decode(buffer)
            assert same(got, want)
            if name == "host" or not on_gpu(want.dtype):
                assert (type(got), got.dtype) == (np.ndarray, want.dtype)
            else:
                assert not isinstance(got, np.ndarray)
                assert got.dtype == want.dtype.newbyteorder("=")
        for out in (np.empty_like(want), np.zeros(want.nbytes + 1, np.uint8)[1:], bytearray(want.nbytes)):
            assert codec.decode(encoded, out=out) is out
            assert np.asarray(out).tobytes(order="A") == want.tobytes(order="A")


def on_gpu(dtype: np.dtype[Any]) -> bool:
    """Whether cupy has it."""
    return dtype.kind in "biuf"


@pytest.mark.parametrize("engine", ENGINES[-1:])
@pytest.mark.parametrize(("config", "values"), CASES, ids=NAMES)
def test_takes_and_fills_memory_of_a_device(engine: str, config: dict[str, Any], values: Any) -> None:
    """Buffers to decode and to encode, and `out`; whatever device is registered, `out` decides."""
    own = numcodecs.get_codec(config)
    encoded = own.encode(values)
    want = as_array(own.decode(encoded))
    with device(engine) as name:
        import cupy

        def moved(array: npt.NDArray[Any]) -> Any:
            return cupy.asarray(array if on_gpu(array.dtype) and array.dtype.isnative else array.view(np.uint8))

        codec = get_codec(config, name)
        assert same(codec.decode(moved(as_array(encoded))), want)
        assert same(get_codec(config, "host").decode(moved(as_array(encoded))), want)
        if on_gpu(values.dtype) and values.dtype.isnative and values.flags.c_contiguous:
            assert same(as_array(own.decode(codec.encode(cupy.asarray(values)))), want)
        for ours in (codec, get_codec(config, "host")):
            out = cupy.zeros((want.nbytes,), np.uint8)
            if on_gpu(want.dtype):
                assert ours.decode(encoded, out) is out
                native = want.astype(want.dtype.newbyteorder("="))
                assert to_host(out).tobytes() == native.tobytes(order="A")
            else:
                with pytest.raises(TypeError, match="out must be in host memory"):
                    ours.decode(encoded, out)


@pytest.mark.parametrize("engine", ENGINES)
def test_batches(engine: str) -> None:
    """Buffers of several sizes, kinds and destinations at once, some empty; nothing at all."""
    arrays = [smooth((n,), "<i4", n) for n in (100, 7, 0, 100, 100, 7, 33)]
    with device(engine) as name:
        for config in ({"id": "blosc"}, {"id": "lz4"}, {"id": "gzip"}, {"id": "shuffle"}):
            codec = get_codec(config, name)
            some = [a for a in arrays if a.size or config["id"] in ("gzip", "shuffle")]  # others refuse it
            encoded = [codec.encode(a) for a in some]
            assert all(same(g, a.view("u1")) for g, a in zip(codec.decode_batch(encoded), some, strict=True))
            outs = [np.empty_like(a) if i % 2 else None for i, a in enumerate(some)]
            for got, out, a in zip(codec.decode_batch(encoded, outs), outs, some, strict=True):
                assert same(got, a.view("u1") if out is None else a)
                assert out is None or got is out
            assert codec.decode_batch([]) == []
        several = get_codec({"id": "blosc"}, name).decode_batch(
            [numcodecs.Blosc(cname, 5, shuffle).encode(arrays[0]) for cname in ("lz4", "zlib") for shuffle in (0, 1, 2)]
        )
        assert all(same(g, arrays[0].view("u1")) for g in several)


FAULTS: list[tuple[dict[str, Any], Any, str]] = [
    ({"id": "blosc"}, lambda b: b[:-1], "cut short"),
    ({"id": "blosc"}, lambda b: b[:3], "cut short"),
    ({"id": "lz4"}, lambda b: b"\xff" * 8, "refused"),
    ({"id": "lz4"}, lambda b: b"\x63" + b[1:], "overflow|refused"),
    ({"id": "zstd"}, lambda b: b"nothing", "bad header"),
    ({"id": "zstd"}, lambda b: b[:-1], "cut short"),
    ({"id": "zlib"}, lambda b: b[:-1], "refused"),
    ({"id": "crc32"}, lambda b: np.append(b[:-1], b[-1] ^ 1), "bad checksum|refused"),
    ({"id": "fletcher32"}, lambda b: b[:3], "truncated"),
    ({"id": "shuffle"}, lambda b: b[:-1], "refused"),
    ({"id": "delta", "dtype": "<i4"}, lambda b: b.view("u1")[:-1], "refused"),
    ({"id": "astype", "encode_dtype": "<i2", "decode_dtype": "<i4"}, lambda b: b.view("u1")[:-1], "refused"),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bad_buffer_is_named(engine: str) -> None:
    """By its index, codec and reason; the others are as they were, or decoded, and decode without it."""
    arrays = [smooth((25,), "<i4", n) for n in range(5)]
    with device(engine) as name:
        for config, change, reason in FAULTS if engine != "twins" else FAULTS[:5]:
            codec = get_codec(config, name)
            encoded = [codec.encode(a) for a in arrays]
            bad = [change(e) if i == 3 else e for i, e in enumerate(encoded)]
            outs = [np.zeros_like(a) for a in arrays]
            with pytest.raises(zarrgpu.ChunkError, match=reason) as caught:
                codec.decode_batch(bad, [*outs[:3], None, outs[4]])
            assert isinstance(caught.value, RuntimeError)
            assert (caught.value.store, caught.value.key, caught.value.codec) == ("buffer", "3", config["id"])
            assert all(not out.any() or same(out, a) for out, a in zip(outs, arrays, strict=True))
            good = [e for e in bad if e is not bad[3]]
            assert all(
                same(g, as_array(codec.plain().decode(e))) for g, e in zip(codec.decode_batch(good), good, strict=True)
            )


def test_arguments_that_do_not_fit() -> None:
    """Outputs of another size, read-only ones, objects."""
    codec = get_codec({"id": "blosc"}, "host")
    encoded = codec.encode(INTEGERS)
    for n in (0, 191, 193):
        with pytest.raises(ValueError, match=f"buffer 0 decodes to 192 bytes, out has {n}"):
            codec.decode(encoded, out=bytearray(n))
    with pytest.raises(ValueError, match="read-only"):
        codec.decode(encoded, out=bytes(192))
    with pytest.raises(ValueError, match="as many as bufs, 1, got 2"):
        codec.decode_batch([encoded], [None, None])
    for buffer in (np.array([None]), "text", 3):
        with pytest.raises(TypeError):
            codec.decode(buffer)
    with pytest.raises(ValueError, match=r"id must be one of adler32, .* got 'bz2'"):
        get_codec({"id": "bz2"})


def test_outputs_in_other_orders() -> None:
    """`out` is filled in the order of memory if it is contiguous, in C order if not."""
    for config in ({"id": "lz4"}, {"id": "delta", "dtype": "<i4"}):
        codec = get_codec(config, "host")
        encoded = codec.encode(INTEGERS)
        fortran, strided = np.empty((6, 8), "<i4", order="F"), np.zeros((6, 16), "<i4")[:, ::2]
        assert same(codec.decode(encoded, fortran).ravel(order="F"), INTEGERS)
        assert same(codec.decode(encoded, strided).ravel(), INTEGERS)
        assert same(codec.decode_batch([encoded] * 2, [fortran, strided])[1].ravel(), INTEGERS)


def test_a_size_that_cannot_be_true_takes_no_memory() -> None:
    """A short LZ4 buffer that says it holds 4 GB is refused by the library; one of zeros is as long as it says."""
    codec = get_codec({"id": "lz4"}, "host")
    with pytest.raises(zarrgpu.ChunkError):
        codec.decode(b"\xff\xff\xff\x7f\x10a")
    zeros = get_codec({"id": "zstd"}, "host").encode(bytes(1 << 20))
    assert len(zeros) < 4096
    assert not get_codec({"id": "zstd"}, "host").decode(zeros).any()


def test_registering_and_back() -> None:
    """Nested, in any order of undoing, and beside what others register."""
    config, own = {"id": "lz4"}, codec_registry["lz4"]
    assert own is numcodecs.LZ4  # importing changes nothing

    def current() -> Any:
        return type(numcodecs.get_codec(config))

    with register("host") as outer:
        first = current()
        assert (first.device, first.own, first.codec_id) == ("host", own, "lz4")
        assert issubclass(first, own)
        with register("host"):
            assert current() is first
        assert current() is first
        inner = register("host")
        outer.unregister()  # out of order: the inner one stays in force
        assert current() is first
        assert (repr(outer), repr(inner)) == (
            "<zarrgpu unregistered with numcodecs on host>",
            "<zarrgpu registered with numcodecs on host>",
        )
        inner.unregister()
        assert current() is own
    token = register("host")
    other = type("Other", (own,), {})
    numcodecs.register_codec(other)
    token.unregister()
    assert current() is other
    numcodecs.register_codec(own)
    token.unregister()
    del codec_registry["lz4"]  # as where numcodecs lacks a codec
    with register("host"):
        assert current() is first
    assert "lz4" not in codec_registry
    numcodecs.register_codec(own)
    if not GPU:
        with pytest.raises(zarrgpu.DeviceUnavailableError):
            register("cuda")


@pytest.mark.parametrize(("config", "values"), CASES, ids=NAMES)
def test_they_are_numcodecs_codecs(config: dict[str, Any], values: Any) -> None:
    """Class, config, repr, equality, encoded bytes; pickles and copies keep config and device."""
    own, ours = numcodecs.get_codec(config), get_codec(config, "host")
    assert isinstance(ours, type(own))
    assert type(ours.plain()) is type(own)
    assert ours == own == ours.plain() == ours
    assert (repr(ours), ours.get_config()) == (repr(own), own.get_config())
    assert as_array(ours.encode(values)).tobytes() == as_array(own.encode(values)).tobytes()
    for again in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.copy(ours)):
        assert (type(again), again) == (type(ours), ours)


def make_v2() -> zarr.Array[Any]:
    """An array of Zarr 2 with a filter and a compressor, written with numcodecs' own codecs."""
    z = zarr.create_array(
        {}, shape=(96,), chunks=(24,), dtype="<i4", zarr_format=2,
        filters=[numcodecs.Delta("<i4")], compressors=numcodecs.Blosc("lz4"),
    )  # fmt: skip
    z[...] = np.tile(INTEGERS, 2)
    return z


def make_v3() -> zarr.Array[Any]:
    """The same of Zarr 3, with codecs of numcodecs."""
    z = zarr.create_array(
        {}, shape=(96,), chunks=(24,), dtype="<i4", filters=[zarr.codecs.numcodecs.Delta(dtype="<i4")],
        compressors=[zarr.codecs.numcodecs.LZ4(), zarr.codecs.numcodecs.CRC32()],
    )  # fmt: skip
    z[...] = np.tile(INTEGERS, 2)
    return z


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_goes_on_as_before(engine: str, version: int) -> None:
    """To zarr, host arrays are what they were while we are registered; `enable` and `read` decode as without it."""
    z, want = make_v2() if version == 2 else make_v3(), np.tile(INTEGERS, 2)
    with device(engine) as name, register(name):
        plain = zarr.open_array(z.store, mode="r+")
        plain[3:30] = want[3:30]
        zarrgpu.reset_counters()
        got = plain[...]
        assert isinstance(got, np.ndarray)
        assert same(got, want)
        assert zarrgpu.counters() == {}
        program = zarrgpu.explain(plain, device=name)
        assert program.supported
        assert program.stages == zarrgpu.explain(z, device=name).stages
        assert same(zarrgpu.read(plain, device=name), want)
        with zarrgpu.enable(device=name, strict=True):
            enabled = zarr.open_array(z.store, mode="r+")
            got = enabled[...]
            enabled[3:30] = want[3:30]
        assert isinstance(got, np.ndarray) == (name == "host")
        assert same(got, want)
        with zarrgpu.enable(device=name):
            assert same(enabled.oindex[np.array([5, 70])], want[[5, 70]])  # through zarr's own pipeline
        assert zarrgpu.counters()[f"chunks.{name.partition(':')[0]}"] >= 8
    assert same(plain[...], want)  # and an array that was opened meanwhile


@pytest.mark.parametrize("engine", ENGINES[-1:])
def test_zarr_with_buffers_of_a_device_gets_arrays_of_it(engine: str) -> None:
    """With device buffers, and zarr's own pipeline, what is on the device stays there."""
    z = make_v2()
    with device(engine) as name, register(name):
        import_module("zarrgpu.buffer.gpu")  # registers its buffers
        buffers = {"buffer": "zarrgpu.buffer.gpu.Buffer", "ndbuffer": "zarrgpu.buffer.gpu.NDBuffer"}
        with zarr.config.set(buffers):
            got = zarr.open_array(z.store, mode="r")[...]
        assert not isinstance(got, np.ndarray)
        assert same(got, np.tile(INTEGERS, 2))


def test_a_damaged_chunk_of_zarr_raises_numcodecs_error() -> None:
    """Where zarr decodes by itself, nothing of ours is in the way."""
    z = make_v2()
    asyncio.run(z.store.set("1", cpu.Buffer.from_bytes(b"nothing")))
    with register("host"), pytest.raises(RuntimeError, match="blosc decompression"):
        zarr.open_array(z.store, mode="r")[...]


def test_examples() -> None:
    assert doctest.testmod(zarrgpu.numcodecs).failed == 0
