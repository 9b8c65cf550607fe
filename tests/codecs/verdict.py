"""Compares a stage's verdict and bytes with those of the codec of numcodecs, between guard bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.kit import Slots, mutate
from zarrgpu.codecs.base import Refused, Spec, Stage
from zarrgpu.kernels.tables import Status

LAX = re.compile("too many length or distance symbols|invalid (literal/length|distance) code|invalid code lengths set")
"""What zlib says against the streams that libdeflate takes nevertheless."""


def bind(stage: type[Stage]) -> Stage:
    """The stage; what it decodes to is said by each `out`."""
    return stage.from_config({"id": stage.name}, Spec(None))


def source(encoded: bytes) -> Any:
    """The bytes in an array that cannot be written, with others around them, as in an arena."""
    return np.frombuffer(b"\xa5\xa5\xa5" + encoded + b"\xa5\xa5\xa5", np.uint8)[3 : 3 + len(encoded)]


def decoded(codec: Any, encoded: bytes) -> bytes | None:
    """What numcodecs makes of a chunk; None when it refuses it."""
    try:
        return bytes(codec.decode(encoded))
    except Exception:  # numcodecs has no error of its own
        return None


def agrees(stage: Stage, codec: Any, encoded: bytes, size: int, but: re.Pattern[str] | None = None) -> bool:
    """Whether both take the chunk as one of `size` bytes; fails when they differ, in their bytes too.

    Only what numcodecs refuses with words that match `but` may be taken all the same.
    """
    try:
        want, words = bytes(codec.decode(encoded)), ""
    except Exception as error:  # of any kind, as numcodecs has none of its own
        want, words = None, str(error)
    slots = Slots([size])
    try:
        out = stage.decode(source(encoded), slots[0])
    except Exception:  # of any kind, as the base class says
        slots.check_guards()
        assert want is None or len(want) != size, f"refused: {encoded[:500].hex()}"
        return False
    slots.check_guards()
    assert bytes(out) == slots[0].tobytes()
    if want is None and but and but.search(words):
        return False
    assert want is not None, f"numcodecs refuses {encoded[:500].hex()}: {words}"
    assert want == slots[0].tobytes()
    return True


def check(stage: Stage, codec: Any, encoded: bytes) -> None:
    """Both take a good chunk: with a buffer, without one, and not with one of another size."""
    want = decoded(codec, encoded)
    assert want is not None
    assert agrees(stage, codec, encoded, len(want))
    assert bytes(stage.decode(source(encoded))) == want
    for size in {0, 1, len(want) // 2, len(want) - 1, len(want) + 1, 2 * len(want), len(want) + 1000} - {len(want), -1}:
        refuses(stage, codec, encoded, Status.WRONG_SIZE, size)


def refuses(stage: Stage, codec: Any, encoded: bytes, status: Status | None, size: int = 100) -> None:
    """Neither takes a chunk; `status` says why, None where the library does."""
    assert not agrees(stage, codec, encoded, size)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # its kind is looked at below
        stage.decode(source(encoded), np.empty(size, np.uint8))
    assert (caught.value.status if isinstance(caught.value, Refused) else None) == status


def fuzz(
    stage: Stage,
    codec: Any,
    make: Callable[[np.random.Generator], bytes],
    seed: int,
    count: int,
    but: re.Pattern[str] | None = None,
) -> int:
    """How many of `count` mutated chunks both take; `make` makes the sound ones, each of which is mutated 20 times."""
    rng = np.random.default_rng(seed)
    taken = 0
    for i in range(count):
        if i % 20 == 0:
            sound = make(rng)
            size = len(decoded(codec, sound) or b"")
        bad = mutate(sound, rng)
        want = decoded(codec, bad)
        taken += agrees(stage, codec, bad, size if want is None or rng.integers(0, 4) else len(want), but)
    return taken


def samples(rng: np.random.Generator) -> bytes:
    """Bytes of one of several kinds, up to a few KiB."""
    n = int(rng.integers(1, 3000))
    kind = int(rng.integers(0, 5))
    if kind == 0:
        return rng.bytes(n)
    if kind == 1:
        return bytes(n)
    if kind == 2:
        return rng.integers(0, 4, n).astype("u1").tobytes()
    if kind == 3:
        return np.cumsum(rng.integers(-3, 4, n // 4 + 1)).astype("<i4").tobytes()
    return (rng.bytes(int(rng.integers(1, 40))) * n)[:n]


def fixtures(folder: Any) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, encoded and decoded bytes of numcodecs' own fixtures of a codec."""
    for path in sorted(folder.glob("codec.*/encoded.*.dat")):
        array = np.load(folder / f"array.{path.suffixes[0][1:]}.npy", allow_pickle=True)
        if array.dtype != object:
            yield str(path), path.read_bytes(), array.tobytes(order="A")
