"""Everything in one run: the gate, then six kinds of data, read by every system that is installed.

    python -m benchmarks [--gate | --six] [--only TEXT] [--steps N] [--repeats N] [--small]
                         [--results FOLDER] [--json FILE] [--compare FILE] [--targets]

The results, ``benchmarks/results/`` by default, are a JSON file with the machine, the driver, the versions and the
commit, a Markdown table, and a plot of each dataset. ``--compare`` shows what became of the rates of an earlier JSON
file; those of another machine say little.

The exit status is 1 when data are wrong or zarrgpu fails; with ``--targets`` also when a target is missed on a GPU.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import gate, results, suite
from zarrgpu import engine
from zarrgpu.bench.report import Findings


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Reads, kernels, ceilings, side by side.")
    gpu = engine.available()[0] != "host"
    parser.add_argument("--steps", type=int, default=256 if gpu else 16, help="time steps of the gate, 4 MB each")
    parser.add_argument("--repeats", type=int, default=5, help="timed reads of each system")
    parser.add_argument("--gate", action="store_true", help="the gate alone")
    parser.add_argument("--six", action="store_true", help="the datasets alone")
    parser.add_argument("--only", default="", help="of the datasets those whose name contains this; implies --six")
    parser.add_argument("--small", action="store_true", help="as little of each dataset as the tests have")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="where files are written")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--compare", type=Path, help="an earlier JSON file")
    parser.add_argument("--targets", action="store_true", help="fail when a target is missed")
    options = parser.parse_args()
    earlier = None if options.compare is None else results.load(options.compare)
    report: dict[str, Any] = {"machine": results.machine(), "datasets": {}}
    failed = missed = False
    if not options.six and not options.only:
        rows, measured = gate.run(options.steps, options.repeats)
        print(f"\n{gate.table(rows)}\n", flush=True)
        report["gate"] = {"rows": [asdict(row) for row in rows], "measurements": [m.as_dict() for m in measured]}
        failed = Findings("", measured).failed
        missed = any(row.met is False for row in rows)
    for name, findings in suite.run(options.only, options.repeats, options.small) if not options.gate else ():
        print(results.text(name, findings), flush=True)
        report["datasets"][name] = findings.as_dict()
        failed = failed or findings.failed
        results.plot(options.results, name, findings)
    written = results.write(options.results, report)
    if options.json is not None:
        results.dump(options.json, report)
    print(f"written: {', '.join(map(str, written))}")
    if earlier is not None:
        print(results.comparison(earlier, report))
    return int(failed or (options.targets and missed))


if __name__ == "__main__":
    sys.exit(main())
