"""Numba's targets: importing numba.cuda, and the primitives that the bodies of kernels use on each target."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba import types

FULL = 0xFFFFFFFF  # the mask of a whole warp
WARP = 32


@cache
def import_cuda() -> ModuleType:
    """`numba.cuda`, imported with what numba-cuda 0.30 misses in NumPy >= 2.5 in place only while it is imported."""
    if find_spec("numba_cuda") is None:
        raise ImportError("numba-cuda is not installed: pip install 'zarrgpu[cuda13]'")
    missing = "row_stack" not in vars(np)
    if missing:
        np.row_stack = np.vstack  # type: ignore[attr-defined]  # removed in NumPy 2.5, its stub too
    try:
        with warnings.catch_warnings():  # of NumPy, about a unitless time that numba-cuda makes
            warnings.simplefilter("ignore", DeprecationWarning)
            from numba import cuda as module

            cuda: ModuleType = module
            if not is_simulated():
                import numba.cuda.np.arrayobj  # noqa: F401  # for its registrations, which need row_stack
    finally:
        if missing:
            del np.row_stack  # type: ignore[attr-defined]  # as above
    return cuda


def is_simulated() -> bool:
    """Whether `import_cuda` gives numba's simulator; asked without importing it, which a kept cubin does not need."""
    return bool(numba.config.ENABLE_CUDASIM)


@dataclass(frozen=True, eq=False)
class Target:
    """What the body of a kernel may use besides arithmetic and arrays.

    Attributes
    ----------
    name : str
        ``"cuda"``, ``"sim"`` or ``"host"``.
    device : callable
        Decorator for the functions that a body calls.
    cuda : module
        `numba.cuda`, or what stands for it inside a kernel that the simulator runs; None on the host.
    sync : callable
        ``sync()`` makes the stores of the lanes of a warp visible to each other. Does nothing with one lane.
    permute : callable
        ``permute(a, b, selector) -> uint32``: four bytes picked out of the eight of ``b:a`` by the low three bits of
        each nibble of `selector`; PTX ``prmt.b32``.
    load : callable
        ``load(array, i, wanted, other) -> uint32``: ``array[i]`` if `wanted`, else `other`; one predicated load. The
        array is ``uint8[]`` or ``uint32[]`` in global memory, `i` unsigned.
    load_either : callable
        ``load_either(a, b, second, i, wanted, other) -> uint32``: `load` from `b` if `second`, else from `a`, which
        are ``uint8[]``; one load, too.
    store16 : callable
        ``store16(words, i, a, b, c, d)``: four uint32 to ``words[i:i+4]``, a single 16-byte store. `i` is a multiple of
        four and ``words`` is 16-byte aligned.
    prefetch : callable
        ``prefetch(array, i, wanted)``: bring the cache line of ``array[i]`` into L2.
    bytes_of : callable
        ``bytes_of(words) -> uint8[]``: the bytes of a ``uint32[]``. A GPU's kernel then keeps one address for the two.
    """

    name: str
    device: Callable[[Any], Any]
    cuda: Any
    sync: Callable[[], None]
    permute: Callable[..., Any]
    load: Callable[..., Any]
    load_either: Callable[..., Any]
    store16: Callable[..., None]
    prefetch: Callable[..., None]
    bytes_of: Callable[[Any], Any]


def view_as(intrinsic: Any, dtype: Any) -> Any:
    """``view(words)``: the elements of `dtype` that are the same memory as a ``uint32[]``, by one address for both."""
    from llvmlite import ir
    from numba.core.cgutils import pack_array

    size = dtype.bitwidth // 8

    @intrinsic
    def view(typing_context, words):  # type: ignore[no-untyped-def]  # numba reads the names
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            old = context.make_array(sig.args[0])(context, builder, args[0])
            new = context.make_array(sig.return_type)(context, builder)
            one = ir.Constant(old.nitems.type, size)
            new.data = builder.bitcast(old.data, new.data.type)
            new.nitems = builder.mul(old.nitems, ir.Constant(old.nitems.type, 4 // size))
            new.itemsize = one
            new.shape, new.strides = pack_array(builder, [new.nitems]), pack_array(builder, [one])
            new.meminfo, new.parent = old.meminfo, old.parent
            return new._getvalue()

        return types.Array(dtype, 1, "C")(words), codegen

    return view


@cache
def host() -> Target:
    """The target whose bodies are compiled for one lane on the CPU."""
    inline = numba.njit(error_model="numpy", nogil=True)

    def sync() -> None:
        return None

    def permute(a, b, selector):  # type: ignore[no-untyped-def]  # typed by numba
        x = np.uint64(a) | (np.uint64(b) << np.uint64(32))
        r = np.uint32(0)
        for k in range(4):
            s = np.uint64(8) * np.uint64((selector >> np.uint32(4 * k)) & np.uint32(7))
            r |= np.uint32((x >> s) & np.uint64(255)) << np.uint32(8 * k)
        return np.uint32(r)

    def load(array, i, wanted, other):  # type: ignore[no-untyped-def]  # typed by numba
        if wanted:
            return np.uint32(array[i])
        return np.uint32(other)

    def load_either(a, b, second, i, wanted, other):  # type: ignore[no-untyped-def]  # typed by numba
        if wanted:
            return np.uint32(b[i] if second else a[i])
        return np.uint32(other)

    def store16(words, i, a, b, c, d):  # type: ignore[no-untyped-def]  # typed by numba
        words[i] = a
        words[i + np.uint64(1)] = b
        words[i + np.uint64(2)] = c
        words[i + np.uint64(3)] = d

    def prefetch(array, i, wanted):  # type: ignore[no-untyped-def]  # typed by numba
        return None

    # bodies allocate nothing and are called by each other only: half the time to compile, and faster code
    device = numba.njit(error_model="numpy", nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    primitives = [inline(f) for f in (sync, permute, load, load_either, store16, prefetch)]
    primitives.append(view_as(numba.extending.intrinsic, types.uint8))
    return Target("host", device, None, *primitives)


@cache
def simulator() -> Target:
    """The target of numba's simulator, where device functions are plain Python."""
    from numba.cuda.simulator.kernel import _get_kernel_context

    class Running:
        """The module of the kernel that runs now: the simulator swaps it into globals, but not into closures."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_get_kernel_context(), name)

    cuda = Running()

    def permute(a: Any, b: Any, selector: Any) -> Any:
        x = int(a) | int(b) << 32
        return np.uint32(sum((x >> 8 * (int(selector) >> 4 * k & 7) & 255) << 8 * k for k in range(4)))

    def load(array: Any, i: Any, wanted: Any, other: Any) -> Any:
        return np.uint32(array[int(i)]) if wanted else np.uint32(other)

    def load_either(a: Any, b: Any, second: Any, i: Any, wanted: Any, other: Any) -> Any:
        return load(b if second else a, i, wanted, other)

    def store16(words: Any, i: Any, a: Any, b: Any, c: Any, d: Any) -> None:
        if int(i) % 4:
            raise AssertionError(f"store16 at word {i}, which is not 16-byte aligned")
        words[int(i) : int(i) + 4] = (a, b, c, d)

    def prefetch(array: Any, i: Any, wanted: Any) -> None:
        return None

    def bytes_of(words: Any) -> Any:
        return words.view(np.uint8)

    def sync() -> None:
        cuda.syncwarp()

    return Target("sim", lambda f: f, cuda, sync, permute, load, load_either, store16, prefetch, bytes_of)


@cache
def gpu() -> Target:
    """The target of a real GPU, its primitives given to LLVM as inline PTX."""
    cuda = import_cuda()
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    u32, u64, void = ir.IntType(32), ir.IntType(64), ir.VoidType()

    def address(context: Any, builder: Any, array_type: Any, array: Any, i: Any) -> Any:
        size = ir.Constant(u64, array_type.dtype.bitwidth // 8)
        i = builder.zext(i, u64) if i.type.width < 64 else i
        data = context.make_array(array_type)(context, builder, array).data
        return builder.add(builder.ptrtoint(data, u64), builder.mul(i, size))

    def flag(builder: Any, value: Any) -> Any:
        return value if value.type.width == 32 else builder.zext(value, u32)

    @intrinsic
    def permute(typing_context, a, b, selector):  # type: ignore[no-untyped-def]  # numba reads the names
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            asm = ir.InlineAsm(
                ir.FunctionType(u32, [u32] * 3), "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", side_effect=False
            )
            return builder.call(asm, args)

        return types.uint32(types.uint32, types.uint32, types.uint32), codegen

    @intrinsic
    def load(typing_context, array, i, wanted, other):  # type: ignore[no-untyped-def]  # numba reads the names
        ptx = (
            f"{{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, $3; @p ld.global.u{array.dtype.bitwidth} $0, [$1]; }}"
        )

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            asm = ir.InlineAsm(ir.FunctionType(u32, [u64, u32, u32]), ptx, "=r,l,r,r,~{memory}", side_effect=True)
            return builder.call(
                asm, [address(context, builder, sig.args[0], args[0], args[1]), flag(builder, args[2]), args[3]]
            )

        return types.uint32(array, i, types.boolean, types.uint32), codegen

    @intrinsic
    def load_either(typing_context, a, b, second, i, wanted, other):  # type: ignore[no-untyped-def]  # as above
        ptx = "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, $3; @p ld.global.u8 $0, [$1]; }"

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pair = (address(context, builder, sig.args[k], args[k], args[3]) for k in (1, 0))  # `second` first
            first = args[2] if args[2].type.width == 1 else builder.trunc(args[2], ir.IntType(1))
            asm = ir.InlineAsm(ir.FunctionType(u32, [u64, u32, u32]), ptx, "=r,l,r,r,~{memory}", side_effect=True)
            return builder.call(asm, [builder.select(first, *pair), flag(builder, args[4]), args[5]])

        return types.uint32(a, b, types.boolean, i, types.boolean, types.uint32), codegen

    @intrinsic
    def store16(typing_context, words, i, a, b, c, d):  # type: ignore[no-untyped-def]  # numba reads the names
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(void, [u64, u32, u32, u32, u32])
            asm = ir.InlineAsm(
                kind, "st.global.v4.u32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}", side_effect=True
            )
            builder.call(asm, [address(context, builder, sig.args[0], args[0], args[1]), *args[2:]])
            return context.get_dummy_value()

        return types.void(words, types.uint64, *[types.uint32] * 4), codegen

    @intrinsic
    def prefetch(typing_context, array, i, wanted):  # type: ignore[no-untyped-def]  # numba reads the names
        ptx = "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p prefetch.global.L2 [$0]; }"

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            asm = ir.InlineAsm(ir.FunctionType(void, [u64, u32]), ptx, "l,r", side_effect=True)
            builder.call(asm, [address(context, builder, sig.args[0], args[0], args[1]), flag(builder, args[2])])
            return context.get_dummy_value()

        return types.void(array, i, types.boolean), codegen

    device = cuda.jit(device=True)

    @device
    def sync() -> None:
        cuda.syncwarp(0xFFFFFFFF)

    return Target(
        "cuda", device, cuda, sync, permute, load, load_either, store16, prefetch, view_as(intrinsic, types.uint8)
    )


def cuda_target() -> Target:
    """The target behind `import_cuda`: a GPU, or the simulator."""
    return simulator() if is_simulated() else gpu()
