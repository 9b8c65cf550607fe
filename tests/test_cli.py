"""The command ``zarrgpu``: what it prints, and the exit status that scripts rely on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import make, smooth
from zarrgpu import cli
from zarrgpu.bench import System, examine
from zarrgpu.sample import write_sample

pytest.importorskip("typer", reason="the extra cli is not installed")
from typer.testing import CliRunner

pytestmark = pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")  # zarr's, of a test array
Run = Callable[..., Any]


@pytest.fixture
def run() -> Run:
    """Run the command with arguments; what it printed and its exit status."""
    app = cli.make_app()
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make(smooth((6, 40, 50)), (1, 40, 50), store=tmp_path / "[a].zarr")
    return tmp_path / "[a].zarr"


@pytest.fixture
def group(tmp_path: Path) -> Path:
    root = zarr.create_group(tmp_path / "g.zarr")
    scaled, sharding = zarr.codecs.ScaleOffset(scale=2.0, offset=1.0), zarr.codecs.ShardingCodec(chunk_shape=(3, 4))
    without_program: dict[str, Any] = {"filters": [scaled], "serializer": sharding, "compressors": None}
    for name, options in (("t", {}), ("deep/u", without_program)):
        values = np.arange(12, dtype="f4").reshape(3, 4)
        root.create_array(name, shape=values.shape, chunks=(3, 4), dtype="f4", **options)[...] = values
    return tmp_path / "g.zarr"


def test_bench_ends_with_a_table_and_a_sentence(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("bench", store, "--device", "host", "--repeats", 2, "--json", tmp_path / "b.json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert re.fullmatch(
        r"Read this store with .* on host: [\d.e-]+ GB/s(, \d+\.\d times as fast as plain zarr)?; "
        r"what bounds it is (storage|the decoder|Python), which (is busy for|by this run's ceilings takes) \d+% "
        r"of the time\.",
        lines[-1],
    )
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    systems = ["zarr", "zarr fused", *(name for name in ("zarrs", "tensorstore") if find_spec(name))]
    assert [row[0] for row in rows[: len(systems) + 1]] == [*systems, "zarrgpu"]
    assert all(row[1] == "host" and float(row[4]) >= 0 and row[-1].endswith("x") for row in rows[: len(systems) + 1])
    steps = [row[0] for row in rows[len(systems) + 1 :]]
    assert {"fetch", "decompress", "outside of"} <= set(steps)
    assert "[a].zarr: float32 (6, 40, 50), chunks (1, 40, 50)" in result.stdout
    report = json.loads((tmp_path / "b.json").read_text())
    assert [len(m["times"]) for m in report["measurements"]] == [2] * (len(systems) + 1)
    assert report["verdict"] == lines[-1]
    assert {"memcpy", "files"} <= set(report["ceilings"])
    assert report["profiles"]["host"]["reads"] == 1
    assert report["versions"]["zarr"] == zarr.__version__


def test_bench_reads_what_is_selected(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("bench", store, "--selection", "1:5, ::2, 3", "--repeats", 1, "--json", tmp_path / "b.json")
    assert result.exit_code == 0, result.output
    assert {m["decoded"] for m in json.loads((tmp_path / "b.json").read_text())["measurements"]} == {4 * 20 * 4}


def test_bench_makes_a_sample(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(store: str, shape: tuple[int, ...], progress: Any) -> zarr.Array[Any]:
        return write_sample(store, (shape[0], 30, 40), (1, 30, 40), progress=progress)

    monkeypatch.setattr(cli, "write_sample", small)
    result = run("bench", "--device", "host", "--steps", 3, "--repeats", 1)
    assert result.exit_code == 0, result.output
    assert "float32 (3, 30, 40)" in result.stdout


def test_bench_refuses_figures_for_wrong_data(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tampered(source: zarr.Array[Any], selection: Any, device: str) -> Any:
        result = np.array(source[selection])
        result.reshape(-1).view(np.uint8)[17] ^= 4
        return result

    monkeypatch.setattr(zarrgpu, "read", tampered)
    result = run("bench", store, "--device", "host")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == (
        "error: BenchMismatch: zarrgpu on host does not give what plain zarr gives: 1 of 48000 bytes differ"
    )


def test_bench_shows_what_failed_and_says_so(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(source: zarr.Array[Any], selection: Any, device: str) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(zarrgpu, "read", failing)
    result = run("bench", store, "--device", "host", "--repeats", 1)
    assert result.exit_code == 1
    assert "zarrgpu on host failed: OSError: gone" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Read this store with")


def test_bench_says_what_fell_back(run: Run, group: Path) -> None:
    result = run("bench", group / "deep/u", "--device", "host", "--repeats", 1)
    assert result.exit_code == 0, result.output
    assert "zarrgpu on host fell back: bind:codec scale_offset outside shards" in result.stdout


def test_bench_reads_an_array_inside_a_group(run: Run, group: Path) -> None:
    result = run("bench", group, "--array", "t", "--device", "host", "--repeats", 1)
    assert result.exit_code == 0, result.output
    assert "float32 (3, 4)" in result.stdout
    assert "name one of its arrays: deep/u, t" in run("bench", group, "--array", "none").stderr
    assert "is an array" in run("bench", group / "t", "--array", "t").stderr


def test_bench_draws_a_plot(run: Run, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")
    result = run("bench", store, "--device", "host", "--repeats", 1, "--plot", tmp_path / "b.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_bench_refuses_a_decoder_of_others_that_gives_wrong_data(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no figure, the others have theirs, and the exit status says so."""

    def tampered(array: zarr.Array[Any], selection: Any) -> Any:
        result = np.array(array[selection])
        result.reshape(-1).view(np.uint8)[17] ^= 4
        return result

    def systems(devices: Any) -> list[System]:
        return [System("zarr", "host", lambda a, s: a[s]), System("wrong", "host", tampered)]

    monkeypatch.setattr(examine, "systems", systems)
    result = run("bench", store, "--device", "host", "--repeats", 1)
    assert result.exit_code == 1
    assert "wrong on host failed: wrong data: 1 of 48000 bytes differ" in result.stdout
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("│ wrong")]
    assert [cell.strip() for cell in row.strip("│").split("│")][2:5] == ["-", "-", "failed"]
    assert result.stdout.splitlines()[-1].startswith("Read this store with zarr on host")


def test_bench_of_a_group_names_its_arrays(run: Run, group: Path) -> None:
    result = run("bench", group)
    assert result.exit_code == 1
    assert result.stderr == f"error: {group} is a group; name one of its arrays: deep/u, t\n"


def test_explain_lists_stages_and_reasons_of_every_array(run: Run, group: Path) -> None:
    result = run("explain", group, "--device", "host")
    assert result.exit_code == 0, result.output
    assert "u: float32 (3, 4), chunks (3, 4)\nthrough zarr's own pipeline: codec scale_offset outside" in result.stdout
    assert run("explain", group / "t", "--device", "host").stdout.count("float32") == 1


def test_explain_of_a_group_without_arrays_is_an_error(run: Run, tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "empty.zarr")
    result = run("explain", tmp_path / "empty.zarr")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_info_names_versions_devices_and_what_is_missing(run: Run) -> None:
    result = run("info")
    assert result.exit_code == 0, result.output
    facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert facts["zarrgpu"] == zarrgpu.__version__
    assert facts["missing"] == (zarrgpu.engine.missing() or "nothing")
    assert all(name in facts["devices"] for name in zarrgpu.engine.available())
    assert int(facts["threads"]) > 0


@pytest.mark.parametrize("command", ["bench", "explain"])
def test_errors_are_one_line(run: Run, tmp_path: Path, command: str) -> None:
    for arguments in ([tmp_path / "none.zarr"], [tmp_path / "none.zarr", "--device", "cuda:99"]):
        result = run(command, *arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


def test_debug_shows_the_exception(run: Run, tmp_path: Path) -> None:
    result = run("explain", tmp_path / "none.zarr", "--debug")
    assert isinstance(result.exception, cli.CommandError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("...", (...,)),
        ("0:24,:,::2", np.s_[0:24, :, ::2]),
        (" 3 , -1", (3, -1)),
        ("..., 1:", np.s_[..., 1:]),
    ],
)
def test_selections_are_written_as_between_brackets(text: str, expected: Any) -> None:
    assert cli.parse_selection(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1:2:3:4", "1;2", "[0]"])
def test_other_selections_are_refused(text: str) -> None:
    with pytest.raises(cli.CommandError, match="a selection is"):
        cli.parse_selection(text)


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "the command zarrgpu needs typer and rich: pip install 'zarrgpu[cli]'\n"


def test_another_missing_module_is_not_taken_for_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(cli, "make_app", broken)
    with pytest.raises(ModuleNotFoundError):
        cli.main()


def test_the_installed_command_runs() -> None:
    code = "import sys; from zarrgpu.cli import main; sys.argv = ['zarrgpu', 'explain', 'nowhere.zarr']; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: there is no Zarr array or group at nowhere.zarr\n"
