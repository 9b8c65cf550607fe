"""The Python blocks of a page, run in order as they are written.

    python docs/pages.py docs/tutorial.md

A block may stand behind ``<!-- needs: package, package -->`` or ``<!-- needs: a GPU -->``. A block of text right behind
it is what it prints, ``...`` for what differs from run to run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"(?:<!-- needs: (.*?) -->\s*)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """Code of a page, what it needs beside zarrgpu, and what it prints if that is said."""

    line: int
    needs: tuple[str, ...]
    code: str
    prints: str | None


def blocks(path: Path) -> list[Block]:
    """Python of a page, in order."""
    text = path.read_text()
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        needs, language, body = match.groups()
        if language == "python":
            wanted = tuple(name.strip() for name in (needs or "").split(",") if name.strip())
            found.append(Block(text[: match.start(3)].count("\n"), wanted, body, None))
        elif language == "text" and found and not text[end : match.start()].strip():  # right behind the code
            found[-1] = found[-1]._replace(prints=body)
        end = match.end()
    return found


def lacks(block: Block, gpu: bool) -> list[str]:
    """What a block needs that is not here."""
    return [name for name in block.needs if not (gpu if name == "a GPU" else find_spec(name))]


def run(block: Block, path: Path, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it; AssertionError where it prints something else."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, str(path), "exec"), names)  # noqa: S102  # that is its purpose
    if block.prints is None or doctest.OutputChecker().check_output(block.prints, printed.getvalue(), FLAGS):
        return
    raise AssertionError(f"{path.name}:{block.line} should print\n{block.prints}but prints\n{printed.getvalue()}")


def main() -> None:
    """Run the pages that are named, each in an empty folder, as far as what they need is here."""
    import zarrgpu

    gpu = zarrgpu.engine.available() != ["host"]
    for page in map(Path, sys.argv[1:]):
        path, names = page.resolve(), dict[str, Any]()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found = blocks(path)
            able = [block for block in found if not lacks(block, gpu)]
            for block in able:
                run(block, path, names)
        print(f"{page}: {len(able)} of {len(found)} blocks ran as written")  # noqa: T201  # a command


if __name__ == "__main__":
    main()
