"""`zarrgpu.kernels.zstd_execute` for few streams: six warps a stream, so that one waits while others work.

Arguments, statuses and bounds are those there, and so are the steps. A thread block decodes a stream in *turns*, with a
barrier after each, in three stages:

1. the *planner*, a warp, takes the next group of sequences, or one that is too long, or what a plain block has, and
   writes it as a *task* to shared memory, with the group's table;
2. four *preparers* make the blocks of 128 bytes of the group before, but for bytes whose source is in that group or in
   the task before it, which is not output yet; of these they note the source;
3. the *committer*, a warp, takes the task before that: it fetches what is left from the ring, or from the block itself,
   and writes the output and the ring; or it does what is no group all by itself.

Only the last of these waits for the output before it, and what it waits for is in shared memory.

Shared memory: a ring of `RING` bytes of recent output, of which preparers read only what the committer does not
overwrite in the same turn; two tables; three tasks; and prepared blocks, twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels import zstd_execute
from zarrgpu.kernels.tables import S_DEST, Status
from zarrgpu.kernels.warp_block import BLOCK, make_block, make_crew
from zarrgpu.kernels.zstd_alone import make_alone
from zarrgpu.kernels.zstd_planner import (
    COPY,
    END,
    FILL,
    GROUP_OF,
    NOTHING,
    SEQUENCE,
    T_COLUMNS,
    T_DEST,
    T_FROM,
    T_KIND,
    T_LENGTH,
    T_OFFSET,
    T_RAW,
    T_RING,
    T_SIZE,
    make_planner,
)
from zarrgpu.kernels.zstd_steps import GROUP, TABLE_SIZE, make_values

I = np.int64  # noqa: E741  # as U for uint32 elsewhere
U = np.uint32
U64 = np.uint64

OK = int(Status.OK)

PREPARERS = 4  # warps, a power of two
WARPS = PREPARERS + 2
RING = 4096

NONE = FULL  # source of a byte that is prepared

# Prepared blocks: words, sources of the four bytes of each, and whether there is any; 32 words each but for the last.
ROWS = GROUP // BLOCK
ROW = 5 * WARP
PREPARED = ROWS * ROW + ROWS

TABLES_AT = RING
TASKS_AT = (TABLES_AT + 2 * TABLE_SIZE) // 4  # in words from here on
PREPARED_AT = TASKS_AT + 3 * T_COLUMNS
SHARED = 4 * (PREPARED_AT + 2 * PREPARED)


def make_preparer(target: Target) -> Any:
    """``prepare``: every `PREPARERS`-th block of a group, by a warp."""
    cuda, device = target.cuda, target.device
    rank_of, _, _ = make_block(target, make_crew(target), RING)
    values = make_values(target, RING)

    @device
    def prepare(lane, nth, bytes8, words32, words64, table, rows, source, to, task, safe):
        """Bytes from `safe` on are not output yet."""
        dest, size, literals = (
            U(words32[U(task + U(T_DEST))]),
            U(words32[U(task + U(T_SIZE))]),
            U(words32[U(task + U(T_FROM))]),
        )
        raw = words32[U(task + U(T_RAW))] != U(0)
        # What the committer overwrites in the ring meanwhile counts as older than the ring already.
        most = U(RING - GROUP - 2 * BLOCK)
        oldest = min(max(U(max(safe, most) - most), U(words32[U(task + U(T_RING))])), safe)
        block, stop = U(dest & U(FULL - 3)), U(dest + size)
        bits, rank, row = U(table >> U(2)), U(FULL), U(0)
        while block < stop:
            mine, k, rank = rank_of(lane, words32, bits, rank)
            if U(row & U(PREPARERS - 1)) == nth:
                value, u0, u1, u2, u3, s0, s1, s2, s3 = values(
                    lane, bytes8, words64, U(0), table, mine, k, source, to, dest, size, block, safe, oldest, literals,
                    raw,
                )  # fmt: skip
                at = U(rows + U(row * U(ROW)) + lane)
                words32[at] = value
                some = cuda.any_sync(FULL, u0 or u1 or u2 or u3)
                if some:
                    words32[U(at + U(WARP))] = s0 if u0 else U(NONE)
                    words32[U(at + U(2 * WARP))] = s1 if u1 else U(NONE)
                    words32[U(at + U(3 * WARP))] = s2 if u2 else U(NONE)
                    words32[U(at + U(4 * WARP))] = s3 if u3 else U(NONE)
                if lane == U(0):
                    words32[U(rows + U(ROWS * ROW) + row)] = U(1) if some else U(0)
            block = U(block + U(BLOCK))
            bits = U(bits + U(BLOCK // 32))
            row = U(row + U(1))

    return prepare


def make_committer(target: Target) -> Any:
    """``commit``: a task that is prepared, by a warp."""
    cuda, device, load, permute, sync = target.cuda, target.device, target.load, target.permute, target.sync
    crew = make_crew(target)
    _, follow, store = make_block(target, crew, RING)
    copy, fill, sequence = make_alone(target, crew)

    @device
    def late(bytes8, to, source, fresh, oldest):
        """Whether a byte is in the block, and otherwise its value, if it was not prepared."""
        missing = source != U(NONE)
        value = U(bytes8[U(source & U(RING - 1))])
        return missing, missing and source >= fresh, load(to, source, missing and source < oldest, value)

    @device
    def group(lane, bytes8, words32, rows, to, to32, dest, size, ring_from):
        block, stop, row = U(dest & U(FULL - 3)), U(dest + size), U(0)
        while block < stop:
            at = U(rows + U(row * U(ROW)) + lane)
            value = U(words32[at])
            if words32[U(rows + U(ROWS * ROW) + row)] != U(0):
                fresh = max(block, dest)
                oldest = max(U(max(block, U(RING - BLOCK)) - U(RING - BLOCK)), ring_from)
                s0, s1 = U(words32[U(at + U(WARP))]), U(words32[U(at + U(2 * WARP))])
                s2, s3 = U(words32[U(at + U(3 * WARP))]), U(words32[U(at + U(4 * WARP))])
                m0, u0, v0 = late(bytes8, to, s0, fresh, oldest)
                m1, u1, v1 = late(bytes8, to, s1, fresh, oldest)
                m2, u2, v2 = late(bytes8, to, s2, fresh, oldest)
                m3, u3, v3 = late(bytes8, to, s3, fresh, oldest)
                if m0:
                    value = permute(value, v0, U(0x3214))
                if m1:
                    value = permute(value, v1, U(0x3240))
                if m2:
                    value = permute(value, v2, U(0x3410))
                if m3:
                    value = permute(value, v3, U(0x4210))
                if cuda.any_sync(FULL, u0 or u1 or u2 or u3):
                    q0, q1, q2, q3 = U(s0 - block), U(s1 - block), U(s2 - block), U(s3 - block)
                    value = follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)
            store(words32, U(0), to, to32, dest, block, lane, U(block - dest + (lane << U(2))), size, value)
            sync()
            block = U(block + U(BLOCK))
            row = U(row + U(1))

    @device
    def commit(lane, bytes8, words32, rows, source, source32, to, to32, task):
        kind, dest, size = (
            U(words32[U(task + U(T_KIND))]),
            U(words32[U(task + U(T_DEST))]),
            U(words32[U(task + U(T_SIZE))]),
        )
        from_, raw = U(words32[U(task + U(T_FROM))]), words32[U(task + U(T_RAW))] != U(0)
        if kind == U(GROUP_OF):
            group(lane, bytes8, words32, rows, to, to32, dest, size, U(words32[U(task + U(T_RING))]))
        elif kind == U(SEQUENCE):
            offset, length = U(words32[U(task + U(T_OFFSET))]), U(words32[U(task + U(T_LENGTH))])
            sequence(lane, source, source32, to, to32, dest, from_, raw, size, offset, length)
        elif kind == U(COPY):
            copy(lane, to, to32, dest, source, source32, from_, size)
        elif kind == U(FILL):
            fill(lane, to, dest, source[from_], size)
        sync()

    return commit


def make_decode(target: Target) -> Any:
    """``execute``: all blocks of a stream, by `WARPS` warps."""
    cuda, device, bytes_of = target.cuda, target.device, target.bytes_of
    plan, prepare, commit = make_planner(target), make_preparer(target), make_committer(target)

    @device
    def execute(thread, source, scratch, streams, line, begin, end, blocks, sequences, from32, to32):
        from8, to8 = bytes_of(from32), bytes_of(to32)
        bytes8 = cuda.shared.array(0, types.uint8)
        words32 = cuda.shared.array(0, types.uint32)
        words64 = cuda.shared.array(0, types.uint64)
        warp, lane = U(U(thread) >> U(5)), U(U(thread) & U(WARP - 1))
        dest = U(streams[line, S_DEST] & 15)
        if U(thread) < U(3 * T_COLUMNS):
            words32[U(U(TASKS_AT) + U(thread))] = dest if U(thread) % U(T_COLUMNS) == U(T_DEST) else U(NOTHING)
        cuda.syncthreads()
        # Of the planner alone: the next block, the one that it is at, and what is left of that.
        b, o, status, literals = begin, I(0), OK, False
        left, k, made, used, ring_from, ahead = U(0), U(0), U(0), U(0), dest, U64(0)
        turn, done = 0, False
        while not done:
            task = U(TASKS_AT + turn % 3 * T_COLUMNS)
            prepared = U(TASKS_AT + (turn + 2) % 3 * T_COLUMNS)
            committed = U(TASKS_AT + (turn + 1) % 3 * T_COLUMNS)
            odd = U(turn & 1)
            if warp == U(0):
                table = U(U(TABLES_AT) + U(odd * U(TABLE_SIZE)))
                status, b, o, literals, left, ahead, k, made, used, dest, ring_from = plan(
                    lane, words32, words64, task, table, source, scratch, streams, line, end, blocks, sequences,
                    status, b, o, literals, left, ahead, k, made, used, dest, ring_from,
                )  # fmt: skip
            elif warp <= U(PREPARERS):
                if words32[U(prepared + U(T_KIND))] == U(GROUP_OF):
                    table = U(U(TABLES_AT) + U(U(U(1) - odd) * U(TABLE_SIZE)))
                    rows = U(U(PREPARED_AT) + U(U(U(1) - odd) * U(PREPARED)))
                    safe = U(words32[U(committed + U(T_DEST))])
                    prepare(lane, U(warp - U(1)), bytes8, words32, words64, table, rows, from8, to8, prepared, safe)
            else:
                rows = U(U(PREPARED_AT) + U(odd * U(PREPARED)))
                commit(lane, bytes8, words32, rows, from8, from32, to8, to32, committed)
            done = words32[U(committed + U(T_KIND))] == U(END)
            if done:
                status = np.int32(words32[U(committed + U(T_SIZE))])
            turn += 1
            cuda.syncthreads()
        return status

    return execute


def make(target: Target, lanes: int) -> Any:
    """The body of `KERNEL`; on the host, that of `zarrgpu.kernels.zstd_execute`."""
    return zstd_execute.make(target, 1) if lanes == 1 else zstd_execute.make_body(make_decode(target))


KERNEL = Kernel(
    "zstd_execute_crew",
    make,
    zstd_execute.ARGUMENTS,
    lanes=WARPS * WARP,
    threads=WARPS * WARP,
    shared=-(-SHARED // WARPS),
)
