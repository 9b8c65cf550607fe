"""bitround: numcodecs' ``BitRound``: floats whose last bits are zero; decoding has nothing to do."""

from __future__ import annotations

from zarrgpu.codecs.library import ByLibrary


class BitRound(ByLibrary):
    """The same bytes, seen as floats."""

    name = "bitround"
    keeps_size = True

    @property
    def does_nothing(self) -> bool:
        return True
