"""`out`: any array in the device's memory is filled in place and comes back; what cannot be filled is refused."""

from __future__ import annotations

import array
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth, to_host
from tests.foreign import Interface, Packed, Torch
from zarrgpu._out import overlaps_itself
from zarrgpu.engine import resolve

DEVICE = ENGINES[-1]
KINDS: list[Callable[[Any], Any]] = [
    lambda a: a,
    Interface,
    Packed,
    lambda a: Packed(a, versioned=False),
]


@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_device_arrays_of_any_library(shards: Any) -> None:
    """Contiguous or strided, through our program or through zarr's pipeline; what lies between is left alone."""
    values = smooth((6, 10), "f4")
    z = make(values, (4, 4), shards=shards)
    with device(DEVICE) as name:
        engine = resolve(name)
        for kind, key in itertools.product(KINDS, (np.s_[::2, ::2], np.s_[:6, :10], np.s_[5::-1, :10])):
            whole = engine.from_host(np.full((12, 20), 9, "f4"))
            out = kind(whole[key])
            assert zarrgpu.read(z, device=name, out=out) is out
            want = np.full((12, 20), 9, "f4")
            want[key] = values
            assert same(whole, want)


@pytest.mark.parametrize("engine", ENGINES[:2])
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_host_arrays_of_any_library(engine: str, shards: Any) -> None:
    values = smooth((6, 10), "f4")
    z = make(values, (4, 4), shards=shards)
    kinds: list[Any] = [lambda a: a, Packed, memoryview, lambda a: a.view(np.recarray)]
    kinds += [lambda a: Torch(a, versioned=False)]
    with device(engine) as name:
        for kind, key in itertools.product(kinds, (np.s_[::2, ::2], np.s_[:6, :10], np.s_[5::-1, :10])):
            whole = np.full((12, 20), 9, "f4")
            out = kind(whole[key])
            assert zarrgpu.read(z, device=name, out=out) is out
            want = np.full((12, 20), 9, "f4")
            want[key] = values
            assert same(whole, want)


def test_plain_memory_of_the_host() -> None:
    """What has the buffer protocol will do: bytearrays, arrays of Python's."""
    some, more = bytearray(6), array.array("i", range(6))
    z = make(np.arange(1, 7, dtype="u1"), (4,))
    assert zarrgpu.read(z, out=some, device="host") is some
    assert some == bytes(range(1, 7))
    assert zarrgpu.read(make(np.arange(3, dtype="i4"), (2,)), out=memoryview(more)[1:4], device="host")
    assert more.tolist() == [0, 0, 1, 2, 4, 5]


def test_scalars_and_empty_selections() -> None:
    values = smooth((6,), "f4")
    z = make(values, (4,))
    for engine in ENGINES:
        with device(engine) as name:
            out = resolve(name).empty((), np.dtype("f4"))
            assert zarrgpu.read(z, 5, out=out, device=name) is out
            assert same(out, values[5])
            nothing = resolve(name).empty((0,), np.dtype("f4"))
            assert zarrgpu.read(z, np.s_[3:3], out=nothing, device=name) is nothing


def test_bits_of_times_for_any_library() -> None:
    """A GPU's int64 takes the bits of times; NumPy's times are the host's to fill, whatever the device."""
    values = smooth((20,), "i8").view("M8[s]")
    z = make(values, (7,))
    with device(DEVICE) as name:
        for kind in KINDS:
            bits = resolve(name).empty(values.shape, np.dtype("i8"))
            out = kind(bits)
            assert zarrgpu.read(z, device=name, out=out) is out
            assert same(bits, values.view("i8"))
        times = np.empty_like(values)
        assert zarrgpu.read(z, device=name, out=times) is times
        assert same(times, values)


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_shapes_and_dtypes(engine: str) -> None:
    """Refused with what was expected and what came, byte orders that are not native among them."""
    z = make(smooth((6, 10), "f4"), (4, 8))
    with device(engine) as name:
        empty = resolve(name).empty
        for kind in KINDS[1:] if name != "host" else KINDS[:1]:
            with pytest.raises(ValueError, match=r"shape \(6, 10\) and dtype float32, got \(10, 6\) and float32"):
                zarrgpu.read(z, out=kind(empty((10, 6), np.dtype("f4"))), device=name)
            with pytest.raises(ValueError, match=r"shape \(6, 10\) and dtype float32, got \(6, 10\) and int32"):
                zarrgpu.read(z, out=kind(empty((6, 10), np.dtype("i4"))), device=name)
        if name == "host":
            with pytest.raises(ValueError, match=r"dtype float32, got \(6, 10\) and >f4"):
                zarrgpu.read(z, out=np.empty((6, 10), ">f4"), device=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_array_of_the_device(engine: str) -> None:
    z = make(smooth((6,), "f4"), (4,))
    with device(engine) as name, device(DEVICE) as cuda:
        others: list[Any] = [[0.0] * 6, 5, object(), "abc"]
        if name == "host":
            there = resolve(cuda).empty((6,), np.dtype("f4"))
            others += [there, Interface(there), Packed(there)]
        else:
            others += [np.empty(6, "f4"), Packed(np.empty(6, "f4")), memoryview(np.empty(6, "f4"))]
        for out in others:
            with pytest.raises(TypeError, match=f"out must be an array on {resolve(name).name}, got "):
                zarrgpu.read(z, out=out, device=name)


@pytest.mark.nogpu("another device is pretended")
def test_another_device_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import fake_cupy

    z = make(smooth((6,), "f4"), (4,))
    with device(DEVICE) as name:
        out = resolve(name).empty((6,), np.dtype("f4"))
        other = fake_cupy.Device(0)
        other.id = 3
        monkeypatch.setattr(fake_cupy.ndarray, "device", other)
        with pytest.raises(ValueError, match="out must be an array on cuda:0, got one on cuda:3"):
            zarrgpu.read(z, out=out, device=name)


def test_read_only_arrays_are_refused() -> None:
    values = smooth((6,), "f4")
    z = make(values, (4,))
    frozen = np.zeros(6, "f4")
    frozen.flags.writeable = False
    silent = Packed(np.zeros(6, "f4"), versioned=False)  # does not tell
    for out in (frozen, Packed(frozen), Torch(frozen), memoryview(frozen), np.broadcast_to(np.float32(0), 6), silent):
        with pytest.raises(ValueError, match="out is read-only"):
            zarrgpu.read(z, out=out, device="host")
    assert not frozen.any()
    with device(DEVICE) as name:
        there = resolve(name).from_host(np.zeros(6, "f4"))
        for kind in (Interface, Packed):
            with pytest.raises(ValueError, match="out is read-only"):
                zarrgpu.read(z, out=kind(there, read_only=True), device=name)
        assert not to_host(there).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_that_overlap_themselves_are_refused(engine: str) -> None:
    """Those whose elements share bytes, and no others: odd strides that keep elements apart are fine."""
    values = smooth((3, 4), "i4")
    z = make(values, (2, 2))
    with device(engine) as name:

        def view(n: int, strides: tuple[int, int]) -> tuple[Any, Any]:
            """An array of the engine, and a view of it with strides of any kind."""
            base = resolve(name).from_host(np.zeros(n, "i4"))
            if name == "host":
                return base, as_strided(base, (3, 4), strides)
            interface = {**base.__cuda_array_interface__, "shape": (3, 4), "strides": strides}
            return base, Strided(base, interface)

        for strides in ((0, 4), (4, 4), (16, 0), (2, 8), (8, 4), (12, 4), (16, 2)):
            base, out = view(12, strides)
            with pytest.raises(ValueError, match="out overlaps itself"):
                zarrgpu.read(z, out=out, device=name)
            assert not to_host(base).any()
        for strides in ((16, 4), (4, 12), (32, 8), (12, 16), (20, 8)):  # the last two interleave
            base, out = view(64, strides)
            assert zarrgpu.read(z, out=out, device=name) is out
            want = np.zeros(64, "i4")
            as_strided(want, (3, 4), strides)[...] = values
            assert same(base, want)


class Strided:
    """A device array with an interface of one's own."""

    def __init__(self, owner: Any, interface: Any) -> None:
        self.owner, self.__cuda_array_interface__ = owner, interface


def test_windows_overlap() -> None:
    windows = sliding_window_view(np.zeros(8, "i4"), 3, writeable=True)
    with pytest.raises(ValueError, match="out overlaps itself"):
        zarrgpu.read(make(smooth((6, 3), "i4"), (4, 4)), out=windows, device="host")


@settings(max_examples=500)
@given(
    axes=st.lists(st.tuples(st.integers(0, 5), st.integers(-14, 14)), max_size=4),
    itemsize=st.sampled_from([1, 2, 4, 8]),
)
def test_overlap_is_told_exactly(axes: list[tuple[int, int]], itemsize: int) -> None:
    """As by comparing the places of all elements."""
    shape, strides = [n for n, _ in axes], [s for _, s in axes]
    places = sorted(
        sum(i * s for i, s in zip(index, strides, strict=True)) for index in itertools.product(*map(range, shape))
    )
    want = any(b - a < itemsize for a, b in itertools.pairwise(places))
    assert overlaps_itself(shape, strides, itemsize) == want


def test_overlap_of_large_arrays_is_told_at_once() -> None:
    assert not overlaps_itself((1 << 40, 3), (2, (1 << 41) + 1), 1)
    assert overlaps_itself((1 << 40, 1 << 40), (8, 8), 8)
    assert not overlaps_itself((1 << 20, 1 << 20, 1 << 20), (1 << 43, 8, 1 << 23), 8)
