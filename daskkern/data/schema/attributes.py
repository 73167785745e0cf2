"""Attributes of a store, read as untrusted input: plain JSON, with a check and a clear error for each entry."""

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from daskkern.errors import StoreError


class Attributes:
    """Checked access to the attributes of a store; every error names the store and the attribute."""

    def __init__(self, attributes: Mapping[str, Any], where: str) -> None:
        self._attributes = attributes
        self._where = where

    def refuse(self, name: str, found: str) -> NoReturn:
        """Raise a StoreError about an attribute; `found` is the problem."""
        raise StoreError(
            f"the store {self._where} is damaged: attribute {name!r} is invalid ({found}); ingest the data again"
        )

    def given(self, name: str, default: object) -> Any:
        """Return the value of an attribute that may be missing, unchecked."""
        return self._attributes.get(name, default)

    def get(self, name: str) -> Any:
        """Return the value of an attribute that must be there, unchecked."""
        if name not in self._attributes:
            self.refuse(name, "it is missing")
        return self._attributes[name]

    def count(self, name: str, least: int) -> int:
        """Return a whole number of `least` or more."""
        value = self.get(name)
        if not is_whole(value) or not least <= value < 2**62:
            self.refuse(name, f"{value!r:.80} is not a whole number of {least} or more")
        return int(value)

    def choice(self, name: str, choices: tuple[Any, ...]) -> Any:
        """Return a value that is one of `choices`."""
        value = self.get(name)
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
            self.refuse(name, f"{value!r:.80} is not one of {choices}")
        return value

    def values(self, name: str, value: Any, kind: type, length: int) -> tuple[Any, ...]:
        """Return a list of `length` values of one kind, taken from the attribute `name`."""
        if not isinstance(value, list) or len(value) != length or not all(_is(item, kind) for item in value):
            self.refuse(name, f"a list of {length} {kind.__name__} values was expected")
        return tuple(kind(item) for item in value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a mapping with unchecked values."""
        value = self.get(name)
        if not isinstance(value, dict):
            self.refuse(name, f"{value!r:.80} is not a mapping")
        return dict(value)

    def names(self, name: str, length: int) -> tuple[str, ...] | None:
        """Return a list of `length` strings, or None."""
        value = self.get(name)
        return None if value is None else self.values(name, value, str, length)


def is_whole(value: object) -> bool:
    """Return whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is(value: object, kind: type) -> bool:
    """Return whether a JSON value is a finite number, a string or a boolean of exactly this kind."""
    if kind is float:
        if isinstance(value, float):
            return math.isfinite(value)
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return is_whole(value) if kind is int else isinstance(value, kind)
