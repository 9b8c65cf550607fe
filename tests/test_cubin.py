"""Every kernel compiles for every architecture we name, keeps its values in registers and leaves room for its block.

A kernels module shows what to check as module-level `Kernel` values and, where a function makes them, as a tuple
``KERNELS`` of the variants in use. They are compiled in a process of their own, since this one may run the simulator;
no GPU is needed. ``python -m tests.test_cubin sm_90`` prints the report as JSON.
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


def compile_one(kernel: Any, architecture: str) -> Usage:
    """Compile `kernel` as for a launch on `architecture` and read ptxas' report."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    from zarrgpu._cuda import import_cuda

    capability = divmod(int(architecture.removeprefix("sm_")), 10)
    lto, _ = import_cuda().compile(
        kernel.python(), kernel.signature, cc=capability, output="ltoir", device=False, abi="numba"
    )
    options = LinkerOptions(arch=architecture, link_time_optimization=True, verbose=True, ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ltoir(lto), options=options)
    linker.link("cubin")
    log = linker.get_info_log()

    def total(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, log)))

    return Usage(
        kernel.name,
        kernel.threads,
        max(map(int, re.findall(r"Used (\d+) registers", log))),
        total(r"(\d+) bytes stack frame"),
        total(r"(\d+) bytes spill"),
        total(r"(\d+) bytes smem"),
    )


def compile_all(architecture: str) -> list[Usage]:
    """The report for every kernel, in a process without the simulator."""
    from zarrgpu._cuda import import_cuda, is_simulated

    assert not is_simulated(), "unset NUMBA_ENABLE_CUDASIM"
    if not import_cuda().is_available():
        # The one question that numba-cuda asks the driver while it compiles a call to a device function.
        dispatcher = importlib.import_module("numba.cuda.dispatcher")
        capability = divmod(int(architecture.removeprefix("sm_")), 10)
        dispatcher.get_current_device = lambda: type("Device", (), {"compute_capability": capability})  # type: ignore[attr-defined]  # as said
    return [compile_one(kernel, architecture) for kernel in kernels()]


@pytest.mark.nogpu("no GPU takes part in it")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_without_spills_and_within_their_registers(architecture: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    child = subprocess.run(
        [sys.executable, "-m", "tests.test_cubin", architecture],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    report = [Usage(*line) for line in json.loads(child.stdout)]
    assert report, "no kernels found"
    faults = [fault for usage in report for fault in usage.faults()]
    table = [f"{'kernel':32} {'threads':>7} {'registers':>9} {'stack':>6} {'spills':>6} {'shared':>6}"]
    table += [f"{u.kernel:32} {u.threads:7} {u.registers:9} {u.stack:6} {u.spills:6} {u.shared:6}" for u in report]
    assert not faults, "\n".join([*faults, f"for {architecture}:", *table])


if __name__ == "__main__":
    json.dump(compile_all(sys.argv[1]), sys.stdout)
