"""What the checksum kernels share: a table of byte ranges, two kernels over it, and the rule for a verdict.

A range is checked in two launches. ``partial`` makes one value of each segment of `SEGMENT` bytes; ``verdict`` combines
the values of a range and compares the result with what is stored. All checksums take the same arguments:

=============  =====================================================================================================
``groups``     int64: segments that each range has room for in `partial`; see `Checksum.groups`
``source``     uint8[]: the source arena; ``source32``: uint32[], its whole words
``scratch``    uint8[]: the scratch arena; ``scratch32``: uint32[], its whole words
``checks``     int64[k, 4]: of each range the columns below
``tables``     uint32[]: `Checksum.tables`
``partial``    uint64[k * groups] or longer: a value for each segment; no alias of anything
``status``     int32[k]: written for every range
=============  =====================================================================================================

============  ======================================================================================================
``K_ARENA``   `SOURCE` or `SCRATCH`: the arena in which the range lies
``K_FIRST``   first byte of the payload
``K_SIZE``    bytes of the payload, 0 or more
``K_STORED``  first byte of the checksum that is stored, 4 bytes, little endian, anywhere in the same arena
``K_VALUE``   what the checksum must be; a column of tables for ``compare`` only, for which `K_STORED` means nothing
============  ======================================================================================================

``partial(groups, source, source32, scratch, scratch32, checks, tables, partial)`` has ``k * groups`` items,
``verdict(groups, source, scratch, checks, tables, partial, status)`` has ``k``. Where a stream has several ranges,
``compare(groups, source, scratch, checks, tables, partial, order, status)`` comes instead: stream ``order[i]`` has the
same number of lines as any other, up to the first whose ``K_ARENA`` is -1, and its status, where it is `OK`, becomes
that of the first range with another one; items are streams. Grid: a warp an item, blocks of 256, no
shared memory. Arenas start at a multiple of 4 bytes; nothing in them is written to.

Statuses: `OK`. `BAD_CHECKSUM`: the stored value is not that of the payload. `BAD_TABLE`: the payload or what is stored
lies outside its arena, there is no such arena, the range has more segments than `groups`, or `partial` or ``tables``
is too short; nothing of the range is read then, and none of its partials written.

Limits: none but int64. `Checksum.groups` believes the table: a size that is no arena's asks for as many items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from zarrgpu._cuda import FULL, WARP, Kernel, Target
from zarrgpu.kernels.tables import SCRATCH, SOURCE, Status

U = np.uint32
W = np.uint64
OK, BAD_TABLE, BAD_CHECKSUM = int(Status.OK), int(Status.BAD_TABLE), int(Status.BAD_CHECKSUM)

K_ARENA: Final = 0
K_FIRST: Final = 1
K_SIZE: Final = 2
K_STORED: Final = 3
CHECK_COLUMNS: Final = 4
K_VALUE: Final = 4
MEMBER_COLUMNS: Final = 5

SEGMENT: Final = 16384
"""Bytes of a segment: large beside what combining costs, small enough that a chunk of a MiB keeps 64 warps busy."""
SEGMENT_WORDS: Final = SEGMENT // 4
SHORT: Final = 8
"""Payloads of fewer bytes have no segments; of others, segments hold the first 5 bytes and more."""

_u1, _u4, _u8, _i4 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.uint64, types.int32))
_checks = types.Array(types.int64, 2, "C")
PARTIAL_ARGUMENTS = (types.int64, _u1, _u4, _u1, _u4, _checks, _u4, _u8)
VERDICT_ARGUMENTS = (types.int64, _u1, _u1, _checks, _u4, _u8, _i4)
COMPARE_ARGUMENTS = (*VERDICT_ARGUMENTS[:-1], types.Array(types.int64, 1, "C"), _i4)


@dataclass(frozen=True, eq=False)
class Checksum:
    """A checksum: its kernels, and what they need.

    Parameters
    ----------
    name : str
        As numcodecs names the codec.
    partial, verdict, compare : Kernel
        The first launch and the two kinds of the second, with the arguments that the module describes.
    tables : ndarray of uint32
        The argument ``tables``, the same for every launch.
    """

    name: str
    partial: Kernel
    verdict: Kernel
    compare: Kernel
    tables: npt.NDArray[np.uint32]

    def groups(self, checks: npt.NDArray[np.int64]) -> int:
        """The argument ``groups``: segments of the longest range."""
        words = (checks[:, K_SIZE] + (checks[:, K_FIRST] & 3)) >> 2
        return int(-(-words.max(initial=0) // SEGMENT_WORDS))

    def partials(self, checks: npt.NDArray[np.int64]) -> int:
        """Elements of the argument ``partial``, uint64 each."""
        return len(checks) * self.groups(checks)


def make_parts(target: Target, entries: int) -> Any:
    """Device function ``parts(groups, source, scratch, checks, tables, partial, line)``: how a range is divided.

    It gives ``(good, start, words, tail, segments)``: whether the line of the table is good; the word of the arena with
    the payload's first byte; how many words there are from it on before the `tail`, the first byte that no segment
    holds; and the segments. Segments count back from the tail, so that only the first is short. The tail starts at the
    last multiple of 4 that the payload reaches, so that it has 3 bytes at most; a `SHORT` payload is all tail.
    """

    @target.device
    def parts(groups, source, scratch, checks, tables, partial, line):
        where, first = checks[line, K_ARENA], checks[line, K_FIRST]
        size, stored = checks[line, K_SIZE], checks[line, K_STORED]
        room = np.int64(source.size if where == SOURCE else scratch.size)
        good = (where == SOURCE or where == SCRATCH) and size >= 0 and first >= 0 and stored >= 0
        if not good or first > room - size or stored > room - 4:
            return False, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        start, words, tail = first >> 2, np.int64(0), first
        if size >= SHORT:
            tail = (first + size) & ~3
            words = (tail >> 2) - start
        segments = (words + SEGMENT_WORDS - 1) // SEGMENT_WORDS
        # The first comparison keeps the product below the size of two arrays, and so in 64 bits.
        fits = segments <= groups and groups <= partial.size and (line + 1) * groups <= partial.size
        return fits and tables.size >= entries, start, words, tail, segments

    return parts


def make_head(target: Target, ones: int) -> Any:
    """Device function ``head(words, start, at, skew)``: word `at` of the payload's words, its beginning included.

    The payload starts `skew` bytes into word 0, which is ``words[start]``, and has two words at least. What is before
    it, words too, reads as zeros; its first four bytes are xored with `ones`.
    """

    @target.device
    def head(words, start, at, skew):
        if at < 0:
            return U(0)
        value = U(words[W(start + at)])
        mask = U((FULL << (8 * skew)) & FULL)
        if at == 0:
            value = U((value ^ U(ones)) & mask)
        elif at == 1:
            value = U(value ^ U(U(ones) & U(~mask)))
        return value

    return head


def make_total(target: Target, lanes: int, add: Callable[[Any, Any], Any]) -> Any:
    """Device function ``total(value)``: `add` over the uint32 of all lanes, in every lane."""
    cuda, add = target.cuda, target.device(add)

    @target.device
    def total(value):
        if lanes > 1:
            distance = lanes // 2
            while distance > 0:
                value = U(add(value, U(cuda.shfl_xor_sync(FULL, np.int32(value), distance))))
                distance = distance // 2
        return value

    return total


def make_partial(target: Target, lanes: int, entries: int, make_digest: Callable[[Target, int], Any]) -> Any:
    """The body of ``partial``.

    ``digest(lane, tables, words, start, begin, end, skew) -> uint64`` makes the value of the segment of the payload's
    words `begin` to `end`, the payload being `skew` bytes into ``words[start]``. Lane 0's counts, all take part.
    """
    parts, digest = make_parts(target, entries), make_digest(target, lanes)

    def body(lane, item, groups, source, source32, scratch, scratch32, checks, tables, partial):
        line = item // groups
        segment = item - line * groups
        if line >= checks.shape[0]:
            return
        good, start, words, _, segments = parts(groups, source, scratch, checks, tables, partial, line)
        arena = source32 if checks[line, K_ARENA] == SOURCE else scratch32
        # Words are read from start to start + words only, all of them inside the arena: this is what bounds the loads.
        if not good or segment >= segments or start + words > arena.size:
            return
        end = words - (segments - 1 - segment) * SEGMENT_WORDS
        begin = max(end - SEGMENT_WORDS, np.int64(0))
        value = digest(lane, tables, arena, start, begin, end, checks[line, K_FIRST] & 3)
        if lane == 0:
            partial[W(item)] = value

    return body


def make_verdict(target: Target, lanes: int, entries: int, make_conclude: Callable[[Target, int], Any]) -> Any:
    """The body of ``verdict``.

    ``conclude(lane, tables, partial, base, segments, arena, first, size, tail) -> uint32`` makes the checksum of the
    payload out of ``partial[base:base + segments]`` and the bytes from `tail` on. Lane 0's counts, all take part.
    """
    parts, conclude = make_parts(target, entries), make_conclude(target, lanes)

    def body(lane, item, groups, source, scratch, checks, tables, partial, status):
        good, _, _, tail, segments = parts(groups, source, scratch, checks, tables, partial, item)
        if not good:
            if lane == 0:
                status[item] = BAD_TABLE
            return
        arena = source if checks[item, K_ARENA] == SOURCE else scratch
        first, size, at = checks[item, K_FIRST], checks[item, K_SIZE], W(checks[item, K_STORED])
        value = conclude(lane, tables, partial, item * groups, segments, arena, first, size, tail)
        if lane == 0:
            stored = U(0)
            for k in range(4):
                stored = U(stored | U(U(arena[at + W(k)]) << U(8 * k)))
            status[item] = OK if value == stored else BAD_CHECKSUM

    return body


def make_compare(target: Target, lanes: int, entries: int, make_conclude: Callable[[Target, int], Any]) -> Any:
    """The body of ``compare``; `make_conclude` as for `make_verdict`."""
    parts, conclude = make_parts(target, entries), make_conclude(target, lanes)

    def body(lane, item, groups, source, scratch, checks, tables, partial, order, status):
        line, rows = order[item], checks.shape[0] // order.shape[0]
        if line < 0 or line >= status.shape[0] or status[line] != OK:
            return
        result, row, end = OK, item * rows, (item + 1) * rows
        while result == OK and row < end and checks[row, K_ARENA] >= 0:
            good, _, _, tail, segments = parts(groups, source, scratch, checks, tables, partial, row)
            if good:
                arena = source if checks[row, K_ARENA] == SOURCE else scratch
                first, size = checks[row, K_FIRST], checks[row, K_SIZE]
                value = conclude(lane, tables, partial, row * groups, segments, arena, first, size, tail)
                if value != U(checks[row, K_VALUE]):
                    result = BAD_CHECKSUM
            else:
                result = BAD_TABLE
            row += 1
        if lane == 0 and result != OK:
            status[line] = result

    return body


def kernels(
    name: str, entries: int, make_digest: Callable[[Target, int], Any], make_conclude: Callable[[Target, int], Any]
) -> tuple[Kernel, Kernel, Kernel]:
    """The three kernels of a checksum whose tables have `entries` entries."""

    def partial(target: Target, lanes: int) -> Any:
        return make_partial(target, lanes, entries, make_digest)

    def verdict(target: Target, lanes: int) -> Any:
        return make_verdict(target, lanes, entries, make_conclude)

    def compare(target: Target, lanes: int) -> Any:
        return make_compare(target, lanes, entries, make_conclude)

    return (
        Kernel(f"{name}_partial", partial, PARTIAL_ARGUMENTS, lanes=WARP),
        Kernel(f"{name}_verdict", verdict, VERDICT_ARGUMENTS, lanes=WARP),
        Kernel(f"{name}_compare", compare, COMPARE_ARGUMENTS, lanes=WARP),
    )
