"""How the lanes that decode a Deflate stream work together: one lane on the host, a warp, or several warps.

All functions of a `Crew` are collective: every lane of it calls them, in the same order. Lanes of different warps meet
at a barrier of their own, which a warp that copies does not take part in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target, shared
from zarrgpu.kernels.deflate_form import Layout

U = np.uint32
BARRIER = 1  # barrier 0 is that of the whole block


class Crew(NamedTuple):
    """What lanes do together; `words` is the stream's shared memory, ``uint32[]``.

    Attributes
    ----------
    sync : callable
        ``sync()``: the stores of all lanes can be seen by all.
    previous : callable
        ``previous(lane, words, value, first) -> uint32``: the value of the lane before, `first` for lane 0.
    lowest : callable
        ``lowest(lane, words, flag) -> uint32``: the lowest lane with the flag; the number of lanes if none has it.
    pick : callable
        ``pick(lane, words, value, i) -> uint32``: the value of lane `i`, which is the same for all.
    total : callable
        ``total(lane, words, value) -> (uint32, uint32)``: the sum up to this lane, and over all.
    """

    sync: Any
    previous: Any
    lowest: Any
    pick: Any
    total: Any


def make_bits(target: Target) -> tuple[Any, Any, Any]:
    """``(top, reverse, count)``: the highest set bit of a value > 0, its bits in reverse, how many are set."""
    cuda, device = target.cuda, target.device

    if target.name == "host":

        @device
        def top(value):
            n = U(0)
            while value > U(1):
                n = U(n + U(1))
                value = U(value >> U(1))
            return n

        @device
        def reverse(value):
            value = U(((value >> U(1)) & U(0x55555555)) | U((value & U(0x55555555)) << U(1)))
            value = U(((value >> U(2)) & U(0x33333333)) | U((value & U(0x33333333)) << U(2)))
            value = U(((value >> U(4)) & U(0x0F0F0F0F)) | U((value & U(0x0F0F0F0F)) << U(4)))
            value = U(((value >> U(8)) & U(0x00FF00FF)) | U((value & U(0x00FF00FF)) << U(8)))
            return U((value >> U(16)) | U(value << U(16)))

        @device
        def count(value):
            n = U(0)
            while value:
                n = U(n + U(1))
                value = U(value & U(value - U(1)))
            return n

    else:

        @device
        def top(value):
            return U(U(31) - U(cuda.clz(value)))

        @device
        def reverse(value):
            return U(cuda.brev(value))

        @device
        def count(value):
            return U(cuda.popc(value))

    return top, reverse, count


def make_votes(target: Target, lanes: int) -> tuple[Any, Any, Any]:
    """Of a warp, or a single lane: ``(ballot, alike, shuffle)``.

    ``ballot(flag)`` has a bit for each lane with the flag, ``alike(value)`` one for each with the same value.
    """
    cuda, device = target.cuda, target.device
    if lanes == 1:

        @device
        def ballot(flag):
            return U(1) if flag else U(0)

        @device
        def alike(value):
            return U(1)

        @device
        def shuffle(value, lane):
            return U(value)

    else:

        @device
        def ballot(flag):
            return U(cuda.ballot_sync(FULL, flag))

        @device
        def alike(value):
            return U(cuda.match_any_sync(FULL, np.int32(value)))

        @device
        def shuffle(value, lane):
            return U(cuda.shfl_sync(FULL, np.int32(value), np.int32(lane)))

    return ballot, alike, shuffle


def make_or(target: Target) -> Any:
    """``set_bits(words, i, bits)``: ``words[i] |= bits``, whoever else does so."""
    cuda, device = target.cuda, target.device
    if target.name == "host":

        @device
        def set_bits(words, i, bits):
            words[i] = U(words[i] | bits)

    else:

        @device
        def set_bits(words, i, bits):
            cuda.atomic.or_(words, i, bits)

    return set_bits


def make_crew(target: Target, layout: Layout) -> Crew:
    """The crew of a stream."""
    if layout.crew == 1:
        return _single(target)
    return _warp(target) if layout.crew == WARP else _warps(target, layout)


def _single(target: Target) -> Crew:
    device = target.device

    @device
    def previous(lane, words, value, first):
        return U(first)

    @device
    def lowest(lane, words, flag):
        return U(0) if flag else U(1)

    @device
    def pick(lane, words, value, i):
        return U(value)

    @device
    def total(lane, words, value):
        return U(value), U(value)

    return Crew(target.sync, previous, lowest, pick, total)


def _warp(target: Target) -> Crew:
    cuda, device = target.cuda, target.device
    ballot, _, shuffle = make_votes(target, WARP)

    @device
    def previous(lane, words, value, first):
        other = U(cuda.shfl_up_sync(FULL, np.int32(value), 1))
        return U(first) if lane == U(0) else other

    @device
    def lowest(lane, words, flag):
        flags = ballot(flag)
        return U(cuda.ffs(flags) - 1) if flags else U(WARP)

    @device
    def pick(lane, words, value, i):
        return shuffle(value, i)

    @device
    def total(lane, words, value):
        for bit in range(5):
            other = U(cuda.shfl_up_sync(FULL, np.int32(value), 1 << bit))
            if lane >= U(1 << bit):
                value = U(value + other)
        return value, shuffle(value, U(WARP - 1))

    return Crew(target.sync, previous, lowest, pick, total)


def _warps(target: Target, layout: Layout) -> Crew:
    """Values go through shared memory: one of each lane, then one of each warp. Nobody leaves while others read."""
    cuda, device, barrier = target.cuda, target.device, shared(target).barrier
    ballot, _, _ = make_votes(target, WARP)
    lanes, warps = layout.crew, layout.crew // WARP
    each, by_warp = layout.exchange, layout.exchange + layout.crew

    @device
    def sync():
        barrier(BARRIER, lanes)

    @device
    def previous(lane, words, value, first):
        words[U(U(each) + lane)] = value
        sync()
        other = U(first)
        if lane > U(0):
            other = U(words[U(U(each) + lane - U(1))])
        sync()
        return other

    @device
    def lowest(lane, words, flag):
        flags = ballot(flag)
        if U(lane & U(31)) == U(0):
            words[U(U(by_warp) + U(lane >> U(5)))] = flags
        sync()
        found = U(lanes)
        for k in range(warps):
            flags = U(words[U(by_warp + k)])
            if found == U(lanes) and flags != U(0):
                found = U(U(WARP * k) + U(cuda.ffs(flags) - 1))
        sync()
        return found

    @device
    def pick(lane, words, value, i):
        if lane == i:
            words[U(each)] = value
        sync()
        other = U(words[U(each)])
        sync()
        return other

    @device
    def total(lane, words, value):
        for bit in range(5):
            other = U(cuda.shfl_up_sync(FULL, np.int32(value), 1 << bit))
            if U(lane & U(31)) >= U(1 << bit):
                value = U(value + other)
        if U(lane & U(31)) == U(WARP - 1):
            words[U(U(by_warp) + U(lane >> U(5)))] = value
        sync()
        whole = U(0)
        for k in range(warps):
            other = U(words[U(by_warp + k)])
            if U(k) < U(lane >> U(5)):
                value = U(value + other)
            whole = U(whole + other)
        sync()
        return value, whole

    return Crew(sync, previous, lowest, pick, total)
