"""`zarrgpu.profile`: every step of a read has its seconds and bytes, and costs nothing while nobody looks."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth
from zarrgpu import _record, sizing
from zarrgpu._record import Span
from zarrgpu.profiling import Profile, union

VALUES = smooth((12, 40, 50), "f4")


@pytest.fixture(params=ENGINES)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    with device(request.param) as found:
        yield found


@pytest.fixture
def small_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves of three chunks of `VALUES` at most."""
    monkeypatch.setattr(sizing, "WAVE_BYTES", 3 * 8000)
    monkeypatch.setattr(sizing, "HOST_WAVE_BYTES", 3 * 8000)
    monkeypatch.setattr(sizing, "LIBRARY_WAVE_BYTES", 3 * 8000)
    monkeypatch.setattr(sizing, "CORES_BYTES", 0)


def bytes_of(found: Profile, step: str) -> int:
    return sum(s.nbytes for s in found.steps if s.name == step)


@pytest.mark.usefixtures("small_waves")
def test_every_step_has_its_seconds_and_bytes(name: str, tmp_path: Path) -> None:
    z = make(VALUES, (1, 40, 50), store=tmp_path / "a.zarr")
    sizes = sum(p.stat().st_size for p in (tmp_path / "a.zarr" / "c").rglob("*") if p.is_file())
    with zarrgpu.profile() as found:
        assert same(zarrgpu.read(z, device=name), VALUES)
    assert (found.reads, found.decoded) == (1, VALUES.nbytes)
    waves = sorted((w.read, w.first, w.chunks) for w in found.waves)
    assert len(waves) >= 4
    assert [first for _, first, _ in waves] == np.cumsum([0, *(n for _, _, n in waves)])[:-1].tolist()
    assert sum(n for _, _, n in waves) == len(VALUES)
    assert bytes_of(found, "fetch") == sizes
    assert bytes_of(found, "decompress") == VALUES.nbytes
    directly = name == "host" and zarrgpu.engine.resolve("host").by_library
    assert bytes_of(found, "assemble") == (0 if directly else VALUES.nbytes)
    for step in found.steps:
        assert 0 < step.busy <= step.seconds * (1 + 1e-9)
        assert step.busy < found.seconds
        assert step.seconds == pytest.approx(sum(w.seconds[step.name, step.where] for w in found.waves))
    assert sum(s.seconds for s in found.steps if s.where == "host") < found.seconds * 8  # three fetch, one decodes
    assert 0 < found.outside < found.seconds
    assert all(0 <= span.begin <= span.end <= found.seconds for span in found.spans)
    assert {s.where for s in found.steps} == {"host", name}
    if name != "host":
        on_device = {s.name for s in found.steps if s.where == name}
        assert on_device == {"upload", "decompress", "assemble", "check"}
        assert bytes_of(found, "upload") >= sizes
    json.dumps(found.as_dict(), allow_nan=False)
    assert f"{len(waves)} waves, {VALUES.nbytes / 1e6:.1f} MB decoded" in str(found)


def test_what_one_thread_does_at_a_time_is_counted_once(name: str) -> None:
    """Steps inside steps: their time is not the outer one's, too."""
    z = make(VALUES, (1, 40, 50))
    with zarrgpu.profile() as found:
        zarrgpu.read(z, device=name)
    mine = sorted((s.begin, s.end) for s in found.spans if s.where == "host")
    assert len(found.waves) == 1
    assert all(end <= begin + 1e-12 for (_, end), (begin, _) in itertools.pairwise(mine))


def test_checksums_are_checked_and_filters_are_decompression(name: str) -> None:
    codecs: Any = [zarr.codecs.BloscCodec(typesize=4), zarr.codecs.Crc32cCodec()]
    z = make(VALUES, (1, 40, 50), compressors=codecs)
    with zarrgpu.profile() as found:
        zarrgpu.read(z, device=name)
    assert "check" in {s.name for s in found.steps}
    if not zarrgpu.engine.resolve(name).by_library:
        assert bytes_of(found, "check") > 0


def test_reads_of_other_threads_and_through_zarr_itself_are_seen(name: str) -> None:
    make_store: dict[str, Any] = {}
    make(VALUES, (4, 40, 50), store=make_store)
    with zarrgpu.profile() as found, zarrgpu.enable(device=name):
        z = zarr.open_array(make_store, mode="r")
        thread = threading.Thread(target=z.__getitem__, args=(slice(0, 8),))
        thread.start()
        thread.join()
        _ = z[8:]
    assert (found.reads, found.decoded) == (2, VALUES.nbytes)


def test_nothing_is_recorded_and_nothing_is_called_without_a_profile(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(*_: Any, **__: Any) -> Any:
        raise AssertionError("a hook was called")

    for hook in ("Watch", "Log", "perf_counter", "_NoRanges"):
        monkeypatch.setattr(_record, hook, called)
    z = make(VALUES, (1, 40, 50))
    assert same(zarrgpu.read(z, device=name), VALUES)
    with zarrgpu.engine.resolve(name).lanes() as lanes:
        assert all(lane.watch is None for lane in lanes)


def test_a_read_that_fails_leaves_no_watch_behind(name: str, tmp_path: Path) -> None:
    z = make(VALUES, (1, 40, 50), store=tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "c" / "3" / "0" / "0").write_bytes(b"damaged")
    with zarrgpu.profile() as found, pytest.raises(zarrgpu.ChunkError):
        zarrgpu.read(z, device=name)
    assert found.reads == 0
    assert not _record._listeners
    with zarrgpu.engine.resolve(name).lanes() as lanes:
        assert all(lane.watch is None for lane in lanes)


def test_profiles_may_be_nested(name: str) -> None:
    z = make(VALUES, (4, 40, 50))
    with zarrgpu.profile() as outer:
        zarrgpu.read(z, device=name)
        with zarrgpu.profile() as inner:
            zarrgpu.read(z, device=name)
    assert (outer.reads, inner.reads) == (2, 1)
    assert inner.waves[0].read == 0
    assert {span.wave for span in outer.spans} == {0, 1}


@pytest.mark.usefixtures("small_waves")
def test_each_step_is_a_range_for_nsight(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ranges: dict[int, list[str]] = {}
    seen = set()

    def push(message: str, domain: str, payload: int) -> None:
        assert domain == "zarrgpu"
        assert payload >= 0
        seen.add(message)
        open_ranges.setdefault(threading.get_ident(), []).append(message)

    def pop(domain: str) -> None:
        open_ranges[threading.get_ident()].pop()

    monkeypatch.setitem(sys.modules, "nvtx", types.SimpleNamespace(push_range=push, pop_range=pop))
    z = make(VALUES, (1, 40, 50))
    with zarrgpu.profile():
        zarrgpu.read(z, device=name)
    assert {"fetch", "locate", "decompress", "assemble", "check"} <= seen
    assert not any(open_ranges.values())
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with zarrgpu.profile() as found:
        zarrgpu.read(z, device=name)
    assert found.reads == 1


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")
    z = make(VALUES, (1, 40, 50))
    with zarrgpu.profile() as found:
        zarrgpu.read(z, device="host")
    found.plot(tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    Profile().plot(tmp_path / "nothing.svg")
    assert "<svg" in (tmp_path / "nothing.svg").read_text()


def test_without_matplotlib_the_plot_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'zarrgpu\[bench\]'"):
        Profile(spans=[Span("fetch", "host", 0, 0.0, 1.0)]).plot(tmp_path / "t.png")


@pytest.mark.parametrize(
    ("intervals", "length"),
    [([], 0), ([(0, 1), (2, 3)], 2), ([(0, 3), (1, 2)], 3), ([(1, 2), (0, 1.5)], 2), ([(0, 1), (0, 1)], 1)],
)
def test_busy_is_what_intervals_cover_together(intervals: list[tuple[float, float]], length: float) -> None:
    assert union(intervals) == length


def test_threads_within_a_step_share_its_time() -> None:
    log = _record.Log("host", 0)
    lane: Any = types.SimpleNamespace(stamp=lambda: None)
    watch = _record.Watch(lane, log, None)
    watch.host = _record.Track(iter([0.0, 10.0]).__next__, watch._on_host)
    watch.host.enter("decompress")
    for _ in range(2):
        watch.share("fetch", 1.0, "decompress", nbytes=5)
        watch.share("decompress", 4.0, None, nbytes=0)
    watch.host.leave()
    assert np.allclose([(s.begin, s.end) for s in sorted(log.spans)], [(2.5, 10.0), (0.0, 2.5)])
    assert log.nbytes["fetch", "host", -1] == 10
