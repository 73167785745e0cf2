"""Comparison of the columns of two tables: names in order, and codes of categories."""

from typing import Any

from daskkern.data.schema.encoding import Encoding


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a frame or Arrow table; None for arrays, and where they are not all text."""
    names = getattr(X, "columns", None)
    if names is None or not hasattr(X, "dtypes"):
        names = getattr(X, "column_names", None)  # of Arrow
    if names is None:
        return None
    found = tuple(names)
    return found if found and all(isinstance(name, str) for name in found) else None


def other_name(expected: tuple[str, ...] | None, found: tuple[str, ...] | None) -> tuple[str, str] | None:
    """Return the first two names that differ; None where all are the same, or either is not known.

    Tables of another width are compared as far as both reach.
    """
    if not expected or not found:
        return None
    return next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)


def other_target(expected: tuple[str, ...] | None, found: tuple[str, ...] | None) -> tuple[str, str] | None:
    """Return the first two of several targets whose names differ; a single one may have been renamed."""
    return other_name(expected, found) if expected and len(expected) > 1 else None


def other_codes(expected: Encoding | None, found: Encoding | None) -> str | None:
    """Return the first column whose numbers stand for other categories; None where there is none, or it is not known.

    Columns that are one-hot are left out: their categories are in the names of the features.
    """
    known = {column.name: column for column in expected or ()}
    for column in found or ():
        ours = known.get(column.name, column)
        if {"ordinal", "code"} & {ours.kind, column.kind} and (ours.kind, ours.categories) != (
            column.kind,
            column.categories,
        ):
            return column.name
    return None
