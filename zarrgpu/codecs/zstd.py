"""Zstandard (RFC 8878): frames, which may be skippable, may lack their content's size and may carry a checksum.

Kernels decode what they can. What is left to the library, and what is decoded on the host, libzstd decodes, as
numcodecs wraps it: into a given buffer or not; which of the two is right, the headers tell. With a buffer that is too
large, numcodecs fills a part of it without a word. Without one it decodes frames of unknown size as a stream. That is
slower, never returns where half a header follows, and refuses more: windows of over 128 MiB and matches from beyond the
window, so such frames get no buffer here; and blocks of over 128 KiB, which no compressor makes, and which pass here. A
chunk all of whose frames say that they are empty is refused, as numcodecs does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numcodecs.zstd import decompress

from zarrgpu import _fork
from zarrgpu.codecs.base import Bytes, Container, Located, Refused, plain_layouts
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.encoded import Encoded

MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE = b"\x2a\x4d\x18"
"""The magic number of a skippable frame, but for its first byte, which is 0x50 to 0x5F."""

HEADER = 18
"""The most bytes that a frame's header takes."""

UNKNOWN = 2**64 - 1
"""The size by which libzstd, too, means that it is not known."""

WINDOW = 1 << 27
"""The largest window that libzstd decodes as a stream, unless told otherwise."""

RLE = 1


class Zstd(Container):
    """One stream a chunk, of one or more frames; its level matters to the encoder only."""

    name = "zstd"
    kernels = "frames of Zstandard"

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        with suppress(Refused):
            sizes = [frame.content for frame in frames_of(encoded)]
            if None not in sizes:
                return sum(size or 0 for size in sizes)
        return None

    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        frames = list(frames_of(encoded))
        if any(frame.dictionary for frame in frames):
            raise Refused(Status.UNSUPPORTED)
        if out is None:
            return decompress(encoded)
        sizes = [frame.content for frame in frames]
        if None not in sizes:
            if sum(size or 0 for size in sizes) != out.size:
                raise Refused(Status.WRONG_SIZE)
            return decompress(encoded, out)
        if all(out.size <= frame.window <= WINDOW for frame in frames):
            with suppress(RuntimeError):  # corrupt, or of another size: which one comes out below
                return decompress(encoded, out)
        decoded = decompress(encoded)
        if len(decoded) != out.size:
            raise Refused(Status.WRONG_SIZE)
        np.copyto(out, np.frombuffer(decoded, np.uint8))
        return out

    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        with _fork.loading:
            from zarrgpu.kernels import zstd

        size = chunks[:, t.C_SIZE]
        streams = np.empty((len(chunks), t.STREAM_COLUMNS), np.int64)
        streams[:, t.S_START], streams[:, t.S_SIZE] = chunks[:, t.C_START], size
        streams[:, t.S_DEST], streams[:, t.S_WANT] = chunks[:, t.C_SLOT], chunks[:, t.C_WANT]
        streams[:, t.S_CHUNK] = np.arange(len(chunks))
        status = np.zeros(len(chunks), np.int32)
        longest = np.argsort(-size, kind="stable")
        longest = longest[size[longest] >= 0]
        counts = zstd.measure(encoded.run, streams, longest, status, True)
        good = status[longest] == Status.OK
        groups = zstd.group(encoded.run, streams, longest[good], counts[good], status, True)
        status[status == Status.TRUNCATED] = Status.CUT_SHORT  # numcodecs must not be asked: it may never return
        return Located(plain_layouts(chunks, t.SCRATCH, t.C_SLOT), streams, {}, status, groups)

    def by_library(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.ones(len(chunks), bool)

    def tables(self) -> int:
        return self.nbytes

    def on_host(self) -> str:
        return "libzstd"


class Frame(NamedTuple):
    """What the header of a frame with content says.

    Attributes
    ----------
    content : int or None
        Bytes that it decodes to; None where it does not say.
    window : int
        How many bytes back a match may reach.
    dictionary : int
        0 for none.
    """

    content: int | None
    window: int
    dictionary: int


def frames_of(encoded: Bytes) -> Iterator[Frame]:
    """Go through the frames of a chunk, skippable ones left out.

    Raises
    ------
    Refused
        `BAD_HEADER` for what is no frame. `CUT_SHORT`, which is final, where the chunk ends inside one.
    """
    chunk = memoryview(encoded)  # whose slices cost a fraction of an array's
    at = 0
    while at < len(chunk):
        raw = bytes(chunk[at : at + HEADER])
        if raw[1:4] == SKIPPABLE and raw[0] >> 4 == 5:
            at = whole(chunk, at + 8 + int.from_bytes(raw[4:8], "little"))
            continue
        if not raw.startswith(MAGIC[: len(raw)]):
            raise Refused(Status.BAD_HEADER)
        whole(chunk, at + 6)
        flags = raw[4]
        single = bool(flags & 0x20)
        dictionary = 5 if single else 6
        content = dictionary + (0, 1, 2, 4)[flags & 3]
        end = content + (int(single), 2, 4, 8)[flags >> 6]
        at = after_blocks(chunk, at + end)
        if flags & 4:
            at = whole(chunk, at + 4)  # the checksum
        size = int.from_bytes(raw[content:end], "little") + (256 if end == content + 2 else 0)
        exponent, mantissa = divmod(raw[5], 8)
        window = size if single else (1 << exponent + 10) // 8 * (8 + mantissa)
        known = end > content and size != UNKNOWN
        yield Frame(size if known else None, window, int.from_bytes(raw[dictionary:content], "little"))


def after_blocks(chunk: memoryview, at: int) -> int:
    """Where the blocks end that start at `at`."""
    while True:
        whole(chunk, at + 3)
        block = int.from_bytes(chunk[at : at + 3], "little")
        at = whole(chunk, at + 3 + (1 if block >> 1 & 3 == RLE else block >> 3))
        if block & 1:
            return at


def whole(chunk: memoryview, end: int) -> int:
    """`end`, when the chunk goes that far."""
    if end > len(chunk):
        raise Refused(Status.CUT_SHORT)
    return end
