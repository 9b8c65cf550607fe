"""Deflate streams, bare or in the frames of zlib and gzip.

Format: RFC 1951; the reference, in the order of the RFC, is in `zarrgpu.kernels.deflate_reference`. A stream is blocks,
the last of which says so; a block is stored, or literals and matches in two Huffman codes, which are fixed or described
at its beginning. A match is up to 258 bytes from up to 32768 bytes before. Frames: `zarrgpu.kernels.deflate_frames`.

A warp or more decode a stream, as `zarrgpu.kernels.deflate_form` says; a step: `zarrgpu.kernels.deflate_step`.

Arguments

========= ============================ =====================================================================
source    ``uint8[n]``                 source arena; `n` is a multiple of 16
source32  ``uint32[n / 4]``            the same memory
scratch   ``uint8[m]``                 scratch arena, written in the streams' slots; `m` is a multiple of 16
scratch32 ``uint32[m / 4]``            the same memory
streams   ``int64[s, STREAM_COLUMNS]`` bytes; starts have any alignment, sizes are at most `MOST`
order     ``int64[k]``                 lines of `streams`, longest first, none twice; one that is not there is skipped
framing   ``int64``                    `RAW`, `ZLIB` or `GZIP`
members   ``int64[k * r, 5]``          written: `r` lines a stream, for the streams that it is made of, as `checks` of
                                       `zarrgpu.kernels.checksums`; a `K_ARENA` of -1 is no line
work      ``uint32[]``                 on the host what is shared memory on a GPU: `Layout.words` for each of the `k`
status    ``int32[s]``                 written for the lines in `order`
========= ============================ =====================================================================

Both arenas start at a multiple of 16 bytes, may be larger than 4 GiB and do not overlap, nor do slots. Item ``i``
decodes stream ``order[i]``: a block of `Form.lanes` threads for each (one lane on the host), with as much shared memory
as `Layout` says.

Nothing outside a stream's slot is written, and nothing outside the stream influences what is written. Loads of whole
words may touch up to 3 bytes on either side of the stream, never past the arena; stores of words stay inside the slot.

Statuses: `OK` only when the slot is full exactly at the end, and sizes that are stored are right; checksums are
compared afterwards, see `decode`. `TRUNCATED`: the input ends before the stream, or what follows it. `BAD_HEADER`: of
a frame, or a block. `BAD_CODE`: lengths that are no code, or bits that are none of its codes. `BAD_OFFSET`: a match
starts before the output. `OVERFLOW`, `SHORT`: more or fewer bytes than the slot has. `BAD_CHECKSUM`: another size than
is stored. `UNSUPPORTED`: more than `r` members, or a dictionary. `BAD_TABLE`: the line points outside an arena, or
there is no line of `members` or not enough `work`; the slot is not touched. The slot of a stream that is not `OK` holds
anything. What is `OK` zlib takes, with the same bytes; what is refused otherwise, but for `UNSUPPORTED`, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from numba import types

from zarrgpu._cuda import WARP, Kernel, Target
from zarrgpu.kernels import adler32, crc32
from zarrgpu.kernels.checksums import MEMBER_COLUMNS, SEGMENT, Checksum
from zarrgpu.kernels.deflate_form import Form
from zarrgpu.kernels.deflate_frames import GZIP, RAW, ZLIB
from zarrgpu.kernels.deflate_warps import make_body

FRAMINGS: Final = {"zlib": ZLIB, "gzip": GZIP}
"""By the codec's name."""

MEMBERS: Final = 8
"""Members of a gzip stream that are decoded; those with more are left to the library."""

_u1, _u4, _i4, _i8 = (types.Array(t, 1, "C") for t in (types.uint8, types.uint32, types.int32, types.int64))
_table = types.Array(types.int64, 2, "C")
ARGUMENTS = (_u1, _u4, _u1, _u4, _table, _i8, types.int64, _table, _u4, _i4)


def kernel(name: str, form: Form) -> Kernel:
    """The kernel of a form."""

    def make(target: Target, lanes: int) -> Any:
        return make_body(target, form, lanes)

    lanes = form.lanes
    shared = -(-4 * form.layout(form.crew).words * WARP // lanes)
    return Kernel(f"deflate_{name}", make, ARGUMENTS, lanes=lanes, threads=lanes, shared=shared)


FORMS: Final[dict[str, Form]] = {
    "solo": Form(1, False, 416, 80, 24, 4096, 9, 7),
    "long": Form(1, True, 992, 144, 32, 4096),
    "crew": Form(4, True, 480, 80, 24, 16384),
}
"""A warp, a stream: most streams at once; longer segments and another warp that copies; four warps that decode."""

BY_NAME: Final[dict[str, Kernel]] = {name: kernel(name, form) for name, form in FORMS.items()}
KERNELS: Final = tuple(BY_NAME.values())


def choose(streams: int) -> str:
    """The name of the form for so many streams.

    An H200 holds 1580 by solo, 920 by long and 260 by crew at once, and takes as long for one as for all of these. Not
    yet measured with segments as long as they are now; with shorter ones, and lanes that spread as soon as one step had
    taken more than five turns, it decoded 38 GB/s of 16000 streams of float32 with byte shuffle by solo, 30 by long.
    """
    if streams <= 260:
        return "crew"
    return "long" if streams <= 920 else "solo"


@dataclass(frozen=True)
class Job:
    """Streams that are decoded together, and what room their kernels need.

    Parameters
    ----------
    framing : int
        `RAW`, `ZLIB` or `GZIP`.
    streams : int
        How many.
    want : int
        Bytes that the largest of them decodes to.
    form : str, optional
        In `FORMS`; `choose` if it is not given.
    """

    framing: int
    streams: int
    want: int
    form: str = ""

    @property
    def kernel(self) -> Kernel:
        """What decodes them."""
        return BY_NAME[self.form or choose(self.streams)]

    @property
    def rows(self) -> int:
        """Lines of the argument ``members``, of `MEMBER_COLUMNS` columns."""
        return self.streams * (MEMBERS if self.framing == GZIP else 1)

    @property
    def checksum(self) -> Checksum | None:
        """The checksum of what is in a frame."""
        return {RAW: None, ZLIB: adler32.ADLER32, GZIP: crc32.CRC32}[self.framing]

    @property
    def groups(self) -> int:
        """Segments of the longest range that its kernels may have to do with."""
        return -(-(self.want + 3) // SEGMENT)

    @property
    def partials(self) -> int:
        """Elements of ``uint64`` for a value of each segment."""
        return self.rows * self.groups if self.checksum else 0

    @property
    def work(self) -> int:
        """Elements of ``uint32`` where there is no shared memory."""
        return self.streams * FORMS[self.form or choose(self.streams)].layout(1).words


def decode(
    launch: Callable[..., None],
    job: Job,
    arenas: tuple[Any, Any, Any, Any],
    streams: Any,
    order: Any,
    tables: Any,
    rooms: tuple[Any, Any, Any],
    status: Any,
) -> None:
    """Decode streams, and verify their checksums.

    Parameters
    ----------
    launch : callable
        ``launch(kernel, n, *args)`` runs a kernel over `n` items.
    job : Job
    arenas : tuple of arrays
        Source and scratch arena, each as bytes and as words.
    streams : int64[s, STREAM_COLUMNS]
    order : int64[k]
    tables : uint32[]
        `Checksum.tables` of the job's checksum; None where it has none.
    rooms : tuple of arrays
        ``int64[Job.rows, MEMBER_COLUMNS]``; ``uint32[Job.work]``, of any size on a GPU; ``uint64[Job.partials]``.
    status : int32[s]

    Examples
    --------
    Bare streams on a GPU, by a form of one's choice, with cupy arrays::

        job = Job(RAW, len(order), int(streams[:, S_WANT].max()), "solo")
        rooms = cupy.empty((job.rows, MEMBER_COLUMNS), "i8"), cupy.empty(1, "u4"), cupy.empty(1, "u8")
        arenas = source, source.view("u4"), scratch, scratch.view("u4")

        def launch(kernel, n, *args):
            kernel.launch(n, args, cupy.cuda.get_current_stream())

        decode(launch, job, arenas, streams, order, None, rooms, status)
    """
    members, work, partial = rooms
    launch(job.kernel, job.streams, *arenas, streams, order, job.framing, members, work, status)
    checksum = job.checksum
    if checksum is not None:
        groups = job.groups
        launch(checksum.partial, job.rows * groups, groups, *arenas, members, tables, partial)
        launch(checksum.compare, job.streams, groups, *arenas[::2], members, tables, partial, order, status)


__all__ = ["FORMS", "FRAMINGS", "GZIP", "MEMBER_COLUMNS", "RAW", "ZLIB", "Job", "choose", "decode"]
