"""Plots, by matplotlib, which the extra ``bench`` brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zarrgpu._record import Span

NEEDS = "plots need matplotlib: pip install 'zarrgpu[bench]'"
COLOURS = {
    "fetch": "#4e79a7",
    "locate": "#f28e2b",
    "upload": "#76b7b2",
    "decompress": "#59a14f",
    "assemble": "#edc948",
    "check": "#e15759",
    "enqueue": "#9c755f",
    "wait": "#d7d7d7",
}


def figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure with one pair of axes that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NEEDS, name=error.name) from error
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots()


def timeline(spans: Sequence[Span], path: str | PathLike[str]) -> None:
    """Draw what each wave was in when: a line for each wave and place, a colour for each step."""
    lines = sorted({(span.wave, span.where) for span in spans}, key=lambda line: (line[0], line[1] != "host"))
    made, axes = figure(10, 1.5 + 0.22 * max(len(lines), 4))
    for name, colour in COLOURS.items():
        mine = [span for span in spans if span.step == name]
        if mine:
            axes.barh(
                [lines.index((span.wave, span.where)) for span in mine],
                [(span.end - span.begin) * 1e3 for span in mine],
                left=[span.begin * 1e3 for span in mine],
                color=colour,
                label=name,
            )
    axes.set_yticks(range(len(lines)), [f"wave {wave}, {where}" for wave, where in lines])
    axes.invert_yaxis()
    axes.set_xlabel("ms since the beginning")
    if lines:
        made.legend(loc="outside upper center", ncols=len(COLOURS), frameon=False)
    made.savefig(path)


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    bold: Sequence[bool],
    title: str,
    path: str | PathLike[str],
) -> None:
    """Draw GB/s: a group of bars for each label, one bar of each of the series; the bold ones in a stronger colour."""
    made, axes = figure(9, 1.5 + 0.3 * max(1, len(labels)) * len(series))
    height = 0.8 / len(series)
    for k, (name, rates) in enumerate(series.items()):
        at = [i + k * height for i in range(len(labels))]
        colours = [COLOURS["decompress" if strong else "fetch"] for strong in bold]
        drawn = axes.barh(at, rates, height=height * 0.9, color=colours, alpha=1 - 0.5 * k, label=name)
        axes.bar_label(drawn, fmt="%.2f", padding=3)
    axes.set_yticks([i + height * (len(series) - 1) / 2 for i in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("GB/s decoded")
    axes.set_title(title, fontsize="medium", parse_math=False)
    if len(series) > 1:
        made.legend(loc="outside lower center", ncols=len(series), frameon=False)
    made.savefig(path)
