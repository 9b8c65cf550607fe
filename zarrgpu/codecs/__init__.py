"""Codecs: how each one's config is parsed, where its streams are, which kernels decode them. One file per codec.

`STAGES` names every bytes-to-bytes codec that has a program here; adding one is a file and a line.
"""

from __future__ import annotations

from zarrgpu.codecs.base import Located, Stage
from zarrgpu.codecs.blosc import Blosc
from zarrgpu.codecs.raw import Raw

STAGES: dict[str, type[Stage]] = {
    "blosc": Blosc,
}

__all__ = ["STAGES", "Blosc", "Located", "Raw", "Stage"]
