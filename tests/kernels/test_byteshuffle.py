"""The byte shuffle is Blosc's and numcodecs', both ways, for every typesize and with what remains."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import kit
from tests.kit import Array
from zarrgpu._cuda import Kernel
from zarrgpu.kernels import bitshuffle, byteshuffle
from zarrgpu.kernels.byteshuffle import K_DST, K_SIZE, K_SRC, K_TYPE
from zarrgpu.kernels.tables import Status

SIZES = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 255) | st.sampled_from([2, 4, 8])), min_size=1, max_size=4
)


def run(kernel: Kernel, lane: str, source: Array, blocks: Array, slots: kit.Slots) -> list[int]:
    """Statuses of `kernel` over `blocks`."""
    status = np.zeros(len(blocks), np.int32)
    groups = byteshuffle.groups(blocks)
    kit.run(kernel, lane, len(blocks) * groups, source, slots.arena, blocks, groups, status)
    return [int(s) for s in status]


def table(sizes: list[tuple[int, int]]) -> tuple[Array, Array, kit.Slots]:
    """Random bytes, and blocks of them with slots of their size."""
    slots = kit.Slots([size for size, _ in sizes])
    blocks = np.zeros((len(sizes), 4), np.int64)
    blocks[:, K_SIZE], blocks[:, K_TYPE] = np.array(sizes).T
    blocks[:, K_SRC] = np.concatenate([[0], np.cumsum(blocks[:-1, K_SIZE])])
    blocks[:, K_DST] = slots.starts
    source = np.random.default_rng(len(sizes)).integers(0, 256, int(blocks[:, K_SIZE].sum()), np.uint8)
    return source, blocks, slots


REFERENCES = {
    byteshuffle.SHUFFLE: byteshuffle.shuffled,
    byteshuffle.UNSHUFFLE: byteshuffle.unshuffled,
    bitshuffle.BITSHUFFLE: bitshuffle.shuffled,
    bitshuffle.BITUNSHUFFLE: bitshuffle.unshuffled,
}
"""All shuffles: they share their contract and these tests; `test_bitshuffle` adds what is particular."""


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("kernel", REFERENCES, ids=lambda kernel: kernel.name)
@settings(max_examples=15)
@given(sizes=SIZES)
def test_blocks_of_any_size_and_typesize(lane: str, kernel: Kernel, sizes: list[tuple[int, int]]) -> None:
    source, blocks, slots = table(sizes)
    assert run(kernel, lane, source, blocks, slots) == [Status.OK] * len(sizes)
    for i, (start, _, size, kind) in enumerate(blocks):
        np.testing.assert_array_equal(slots[i], REFERENCES[kernel](source[start : start + size], int(kind)))
    slots.check_guards()


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("kind", [2, 4, 8, 12])
def test_numcodecs_shuffles_the_same(lane: str, kind: int) -> None:
    source, blocks, slots = table([(35 * kind, kind)])
    codec = numcodecs.Shuffle(kind)
    assert run(byteshuffle.SHUFFLE, lane, source, blocks, slots) == [Status.OK]
    assert bytes(slots[0]) == bytes(codec.encode(source))
    assert run(byteshuffle.UNSHUFFLE, lane, source, blocks, slots) == [Status.OK]
    assert bytes(slots[0]) == bytes(codec.decode(source))


FAULTS = {
    "before_the_source": (K_SRC, -1),
    "beyond_the_source": (K_SRC, 65),
    "before_the_output": (K_DST, -16),
    "beyond_the_output": (K_DST, 1 << 30),
    "negative_size": (K_SIZE, -5),
    "size_beyond_the_source": (K_SIZE, 128),
    "no_typesize": (K_TYPE, 0),
    "negative_typesize": (K_TYPE, -4),
}


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("kernel", REFERENCES, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("fault", FAULTS)
def test_hostile_tables_are_reported_and_harm_nothing(lane: str, kernel: Kernel, fault: str) -> None:
    source, blocks, slots = table([(32, 4)] * 3)
    column, value = FAULTS[fault]
    blocks[1, column] = value
    assert run(kernel, lane, source, blocks, slots) == [Status.OK, Status.BAD_TABLE, Status.OK]
    assert (slots[1] == kit.GUARD).all()
    slots.check_guards()
