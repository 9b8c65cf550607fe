"""What is made of an object once, and kept for as long as that object lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import ref


class Memo[T]:
    """Values by the identity of an object, whose equality may be slow or none, and a key.

    An object that is replaced rather than changed, such as the metadata of an array, is a new one here. Values must not
    refer to their object.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[ref[Any], dict[Hashable, T]]] = {}

    def get(self, owner: object, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `owner` and `key`, made now if it was not before; an error of `make` is not kept."""
        number = id(owner)
        entry = self._kept.get(number)
        if entry is None or entry[0]() is not owner:
            entry = self._kept[number] = ref(owner, lambda dead: self._forget(number, dead)), {}
        values = entry[1]
        if key not in values:
            values[key] = make()
        return values[key]

    def _forget(self, number: int, dead: ref[Any]) -> None:
        entry = self._kept.get(number)
        if entry is not None and entry[0] is dead:
            self._kept.pop(number, None)
