"""Columns of the int64 tables that flow between the steps of a wave, and the statuses that kernels write.

Tables are C-contiguous ``int64[n, columns]``; every offset and size is in bytes unless said otherwise.

``chunks``: one line per encoded chunk of a wave, made by *fetch*.

===========  ==========================================================================
``C_START``  first byte in the source arena
``C_SIZE``   encoded bytes
``C_SLOT``   first byte of the chunk's slot in the scratch arena
``C_WANT``   decoded bytes that the array's metadata ask for (the slot's size)
===========  ==========================================================================

``streams``: one line per independently compressed piece, made by *locate*, read by *decompress*.

===========  ==========================================================================
``S_START``  first compressed byte in the source arena
``S_SIZE``   compressed bytes
``S_DEST``   first decoded byte in the scratch arena
``S_WANT``   decoded bytes
``S_CHUNK``  line of ``chunks`` that the stream belongs to
===========  ==========================================================================

``layouts``: one line per chunk, made by *locate*, read by *assemble*: where its bytes lie before they are unshuffled.

============  =========================================================================
``L_ARENA``   `SOURCE` or `SCRATCH`: the arena that holds the chunk; `FILL`: there is none, the chunk is missing
``L_BASE``    first byte of the chunk in that arena
``L_SIZE``    decoded bytes
``L_BLOCK``   bytes of a shuffled block; the last one may be shorter
``L_TYPE``    bytes of an element as the shuffle sees it, 1-255
``L_MODE``    `PLAIN`, `BYTES` (byte-shuffled) or `BITS` (bit-shuffled)
============  =========================================================================

``boxes``: one line per region of the output, made by *plan*, read by *assemble*. Strides are common to all boxes.

============  =========================================================================
``B_LAYOUT``  line of ``layouts`` to read from
``B_FIRST``   first element, counted in the chunk
``B_DEST``    first byte in the output
``B_COUNT``   and the columns after it: the box's extent along each axis, in elements
============  =========================================================================

Boxes of *indexed* axes have as many columns again: for each axis the first of the lines of ``gather`` that the box
takes along it, one for each index, or `STRIDED`.

``gather``: the places that arrays of indices select, made by *plan*, read by *assemble*; boxes may share lines.

=============  ========================================================================
``G_ELEMENT``  elements in the chunk, counted from the box's first
``G_BYTE``     bytes in the output, counted from the box's first
=============  ========================================================================
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

C_START: Final = 0
C_SIZE: Final = 1
C_SLOT: Final = 2
C_WANT: Final = 3
CHUNK_COLUMNS: Final = 4

S_START: Final = 0
S_SIZE: Final = 1
S_DEST: Final = 2
S_WANT: Final = 3
S_CHUNK: Final = 4
STREAM_COLUMNS: Final = 5

L_ARENA: Final = 0
L_BASE: Final = 1
L_SIZE: Final = 2
L_BLOCK: Final = 3
L_TYPE: Final = 4
L_MODE: Final = 5
LAYOUT_COLUMNS: Final = 6

B_LAYOUT: Final = 0
B_FIRST: Final = 1
B_DEST: Final = 2
B_COUNT: Final = 3

G_ELEMENT: Final = 0
G_BYTE: Final = 1
STRIDED: Final = -1

SOURCE: Final = 0
SCRATCH: Final = 1
FILL: Final = 2

PLAIN: Final = 0
BYTES: Final = 1
BITS: Final = 2


class Status(IntEnum):
    """What a kernel says of one stream or chunk; everything but `OK` means that its bytes must not be used."""

    OK = 0
    TRUNCATED = 1
    """The input ends inside a header, a length or the literals of a sequence."""
    BAD_OFFSET = 2
    """A match starts before the output does, or its offset is zero."""
    OVERFLOW = 3
    """The output would not fit its slot."""
    SHORT = 4
    """The stream ends before its slot is full."""
    BAD_HEADER = 5
    """The container's header contradicts itself or the format."""
    BAD_BOUNDS = 6
    """The container points outside its chunk."""
    WRONG_SIZE = 7
    """The chunk decodes to another size than the array's metadata ask for."""
    UNSUPPORTED = 8
    """A legal stream of a kind that has no kernel."""
    BAD_TABLE = 9
    """A table points outside an arena: a fault of the caller, never of the data."""
    CUT_SHORT = 10
    """The chunk has fewer bytes than its header says. Final: c-blosc would read past the end, and may succeed."""
    REFUSED = 11
    """A library refused the chunk."""
    BAD_CHECKSUM = 12
    """The stored checksum is not that of the bytes."""
    BAD_VALUE = 13
    """A number that the filter must not meet, or whose result its dtype cannot hold."""
    BAD_CODE = 14
    """The description of an entropy code contradicts the format, or its bits do not fit what they encode."""
