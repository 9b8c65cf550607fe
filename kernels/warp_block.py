"""128 bytes of output that a warp makes at a time, four a lane: what the decoders of LZ4 and Zstandard have in common.

A decoder publishes the sequences of a group of output in shared memory, a bit for each where it starts; every byte
looks up its sequence by counting bits, follows it to its source, and the warp writes its words to the slot and to a
ring of recent output. Shared memory is given as views of all of it; `base` is the warp's first byte, where its ring is.
Positions in the output are uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import FULL, WARP, Target

U = np.uint32

RING = 1024  # bytes of recent output in shared memory, a power of two
BLOCK = 128  # bytes of output that a warp makes at a time, four a lane


def make_crew(target: Target, lanes: int = WARP) -> Any:
    """How lanes of a warp, or a single one, exchange values: ``(shuffle, pick, pick_four)``.

    A warp's *bytes* are 128, those of lane 0's word first.
    """
    cuda, device, permute = target.cuda, target.device, target.permute
    if lanes == 1:

        @device
        def shuffle(value, lane):
            return U(value)

    else:

        @device
        def shuffle(value, lane):
            """The `value` of another lane; numba-cuda shuffles signed integers only."""
            return U(cuda.shfl_sync(FULL, np.int32(value), np.int32(lane)))

    @device
    def pick(word, i):
        """Byte `i` of the warp's bytes."""
        return permute(shuffle(word, U(i >> U(2))), U(0), U(U(i & U(3)) | U(0x4440)))

    @device
    def pick_four(word, four):
        """The four of the warp's bytes at the positions in the four bytes of `four`."""
        a = shuffle(word, U((four >> U(2)) & U(31)))
        b = shuffle(word, U((four >> U(10)) & U(31)))
        c = shuffle(word, U((four >> U(18)) & U(31)))
        d = shuffle(word, U((four >> U(26)) & U(31)))
        low = permute(a, b, U(U(four & U(3)) | U(U(U(four >> U(8)) & U(3)) << U(4)) | U(0x40)))
        high = permute(c, d, U(U(U(four >> U(16)) & U(3)) | U(U(U(four >> U(24)) & U(3)) << U(4)) | U(0x40)))
        return permute(low, high, U(0x5410))

    return shuffle, pick, pick_four


def make_follow(target: Target, crew: Any, lanes: int = WARP) -> Any:
    """``follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3)``: bytes of a block that come from the block itself."""
    cuda, device, permute = target.cuda, target.device, target.permute
    _, _, pick_four = crew
    if lanes == 1:

        @device
        def some(flag):
            return flag

    else:

        @device
        def some(flag):
            return cuda.any_sync(FULL, flag)

    @device
    def follow(lane, value, u0, u1, u2, u3, q0, q1, q2, q3):
        """`value` with the bytes that are in the block itself (`u`, at `q`) replaced by what they lead to."""
        four = U(U(0x03020100) + U(U(lane << U(2)) * U(0x01010101)))  # each byte its own place
        if u0:
            four = permute(four, q0, U(0x3214))
        if u1:
            four = permute(four, q1, U(0x3240))
        if u2:
            four = permute(four, q2, U(0x3410))
        if u3:
            four = permute(four, q3, U(0x4210))
        more = True
        while more:  # a source comes before what it is the source of: at most 7 turns
            there = pick_four(four, four)
            more = some(there != four)
            four = there
        return pick_four(value, four)

    return follow


def make_block(target: Target, crew: Any, ring: int = RING) -> tuple[Any, Any, Any]:
    """The steps of a block: ``(rank_of, follow, store)``; `ring` bytes of recent output are kept, a power of two."""
    cuda, device = target.cuda, target.device
    follow = make_follow(target, crew)

    @device
    def rank_of(lane, words32, bits, rank):
        """The bits from this lane's first byte on, the rank of the byte before it, and of the block's last byte."""
        b0 = U(words32[bits])
        b1 = U(words32[U(bits + U(1))])
        b2 = U(words32[U(bits + U(2))])
        b3 = U(words32[U(bits + U(3))])
        r1 = U(rank + U(cuda.popc(b0)))
        r2 = U(r1 + U(cuda.popc(b1)))
        r3 = U(r2 + U(cuda.popc(b2)))
        last = U(r3 + U(cuda.popc(b3)))
        word = U(lane >> U(3))
        mine = b0
        before = rank
        if word == U(1):
            mine = b1
            before = r1
        elif word == U(2):
            mine = b2
            before = r2
        elif word == U(3):
            mine = b3
            before = r3
        shift = U((lane & U(7)) << U(2))
        before = U(before + U(cuda.popc(U(mine & U(U(U(1) << shift) - U(1))))))
        return U(mine >> shift), before, last

    @device
    def store(words32, base, to, to32, dest, block, lane, at, size, value):
        """Write this lane's word of the block to ring and slot, as bytes where it is not whole in the group."""
        j = U(U(block >> U(2)) + lane)
        place = U(U(base >> U(2)) + U(j & U(ring // 4 - 1)))
        if at < size and U(at + U(3)) < size:
            words32[place] = value
            to32[j] = value
        else:
            old = U(words32[place])
            for k in range(4):
                if U(at + U(k)) < size:
                    byte = U(U(value >> U(8 * k)) & U(255))
                    to[U(dest + at + U(k))] = np.uint8(byte)
                    old = U(U(old & U(FULL ^ (255 << 8 * k))) | U(byte << U(8 * k)))
            words32[place] = old

    return rank_of, follow, store
