"""The simulator finds what a GPU would hang on or leave undefined, and its warps compute what a GPU's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.conftest import GPU
from zarrgpu._targets import FULL, WARP, import_cuda, simulator

if GPU:
    pytest.skip("the simulator stands in for a GPU, and this machine has one", allow_module_level=True)

from tests import fastsim

cuda = import_cuda()
inside = simulator().cuda  # the module of the kernel that runs
LANES = np.arange(WARP)


def per_lane(value: Callable[[int], Any], threads: int = WARP, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """What ``value(lane)`` gives in each thread of one block."""
    out = np.zeros(threads, dtype)

    @cuda.jit
    def kernel(out: Any) -> None:
        i = cuda.grid(1)
        out[i] = value(i % WARP)

    kernel[1, threads](out)
    return out


def test_shuffles_read_from_the_lane_they_name() -> None:

    def own(lane: int) -> Any:
        return np.int32(10 * lane)

    got = per_lane(lambda lane: inside.shfl_sync(FULL, own(lane), 5))
    assert (got == 50).all()
    got = per_lane(lambda lane: inside.shfl_sync(FULL, own(lane), lane + 1))
    assert (got == 10 * ((LANES + 1) % WARP)).all()
    got = per_lane(lambda lane: inside.shfl_up_sync(FULL, own(lane), 3))
    assert (got == 10 * np.where(LANES >= 3, LANES - 3, LANES)).all()
    got = per_lane(lambda lane: inside.shfl_down_sync(FULL, own(lane), 3))
    assert (got == 10 * np.where(LANES < 29, LANES + 3, LANES)).all()
    got = per_lane(lambda lane: inside.shfl_xor_sync(FULL, own(lane), 9))
    assert (got == 10 * (LANES ^ 9)).all()


def test_shuffles_stay_in_their_segment() -> None:
    got = per_lane(lambda lane: inside.shfl_sync(FULL, lane, 1, 8))
    assert (got == LANES // 8 * 8 + 1).all()
    got = per_lane(lambda lane: inside.shfl_up_sync(FULL, lane, 1, 8))
    assert (got == np.where(LANES % 8, LANES - 1, LANES)).all()
    got = per_lane(lambda lane: inside.shfl_down_sync(FULL, lane, 1, 8))
    assert (got == np.where(LANES % 8 < 7, LANES + 1, LANES)).all()


def test_votes_count_every_lane_of_the_mask() -> None:
    assert (
        per_lane(lambda lane: inside.ballot_sync(FULL, lane % 3 == 0)) == sum(1 << k for k in range(0, 32, 3))
    ).all()
    assert per_lane(lambda lane: inside.any_sync(FULL, lane == 31)).all()
    assert not per_lane(lambda lane: inside.all_sync(FULL, lane != 31)).any()
    assert per_lane(lambda lane: inside.eq_sync(FULL, 0)).all()
    half = 0x0000FFFF
    got = per_lane(lambda lane: inside.ballot_sync(half if lane < 16 else FULL ^ half, 1))
    assert (got == np.where(LANES < 16, half, FULL ^ half)).all()


def test_match_finds_the_lanes_with_the_same_value() -> None:
    got = per_lane(lambda lane: inside.match_any_sync(FULL, lane % 4))
    assert (got == 0x11111111 << LANES % 4).all()
    assert (per_lane(lambda lane: inside.match_all_sync(FULL, 7)[0]) == FULL).all()
    assert not per_lane(lambda lane: inside.match_all_sync(FULL, lane)[1]).any()


def test_lanes_know_themselves_and_bits_have_a_width() -> None:
    assert (per_lane(lambda lane: inside.laneid, 64) == np.tile(LANES, 2)).all()
    assert (per_lane(lambda lane: inside.lanemask_lt()) == (1 << LANES) - 1).all()
    assert (per_lane(lambda lane: inside.popc(np.int64(-1))) == 64).all()
    assert (per_lane(lambda lane: inside.clz(np.uint32(1))) == 31).all()
    assert (per_lane(lambda lane: inside.clz(np.uint64(1))) == 63).all()
    assert (per_lane(lambda lane: inside.ffs(np.uint32(1 << lane))) == LANES + 1).all()
    assert (per_lane(lambda lane: inside.brev(1)) == 1 << 31).all()


def test_block_barriers_reduce_over_the_block() -> None:
    assert (per_lane(lambda lane: inside.syncthreads_count(lane < 3), 64) == 6).all()
    assert (per_lane(lambda lane: inside.syncthreads_or(lane == 3), 64) == 1).all()
    assert (per_lane(lambda lane: inside.syncthreads_and(lane == 3), 64) == 0).all()


def test_threads_that_have_exited_do_not_hold_up_a_block_barrier() -> None:
    got = per_lane(lambda lane: inside.syncthreads_count(1) if lane < 7 else 0)
    assert (got == np.where(LANES < 7, 7, 0)).all()


def test_wrap_around_is_arithmetic_and_warns_nobody() -> None:
    assert (per_lane(lambda lane: np.uint32(lane) - np.uint32(32)) == 2**32 - 32 + LANES).all()


def test_a_barrier_that_a_lane_misses_is_a_deadlock() -> None:
    with pytest.raises(fastsim.SimulationError, match=r"(?s)deadlock.*syncwarp of warp 0.*threads \[5\] have exited"):
        per_lane(lambda lane: lane == 5 or inside.syncwarp() or 0)


def test_barriers_of_block_and_warp_do_not_meet() -> None:
    with pytest.raises(fastsim.SimulationError, match=r"(?s)syncthreads: threads \[0, 1, 2\] wait.*syncwarp of warp 0"):
        per_lane(lambda lane: (inside.syncthreads() if lane < 3 else inside.syncwarp()) or 0)


def test_a_barrier_of_some_warps_does_not_wait_for_others() -> None:
    """Nor does one of another number, and the block's comes after both."""

    def meet(i: int) -> int:
        if i < 2 * WARP:
            inside.barrier(1, 2 * WARP)
        else:
            inside.barrier(2, WARP)
        return int(inside.syncthreads_count(i % WARP == 0))

    out = np.zeros(3 * WARP, np.int64)

    @cuda.jit
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = meet(i)

    for seed in range(3):
        out[:] = 0
        with fastsim.scheduled(seed):
            kernel[1, 3 * WARP](out)
        assert (out == 3).all()


def test_a_barrier_that_a_warp_misses_is_a_deadlock() -> None:
    with pytest.raises(fastsim.SimulationError, match=r"(?s)deadlock.*barrier 1: threads \[0.*have exited"):
        per_lane(lambda lane: inside.barrier(1, 2 * WARP) or 0)


def test_masks_that_differ_do_not_meet() -> None:
    with pytest.raises(fastsim.SimulationError, match=r"(?s)mask 0x7fffffff: threads \[0\] wait.*mask 0xffffffff"):
        per_lane(lambda lane: inside.ballot_sync(FULL if lane else FULL >> 1, 1))


def test_different_operations_do_not_meet() -> None:
    with pytest.raises(fastsim.SimulationError, match=r"(?s)any_sync.*all_sync"):
        per_lane(lambda lane: inside.all_sync(FULL, 1) if lane else inside.any_sync(FULL, 1))


def test_a_lane_outside_its_own_mask_is_an_error() -> None:
    with pytest.raises(fastsim.SimulationError, match="lane 31 is not in its own mask 0x7fffffff"):
        per_lane(lambda lane: inside.ballot_sync(FULL >> 1, 1))


def test_an_error_in_a_kernel_names_its_thread_and_the_next_launch_works() -> None:
    with pytest.raises(IndexError) as caught:
        per_lane(lambda lane: np.zeros(9)[lane])
    assert caught.value.__notes__ == ["in thread (9, 0, 0) of block (0, 0, 0)"]
    assert (per_lane(lambda lane: lane) == LANES).all()


@pytest.mark.parametrize("synced", [True, False])
def test_random_schedules_find_a_missing_barrier(synced: bool) -> None:
    """Each lane passes its number to the lane below through memory; without the barrier that depends on their order."""

    def exchange(seed: int) -> npt.NDArray[Any]:
        out, box = np.zeros(WARP, np.int64), np.zeros(WARP, np.int64)

        @cuda.jit
        def kernel(out: Any, box: Any) -> None:
            lane = cuda.threadIdx.x
            box[lane] = lane
            if synced:
                cuda.syncwarp()
            out[lane] = box[lane - 1] if lane else 0

        with fastsim.scheduled(seed):
            kernel[1, WARP](out, box)
        return out

    right = [bool((exchange(seed) == np.maximum(LANES - 1, 0)).all()) for seed in range(4)]
    assert all(right) if synced else not any(right)
    assert fastsim._rng is None


def test_arguments_are_the_host_s_arrays_and_views_stay_views() -> None:
    data = np.zeros(8, np.uint8)

    @cuda.jit
    def kernel(a: Any, words: Any) -> None:
        a[1] = 255
        words[1] = words[0]

    kernel[1, 1](data, data.view(np.uint32))
    assert data.view(np.uint32).tolist() == [0xFF00, 0xFF00]


def test_only_the_simulator_s_arrays_are_on_its_device() -> None:
    array = cuda.to_device(np.arange(3))
    assert cuda.as_cuda_array(array) is array
    with pytest.raises(TypeError, match="ndarray is no array of the simulator"):
        cuda.as_cuda_array(np.arange(3))
