"""Whatever zarr can store, indexed in every way: plain zarr's values, or its error, through both front doors.

``ZARRGPU_FUZZ=N`` reads N arrays on each engine, other ones each time, rather than the few that are for every day.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import zarrgpu
from tests.arrays import selections, stored
from tests.engines import ENGINES, device, fates, same, to_host
from zarrgpu.chain import is_plain

FUZZ = os.environ.get("ZARRGPU_FUZZ")
COUNTS = {"host": 150, "twins": 100, "sim": 15, "cuda": 300}

pytestmark = [
    pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr:zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec:zarr.errors.ZarrUserWarning"),
]


def check_counters(z: zarr.Array[Any], engine: str, refused: bool) -> None:
    """Everything has a program, but for dtypes that none is for; what is `refused` is left to zarr, for its errors."""
    if not is_plain(z.dtype):
        permitted = {"chunks.zarr", f"fallback.bind:dtype {z.dtype}"}
    else:
        permitted = {f"chunks.{'host' if z.dtype.kind in 'mMV' else engine.partition(':')[0]}"}
    touched = fates().keys() - permitted
    assert not touched or (refused and all(name.startswith("fallback.plan:") for name in touched)), touched


def outcome(read: Callable[[], Any]) -> Any:
    """What a read gives, or raises."""
    try:
        return read()
    except Exception as error:  # whatever it is, ours must be the same
        return error


def agree(got: Any, want: Any, exactly: bool) -> bool:
    """Whether two outcomes are the same: `exactly`, or but for byte order and the memory that they are in."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        return type(got) is type(want) and str(got) == str(want)
    if not exactly:
        return same(got, np.asarray(want))
    return (
        type(got) is type(want)
        and (got.dtype, got.shape) == (want.dtype, want.shape)
        and bool(np.asarray(got).tobytes() == np.asarray(want).tobytes())
    )


def check(z: zarr.Array[Any], how: str, selection: Any, engine: str) -> None:
    """Index an array as the draw says, plainly and through us."""

    def of(array: zarr.Array[Any]) -> Callable[[], Any]:
        return lambda: (getattr(array, how) if how else array)[selection]

    want = outcome(of(z))
    zarrgpu.reset_counters()
    with zarrgpu.enable(device=engine):
        got = outcome(of(zarr.open_array(z.store, mode="r")))
    assert agree(got, want, exactly=engine == "host"), f"z gave {got!r}"
    if not how:
        got = outcome(lambda: zarrgpu.read(z, selection, device=engine))
        assert agree(got, want, exactly=False), f"read gave {got!r}"
        assert isinstance(got, Exception) or got.dtype.isnative
    check_counters(z, engine, isinstance(want, Exception))


@pytest.mark.parametrize("engine", ENGINES)
def test_parity(engine: str) -> None:
    @settings(
        max_examples=int(FUZZ or COUNTS[engine]),
        derandomize=FUZZ is None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    @given(data=st.data())
    def every(data: st.DataObject) -> None:
        z = data.draw(stored())
        note(f"{z.metadata}")
        check(z, "", ..., name)
        for _ in range(3):
            check(z, *data.draw(selections(z)), name)

    with device(engine) as name, zarr.config.set({"array.rectilinear_chunks": True}):
        every()


def test_what_is_drawn_covers_what_zarr_has() -> None:
    """The strategies reach every kind of array and of outcome; a test of few examples must not be one of few kinds."""
    seen: set[str] = set()

    @settings(max_examples=300, derandomize=True, database=None)
    @given(data=st.data())
    def every(data: st.DataObject) -> None:
        z = data.draw(stored())
        how, selection = data.draw(selections(z))
        got = outcome(lambda: (getattr(z, how) if how else z)[selection])
        seen.update({f"format {z.metadata.zarr_format}", f"{z.ndim}-d", f"by {how or 'itself'}"})
        seen.add("refused" if isinstance(got, Exception) else "empty" if to_host(got).size == 0 else "read")
        text = str(z.metadata.to_dict())
        seen.update(
            word for word in ("sharding_indexed", "rectilinear", "transpose", "crc32c", "'start'") if word in text
        )
        if text.count("sharding_indexed") > 1:
            seen.add("nested")

    with zarr.config.set({"array.rectilinear_chunks": True}):
        every()
    wanted = {f"format {k}" for k in (2, 3)} | {f"{k}-d" for k in range(4)}
    wanted |= {f"by {how}" for how in ("itself", "oindex", "vindex", "blocks")} | {"refused", "empty", "read", "nested"}
    assert wanted | {"sharding_indexed", "rectilinear", "transpose", "crc32c", "'start'"} <= seen
