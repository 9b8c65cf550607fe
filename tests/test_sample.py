"""`zarrgpu.sample`: reproducible data that compress as real ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zarrgpu
from zarrgpu.sample import Fields, pack, write_sample


def test_the_sample_is_the_same_for_the_same_seed_and_no_step_is_another() -> None:
    one, again, other = (Fields((30, 40), seed) for seed in (1, 1, 2))
    steps = [one[t].tobytes() for t in range(20)]
    assert steps == [again[t].tobytes() for t in range(20)]
    assert len(set(steps)) == 20
    assert other[0].tobytes() != steps[0]


def test_the_sample_compresses_as_a_reanalysis_does(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    array = write_sample(tmp_path / "s.zarr", (2, 721, 1440), progress=lambda *state: told.append(state))
    assert 1.8 < array.nbytes / array.nbytes_stored() < 2.6
    assert told == [(1, 2), (2, 2)]
    sizes = {path.stat().st_size for path in (tmp_path / "s.zarr" / "c").rglob("0") if path.is_file()}
    assert len(sizes) == 2


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_sample_has_a_short_last_chunk_in_either_format(zarr_format: int) -> None:
    array = write_sample({}, (5, 8, 16), (2, 8, 16), seed=3, zarr_format=zarr_format)
    assert np.array_equal(array[...], np.stack([Fields((8, 16), 3)[t] for t in range(5)]))
    assert zarrgpu.explain(array, "host").supported


def test_packing_keeps_sixteen_bits_at_most() -> None:
    values = np.random.default_rng(0).normal(280, 15, 10_000).astype("f4")
    packed = pack(values)
    assert 10_000 // 2 < len(np.unique(packed)) <= 2**16
    assert np.abs(packed - values).max() < np.ptp(values) / 2**15
    assert np.array_equal(pack(np.full(3, 7, "f4")), np.full(3, 7, "f4"))
