"""Zstandard streams: what the kernels of all frames and blocks of a batch do together.

Format: RFC 8878. A stream is frames, which may be skippable; a frame is blocks, of up to 128 KiB each, which are raw,
one byte repeated, or compressed; a compressed block is literals, which a Huffman code may be used for, and sequences,
each (literals to copy, offset and length of a match), in three FSE codes. The reference, in the order of the RFC, is in
`zarrgpu.kernels.zstd_reference`, the tables are in `zarrgpu.kernels.zstd_format`.

==================  ==============  =================================================================================
step                an item is      what it does
==================  ==============  =================================================================================
`zstd_scan`         a stream        headers -> a line for each block; on the host, so that the room for all is known
`zstd_sequences`    16 blocks       a lane a block: bitstream -> sequences, as ends; 16 blocks a warp
`zstd_place`        a stream        where each block's output goes, and its repeat offsets
`zstd_literals`     8 blocks        a lane a bitstream: literals to the end of their block's output
`zstd_execute`      a stream        literals and matches to their places, by a warp; by six of few streams
`zstd_checksum`     a block         of frames with a checksum, in two launches
==================  ==============  =================================================================================

A bitstream can only be decoded by one lane, so that the steps take all blocks of all streams at once: a GPU needs
thousands. Blocks depend on each other by their repeat offsets, which stay symbolic until *place*, and by codes that are
used again, which are made again.

`measure` and `group` give `Group` values, whose tables need a limited room each; for each of them `launches` names the
kernels in their order. ``status`` must be all `OK` before; what is not afterwards says why a stream is refused, and of
several reasons any one.

`UNSUPPORTED` streams are libzstd's to judge: see `zarrgpu.kernels.zstd_scan` and `zarrgpu.kernels.zstd_literals`. What
is `OK` libzstd takes, with the same bytes; what is refused otherwise it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zarrgpu._cuda import Kernel
from zarrgpu.kernels import (
    zstd_checksum,
    zstd_execute,
    zstd_execute_crew,
    zstd_literals,
    zstd_place,
    zstd_scan,
    zstd_sequences,
)
from zarrgpu.kernels.tables import S_WANT
from zarrgpu.kernels.zstd_format import BLOCK_COLUMNS, NUMBERS

Lines = npt.NDArray[np.int64]

FORMS = {"solo": zstd_execute.KERNEL, "crew": zstd_execute_crew.KERNEL}
"""Of *execute*: a warp for each stream, or six."""

Run = Callable[[Kernel, int, Sequence[Any], Sequence[npt.NDArray[Any]]], None]


@dataclass(frozen=True, eq=False)
class Group:
    """Streams that are decoded together.

    Attributes
    ----------
    lines : int64[k]
        Of the table of streams, in the order in which to start them.
    first : int64[k + 1]
        Lines of `blocks` of each.
    blocks : uint32[b * BLOCK_COLUMNS]
    sequences : int
        Of all blocks.
    checked : bool
        Whether a frame has a checksum.
    """

    lines: Lines
    first: Lines
    blocks: npt.NDArray[np.uint32]
    sequences: int
    checked: bool

    @property
    def n_blocks(self) -> int:
        """Lines of `blocks`."""
        return self.blocks.size // BLOCK_COLUMNS

    @property
    def work(self) -> int:
        """Elements of ``uint32`` that kernels use for their tables where there is no shared memory."""
        literals = -(-self.n_blocks // zstd_literals.BLOCKS) * zstd_literals.WORK
        sequences = -(-self.n_blocks // zstd_sequences.BLOCKS) * zstd_sequences.WORK
        return max(literals, sequences)


def measure(
    run: Run,
    streams: npt.NDArray[np.int64],
    order: Lines,
    status: npt.NDArray[np.int32],
    streaming: bool,
) -> Lines:
    """Count the blocks and sequences of streams.

    Parameters
    ----------
    run : callable
        ``run(kernel, n, inputs, outputs)`` runs a kernel over `n` items of the source arena; see `zarrgpu.encoded`.
    streams : int64[s, STREAM_COLUMNS]
    order : int64[k]
        Lines of `streams`, none twice.
    status : int32[s]
        Written for those.
    streaming : bool
        Whether frames that do not say their size are decoded as libzstd decodes a stream, of which it remembers a
        window.

    Returns
    -------
    int64[k, COUNT_COLUMNS]
        For `group`; see `zarrgpu.kernels.zstd_scan`.
    """
    counts = np.zeros((len(order), zstd_scan.COUNT_COLUMNS), np.int64)
    run(zstd_scan.COUNT, len(order), (streams, order, int(streaming)), (counts, status))
    return counts


def group(
    run: Run,
    streams: npt.NDArray[np.int64],
    order: Lines,
    counts: Lines,
    status: npt.NDArray[np.int32],
    streaming: bool,
) -> list[Group]:
    """Find the blocks of streams that `measure` has counted; all of them are `OK`.

    The tables and sequences of a group take no more bytes than all streams decode to, unless one stream's do. How
    much more a stream's may take, `zarrgpu.kernels.zstd_scan` says.
    """
    blocks, sequences = counts[:, zstd_scan.N_BLOCKS], counts[:, zstd_scan.N_SEQUENCES]
    groups = []
    for begin, end in _parts(4 * BLOCK_COLUMNS * blocks + 8 * sequences, int(streams[order, S_WANT].sum())):
        lines, own = order[begin:end], counts[begin:end]
        first = np.concatenate([[0], np.cumsum(blocks[begin:end])])
        pool = np.cumsum(sequences[begin:end]) - sequences[begin:end]
        table = np.zeros(int(first[-1]) * BLOCK_COLUMNS, np.uint32)
        inputs = (streams, lines, int(streaming), own, first, pool)
        run(zstd_scan.BLOCKS, len(lines), inputs, (table, status))
        checked = bool((own[:, zstd_scan.N_FLAGS] & zstd_scan.CHECKED).any())
        groups.append(Group(lines, first, table, int(sequences[begin:end].sum()), checked))
    return groups


def _parts(sizes: Lines, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of lines whose sizes add up to `most` at most, or that are a single line."""
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        yield begin, end
        begin = end


def choose(streams: int) -> str:
    """The name of the form of *execute* for so many streams.

    An H200 holds 528 by crews at once. Of float32 fields in frames of 4 MB it executes 64 and 256 in 18 and 21 ms so,
    and in 29 and 34 by solo; of frames of 128 KiB, with byte shuffle, 512 in 0.74 and 0.99 ms, 1024 in 1.4 and 1.1.
    """
    return "crew" if streams <= 528 else "solo"


def launches(
    own: Group,
    arenas: tuple[Any, Any, Any, Any],
    streams: Any,
    tables: tuple[Any, Any, Any, Any],
    rooms: tuple[Any, Any, Any],
    status: Any,
    form: str | None = None,
) -> Iterator[tuple[Kernel, int, tuple[Any, ...]]]:
    """The kernels that decode a group, how many items each has, and its arguments.

    Parameters
    ----------
    own : Group
    arenas : tuple of arrays
        Source and scratch arena, each as bytes and as words.
    streams : int64[s, STREAM_COLUMNS]
    tables : tuple of arrays
        The group's `lines`, `first` and `blocks`, and `NUMBERS`.
    rooms : tuple of arrays
        ``uint64[]`` for sequences, ``uint32[]`` for `Group.work`, and, if it is `checked`, ``uint64[]`` for four
        elements a block.
    status : int32[s]
    form : str, optional
        In `FORMS`; `choose` if it is not given.
    """
    source, _, scratch, scratch32 = arenas
    lines, first, blocks, numbers = tables
    sequences, work, digests = rooms
    n = own.n_blocks
    if n == 0:
        yield zstd_place.KERNEL, len(own.lines), (scratch, streams, lines, first, blocks, status)
        return
    items = -(-n // zstd_sequences.BLOCKS)
    yield zstd_sequences.KERNEL, items, (*arenas[:2], streams, blocks, numbers, sequences, work, status)
    yield zstd_place.KERNEL, len(own.lines), (scratch, streams, lines, first, blocks, status)
    yield zstd_literals.KERNEL, -(-n // zstd_literals.BLOCKS), (*arenas, streams, blocks, work, status)
    execute = FORMS[form or choose(len(own.lines))]
    yield execute, len(own.lines), (*arenas, streams, lines, first, blocks, sequences, status)
    if own.checked:
        yield zstd_checksum.DIGEST, n, (scratch, scratch32, streams, blocks, digests, status)
        yield zstd_checksum.VERIFY, n, (source, scratch, streams, blocks, digests, status)


__all__ = ["NUMBERS", "Group", "group", "launches", "measure"]
