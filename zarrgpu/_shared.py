"""Shared memory of a GPU by 32-bit addresses, and copies into it that nobody waits for.

numba reaches shared memory through 64-bit pointers and makes every load wait for the stores before it. Decoders whose
lanes each walk a bitstream of their own are bound by just that: here a table is a 32-bit address, a load one
instruction, and the input comes by ``cp.async``, for which no register waits. On the host, where there is no shared
memory, the same functions index arrays. Warps that share memory wait for each other at barriers of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from zarrgpu._targets import Target, import_cuda, simulator, view_as

LATE = 8
"""Copies that may still be on their way after `Shared.advance`."""


@dataclass(frozen=True, eq=False)
class Shared:
    """What a kernel does with its shared memory; arrays are views of it, ``uint16[]`` or ``uint32[]``.

    Attributes
    ----------
    address : callable
        ``address(array, i) -> uint32``: where ``array[i]`` is.
    get : callable
        ``get(array, address, k) -> uint32``: the element `k` after the one at `address`, of the type of `array`.
    fetch16 : callable
        ``fetch16(array, address, k, words, i, wanted)``: start to copy ``words[i:i+4]``, of global memory, to the
        ``uint32`` `k` after the one at `address`, if `wanted`. Both are 16-byte aligned.
    advance : callable
        ``advance()``: close a step's copies, and wait for those of all but the latest `LATE` steps of this lane.
    settle : callable
        ``settle()``: wait for all of them.
    barrier : callable
        ``barrier(number, threads)``: so many threads of the block, whole warps, wait for each other and see each
        other's stores. Number 0 is the barrier of all threads of a block.
    halves_of : callable
        ``halves_of(words) -> uint16[]``: the halves of a ``uint32[]`` where there is no shared memory; None on a GPU.
    """

    address: Callable[..., Any]
    get: Callable[..., Any]
    fetch16: Callable[..., None]
    advance: Callable[[], None]
    settle: Callable[[], None]
    barrier: Callable[..., None]
    halves_of: Any = None


def shared(target: Target) -> Shared:
    """The shared memory of a target."""
    return {"host": _host, "sim": _simulator, "cuda": _gpu}[target.name]()


def _nothing() -> None:
    return None


@cache
def _host() -> Shared:
    inline = numba.njit(error_model="numpy", nogil=True)

    def address(array, i):  # type: ignore[no-untyped-def]  # typed by numba
        return np.uint32(i)

    def get(array, address, k):  # type: ignore[no-untyped-def]  # typed by numba
        return np.uint32(array[np.uint32(np.uint32(address) + np.uint32(k))])

    def fetch16(array, address, k, words, i, wanted):  # type: ignore[no-untyped-def]  # typed by numba
        return None

    def barrier(number, threads):  # type: ignore[no-untyped-def]  # typed by numba
        return None

    functions = [inline(f) for f in (address, get, fetch16, _nothing, _nothing, barrier)]
    functions.append(view_as(numba.extending.intrinsic, types.uint16))
    return Shared(*functions)


@cache
def _simulator() -> Shared:
    def address(array: Any, i: Any) -> Any:
        return np.uint32(i)

    def get(array: Any, address: Any, k: Any) -> Any:
        return np.uint32(array[int(address) + int(k)])

    def fetch16(array: Any, address: Any, k: Any, words: Any, i: Any, wanted: Any) -> None:
        if wanted:
            at = int(address) + int(k)
            if at % 4 or int(i) % 4:
                raise AssertionError(f"fetch16 from word {i} to word {at}, not 16-byte aligned")
            array[at : at + 4] = words[int(i) : int(i) + 4]

    def barrier(number: Any, threads: Any) -> None:
        simulator().cuda.barrier(number, threads)

    return Shared(address, get, fetch16, _nothing, _nothing, barrier)


@cache
def _gpu() -> Shared:
    import_cuda()
    from llvmlite import ir
    from numba.core.cgutils import get_or_insert_function
    from numba.cuda.extending import intrinsic

    i32, i64, void = ir.IntType(32), ir.IntType(64), ir.VoidType()

    def pointer(context: Any, builder: Any, kind: Any, array: Any) -> Any:
        return builder.ptrtoint(context.make_array(kind)(context, builder, array).data, i64)

    def scaled(builder: Any, i: Any, kind: Any) -> Any:
        return builder.mul(i, ir.Constant(i.type, kind.dtype.bitwidth // 8))

    @intrinsic
    def address(typing_context, array, i):  # type: ignore[no-untyped-def]  # numba reads the names
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            ptx = "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }"
            asm = ir.InlineAsm(ir.FunctionType(i32, [i64]), ptx, "=r,l", side_effect=False)
            base = builder.call(asm, [pointer(context, builder, sig.args[0], args[0])])
            return builder.add(base, scaled(builder, args[1], sig.args[0]))

        return types.uint32(array, types.uint32), codegen

    @intrinsic
    def get(typing_context, array, address, k):  # type: ignore[no-untyped-def]  # numba reads the names
        narrow = "{ .reg .u16 t; ld.shared.u16 t, [$1]; cvt.u32.u16 $0, t; }"
        ptx = narrow if array.dtype.bitwidth == 16 else "ld.shared.u32 $0, [$1];"

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            asm = ir.InlineAsm(ir.FunctionType(i32, [i32]), ptx, "=r,r,~{memory}", side_effect=True)
            return builder.call(asm, [builder.add(args[1], scaled(builder, args[2], sig.args[0]))])

        return types.uint32(array, types.uint32, types.uint32), codegen

    @intrinsic
    def fetch16(typing_context, array, address, k, words, i, wanted):  # type: ignore[no-untyped-def]  # numba reads the names
        ptx = "{ .reg .pred p; setp.ne.u32 p, $2, 0; @p cp.async.cg.shared.global [$0], [$1], 16; }"

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to = builder.add(args[1], scaled(builder, args[2], sig.args[0]))
            offset = scaled(builder, builder.zext(args[4], i64), sig.args[3])
            source = builder.add(pointer(context, builder, sig.args[3], args[3]), offset)
            asm = ir.InlineAsm(ir.FunctionType(void, [i32, i64, i32]), ptx, "r,l,r,~{memory}", side_effect=True)
            flag = args[5] if args[5].type.width == 32 else builder.zext(args[5], i32)
            builder.call(asm, [to, source, flag])
            return context.get_dummy_value()

        return types.void(array, types.uint32, types.uint32, words, types.uint32, types.boolean), codegen

    @intrinsic
    def barrier(typing_context, number, threads):  # type: ignore[no-untyped-def]  # numba reads the names
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(void, [i32, i32])  # not inline PTX, which may be copied into branches
            function = get_or_insert_function(builder.module, kind, "llvm.nvvm.barrier.sync.cnt")
            builder.call(function, [builder.trunc(a, i32) for a in args])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    def instruction(ptx: str) -> Any:
        @intrinsic
        def run(typing_context):  # type: ignore[no-untyped-def]  # numba reads the names
            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                asm = ir.InlineAsm(ir.FunctionType(void, []), ptx, "~{memory}", side_effect=True)
                builder.call(asm, [])
                return context.get_dummy_value()

            return types.void(), codegen

        return run

    advance, settle = (instruction(f"cp.async.commit_group; cp.async.wait_group {n};") for n in (LATE, 0))
    return Shared(address, get, fetch16, advance, settle, barrier)
