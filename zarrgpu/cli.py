"""The command ``zarrgpu``: ``bench``, ``explain``, ``info``. It needs the extra ``cli``, importing it does not."""

import contextlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import zarr

import zarrgpu
from zarrgpu.bench import WRONG, Measurement, compare, one_line, systems
from zarrgpu.sample import STEPS, write_sample

NEEDS = "the command zarrgpu needs typer and rich: pip install 'zarrgpu[cli]'"
FAILED, UNUSABLE = 1, 2
"""Exit statuses: a mismatch or an error; a command that cannot be run as it is."""
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
        store: Annotated[str | None, typer.Argument(help="An array; a sample is made without one.")] = None,
        selection: Annotated[str, typer.Option(help="What to read, such as 0:24,::2,5.")] = "...",
        device: Annotated[str, typer.Option(help="auto (all there are), host, cuda or cuda:N.")] = "auto",
        repeats: Annotated[int, typer.Option(min=1, help="Timed reads of each system.")] = 5,
        steps: Annotated[int, typer.Option(min=1, help="Time steps of the sample, 4 MB each.")] = STEPS,
        to_json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
        debug: Debug = False,
    ) -> None:
        """Read an array with zarr and with zarrgpu: first compare the results, then time them."""
        with reported(debug):
            if not run_bench(store, selection, device, repeats, steps, to_json):
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


def run_bench(store: str | None, selection: str, device: str, repeats: int, steps: int, to_json: Path | None) -> bool:
    """Measure and print; whether nothing was wrong."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    chosen = parse_selection(selection)
    names = zarrgpu.engine.available() if device == "auto" else [zarrgpu.engine.resolve(device).name]
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
            array = write_sample(f"{folder}/sample.zarr", (steps, 721, 1440), progress=show)
        else:
            array = open_array(store)
        title = f"{store or 'A sample as ERA5'}: {array.dtype} {array.shape}, chunks {array.chunks}"
        measured = compare(array, chosen, systems=systems(names), repeats=repeats, progress=show)
    if to_json is not None:
        report = {"array": title, "versions": facts(), "measurements": [m.as_dict() for m in measured]}
        to_json.write_text(json.dumps(report, indent=2) + "\n")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table(measured, title))
    for m in measured:
        if m.note or m.failure:
            what = f"failed: {m.failure}" if m.failure else f"fell back: {m.note}"
            console.print(f"{m.system} on {m.device} {what}", markup=False)
    console.print(verdict(measured), markup=False)
    return not any(m.failure and (m.ours or m.failure.startswith(WRONG)) for m in measured)


def table(measured: list[Measurement], title: str) -> Any:
    """The figures as a rich table."""
    from rich.table import Table
    from rich.text import Text

    first = measured[0]
    size = f"{first.decoded / 1e6:.0f} MB decoded"
    if first.stored:
        size += f", {first.decoded / first.stored:.2f} times smaller in the store"
    table = Table(
        title=Text(title),
        caption=f"{size}; results are the same bit for bit;\nread once before, so that files are in the page cache; "
        "medians of reads in turn;\nspeed-up over plain zarr to the same place",
    )
    for name in ("read with", "result on"):
        table.add_column(name)
    for name in ("ms", "spread", "GB/s", "speed-up"):
        table.add_column(name, justify="right")
    for m in measured:
        if m.failure:
            table.add_row(m.system, m.device, "-", "-", "failed", "-")
            continue
        base = baseline(m, measured)
        gain = f"{base.seconds / m.seconds:.1f}x" if base is not None else "-"
        figures = (f"{m.seconds * 1e3:.1f}", f"{m.spread:.0%}", f"{m.rate:.2f}", gain)
        table.add_row(m.system, m.device, *figures, style="bold" if m.ours else None)
    return table


def baseline(m: Measurement, measured: list[Measurement]) -> Measurement | None:
    """Plain zarr's measurement to the same kind of place."""
    name = "zarr" if m.device == "host" else "zarr + copy"
    return next((b for b in measured if b.system == name and b.times), None)


def verdict(measured: list[Measurement]) -> str:
    """One sentence: which way was the fastest, for the preferred place of a result."""
    timed = [m for m in measured if m.times]
    if not timed:
        return "Nothing could be read."
    gpu = [m for m in timed if m.device != "host"]
    best = max(gpu or timed, key=lambda m: m.rate)
    base = baseline(best, measured)
    place = "into GPU memory" if gpu else "into host memory"
    than = ""
    if base is not None and base is not best:
        than = f", {base.seconds / best.seconds:.1f} times as fast as plain zarr"
    return f"Fastest {place}: {best.system} on {best.device} at {best.rate:.2f} GB/s{than}."


def open_node(store: str) -> Any:
    """The array or group at a path."""
    try:
        return zarr.open(store, mode="r")
    except (FileNotFoundError, zarr.errors.NodeNotFoundError):
        raise CommandError(f"there is no Zarr array or group at {store}") from None


def inside(group: Any) -> list[tuple[str, zarr.Array[Any]]]:
    """Every array below a group, by its path."""
    return sorted((n, a) for n, a in group.members(max_depth=None) if isinstance(a, zarr.Array))


def open_array(store: str) -> zarr.Array[Any]:
    """The array at a path; for a group, an error that names the arrays inside."""
    node = open_node(store)
    if isinstance(node, zarr.Array):
        return node
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


def facts() -> dict[str, str]:
    """What there is on this machine, and what is missing."""
    from zarrgpu.engine.base import cores

    found = {"python": platform.python_version()}
    for name in ("zarrgpu", "zarr", "numcodecs", "numpy", "numba", "numba-cuda"):
        found[name] = _version(name) or "not installed"
    found["cupy"] = next((v for n in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if (v := _version(n))), "not installed")
    names = zarrgpu.engine.available()
    found["driver"] = _driver()
    found["devices"] = ", ".join(_described(name) for name in names)
    found["threads"] = str(cores())
    found["missing"] = zarrgpu.engine.missing() or "nothing"
    return found


def _version(distribution: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def _described(device: str) -> str:
    if device == "host":
        return device
    import cupy

    return f"{device} ({cupy.cuda.runtime.getDeviceProperties(int(device.removeprefix('cuda:')))['name'].decode()})"


def _driver() -> str:
    """The version of the NVIDIA driver, as its management library gives it."""
    import ctypes

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "not found"
    text = ctypes.create_string_buffer(80)
    if library.nvmlInit_v2() != 0 or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "does not answer"
    return text.value.decode()
