"""Forms of the Deflate decoder: how many warps share a stream, how much they look at in a step, where they keep it.

A *crew* of lanes decodes a stream in steps: every lane a *segment* of the input, of so many bits, into a list of
tokens. Long segments spread over more tokens what each step costs, which is to find out where the tokens of a segment
start; but lists are kept in shared memory, and so decide how many streams a multiprocessor holds. With few streams the
latency of each decides: long segments, more warps a stream, and a warp of its own that copies matches while the crew
decodes the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

from zarrgpu._cuda import WARP

HEADER_WORDS = 150
"""Words of the input that a block's header may lie in: 17 bits, 19 lengths of 3, 316 of 14, anywhere; and two more."""

CODE_SYMBOLS = 288  # literals and lengths; 30 or 32 distances follow
SORTED = 320
MAIL = 4  # words of what a crew tells the copier of a step


@dataclass(frozen=True)
class Form:
    """What is chosen when a kernel is compiled.

    Attributes
    ----------
    warps : int
        Of the crew.
    copier : bool
        Whether another warp copies what the crew has decoded.
    segment : int
        Bits of a segment at most, an odd number of words: lanes then read from different banks.
    slots : int
        Of a lane's list of tokens, 16 bits each; a match takes two.
    spare : int
        More of them, below the list: what is decoded again is put there.
    output : int
        Bytes that a step gives at most, a power of two.
    literal_bits, distance_bits : int
        Bits by which the tables of the two codes are indexed.
    """

    warps: int
    copier: bool
    segment: int
    slots: int
    spare: int
    output: int
    literal_bits: int = 10
    distance_bits: int = 8

    def __post_init__(self) -> None:
        assert self.segment % 64 == 32, "an odd number of words"
        assert self.slots >= 17, "a segment of 16 bits has 16 tokens at most"
        assert self.output >= 512, "a match fits twice"
        assert self.output & (self.output - 1) == 0, "positions in a ring are masked"
        assert 9 <= self.literal_bits <= 12, "longer codes have at most 6 lengths"
        assert 7 <= self.distance_bits <= 12, "longer codes have at most 8 lengths; the code of code lengths has 7 bits"

    @property
    def crew(self) -> int:
        """Lanes that decode."""
        return WARP * self.warps

    @property
    def lanes(self) -> int:
        """Threads that work on a stream."""
        return WARP * (self.warps + self.copier)

    def layout(self, crew: int) -> Layout:
        """Where things are in shared memory for a crew of so many lanes, one on the host."""
        return Layout(self, crew)


class Layout:
    """Where a stream's things are in shared memory, in words of 32 bits unless said otherwise.

    Parameters
    ----------
    form : Form
    crew : int
        Lanes that decode.

    Attributes
    ----------
    literals, distances : int
        Tables of the two codes; see `zarrgpu.kernels.deflate_codes`.
    sorted : int
        Their symbols in the order of the codes: `SORTED` words.
    limits : int
        Of the codes of each length: two times 32 words.
    counts : int
        Of the codes of each length, and where their symbols start: 32 words.
    lengths : int
        Code lengths, a byte each: 320, and 19 of the code that they are coded by.
    input, input_words : int
        Ring of the input, and its size, a power of two.
    window : int
        Words of it that a step may look at.
    lists : int
        Of tokens, 16 bits each: slot ``s`` of lane ``l`` is the half ``2 * lists + s * crew + l``.
    buffers : int
        Steps whose output is kept: the one that is copied, and with a copier the one that is decoded meanwhile.
    ring, ring_bytes : int
        Ring of the latest output, and its size: that of so many steps.
    starts, starts_words : int
        As many bitmaps of a step's output, of the bytes that matches start at.
    mail : int
        What the crew tells the copier: two lines of `MAIL` words.
    exchange : int
        What lanes of different warps tell each other.
    words : int
        All of it.
    """

    def __init__(self, form: Form, crew: int) -> None:
        self.form, self.crew = form, crew
        self.literals = 0
        self.distances = self.literals + (1 << form.literal_bits)
        self.sorted = self.distances + (1 << form.distance_bits)
        self.limits = self.sorted + SORTED
        self.counts = self.limits + 64
        self.lengths = self.counts + 32
        self.input = self.lengths + 88
        # A token may begin at a segment's last bit and has at most 48; and a reader is a word ahead.
        self.window = max(crew * form.segment // 32 + 3, HEADER_WORDS)
        self.input_words = 1 << (self.window - 1).bit_length()
        self.lists = self.input + self.input_words
        self.ring = self.lists + ((form.slots + form.spare) * crew + 1) // 2
        self.buffers = 2 if form.copier else 1
        self.ring_bytes = self.buffers * form.output
        self.starts = self.ring + self.ring_bytes // 4
        self.starts_words = (form.output // 128 + 2) * 4
        self.mail = self.starts + self.buffers * self.starts_words
        self.exchange = self.mail + 2 * MAIL
        self.words = self.exchange + (crew + 8 if crew > WARP else 0)
