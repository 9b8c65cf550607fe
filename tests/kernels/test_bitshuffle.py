"""The bit shuffle is Blosc's, both ways; what it shares with the byte shuffle is tested with that one."""

from __future__ import annotations

import struct

import numcodecs
import numpy as np
import pytest

from tests import kit
from tests.kernels.test_byteshuffle import run, table
from zarrgpu.kernels import bitshuffle
from zarrgpu.kernels.tables import Status


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("elements", [8, 40, 41])
def test_blosc_shuffles_the_same(lane: str, kind: int, elements: int) -> None:
    """A frame made by hand of one stored block, which Blosc unshuffles all the same."""
    source, blocks, slots = table([(elements * kind, kind)])
    assert run(bitshuffle.BITUNSHUFFLE, lane, source, blocks, slots) == [Status.OK]
    flags = 4 | 0x10 | 1 << 5  # bit shuffle, a block is one stream, LZ4
    header = struct.pack("<4B3i", 2, 1, flags, kind, source.size, source.size, 24 + source.size)
    frame = header + struct.pack("<2i", 20, source.size) + source.tobytes()
    unshuffled = numcodecs.Blosc().decode(frame)
    assert bytes(slots[0]) == bytes(unshuffled)
    back = np.frombuffer(unshuffled, np.uint8)
    assert run(bitshuffle.BITSHUFFLE, lane, back, blocks, slots) == [Status.OK]
    np.testing.assert_array_equal(slots[0], source)
