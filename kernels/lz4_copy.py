"""How bytes are copied in a slot: what the LZ4 kernels share, and what a whole warp does for one sequence.

Positions are uint32, relative to views of source and slot that are given twice, as ``uint8[]`` and ``uint32[]`` of the
same memory, 16-byte aligned. The caller has checked that source and destination lie in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target

U = np.uint32
U64 = np.uint64


def make_byte_copy(target: Target) -> Any:
    """``copy`` as that of `make_word_copy`, for one lane: a loop that LLVM makes wide.

    The ranges may overlap when the source comes first: then each byte equals the one ``dest - start`` before it.
    """

    @target.device
    def copy(lane, to, to32, dest, source, source32, start, n):
        i, j = U64(start), U64(dest)
        for k in range(U64(n)):
            to[j + k] = source[i + k]

    return copy


def make_word_copy(target: Target, lanes: int) -> Any:
    """``copy(lane, to, to32, dest, source, source32, start, n)``: ``to[dest:dest + n] = source[start:start + n]``.

    The ranges do not overlap. Word stores cover whole words of the first only; a word that is loaded has a byte of the
    second in it.
    """
    one, two, three, four = U(lanes), U(2 * lanes), U(3 * lanes), U(4 * lanes)

    @target.device
    def copy(lane, to, to32, dest, source, source32, start, n):
        head = U((U(4) - (dest & U(3))) & U(3))
        if n <= three:  # bytes are as fast
            head = n
        k = lane
        while k < head:
            to[U(dest + k)] = source[U(start + k)]
            k = U(k + one)
        words = U((n - head) >> U(2))
        q = U(start + head)
        i = U(q >> U(2))
        j = U((dest + head) >> U(2))
        shift = U((q & U(3)) << U(3))
        k = lane
        if shift == U(0):
            while U(k + three) < words:  # four loads in flight
                a = source32[U(i + k)]
                b = source32[U(i + k + one)]
                c = source32[U(i + k + two)]
                d = source32[U(i + k + three)]
                to32[U(j + k)] = a
                to32[U(j + k + one)] = b
                to32[U(j + k + two)] = c
                to32[U(j + k + three)] = d
                k = U(k + four)
            while k < words:
                to32[U(j + k)] = source32[U(i + k)]
                k = U(k + one)
        else:
            back = U(U(32) - shift)
            while U(k + one) < words:  # two pairs in flight
                a = U(source32[U(i + k)])
                b = U(source32[U(i + k + U(1))])
                c = U(source32[U(i + k + one)])
                d = U(source32[U(i + k + one + U(1))])
                to32[U(j + k)] = U((a >> shift) | U(b << back))
                to32[U(j + k + one)] = U((c >> shift) | U(d << back))
                k = U(k + two)
            while k < words:
                a = U(source32[U(i + k)])
                b = U(source32[U(i + k + U(1))])
                to32[U(j + k)] = U((a >> shift) | U(b << back))
                k = U(k + one)
        k = U(head + (words << U(2)) + lane)
        while k < n:
            to[U(dest + k)] = source[U(start + k)]
            k = U(k + one)

    return copy


def make_repeat(target: Target, lanes: int, copy: Any) -> Any:
    """``repeat(lane, to, to32, dest, offset, n)``: `n` bytes to `dest`, each equal to the one `offset` before it.

    What is there before `dest` is visible to all lanes when it is called, and what it writes when it returns. `copy` is
    that of `make_word_copy`, or of `make_byte_copy` with one lane.
    """
    device, sync = target.device, target.sync
    step = U(lanes)
    seed = U(max(4 * lanes, 64))  # what a shorter period is brought to byte by byte, before more is copied at a time

    @device
    def cycle(lane, to, to32, dest, offset, n):
        """The first `n` bytes, out of those before `dest` alone, so that no lane waits for another."""
        start = U(dest - offset)
        phase = U(lane % offset)
        stride = U(step % offset)
        k = lane
        while k < n:
            to[U(dest + k)] = to[U(start + phase)]
            k = U(k + step)
            phase = U(phase + stride)
            if phase >= offset:
                phase = U(phase - offset)

    @device
    def follow(lane, to, to32, dest, offset, n):
        """The first `n` bytes, one after the other."""
        copy(lane, to, to32, dest, to, to32, U(dest - offset), n)

    first = cycle if lanes > 1 else follow

    @device
    def repeat(lane, to, to32, dest, offset, n):
        done = U(0)
        if offset < n and offset < seed:
            done = min(U(offset * U(U(U(seed - U(1)) // offset) + U(1))), n)  # whole periods
            first(lane, to, to32, dest, offset, done)
            sync()
        while done < n:  # each time as much as there is: what is copied lies whole periods before where it goes
            more = min(U(offset + done), U(n - done))
            copy(lane, to, to32, U(dest + done), to, to32, U(dest - offset), more)
            done = U(done + more)
            sync()

    return repeat


def make_alone(target: Target, crew: Any) -> Any:
    """What the whole warp does for one sequence: ``(extended, copy, fill, joined)``."""
    cuda, device, load = target.cuda, target.device, target.load
    shuffle, _, _ = crew

    @device
    def extended(lane, source, at, end, length, most):
        """As `lz4._extended`, 32 bytes a turn; `length` may be larger yet where it exceeds `most`."""
        going = length <= most
        while going:
            p = U(at + lane)
            is_there = p < end
            byte = load(source, p, is_there, U(0))
            last = U(cuda.ballot_sync(FULL, byte != U(255)))
            if last == U(0):
                length = U(length + U(WARP * 255))
                at = U(at + U(WARP))
                going = length <= most
            else:
                k = U(cuda.ffs(last) - 1)
                length = U(length + U(k * U(255)) + shuffle(byte, k))
                at = U(at + k + U(1))  # the first that is not there is the one at `end`
                going = False
        return at, length

    @device
    def pair(source32, i, wanted, shift):
        """The words that the unaligned one at bit `shift` of word `i` lies in; each load has a wanted byte in it."""
        low = load(source32, i, wanted, U(0))
        high = load(source32, U(i + U(1)), wanted and shift != U(0), U(0))
        return low, high

    @device
    def joined(low, high, shift):
        return U(((U64(low) | (U64(high) << U64(32))) >> U64(shift)) & U64(0xFFFFFFFF))

    @device
    def copy(lane, to, to32, dest, source, source32, start, n, late, late_at, late_n):
        """``to[dest:dest + n] = source[start:start + n]``; the ranges do not overlap, word stores stay in the first.

        The bytes `late` of the first `late_n` lanes go to `late_at` once the first loads are on their way.
        """
        head = min(U((U(4) - (dest & U(3))) & U(3)), n)
        words = U((n - head) >> U(2))
        tail = U(head + (words << U(2)))
        edge = lane  # lanes 0-3 take the bytes before the first word, lanes 4-7 those after the last
        has_edge = lane < head
        if lane >= U(4):
            edge = U(tail + lane - U(4))
            has_edge = lane < U(8) and edge < n
        byte = load(source, U(start + edge), has_edge, U(0))
        q = U(start + head)
        i = U(q >> U(2))
        j = U((dest + head) >> U(2))
        shift = U((q & U(3)) << U(3))
        k = lane
        if words <= U(WARP):  # one row of words: half of the literals of shuffled images
            a, b = pair(source32, U(i + k), k < words, shift)
            if lane < late_n:
                to[U(late_at + lane)] = np.uint8(late)
            if has_edge:
                to[U(dest + edge)] = np.uint8(byte)
            if k < words:
                to32[U(j + k)] = joined(a, b, shift)
            return
        is_first = True
        while U(k - lane) < words:
            k1 = U(k + U(WARP))
            k2 = U(k + U(2 * WARP))
            k3 = U(k + U(3 * WARP))
            a0, b0 = pair(source32, U(i + k), k < words, shift)
            a1, b1 = pair(source32, U(i + k1), k1 < words, shift)
            a2, b2 = pair(source32, U(i + k2), k2 < words, shift)
            a3, b3 = pair(source32, U(i + k3), k3 < words, shift)
            if is_first:
                is_first = False
                if lane < late_n:
                    to[U(late_at + lane)] = np.uint8(late)
                if has_edge:
                    to[U(dest + edge)] = np.uint8(byte)
            if k < words:
                to32[U(j + k)] = joined(a0, b0, shift)
            if k1 < words:
                to32[U(j + k1)] = joined(a1, b1, shift)
            if k2 < words:
                to32[U(j + k2)] = joined(a2, b2, shift)
            if k3 < words:
                to32[U(j + k3)] = joined(a3, b3, shift)
            k = U(k + U(4 * WARP))

    @device
    def fill(lane, to, to32, dest, offset, n):
        """A match of more than 128 bytes with an offset of 1, 2 or 4: its word is loaded once, the rest is stores."""
        head = U((U(4) - (dest & U(3))) & U(3))
        start = U(dest - offset)
        mask = U(offset - U(1))
        quarter = U(lane & U(3))
        byte = load(to, U(start + U(U(head + quarter) & mask)), lane < U(4), U(0))
        edge = load(to, U(start + U(lane & mask)), lane < head, U(0))
        byte = U(byte << U(quarter << U(3)))
        pattern = U(shuffle(byte, U(0)) | shuffle(byte, U(1)) | shuffle(byte, U(2)) | shuffle(byte, U(3)))
        if lane < head:
            to[U(dest + lane)] = np.uint8(edge)
        words = U((n - head) >> U(2))
        j = U((dest + head) >> U(2))
        k = lane
        while U(k + U(3 * WARP)) < words:
            to32[U(j + k)] = pattern
            to32[U(j + k + U(WARP))] = pattern
            to32[U(j + k + U(2 * WARP))] = pattern
            to32[U(j + k + U(3 * WARP))] = pattern
            k = U(k + U(4 * WARP))
        while k < words:
            to32[U(j + k)] = pattern
            k = U(k + U(WARP))
        k = U(head + (words << U(2)) + lane)
        if k < n:
            to[U(dest + k)] = np.uint8(U(pattern >> U(quarter << U(3))) & U(255))

    return extended, copy, fill, joined
