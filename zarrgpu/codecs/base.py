"""The seams between codecs and waves: what a `Stage` decodes on the host, for what else there are kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from zarrgpu.codecs.preference import FEWEST_STREAMS
from zarrgpu.kernels import tables as t
from zarrgpu.kernels.tables import Status

if TYPE_CHECKING:
    from zarrgpu.batch import Batch
    from zarrgpu.encoded import Encoded
    from zarrgpu.kernels.zstd import Group

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Spec:
    """What a codec decodes to.

    Attributes
    ----------
    nbytes : int or None
        Bytes of it; None where that varies from chunk to chunk.
    dtype : numpy.dtype or None
        The elements, byte order included; None where the codec's neighbours see bytes only.
    shape : tuple of int or None
        Their shape, where there is a dtype.
    library : object or None
        The codec itself, with the ``decode(buffer)`` of numcodecs; None where our code needs none.
    """

    nbytes: int | None
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    library: Any = None


class Refused(Exception):  # a verdict on the data, as a kernel's status is
    """Raised by `Stage.decode` to say why, where a library's own error would not.

    Attributes
    ----------
    status : Status
        What a kernel would have said.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class Stage(ABC):
    """A codec bound to its config and to what it decodes to.

    Attributes
    ----------
    name : str
        The codec's name in Zarr, for messages.
    spec : Spec
        What it decodes to.
    kernels : str
        What of it a device does, for `explain`; empty where only `decode` can.
    keeps_size : bool
        Whether chunks have as many bytes encoded as decoded.
    """

    name: str
    kernels: ClassVar[str] = ""
    keeps_size: ClassVar[bool] = False

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @classmethod
    def from_config(cls, config: Mapping[str, Any], spec: Spec) -> Self:
        """Bind the codec; `UnsupportedError` when zarr itself must decode this config."""
        return cls(spec)

    @property
    def encoded_nbytes(self) -> int | None:
        """Bytes that it decodes from; None where that varies from chunk to chunk."""
        return self.spec.nbytes if self.keeps_size else None

    def decoded_nbytes(self, encoded: Bytes) -> int | None:
        """Bytes that a chunk decodes to, by its header or its size; None where they do not tell."""
        return encoded.size if self.keeps_size else None

    def itemsize(self, encoded: Bytes) -> int:
        """Bytes of the elements that a chunk is shuffled by; 1 where it is not."""
        return 1

    @property
    def does_nothing(self) -> bool:
        """Whether what it decodes is what it is given."""
        return False

    @abstractmethod
    def decode(self, encoded: Bytes, out: Bytes | None = None) -> Any:
        """Decode a chunk by a library on the host, without the GIL where that can be.

        Parameters
        ----------
        encoded : uint8[n]
        out : uint8[m], optional
            Where to; its size is what the chunk must decode to.

        Returns
        -------
        buffer
            `out`, or without it any buffer of the decoded bytes.

        Raises
        ------
        Exception
            Any one means that the chunk is refused.
        """

    def decode_by(self, threads: int, encoded: Bytes, out: Bytes | None = None) -> Any:
        """As `decode`, on up to so many threads where the format has parts that can be decoded by themselves."""
        return self.decode(encoded, out)

    def on_host(self) -> str:
        """What `decode` uses, for `explain`."""
        return "numcodecs"


def put(decoded: Bytes, out: Bytes | None) -> Bytes:
    """What `Stage.decode` returns where its library has memory of its own."""
    if out is None:
        return decoded
    if decoded.size != out.size:
        raise Refused(Status.WRONG_SIZE)
    np.copyto(out, decoded)
    return out


@dataclass(frozen=True)
class Located:
    """What *locate* found in the encoded chunks of a wave; the tables are those of `zarrgpu.kernels.tables`.

    Attributes
    ----------
    layouts : int64[c, LAYOUT_COLUMNS]
        Where the bytes of each chunk are once its streams are decoded.
    streams : int64[s, STREAM_COLUMNS]
        The streams of all chunks.
    work : dict of str to int64[k]
        For each kind of stream but Zstandard's the lines of `streams`, in the order in which to start them.
    status : int32[c]
        `Status` of each chunk. One that is not `OK` has no streams in `work`; one that is `UNSUPPORTED` has no kernel.
    zstd : list of zarrgpu.kernels.zstd.Group
        The streams of Zstandard, likewise.
    """

    layouts: npt.NDArray[np.int64]
    streams: npt.NDArray[np.int64]
    work: dict[str, npt.NDArray[np.int64]]
    status: npt.NDArray[np.int32]
    zstd: list[Group] = field(default_factory=list)

    def decoded(self) -> int:
        """Bytes that kernels make of the streams."""
        if not self.work and not self.zstd:
            return 0
        lines = [*self.work.values(), *(group.lines for group in self.zstd)]
        return int(self.streams[np.concatenate(lines), t.S_WANT].sum())


def plain_layouts(chunks: npt.NDArray[np.int64], arena: int, column: int) -> npt.NDArray[np.int64]:
    """Layouts of chunks that lie, or will lie, in one piece in an arena, from the byte that a `column` names."""
    layouts = np.empty((len(chunks), t.LAYOUT_COLUMNS), np.int64)
    layouts[:, t.L_ARENA] = np.where(chunks[:, t.C_SIZE] < 0, t.FILL, arena)
    layouts[:, t.L_BASE] = chunks[:, column]
    layouts[:, t.L_SIZE] = layouts[:, t.L_BLOCK] = chunks[:, t.C_WANT]
    layouts[:, t.L_TYPE], layouts[:, t.L_MODE] = 1, t.PLAIN
    return layouts


def one_stream(chunks: npt.NDArray[np.int64], kind: str) -> Located:
    """What *locate* finds where a chunk is a single stream, whose headers are left to the kernel."""
    there = chunks[:, t.C_SIZE] >= 0
    streams = np.zeros((len(chunks), t.STREAM_COLUMNS), np.int64)
    streams[:, t.S_START], streams[:, t.S_SIZE] = chunks[:, t.C_START], chunks[:, t.C_SIZE]
    streams[:, t.S_DEST], streams[:, t.S_WANT] = chunks[:, t.C_SLOT], chunks[:, t.C_WANT]
    streams[:, t.S_CHUNK] = np.arange(len(chunks))
    streams = streams[there]
    longest = np.argsort(-streams[:, t.S_SIZE], kind="stable")
    work = {kind: longest} if len(streams) else {}
    return Located(plain_layouts(chunks, t.SCRATCH, t.C_SLOT), streams, work, np.zeros(len(chunks), np.int32))


class Container(Stage):
    """A codec whose encoded chunks hold streams that kernels decode."""

    @property
    def fewest(self) -> int | None:
        """Streams of a wave from which on kernels are preferred to the library, None for never.

        By `zarrgpu.codecs.preference`, for what the metadata promise.
        """
        return FEWEST_STREAMS[self.name]

    @property
    def at_once(self) -> int:
        """Chunks that a wave should have, even if it becomes larger than others; 0 where that does not matter."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes that a chunk decodes to."""
        assert self.spec.nbytes is not None  # `bind` sees to it
        return self.spec.nbytes

    @abstractmethod
    def locate(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> Located:
        """Find the streams of `chunks` (``int64[c, CHUNK_COLUMNS]``), whose bytes are in `encoded`."""

    def by_library(self, encoded: Encoded, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which chunks without a kernel `decode` can do, as ``bool[c]``; asked where `locate` says `UNSUPPORTED`."""
        return np.zeros(len(chunks), bool)

    def scratch(self) -> int:
        """Bytes of scratch arena that a chunk needs."""
        return self.nbytes

    def tables(self) -> int:
        """Bytes that a chunk takes besides: its decoder's tables, or what the library decodes where streams are few."""
        return self.nbytes if self.fewest else 0


class Transform(Stage):
    """A codec that kernels undo once a chunk's streams are decoded.

    Attributes
    ----------
    source : numpy.dtype or None
        What it views the encoded bytes as; None for bytes of any meaning.
    target : numpy.dtype or None
        What its decoded bytes are.
    """

    source: np.dtype[Any] | None = None
    target: np.dtype[Any] | None = None

    @property
    def on_device(self) -> bool:
        """Whether this config has kernels that give the library's bits."""
        return True

    @abstractmethod
    def enqueue(self, batch: Batch, swap: int) -> None:
        """Enqueue the kernels for the batch's active chunks, whose elements are reversed in every `swap` bytes."""
