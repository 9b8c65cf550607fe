"""The documentation says what is true: its code runs as written, its table is the code's, its commands exist."""

from __future__ import annotations

import doctest
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zarrgpu
import zarrgpu.api
import zarrgpu.opening
import zarrgpu.profiling
import zarrgpu.store
from tests.conftest import GPU
from zarrgpu import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUNNER = runpy.run_path(str(DOCS / "pages.py"))  # beside the pages, for `ci/newcomer`, which has no pytest
blocks, lacks, run = RUNNER["blocks"], RUNNER["lacks"], RUNNER["run"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, and nothing of what a page enables left behind."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    zarrgpu.reset_counters()


README = ROOT / "README.md"
PAGES = sorted(path for path in (*DOCS.rglob("*.md"), README) if any(not b.needs for b in blocks(path)))
TUTORIAL = DOCS / "tutorial.md"
NEEDS = sorted({block.needs for block in blocks(TUTORIAL) if block.needs})


@pytest.mark.parametrize("path", [p for p in PAGES if p.name != "index.md"], ids=lambda p: p.stem)
def test_code_of_a_page_runs_as_written(path: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks(path):
        if not block.needs:
            run(block, path, names)


@pytest.mark.parametrize("needs", NEEDS, ids=", ".join)
@pytest.mark.filterwarnings("ignore")  # other libraries' own
def test_what_the_tutorial_does_with_other_libraries_runs_as_written(needs: tuple[str, ...], folder: Path) -> None:
    """After what the page does before it that needs no more."""
    missing = {name for block in blocks(TUTORIAL) if block.needs == needs for name in lacks(block, GPU)}
    if missing:
        pytest.skip(f"not here: {', '.join(sorted(missing))}")
    names: dict[str, Any] = {}
    for block in blocks(TUTORIAL):
        if set(block.needs) <= set(needs):
            run(block, TUTORIAL, names)


def test_the_tutorial_is_about_all_that_it_should_be() -> None:
    titles = " ".join(re.findall(r"^## (.*)$", TUTORIAL.read_text(), re.MULTILINE)).lower()
    for word in (
        "enable",
        "read",
        "selections",
        "streams",
        "xarray",
        "dask",
        "pytorch",
        "kerchunk",
        "icechunk",
        "write",
    ):
        assert word in titles


def test_the_table_of_codecs_is_the_codes() -> None:
    """`python docs/support_table.py` writes it."""
    made = runpy.run_path(str(DOCS / "support_table.py"))
    assert made["PAGE"].read_text() == made["filled"](made["PAGE"].read_text())


def test_the_table_names_every_codec_of_ours() -> None:
    from zarrgpu.codecs import STAGES

    made = runpy.run_path(str(DOCS / "support_table.py"))
    named = set(re.findall(r"`(\w+)`", " ".join(made["CODECS"])))
    assert named >= set(STAGES)


def test_the_reference_has_every_public_name() -> None:
    shown = set(re.findall(r"^::: (\S+)$", " \n".join(p.read_text() for p in (DOCS / "reference").glob("*.md")), re.M))
    assert {f"zarrgpu.{name}" for name in zarrgpu.__all__ if name != "__version__"} <= shown


@pytest.mark.parametrize("path", [*sorted(DOCS.rglob("*.md")), README], ids=lambda p: p.stem)
def test_commands_of_a_page_have_the_options_that_they_are_given(path: Path) -> None:
    pytest.importorskip("typer", reason="the extra cli is not installed")
    from typer.main import get_command

    commands: Any = get_command(cli.make_app())
    text = path.read_text().replace("\\\n", " ")
    for line in re.findall(r"(?:^|\s|`)(?:\S*/)?zarrgpu ((?:bench|explain|info)\b[^`\n&|]*)", text):
        name, *arguments = shlex.split(line, comments=True)
        known = {option for parameter in commands.commands[name].params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize(
    "module", [zarrgpu.api, zarrgpu.opening, zarrgpu.profiling, zarrgpu.store], ids=lambda module: module.__name__
)
def test_examples_in_docstrings_give_what_they_say(module: Any) -> None:
    """Of all public names; those of `zarrgpu.numcodecs` and `zarrgpu.xarray` have tests beside the others of theirs."""
    found = doctest.testmod(module)
    assert found.failed == 0


def test_public_names_whose_use_is_not_plain_have_an_example() -> None:
    for name in ("enable", "read", "read_many", "open_array", "profile", "DeviceStore"):
        assert ">>>" in (getattr(zarrgpu, name).__doc__ or ""), name


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda p: p.stem)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    """Those of `docs/` are checked when it is built."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_a_page_that_prints_something_else_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    (block,) = blocks(page)
    with pytest.raises(AssertionError, match=r"page\.md:1 should print\n3\nbut prints\n2"):
        run(block, page, {})


def test_pages_are_found() -> None:
    """The tests above would pass without any."""
    assert {path.stem for path in PAGES} >= {"README", "tutorial", "measure", "fallbacks", "without-a-gpu"}
    assert sum(block.prints is not None for block in blocks(TUTORIAL)) > 10
