"""Stored streams arrive byte for byte, wherever they lie, and no other byte changes."""

from __future__ import annotations

import numpy as np
import pytest

from tests import kit
from tests.kit import Array
from zarrgpu.kernels import stored
from zarrgpu.kernels.tables import S_DEST, S_SIZE, S_START, S_WANT, STREAM_COLUMNS, Status


def table(starts: Array, slots: kit.Slots) -> Array:
    streams = np.zeros((len(starts), STREAM_COLUMNS), np.int64)
    streams[:, S_START], streams[:, S_SIZE], streams[:, S_WANT] = starts, slots.sizes, slots.sizes
    streams[:, S_DEST] = slots.starts
    return streams


def copy(lane: str, source: Array, arena: Array, streams: Array, order: Array) -> Array:
    status = np.full(len(streams), -1, np.int32)
    kit.run(
        stored.KERNEL, lane, order.size,
        source, kit.words(source), arena, kit.words(arena), streams, order.astype(np.int64), status,
    )  # fmt: skip
    return status


@pytest.mark.parametrize("lane", kit.LANES)
def test_streams_of_every_size_and_alignment(lane: str) -> None:
    g = np.random.default_rng(0)
    sizes = np.array([0, 1, 2, 3, 4, 5, 7, 8, 33, 64, 127, 128, 129, 1500] * (8 if lane == "host" else 2))
    sizes[::3] += g.integers(0, 4)
    slots = kit.Slots(sizes)
    source = g.integers(0, 256, 4096, np.uint8)
    starts = g.integers(0, source.size - sizes.max(), sizes.size)
    starts[-1] = source.size - sizes[-1]  # the last byte of the arena
    streams = table(starts, slots)
    want = slots.arena.copy()
    stored.reference(source, want, streams)
    assert copy(lane, source, slots.arena, streams, g.permutation(len(streams))).tolist() == [Status.OK] * len(streams)
    np.testing.assert_array_equal(slots.arena, want)
    slots.check_guards()


@pytest.mark.parametrize("lane", kit.LANES)
def test_every_pair_of_alignments(lane: str) -> None:
    source = np.arange(64, dtype=np.uint8)
    for start in range(4):
        for dest in range(4):
            for size in range(13):
                arena = np.full(64, kit.GUARD, np.uint8)
                status = copy(lane, source, arena, np.array([[start, size, dest, size, 0]]), np.zeros(1, int))
                assert status[0] == Status.OK
                np.testing.assert_array_equal(arena[dest : dest + size], source[start : start + size])
                assert (np.delete(arena, np.s_[dest : dest + size]) == kit.GUARD).all()


FAULTS = {
    "too_short": (S_SIZE, 15, Status.WRONG_SIZE),
    "too_long": (S_SIZE, 17, Status.WRONG_SIZE),
    "start_before_the_source": (S_START, -1, Status.BAD_TABLE),
    "end_beyond_the_source": (S_START, 49, Status.BAD_TABLE),
    "start_far_beyond_the_source": (S_START, 1 << 40, Status.BAD_TABLE),
    "slot_before_the_scratch": (S_DEST, -16, Status.BAD_TABLE),
    "slot_beyond_the_scratch": (S_DEST, 1 << 20, Status.BAD_TABLE),
}


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", FAULTS)
def test_hostile_tables_are_reported_and_harm_nothing(lane: str, fault: str) -> None:
    column, value, expected = FAULTS[fault]
    slots = kit.Slots([16, 16, 16])
    source = np.arange(64, dtype=np.uint8)
    streams = table(np.array([1, 2, 3]), slots)
    streams[1, column] = value
    status = copy(lane, source, slots.arena, streams, np.array([2, 1, 0, 3, -1]))
    assert status.tolist() == [Status.OK, expected, Status.OK]
    assert [slots[i].tolist() for i in (0, 2)] == [list(range(1, 17)), list(range(3, 19))]
    assert (slots[1] == kit.GUARD).all()
    slots.check_guards()


@pytest.mark.parametrize("lane", kit.LANES)
def test_negative_sizes_are_reported(lane: str) -> None:
    streams = np.array([[0, -8, 0, -8, 0]])
    assert copy(lane, np.zeros(16, np.uint8), np.zeros(16, np.uint8), streams, np.zeros(1, int)) == [Status.BAD_TABLE]


@pytest.mark.parametrize("lane", kit.LANES)
def test_arenas_that_end_inside_a_word(lane: str) -> None:
    """The views of words miss the last bytes, which are copied all the same."""
    source, arena = np.arange(26, dtype=np.uint8), np.zeros(27, np.uint8)
    status = np.zeros(1, np.int32)
    for start, dest in ((0, 1), (3, 0), (2, 3)):
        arena[:] = kit.GUARD
        size = 26 - start - (dest > start)
        kit.run(
            stored.KERNEL, lane, 1, source, source[:24].view(np.uint32), arena, arena[:24].view(np.uint32),
            np.array([[start, size, dest, size, 0]]), np.zeros(1, np.int64), status,
        )  # fmt: skip
        assert status[0] == Status.OK
        np.testing.assert_array_equal(arena[dest : dest + size], source[start : start + size])
