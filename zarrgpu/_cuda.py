"""The one place that knows numba's targets: importing numba.cuda, the primitives that kernels use, the `Kernel` value.

A kernel is written once, as ``make(target, lanes) -> body`` where ``body(lane, item, *args)`` does the share of `lane`,
one of `lanes` threads that work on one `item` together. It is compiled for

* CUDA, with `lanes` threads an item (a simulator kernel when numba runs with ``NUMBA_ENABLE_CUDASIM=1``),
* the host, with one lane: a loop over a range of items that holds no GIL.

numba-cuda is in maintenance and its successor lacks a simulator, so that what is not portable stays in this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numba
from numba import types

from zarrgpu import _fork
from zarrgpu._cache import keep_on_disk
from zarrgpu._cubin import launch
from zarrgpu._shared import LATE, Shared, shared
from zarrgpu._targets import FULL, WARP, Target, cuda_target, host, import_cuda, is_simulated

__all__ = [
    "FULL",
    "LATE",
    "WARP",
    "Kernel",
    "Shared",
    "Target",
    "cuda_target",
    "host",
    "import_cuda",
    "is_simulated",
    "shared",
]


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel: how to make its body, with which types, how many lanes share an item.

    Parameters
    ----------
    name : str
        As in the file's name; shown by ``explain()`` and by profilers.
    make : callable
        ``make(target, lanes) -> body(lane, item, *args)``.
    arguments : tuple of numba types
        Of ``args``; also what the kernel is compiled with ahead of its first launch.
    lanes : int
        Threads that work on one item on a GPU: 1, 4, `WARP` or several warps, which are a block then.
    threads : int
        Threads of a block.
    shared : int
        Dynamic shared memory in bytes for each warp of a block; a body finds its part by ``cuda.threadIdx.x // WARP``.
    on_host : bool
        Whether the body can be compiled for the host.
    """

    name: str
    make: Callable[[Target, int], Any]
    arguments: tuple[Any, ...]
    lanes: int = 1
    threads: int = 256
    shared: int = 0
    on_host: bool = True
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def signature(self) -> Any:
        """The numba signature of the CUDA kernel: the number of items, then the arguments."""
        return types.void(types.int64, *self.arguments)

    def python(self) -> Any:
        """The CUDA kernel before `cuda.jit`, for compilation to a cubin without a GPU."""
        if "python" not in self._made:
            target = cuda_target()
            cuda, lanes = import_cuda(), self.lanes
            body = target.device(self.make(target, lanes))
            self._made["python"] = _generate(
                self.name,
                len(self.arguments),
                "def {name}(n, {args}):\n"
                "    i = cuda.grid(1)\n"
                "    item = i // lanes\n"
                "    if item < n:\n"
                "        body(i - item * lanes, item, {args})\n",
                cuda=cuda,
                body=body,
                lanes=lanes,
            )
        return self._made["python"]

    def cuda(self) -> Any:
        """The kernel as the simulator runs it, ``kernel[blocks, threads, 0, shared](n, *args)``."""
        if "cuda" not in self._made:
            self._made["cuda"] = import_cuda().jit(self.python())
        return self._made["cuda"]

    def host(self) -> Any:
        """The compiled twin, ``twin(begin, end, *args)``: items from `begin` to `end`, one after the other."""
        if not self.on_host:
            raise NotImplementedError(f"kernel {self.name} has no host twin")
        if "host" not in self._made:
            with _fork.loading:  # numba makes up its mind about much at its first compilation, under locks of its own
                if "host" not in self._made:
                    self._made["host"] = self._twin()
        return self._made["host"]

    def _twin(self) -> Any:
        target = replace(host(), device=_named(self.name, host().device))
        body = self.make(target, 1)
        twin = _generate(
            self.name,
            len(self.arguments),
            "def {name}(begin, end, {args}):\n    for i in range(begin, end):\n        body(0, i, {args})\n",
            file=body.__code__.co_filename,
            __name__=body.__module__,
            body=target.device(body),
        )
        dispatcher = keep_on_disk(numba.njit(nogil=True, error_model="numpy")(twin), self.name)
        dispatcher.compile(types.void(types.int64, types.int64, *self.arguments))
        dispatcher.disable_compile()  # one signature a kernel, as on a GPU, and for `_named` to hold
        return dispatcher

    def launch(self, n: int, args: tuple[Any, ...], stream: Any = None) -> None:
        """Enqueue the kernel over `n` items on a cupy stream; `args` are cupy arrays and ints.

        In the simulator, which pays for idle threads, blocks are as small as can be, and NumPy arrays will do.
        """
        if n <= 0:
            return
        threads = max(WARP, self.lanes) if is_simulated() else self.threads
        blocks, shared = -(-n * self.lanes // threads), self.shared * threads // WARP
        if is_simulated():
            cuda = import_cuda()
            arrays = (cuda.as_cuda_array(a, sync=False) if hasattr(a, "__cuda_array_interface__") else a for a in args)
            self.cuda()[blocks, threads, 0, shared](n, *arrays)
        else:
            launch(self, blocks, shared, n, args, stream)


def _named(kernel: str, device: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`device`, with a symbol of its own for each function that it is given.

    The closures that kernels are made of share their qualified names. Code from numba's cache is linked by name with
    what this process compiled, so that a twin would end up with the inner functions of another one.
    """
    count = itertools.count()

    def named(function: Any) -> Any:
        function.__qualname__ = f"{kernel}.{next(count)}.{function.__name__}"
        return device(function)

    return named


def _generate(name: str, n: int, source: str, file: str = "<zarrgpu>", **names: Any) -> Any:
    """A function with `n` plain arguments: numba compiles no ``*args`` in a CUDA kernel."""
    code = source.format(name=name, args=", ".join(f"a{k}" for k in range(n)))
    exec(compile(code, file, "exec"), names)  # noqa: S102  # our own text, a constant but for the count
    return names[name]
