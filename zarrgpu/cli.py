"""The command ``zarrgpu``: ``bench``, ``explain``, ``info``. It needs the extra ``cli``, importing it does not."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import zarr

import zarrgpu
from zarrgpu.bench.examine import examine
from zarrgpu.bench.machine import facts
from zarrgpu.bench.measure import one_line
from zarrgpu.sample import STEPS, write_sample

NEEDS = "the command zarrgpu needs typer and rich: pip install 'zarrgpu[cli]'"
FAILED, UNUSABLE = 1, 2
"""Exit statuses: a mismatch or an error; a command that cannot be run as it is."""
GPU_STEPS = 256
"""Time steps of the sample where there is a GPU, which needs thousands of streams."""
LISTED = 20
"""Arrays of a group that an error message lists."""


class CommandError(Exception):
    """What is wrong, in the user's terms."""


def main() -> None:
    """Run the command; the entry point of the package."""
    try:
        app = make_app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(NEEDS, file=sys.stderr)
        raise SystemExit(UNUSABLE) from None
    app(prog_name="zarrgpu")


def make_app() -> Any:
    """The typer application."""
    import typer

    app = typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Zarr arrays into GPU memory."
    )
    Device = Annotated[str, typer.Option(help="auto, host, cuda or cuda:N.")]
    Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

    @contextlib.contextmanager
    def reported(debug: bool) -> Iterator[None]:
        """Turn an error into one line and an exit status."""
        try:
            yield
        except typer.Exit:
            raise
        except Exception as error:
            if debug:
                raise
            typer.echo(f"error: {error if isinstance(error, CommandError) else one_line(error)}", err=True)
            raise typer.Exit(FAILED) from None

    @app.command()
    def bench(
        store: Annotated[str | None, typer.Argument(help="Path or URL; a sample is made without one.")] = None,
        array: Annotated[str | None, typer.Option(help="The array, where the store is a group.")] = None,
        selection: Annotated[
            str | None, typer.Option(help="What to read, such as 0:24,::2,5; all, or the first GB, without it.")
        ] = None,
        device: Annotated[str, typer.Option(help="auto (host and the first GPU), host, cuda or cuda:N.")] = "auto",
        repeats: Annotated[int, typer.Option(min=1, help="Timed reads of each system.")] = 5,
        steps: Annotated[int | None, typer.Option(min=1, help="Time steps of the sample, 4 MB each.")] = None,
        to_json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
        to_plot: Annotated[Path | None, typer.Option("--plot", help="Draw the figures into this file.")] = None,
        debug: Debug = False,
    ) -> None:
        """Read an array with every system that is installed: first compare the results, then time them."""
        with reported(debug):
            if not run_bench(store, array, selection, device, repeats, steps, to_json, to_plot):
                raise typer.Exit(FAILED)

    @app.command()
    def explain(
        store: Annotated[str, typer.Argument(help="An array or a group.")],
        device: Device = "auto",
        debug: Debug = False,
    ) -> None:
        """Show which stage of an array's decoding runs where, and why not on the device."""
        with reported(debug):
            node = open_node(store)
            arrays = [(store, node)] if isinstance(node, zarr.Array) else [(f"{store}/{n}", a) for n, a in inside(node)]
            if not arrays:
                raise CommandError(f"{store} is a group without arrays")
            for name, array in arrays:
                typer.echo(f"{name}: {array.dtype} {array.shape}, chunks {array.chunks}")
                typer.echo(str(zarrgpu.explain(array, device)))

    @app.command()
    def info(debug: Debug = False) -> None:
        """Show versions and devices, and what is missing."""
        with reported(debug):
            for name, value in facts().items():
                typer.echo(f"{name:<12} {value}")

    return app


def run_bench(
    store: str | None,
    name: str | None,
    selection: str | None,
    device: str,
    repeats: int,
    steps: int | None,
    to_json: Path | None,
    to_plot: Path | None,
) -> bool:
    """Measure and print; whether nothing was wrong."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    chosen = None if selection is None else parse_selection(selection)
    available = zarrgpu.engine.available()
    names = list(dict.fromkeys([available[0], "host"])) if device == "auto" else [zarrgpu.engine.resolve(device).name]
    screen = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with contextlib.ExitStack() as stack:
        progress = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
        stack.enter_context(progress)
        task = progress.add_task("", total=None)

        def show(done: int, total: int, doing: str = "writing a sample") -> None:
            progress.update(task, completed=done, total=total, description=doing)

        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zarrgpu-"))
            layers = steps or (STEPS if names == ["host"] else GPU_STEPS)
            array = write_sample(f"{folder}/sample.zarr", (layers, 721, 1440), progress=show)
        else:
            array = open_array(store, name)
        found = examine(array, chosen, names, repeats, store or "A sample as ERA5", show)
    if to_json is not None:
        to_json.write_text(json.dumps({"versions": facts()} | found.as_dict(), indent=2) + "\n")
    if to_plot is not None:
        found.plot(to_plot)
    found.show(Console(highlight=False, soft_wrap=True))
    return not found.failed


def open_node(store: str) -> Any:
    """The array or group at a path."""
    try:
        return zarr.open(store, mode="r")
    except (FileNotFoundError, zarr.errors.NodeNotFoundError):
        raise CommandError(f"there is no Zarr array or group at {store}") from None


def inside(group: Any) -> list[tuple[str, zarr.Array[Any]]]:
    """Every array below a group, by its path."""
    return sorted((n, a) for n, a in group.members(max_depth=None) if isinstance(a, zarr.Array))


def open_array(store: str, name: str | None = None) -> zarr.Array[Any]:
    """The array at a path, or the one of this name in the group there; else an error that names those inside."""
    node = open_node(store)
    if isinstance(node, zarr.Array):
        if name is not None:
            raise CommandError(f"{store} is an array, which has no {name} inside")
        return node
    if name is not None and isinstance(node.get(name), zarr.Array):
        found: zarr.Array[Any] = node[name]
        return found
    names = [n for n, _ in inside(node)]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    raise CommandError(
        f"{store} is a group; name one of its arrays: {', '.join(names[:LISTED]) or 'it has none'}{more}"
    )


def parse_selection(text: str) -> Any:
    """Turn ``"0:24, ::2, 5"`` into what stands between the brackets of ``array[0:24, ::2, 5]``."""

    def parse(part: str) -> Any:
        bounds = [b.strip() for b in part.split(":")]
        if bounds == ["..."]:
            return ...
        if len(bounds) == 1:
            return int(bounds[0])
        if len(bounds) > 3:
            raise ValueError
        return slice(*(int(b) if b else None for b in bounds))

    try:
        return tuple(parse(part) for part in text.split(","))
    except ValueError:
        raise CommandError(f"a selection is ints, slices and '...', such as 0:24,::2,5; got {text!r}") from None
