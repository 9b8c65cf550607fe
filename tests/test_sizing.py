"""Waves: every chunk is in one, in order; how large they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zarrgpu import sizing

MB = 1 << 20


def request(
    n: int,
    nbytes: int,
    limit: int | None = None,
    budget: int | None = None,
    at_once: int = 0,
    on_engine: bool = False,
    **program: Any,
) -> Any:
    """What `sizing` asks of a request of `n` chunks of `nbytes`."""
    given = {"nbytes": nbytes, "scratch": nbytes, "host": (), "after": (), "encoded_nbytes": None, **program}
    return SimpleNamespace(
        plan=range(n),
        memory_limit=limit,
        engine=SimpleNamespace(by_library=False, budget=lambda: budget),
        source=SimpleNamespace(one_by_one=False, on_engine=on_engine),
        program=SimpleNamespace(container=SimpleNamespace(tables=lambda: 0, at_once=at_once), **given),
    )


@pytest.mark.parametrize("n", [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 128, 200, 1000, 1001, 5000])
@pytest.mark.parametrize("nbytes", [1, 100 << 10, 4 * MB, 150 * MB, 300 * MB])
@pytest.mark.parametrize("host", [(), ("a library",)])
def test_every_chunk_is_in_one_wave(n: int, nbytes: int, host: tuple[str, ...]) -> None:
    """None is empty, and none has more bytes than a wave may, unless one chunk has."""
    asked = request(n, nbytes, host=host)
    waves = list(sizing.waves(asked, 5))
    assert [first for first, _ in waves] == [0, *(last for _, last in waves[:-1])]
    assert waves[-1][1] == n
    most = sizing.chunks_per_wave(asked, 5)
    assert all(0 < last - first <= most for first, last in waves)
    assert host or most == 1 or most * nbytes <= sizing.WAVE_BYTES


def test_small_waves_first_and_last() -> None:
    """And as few of them as that allows."""
    sizes = [last - first for first, last in sizing.waves(request(1024, 4 * MB), 5)]
    assert sizes[:3] == [24, 48, 96]
    assert sizes[-1] < 48
    assert sorted(sizes[2:], reverse=True) == sizes[2:]
    assert len(sizes) <= 1024 // 96 + 5
    assert len(list(sizing.waves(request(48, 4 * MB), 5))) == 1
    assert next(sizing.waves(request(1024, 4 * MB, encoded_nbytes=4 * MB), 5)) == (0, 16)


def test_chunks_on_the_engine() -> None:
    """Waves are larger, whatever is encoded, within the same memory."""
    for encoded in (None, 4 * MB):
        asked = request(4096, 4 * MB, on_engine=True, encoded_nbytes=encoded)
        assert sizing.chunks_per_wave(asked, 5) == 1024
    for few in (512, 4096):  # of a single wave, too
        assert sizing.chunks_per_wave(request(few, 4 * MB, budget=400 * MB, on_engine=True), 5) == 10
        assert sizing.chunks_per_wave(request(few, 4 * MB, limit=400 * MB, on_engine=True), 5) == 10
    assert sizing.chunks_per_wave(request(96, 4 * MB, budget=1, on_engine=True), 5) == 1024


def test_streams_that_take_as_long_alone() -> None:
    """Waves have as many chunks as a codec wants at once, all of them but the last."""
    waves = list(sizing.waves(request(400, 4 * MB, at_once=128), 5))
    assert waves == [(0, 128), (128, 256), (256, 384), (384, 400)]


def test_memory() -> None:
    """A limit is that of all lanes together; without one it is the engine's budget, which a small wave needs not."""
    by_limit = request(1024, 4 * MB, limit=400 * MB, budget=1)
    by_budget = request(1024, 4 * MB, budget=400 * MB)
    for asked in (by_limit, by_budget):
        assert sizing.chunks_per_wave(asked, 5) == 400 // (5 * 8)
    assert sizing.chunks_per_wave(request(10, 4 * MB, budget=1), 5) == 96
    assert sizing.chunks_per_wave(request(10, 4 * MB, limit=1), 5) == 1
