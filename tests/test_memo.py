"""What is kept for an object: by identity, and no longer than it lives."""

from __future__ import annotations

import gc

import pytest

from zarrgpu._memo import Memo


class Equal:
    """Equal to every other, and not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_by_identity_and_key() -> None:
    memo, first, second = Memo[list[int]](), Equal(), Equal()
    made = memo.get(first, "a", lambda: [1])
    assert memo.get(first, "a", lambda: [2]) is made
    assert memo.get(first, "b", lambda: [3]) == [3]
    assert memo.get(second, "a", lambda: [4]) == [4]


def test_an_error_is_not_kept() -> None:
    memo, owner = Memo[int](), Equal()

    def fail() -> int:
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        memo.get(owner, 0, fail)
    assert memo.get(owner, 0, lambda: 5) == 5


def test_forgotten_with_its_object() -> None:
    memo, owner = Memo[int](), Equal()
    assert memo.get(owner, 0, lambda: 1) == 1
    del owner
    gc.collect()
    assert not memo._kept
