"""What ``python -m benchmarks`` leaves behind: JSON, a Markdown table, plots; and how it compares with earlier JSON."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from zarrgpu.bench.machine import facts
from zarrgpu.bench.report import Findings, digits

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
NOISE = 0.1
"""Rates that differ by less are the same: machines are shared."""

Report = dict[str, Any]


def machine() -> dict[str, str]:
    """The machine, driver, versions and commit that figures are of."""
    return facts() | {"commit": _git("rev-parse", "HEAD") + "+changes" * bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str:
    """What git says, nothing outside of a checkout."""
    try:
        told = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip()


def dump(path: Path, report: Report) -> None:
    """Write JSON."""
    path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")


def load(path: Path) -> Report:
    """Read what `dump` wrote."""
    report: Report = json.loads(path.read_text())
    return report


def plot(folder: Path, name: str, findings: Findings) -> None:
    """Draw a dataset's rates, where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        findings.plot(folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.png")
    except ModuleNotFoundError as error:
        print(error)


def text(name: str, findings: Findings) -> str:
    """A dataset's figures, a line each, and the verdict."""
    lines = [name]
    for m in findings.measured:
        cold = f"  cold {digits(m.cold_rate)}" if m.cold else ""
        figures = m.failure or f"{digits(m.rate):>8}{cold}  spread {m.spread:.0%}{'  ' + m.note if m.note else ''}"
        lines.append(f"  {m.system + ' -> ' + m.device:<36} {figures}")
    return "\n".join([*lines, f"  {findings.verdict()}", ""])


def write(folder: Path, report: Report) -> list[Path]:
    """Write the JSON and the table into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "results.json", folder / "results.md"]
    dump(written[0], report)
    written[1].write_text(markdown(report))
    return written


def rates(report: Report) -> dict[str, dict[str, float]]:
    """GB/s of every dataset by every system that has a figure."""
    return {
        name: {f"{m['system']} → {m['device']}": m["rate"] for m in found["measurements"] if m["rate"] is not None}
        for name, found in report["datasets"].items()
    }


def markdown(report: Report) -> str:
    """A table of GB/s, a line for each dataset, after the facts about the machine."""
    found = rates(report)
    systems = list(dict.fromkeys(system for line in found.values() for system in line))
    lines = [f"- {name}: {value}" for name, value in report["machine"].items()]
    lines += ["", "Decoded GB/s, files in the page cache, medians:", ""]
    lines += ["| dataset | " + " | ".join(systems) + " |", "|---|" + "---:|" * len(systems)]
    for name, line in found.items():
        cells = (digits(line[system]) if system in line else "" for system in systems)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- {name}: {result['verdict']}" for name, result in report["datasets"].items())]
    return "\n".join(lines) + "\n"


def comparison(before: Report, after: Report) -> str:
    """What became of every rate that both reports have."""
    lines = []
    for fact in ("processor", "devices", "threads", "driver"):
        old, new = before["machine"].get(fact), after["machine"].get(fact)
        if old != new:
            lines.append(f"another machine: {fact} was {old}, is {new}")
    old_rates = rates(before)
    for name, line in rates(after).items():
        for system, rate in line.items():
            old = old_rates.get(name, {}).get(system)
            if old is None:
                continue
            ratio = rate / old
            word = "the same" if abs(ratio - 1) < NOISE else "faster" if ratio > 1 else "SLOWER"
            lines.append(f"{name}, {system}: {digits(old)} -> {digits(rate)} GB/s, {ratio:.2f}, {word}")
    return "\n".join(lines) or "nothing to compare"
