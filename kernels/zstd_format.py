"""Numbers of the Zstandard format (RFC 8878), and the table of blocks that its kernels share.

``blocks``: ``uint32[b * BLOCK_COLUMNS]``, a line for each block of the streams of a batch, those of a stream one after
the other. Written by `zarrgpu.kernels.zstd_scan`, but for the columns that say otherwise. Positions are in bytes and
relative: in the input to `S_START`, and in the output to `S_DEST`, each rounded down to a multiple of 16, so that they
fit 32 bits in arenas of any size.

==================  ==================================================================================================
``Z_STREAM``        line of ``streams`` that the block belongs to
``Z_START``         first byte of the block's content, after its header
``Z_SIZE``          bytes of content; of a repeated byte, of output
``Z_KIND``          `RAW`, `REPEATED` (one byte) or `COMPRESSED`
``Z_ENDS``          bits `FIRST`, `LAST` of its frame; `CHECKED`: a checksum follows
``Z_MOST``          bytes that a block of this frame may decode to
``Z_WINDOW``        bytes that a match may reach back; `ANY` where that is not checked
``Z_CONTENT``       the frame's content size, `ANY` where it is not known
``Z_LITERALS``      kind of literals: `RAW`, `REPEATED`, `COMPRESSED` or `TREELESS`
``Z_LITERAL_SIZE``  decoded literals
``Z_LITERAL_AT``    first encoded byte of the literals
``Z_LITERAL_FROM``  encoded bytes of the literals, a description of the code and sizes of streams included
``Z_LITERAL_WAYS``  bitstreams of the literals, 1 or 4
``Z_TREE``          blocks to go back to the one whose literals describe the Huffman code
``Z_SEQUENCES``     sequences
``Z_FIRST``         line of the first of them in the pool of sequences
``Z_CODES_AT``      first byte of the descriptions of the codes
``Z_MODES``         how the codes are described: the byte of the format
``Z_CODES``         and two columns more: blocks to go back to the one that describes the code of literals' lengths, of
                    offsets, of matches' lengths
``Z_OUT``           decoded bytes; of blocks with sequences known once those are decoded
``Z_REPEAT``        and two columns more: the repeat offsets after the block, perhaps `SYMBOLIC`, by the decoder of
                    sequences; then those before it, by *place*
``Z_DEST``          first byte of the output, by *place*
``Z_LITERAL_DEST``  where the literals are put: they end where the block's output does; by *place*
``Z_FRAME``         first byte of the frame's output, by *place*
==================  ==================================================================================================

``sequences``: ``uint64[]``, a line for each sequence. Bits 46-63: where its output ends; bits 28-45: where its literals
end, both counted from the block's start; bits 0-27: its offset. Ends, not lengths: so any lane can start anywhere.

An offset that depends on the blocks before is ``SYMBOLIC | k << 20 | d``: repeat offset `k` (0-2) before the block,
less `d`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Z_STREAM: Final = 0
Z_START: Final = 1
Z_SIZE: Final = 2
Z_KIND: Final = 3
Z_ENDS: Final = 4
Z_MOST: Final = 5
Z_WINDOW: Final = 6
Z_CONTENT: Final = 7
Z_LITERALS: Final = 8
Z_LITERAL_SIZE: Final = 9
Z_LITERAL_AT: Final = 10
Z_LITERAL_FROM: Final = 11
Z_LITERAL_WAYS: Final = 12
Z_TREE: Final = 13
Z_SEQUENCES: Final = 14
Z_FIRST: Final = 15
Z_CODES_AT: Final = 16
Z_MODES: Final = 17
Z_CODES: Final = 18
Z_OUT: Final = 21
Z_REPEAT: Final = 22
Z_DEST: Final = 25
Z_LITERAL_DEST: Final = 26
Z_FRAME: Final = 27
BLOCK_COLUMNS: Final = 28

FIRST, LAST, CHECKED = 1, 2, 4
RAW, REPEATED, COMPRESSED, TREELESS = 0, 1, 2, 3
PREDEFINED, SINGLE, DESCRIBED, AS_BEFORE = 0, 1, 2, 3  # how a code is given, two bits of `Z_MODES`
ANY = 0xFFFFFFFF

MAGIC = 0xFD2FB528
SKIPPABLE = 0x184D2A50  # and the 15 numbers after it
LARGEST_BLOCK = 1 << 17
MIN_MATCH = 3
SYMBOLIC = 1 << 27  # more than any other offset here
MAX_OFFSET_CODE = 26  # of the offsets that stay below it
FIRST_REPEATS = (1, 4, 8)
MOST = (1 << 31) - 64  # bytes of a stream, encoded or decoded: positions, and what is added to them, fit 32 bits

# By code: of literals' lengths, offsets, matches' lengths.
MAX_SYMBOL = (35, 31, 52)
MAX_LOG = (9, 8, 9)  # states are at most 1 << so many
DEFAULT_LOG = (6, 5, 6)
LITERAL_BITS = [0] * 16 + [1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17)]
MATCH_BITS = [0] * 32 + [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17)]
DEFAULTS = (
    [4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1],
    [1, 1, 1, 1, 1, 1, 2, 2, 2, *[1] * 15, *[-1] * 5],
    [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7],
)


def bases(bits: list[int], first: int) -> list[int]:
    """The least length of each code, given how many extra bits it has."""
    found = [first]
    for n in bits[:-1]:
        found.append(found[-1] + (1 << n))
    return found


MATCHES_AT: Final = 64  # in `NUMBERS`
DEFAULTS_AT = (128, 256, 192)


def _numbers() -> npt.NDArray[np.uint32]:
    table = np.zeros(320, np.uint32)
    for at, bits, first in ((0, LITERAL_BITS, 0), (MATCHES_AT, MATCH_BITS, MIN_MATCH)):
        table[at : at + len(bits)] = np.array(bases(bits, first)) | np.array(bits) << 24
    for at, counts in zip(DEFAULTS_AT, DEFAULTS, strict=True):
        table[at : at + len(counts)] = np.array(counts, np.int32).view(np.uint32)
    return table


NUMBERS: Final = _numbers()
"""``uint32[320]``: from 0 on the base of each literals' length ``| bits << 24``, from `MATCHES_AT` on those of matches,
from `DEFAULTS_AT` on the predefined counts, -1 for a share below 1."""
