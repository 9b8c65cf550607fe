"""How the kernels read Zstandard's headers (RFC 8878, 3.1.1.3): numbers, and the sections of a compressed block."""

from __future__ import annotations

from typing import Any

import numpy as np

from zarrgpu._cuda import Target
from zarrgpu.kernels import zstd_format as z
from zarrgpu.kernels.tables import Status

I = np.int64  # noqa: E741  # as U for uint32 elsewhere

OK, BAD_HEADER, BAD_BOUNDS = int(Status.OK), int(Status.BAD_HEADER), int(Status.BAD_BOUNDS)
UNSUPPORTED = int(Status.UNSUPPORTED)


def make_headers(target: Target) -> tuple[Any, Any]:
    """``(number, sections)``: how headers are read."""
    device = target.device

    @device
    def number(source, at, n):
        """`n` bytes, little endian."""
        value = I(0)
        for i in range(n):
            value |= I(source[at + i]) << I(8 * i)
        return value

    @device
    def sections(source, at, end):
        """The headers of the sections of a compressed block.

        Gives a status, the five columns from `Z_LITERALS` on, `Z_SEQUENCES`, `Z_CODES_AT` and `Z_MODES`.
        """
        head = I(source[at]) if at < end else I(0)
        kind, form = head & 3, (head >> 2) & 3
        width, bits, ways = I(1), I(5), I(1)
        if kind >= z.COMPRESSED:
            width, bits = I(3), I(10)
            if form == 2:
                width, bits = I(4), I(14)
            elif form == 3:
                width, bits = I(5), I(18)
            if form > 0:
                ways = I(4)
        elif form == 1:
            width, bits = I(2), I(12)
        elif form == 3:
            width, bits = I(3), I(20)
        count, modes, status = I(0), I(0), OK
        size, used = I(0), I(0)
        if end - at < width + 1:
            status = BAD_HEADER
        else:
            value = number(source, at, width) >> (I(3) if width == 1 else I(4))
            size = value & ((I(1) << bits) - 1)
            used = value >> bits
            if kind == z.RAW:
                used = size
            elif kind == z.REPEATED:
                used = I(1)
            elif size < (1 if ways == 1 else 6):
                status = UNSUPPORTED
        at += width
        literals_at = at
        if status == OK and used >= end - at:
            status = BAD_BOUNDS
        if status == OK:
            at += used
            count = I(source[at])
            at += 1
            if count >= 128:
                width = I(2) if count == 255 else I(1)
                if end - at < width:
                    status = BAD_HEADER
                elif count == 255:
                    count = number(source, at, 2) + 0x7F00
                else:
                    count = ((count - 128) << 8) + I(source[at])
                    if count == 0:
                        status = UNSUPPORTED
                at += width
            if status == OK and (at != end if count == 0 else at >= end):
                status = BAD_HEADER
            if status == OK and count > 0:
                modes = I(source[at])
                at += 1
                if modes & 3:
                    status = UNSUPPORTED
        return status, kind, size, literals_at, used, ways, count, at, modes

    return number, sections
