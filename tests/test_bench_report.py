"""What a bench concludes: the way to read a store and what bounds it; parts of large arrays."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zarrgpu
from tests.engines import make, smooth
from zarrgpu._record import Span
from zarrgpu.bench import bounds, ceilings
from zarrgpu.bench.examine import first_part, said
from zarrgpu.bench.measure import Measurement
from zarrgpu.bench.report import Findings
from zarrgpu.profiling import Profile, Step, Wave

GB = 10**9


def measurement(system: str, device: str, seconds: float) -> Measurement:
    return Measurement(system, device, system == "zarrgpu", GB, 1, [seconds] if seconds else [])


def profile(seconds: float = 1.0, where: str = "cuda:0", **steps: tuple[float, float]) -> Profile:
    """A profile in which each step has one span."""
    host = ("fetch", "locate", "enqueue", "wait")
    spans = [Span(name, "host" if name in host else where, 0, *span) for name, span in steps.items()]
    places = {(s.step, s.where): GB for s in spans}
    times = {(s.step, s.where): s.end - s.begin for s in spans}
    return Profile(seconds, GB, 1, spans, [Wave(0, 0, 1, times, places)])


@pytest.mark.parametrize(
    ("seen", "what", "share"),
    [
        (profile(fetch=(0, 0.9), decompress=(0.1, 0.5), upload=(0.1, 0.2)), "storage", 0.9),
        (profile(fetch=(0, 0.3), decompress=(0.3, 0.7), assemble=(0.6, 0.9), check=(0.9, 0.95)), "the decoder", 0.65),
        (profile(fetch=(0, 0.2), upload=(0.1, 0.9), decompress=(0.5, 0.9)), "PCIe", 0.8),
        (profile(fetch=(0, 0.2), enqueue=(0.2, 0.5), upload=(0.5, 0.7)), "Python", 0.6),
    ],
)
def test_what_bounds_a_read_of_ours_is_what_is_busy_for_the_longest(seen: Profile, what: str, share: float) -> None:
    found = bounds.of_ours(seen)
    assert (found.what, found.seen) == (what, True)
    assert found.share == pytest.approx(share)


@pytest.mark.parametrize(
    ("system", "device", "seconds", "decoding", "files", "what", "share"),
    [
        ("zarr", "host", 1.0, 0.2, 5.0, "Python", 0.6),
        ("zarr", "host", 1.0, 0.7, 10.0, "the decoder", 0.7),
        ("zarr", "host", 1.0, 0.1, 1.5, "storage", 2 / 3),
        ("zarr + copy", "GPU", 1.0, 0.2, 5.0, "PCIe", 0.5),
        ("zarr + pinned copy", "GPU", 1.0, 0.2, 5.0, "Python", 0.58),
    ],
)
def test_what_bounds_reads_of_others_is_told_by_ceilings(
    system: str, device: str, seconds: float, decoding: float, files: float, what: str, share: float
) -> None:
    limits = {"files": files, "upload, pinned": 50.0, "upload, pageable": 2.0}
    found = bounds.of_others(measurement(system, device, seconds), GB, limits, decoding)
    assert found is not None
    assert (found.what, found.seen) == (what, False)
    assert found.share == pytest.approx(share)
    assert bounds.of_others(measurement(system, device, seconds), GB, limits, None) is None


def test_the_verdict_is_about_gpu_memory_when_there_is_a_gpu() -> None:
    host = [measurement("zarr", "host", 1), measurement("zarrgpu", "host", 2)]
    gpu = [measurement("zarr + copy", "GPU", 2), measurement("zarrgpu", "cuda:0", 0.1)]
    profiles = {"cuda:0": profile(decompress=(0, 0.9))}
    assert Findings("t", host + gpu, profiles).verdict() == (
        "Read this store with zarrgpu on cuda:0: 10.00 GB/s, 20.0 times as fast as plain zarr and a copy; "
        "what bounds it is the decoder, which is busy for 90% of the time."
    )
    profiles = {"host": profile(where="host", fetch=(0, 0.1), decompress=(0, 0.4))}
    assert Findings("t", host, profiles, {"memcpy": 1.0}).verdict() == (
        "Read this store with zarr on host: 1.00 GB/s; "
        "what bounds it is Python, which by this run's ceilings takes 60% of the time."
    )
    assert (
        Findings("t", host).verdict() == "Read this store with zarr on host: 1.00 GB/s; what bounds it cannot be told."
    )
    assert Findings("t", [measurement("zarr", "host", 0)]).verdict() == "Nothing could be read."


def test_steps_are_compared_with_their_ceilings() -> None:
    limits = {"files": 4.0, "memcpy": 10.0, "upload, pinned": 50.0, "copy on cuda:0": 4000.0}
    steps = {
        Step("fetch", "host", 1.0, 1.0, 2 * GB): 0.5,
        Step("upload", "cuda:0", 1.0, 1.0, 40 * GB): 0.8,
        Step("assemble", "cuda:0", 1.0, 1.0, 1000 * GB): 0.5,
        Step("assemble", "host", 1.0, 1.0, GB): 0.1,
        Step("decompress", "host", 1.0, 1.0, GB): None,
        Step("fetch", "host", 1.0, 1.0, 0): None,
    }
    assert {step: bounds.fraction(step, limits) for step in steps} == {s: pytest.approx(f) for s, f in steps.items()}


def test_ceilings_of_the_host_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "COPIED", 1 << 16)
    monkeypatch.setattr(ceilings, "READ", 5000)
    dropped: list[int] = []
    files = []
    for i in range(4):
        files.append(str(tmp_path / str(i)))
        Path(files[-1]).write_bytes(bytes(2000))
    found = ceilings.measure("host", files, lambda: dropped.append(1))
    assert set(found) == {"memcpy", "files", "files, cold"}
    assert all(rate > 0 for rate in found.values())
    assert dropped == [1]
    assert set(ceilings.measure("host")) == {"memcpy"}


@pytest.mark.gpu
def test_ceilings_of_a_gpu_are_measured() -> None:
    found = ceilings.measure("cuda:0")
    assert set(found) == {"memcpy", "upload, pinned", "upload, pageable", "copy on cuda:0"}
    assert all(rate > 0 for rate in found.values())


@pytest.mark.parametrize(
    ("shape", "chunks", "shards", "most", "expected"),
    [
        ((100, 10), (3, 10), None, 10**6, ...),
        ((100, 10), (3, 10), None, 1000, (slice(0, 24), slice(0, 10))),
        ((100, 10), (3, 4), None, 50, (slice(0, 3), slice(0, 4))),
        ((100, 10), (3, 5), (30, 10), 2000, (slice(0, 30), slice(0, 10))),
    ],
)
def test_of_large_arrays_whole_chunks_from_the_beginning_are_read(
    shape: Any, chunks: Any, shards: Any, most: int, expected: Any
) -> None:
    array: Any = types.SimpleNamespace(shape=shape, chunks=chunks, shards=shards, dtype=np.dtype("f4"))
    assert first_part(array, most) == expected


def test_the_title_says_what_is_read_of_it() -> None:
    assert said(..., (3, 4)) == ""
    assert said(np.s_[:, 1:], (3, 4)) == "; of it [0:3, 1:4]"
    assert said(np.s_[2, ::2], (3, 4)) == "; of it [2, 0:4:2]"
    assert said([0, 1], (3, 4)) == ""


def test_findings_count_what_was_fetched_and_fail_for_ours_only_unless_data_are_wrong() -> None:
    values: dict[str, Any] = {}
    z = make(smooth((4, 10)), (1, 10), store=values)
    with zarrgpu.profile() as seen:
        zarrgpu.read(z, device="host")
    fine, other = measurement("zarrgpu", "host", 1), measurement("zarr", "host", 1)
    chunks = sum(len(value) for key, value in values.items() if key.startswith("c/"))
    assert Findings("t", [fine], {"host": seen}).encoded == chunks
    assert Findings("t", [fine]).encoded == 0
    other.fail("OSError: gone")
    assert not Findings("t", [fine, other]).failed
    other.fail("wrong data: 1 of 2 bytes differ")
    assert Findings("t", [fine, other]).failed
    fine.fail("OSError: gone")
    assert Findings("t", [fine]).failed
