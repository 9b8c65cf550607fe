"""Kernels as machine code: compiled by numba-cuda, kept on disk, launched through cupy.

numba's own dispatch costs 75 microseconds with three cupy arrays, and a millisecond with thirteen beside other threads;
the same machine code launched by cupy costs a tenth. A kernel compiles in seconds, so that its cubin is kept in
``ZARRGPU_CACHE_DIR``, by default ``~/.cache/zarrgpu``, under a digest of all that it is made of.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zarrgpu._cache import sources
from zarrgpu._targets import WARP

if TYPE_CHECKING:
    from zarrgpu._cuda import Kernel


FREE_SHARED = 48 << 10
"""Bytes of shared memory that a block has without asking."""


def compile_lto(kernel: Kernel, capability: tuple[int, int]) -> bytes:
    """Compile a kernel to NVVM's intermediate code; needs no GPU."""
    from zarrgpu._targets import import_cuda

    cuda = import_cuda()
    lto, _ = cuda.compile(
        kernel.python(), kernel.signature, cc=capability, output="ltoir", device=False, abi="numba", fastmath=False
    )
    return bytes(lto)


def link(lto: bytes, architecture: str) -> tuple[bytes, str]:
    """Link intermediate code for an architecture such as ``"sm_90"``; give the cubin and ptxas' report."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=architecture, link_time_optimization=True, verbose=True, ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ltoir(lto), options=options)
    cubin = bytes(linker.link("cubin").code)
    return cubin, linker.get_info_log()


def entry(cubin: bytes) -> str:
    """The name of the one kernel in a cubin."""
    found = re.search(rb"\.text\.(_Z\w+)", cubin)
    if found is None:
        raise RuntimeError("the cubin has no kernel")
    return found[1].decode()


def folder() -> Path:
    """Where cubins are kept."""
    named = os.environ.get("ZARRGPU_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "zarrgpu"


def cubin(kernel: Kernel, capability: tuple[int, int]) -> bytes:
    """The cubin of a kernel for a device of compute capability `capability`, from disk if it is there."""
    parts = (sources(), kernel.name, str(capability), version("numba-cuda"))
    path = folder() / f"{kernel.name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        code, _ = link(compile_lto(kernel, capability), f"sm_{capability[0]}{capability[1]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)  # whole or not at all, whoever else writes it
    except OSError:  # no place to keep it: compiled again in the next process
        pass
    return code


@cache
def _function(kernel: Kernel, device: int) -> Any:
    import cupy

    major, minor = divmod(int(cupy.cuda.Device(device).compute_capability), 10)
    code = cubin(kernel, (major, minor))
    module = cupy.cuda.function.Module()
    module.load(code)
    function = module.get_function(entry(code))
    nbytes = kernel.shared * kernel.threads // WARP
    if nbytes > FREE_SHARED:
        driver = cupy.cuda.driver
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)
    return function


def launch(kernel: Kernel, blocks: int, shared: int, n: int, args: tuple[Any, ...], stream: Any) -> None:
    """Launch a kernel on the current device.

    Parameters
    ----------
    kernel : Kernel
        What to run.
    blocks, shared : int
        Blocks of the grid; bytes of dynamic shared memory of a block.
    n : int
        Items.
    args : tuple of cupy.ndarray and int
        The kernel's arguments, C-contiguous arrays.
    stream : cupy.cuda.Stream
        Where to enqueue it.
    """
    import cupy

    flat = [n]
    for a in args:
        if isinstance(a, cupy.ndarray):  # numba's ABI: two null objects, then what describes the array
            flat += [0, 0, a.size, a.itemsize, a.data.ptr, *a.shape, *a.strides]
        else:
            flat.append(a)
    _function(kernel, cupy.cuda.runtime.getDevice())(
        (blocks, 1, 1), (kernel.threads, 1, 1), flat, shared_mem=shared, stream=stream
    )
