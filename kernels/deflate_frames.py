"""What is around a Deflate stream: nothing, zlib's header and checksum (RFC 1950), or gzip's members (RFC 1952).

::

    zlib    method and window, flags; a stream; Adler-32 of what it decodes to, big endian; what follows is ignored
    gzip    members, zeros after each: 1f 8b 08, flags, 6 bytes that mean nothing here; extra field, name and comment
            as the flags say, two bytes of a checksum; a stream; CRC-32 and size of what it decodes to, little endian

Headers are read as Python's `zlib` and `gzip` do. All lanes of a crew call these functions, and all get the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import WARP, Target
from zarrgpu.kernels.deflate_crew import make_votes
from zarrgpu.kernels.deflate_form import Layout
from zarrgpu.kernels.tables import Status

U = np.uint32
S = np.int32

RAW, ZLIB, GZIP = 0, 1, 2
METHOD = 8  # Deflate
DICTIONARY = 0x20
HEADER_CHECK, EXTRA, NAME, COMMENT = 2, 4, 8, 16  # gzip's flags

OK, CUT, BAD_HEADER = int(Status.OK), int(Status.TRUNCATED), int(Status.BAD_HEADER)
UNSUPPORTED, BAD_CHECKSUM = int(Status.UNSUPPORTED), int(Status.BAD_CHECKSUM)


def make_frames(target: Target, layout: Layout) -> tuple[Any, Any]:
    """``(enter, leave)``.

    ``enter(lane, source, at, end, framing)``: a status, and where the stream starts of what starts at byte `at`.
    ``leave(lane, source, at, end, framing, made)``: a status, where what follows the stream ends that ends at byte `at`
    and decodes to `made` bytes, and the checksum that is there.
    """
    cuda, device, load, permute = target.cuda, target.device, target.load, target.permute
    width = min(layout.crew, WARP)  # each warp of a crew looks for itself
    ballot, _, _ = make_votes(target, width)

    if width == 1:

        @device
        def lowest(flags):
            return U(0)

    else:

        @device
        def lowest(flags):
            return U(cuda.ffs(flags) - 1)

    @device
    def find(lane, source, at, end, zero):
        """The first byte from `at` on that is a zero, or is none; the end where there is none of the kind."""
        going = at < end
        while going:
            i = U(at + U(lane & U(width - 1)))
            byte = load(source, i, i < end, U(0) if zero else U(1))  # what is not there counts as found
            found = ballot((byte == U(0)) == zero)
            if found:
                at = min(U(at + lowest(found)), end)
                going = False
            else:
                at = U(at + U(width))
                going = at < end
        return min(at, end)

    @device
    def number(source, at):
        """Four bytes, little endian."""
        value = U(0)
        for k in range(4):
            value = U(value | U(U(source[U(at + U(k))]) << U(8 * k)))
        return value

    @device
    def enter_zlib(source, at, end):
        if U(end - at) < U(2):
            return S(CUT), at
        method, flags = U(source[at]), U(source[U(at + U(1))])
        if U(U(U(method << U(8)) | flags) % U(31)) != U(0):
            return S(BAD_HEADER), at
        if U(method & U(15)) != U(METHOD) or U(method >> U(4)) > U(7):
            return S(BAD_HEADER), at
        if flags & U(DICTIONARY):
            return S(UNSUPPORTED), at
        return S(OK), U(at + U(2))

    @device
    def enter_gzip(lane, source, at, end):
        room = U(end - at)
        if room < U(2) or source[at] != 0x1F or source[U(at + U(1))] != 0x8B:
            return S(BAD_HEADER), at
        if room < U(10):
            return S(CUT), at
        if source[U(at + U(2))] != METHOD:
            return S(BAD_HEADER), at
        flags = U(source[U(at + U(3))])
        at = U(at + U(10))
        if flags & U(EXTRA):
            if U(end - at) < U(2):
                return S(CUT), at
            size = U(U(source[at]) | U(U(source[U(at + U(1))]) << U(8)))
            at = U(at + U(2))
            if size > U(end - at):
                return S(CUT), at
            at = U(at + size)
        if flags & U(NAME):
            at = U(find(lane, source, at, end, True) + U(1))
        if flags & U(COMMENT):
            at = U(find(lane, source, min(at, end), end, True) + U(1))
        if flags & U(HEADER_CHECK):
            at = U(at + U(2))
        if at > end:
            return S(CUT), end
        return S(OK), at

    @device
    def enter(lane, source, at, end, framing):
        if framing == ZLIB:
            return enter_zlib(source, at, end)
        if framing == GZIP:
            return enter_gzip(lane, source, at, end)
        return S(OK), at

    @device
    def leave(lane, source, at, end, framing, made):
        if framing == ZLIB:
            if U(end - at) < U(4):
                return S(CUT), at, U(0)
            return S(OK), U(at + U(4)), permute(number(source, at), U(0), U(0x0123))
        if framing == GZIP:
            if U(end - at) < U(8):
                return S(CUT), at, U(0)
            value = number(source, at)
            if number(source, U(at + U(4))) != made:
                return S(BAD_CHECKSUM), at, U(0)
            return S(OK), find(lane, source, U(at + U(8)), end, False), value
        return S(OK), at, U(0)

    return enter, leave
