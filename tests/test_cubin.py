"""Every kernel compiles for every architecture we name, keeps its values in registers and leaves room for its block.

A kernels module shows what to check as module-level `Kernel` values and, where a function makes them, as a tuple
``KERNELS`` of the variants in use. They are compiled in a process of their own, since this one may run the simulator;
no GPU is needed. ``python -m tests.test_cubin`` prints the report as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
REGISTERS = 128  # at most: half the warps that sm_80 could hold with 64
REGISTER_FILE = 65536  # of a multiprocessor, and so of a block

# Bytes of stack frame that a kernel may use, and why they cannot be registers.
STACK: dict[str, tuple[int, str]] = {}


class Usage(NamedTuple):
    """What ptxas says of one kernel and the functions it calls."""

    kernel: str
    threads: int
    registers: int
    stack: int
    spills: int
    shared: int

    def faults(self) -> list[str]:
        """What is wrong with it, one line each."""
        limit = min(REGISTERS, REGISTER_FILE // self.threads)
        stack = STACK.get(self.kernel, (0, ""))[0]
        return [
            f"{self.kernel}: {text}"
            for wrong, text in [
                (self.spills > 0, f"{self.spills} bytes of spills"),
                (self.stack > stack, f"{self.stack} bytes of stack frame, {stack} allowed"),
                (self.registers > limit, f"{self.registers} registers, {limit} allowed"),
            ]
            if wrong
        ]


def kernels() -> list[Any]:
    """The `Kernel` values that the modules of `zarrgpu.kernels` show, each once."""
    import zarrgpu.kernels
    from zarrgpu._cuda import Kernel

    found: dict[int, Any] = {}
    for module in pkgutil.iter_modules(zarrgpu.kernels.__path__, "zarrgpu.kernels."):
        names = vars(importlib.import_module(module.name))
        for value in [*names.values(), *names.get("KERNELS", ())]:
            if isinstance(value, Kernel):
                found[id(value)] = value
    return list(found.values())


def link(name: str, threads: int, lto: bytes, architecture: str) -> Usage:
    """Make the cubin as numba-cuda does for a launch, and read ptxas' report."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=architecture, link_time_optimization=True, verbose=True, ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ltoir(lto), options=options)
    linker.link("cubin")
    log = linker.get_info_log()

    def found(pattern: str) -> list[int]:
        return [int(number) for number in re.findall(pattern, log)]

    return Usage(
        name,
        threads,
        max(found(r"Used (\d+) registers")),
        sum(found(r"(\d+) bytes stack frame")),
        sum(found(r"(\d+) bytes spill")),
        sum(found(r"(\d+) bytes smem")),
    )


def table(report: dict[str, list[Usage]]) -> list[str]:
    """The report as lines to read."""
    lines = [f"{'':6} {'kernel':24} {'threads':>7} {'registers':>9} {'stack':>6} {'spills':>6} {'shared':>6}"]
    for name, usages in report.items():
        lines += [
            f"{name:6} {u.kernel:24} {u.threads:7} {u.registers:9} {u.stack:6} {u.spills:6} {u.shared:6}"
            for u in usages
        ]
    return lines


def compile_all() -> dict[str, list[Usage]]:
    """The report for every kernel and architecture, in a process without the simulator."""
    from zarrgpu._cuda import import_cuda, is_simulated

    assert not is_simulated(), "unset NUMBA_ENABLE_CUDASIM"
    cuda = import_cuda()
    oldest = divmod(int(ARCHITECTURES[0].removeprefix("sm_")), 10)
    # The one question that numba-cuda asks the driver while it compiles a call to a device function.
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    dispatcher.get_current_device = lambda: type("Device", (), {"compute_capability": oldest})

    report: dict[str, list[Usage]] = {architecture: [] for architecture in ARCHITECTURES}
    for kernel in kernels():
        try:
            # Nearly all of the time goes here, and the linker gives out registers: once, for the oldest, is enough.
            lto, _ = cuda.compile(
                kernel.python(), kernel.signature, cc=oldest, output="ltoir", device=False, abi="numba"
            )
        except Exception as error:
            error.add_note(f"in kernel {kernel.name}")
            raise
        for architecture in ARCHITECTURES:
            report[architecture].append(link(kernel.name, kernel.threads, lto, architecture))
    return report


@pytest.mark.nogpu("no GPU takes part in it")
def test_kernels_compile_without_spills_and_within_their_registers() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, "-m", "tests.test_cubin"]
    root = Path(__file__).parents[1]
    child = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert not child.returncode, child.stderr
    report = {name: [Usage(*line) for line in lines] for name, lines in json.loads(child.stdout).items()}
    assert all(report[architecture] for architecture in ARCHITECTURES), "no kernels found"
    faults = [f"{name}: {fault}" for name, usages in report.items() for usage in usages for fault in usage.faults()]
    assert not faults, "\n".join([*faults, *table(report)])


if __name__ == "__main__":
    json.dump(compile_all(), sys.stdout)
