"""Bytes are reversed value by value, NaN payloads and all, in place as well."""

from __future__ import annotations

import numpy as np
import pytest

from tests import kit
from zarrgpu.kernels import byteswap
from zarrgpu.kernels.tables import Status


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in_place"])
def test_values_of_every_width(lane: str, width: int, in_place: bool) -> None:
    for values in (0, 1, 3, 37):
        size = values * width
        source = np.random.default_rng(width).integers(0, 256, size + 16, np.uint8)
        want = byteswap.reference(source[:size], width)
        after = source[size:].copy()
        target, status = source if in_place else np.full(size + 16, kit.GUARD, np.uint8), np.zeros(1, np.int32)
        kit.run(byteswap.KERNEL, lane, byteswap.items(size), source, target, size, width, status)
        assert status[0] == Status.OK
        np.testing.assert_array_equal(target[:size], want)
        assert (target[size:] == (after if in_place else kit.GUARD)).all()


@pytest.mark.parametrize("lane", kit.LANES)
def test_numpy_swaps_the_same(lane: str) -> None:
    bits = np.array([0x7FF0000000000001, 0x7FF8000000000000, 0xFFF8DEADBEEF0001, 0x3FF0000000000000], np.uint64)
    source, target, status = bits.view(np.uint8), np.zeros(32, np.uint8), np.zeros(1, np.int32)
    kit.run(byteswap.KERNEL, lane, byteswap.items(32), source, target, 32, 8, status)
    np.testing.assert_array_equal(target.view(np.uint64), bits.byteswap())


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize(
    ("size", "width"), [(32, 3), (32, 0), (32, -4), (32, 32), (30, 4), (-8, 4), (48, 4)], ids=lambda n: str(n)
)
def test_hostile_arguments_are_reported_and_harm_nothing(lane: str, size: int, width: int) -> None:
    target, status = np.full(64, kit.GUARD, np.uint8), np.zeros(1, np.int32)
    kit.run(byteswap.KERNEL, lane, 2, np.zeros(32, np.uint8), target, size, width, status)
    assert status[0] == Status.BAD_TABLE
    assert (target == kit.GUARD).all()
