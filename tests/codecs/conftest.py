"""What tests of several codecs need of their surroundings."""

from __future__ import annotations

import pytest

from zarrgpu.codecs import _deflate


@pytest.fixture(params=["libdeflate", "zlib"])
def inflater(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which library decodes Deflate: the one that must be there, then what does it where it is not."""
    assert _deflate.LIBRARY, "the package deflate does not export libdeflate"
    if request.param == "zlib":
        monkeypatch.setattr(_deflate, "LIBRARY", None)
    return str(request.param)
