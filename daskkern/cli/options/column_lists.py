"""Options that take column names, separated by commas or given repeatedly, in the same form for all commands."""

import csv
from collections.abc import Callable, Sequence
from typing import Any

import click

from daskkern.errors import SpecError


def column_list(*declarations: str, text: str) -> Callable[[Any], Any]:
    """Return a click option whose value is a tuple of different names; empty where it was not given.

    A name that has a comma is written in double quotes: ``--drop '"price, EUR",id'``.
    """
    return click.option(*declarations, multiple=True, metavar="A,B", help=text, callback=_parsed)


def column_names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the values of an option.

    Raises
    ------
    SpecError
        For names that are empty, or are given twice.
    """
    try:
        parts = [part for text in texts for part in _split(text)]
    except csv.Error as error:
        raise SpecError(
            f"got {option} {','.join(texts)!r}, with an opening quote and no closing one before a comma or the end; "
            "double a quote that belongs to a name, and put the name in double quotes"
        ) from error
    names = tuple(part.strip() for part in parts)
    if not all(names) or len(set(names)) < len(names):
        raise SpecError(
            f"got {option} {','.join(texts)!r}; write different names with commas between them, or repeat the option"
        )
    return names


def _split(text: str) -> list[str]:
    return next(csv.reader([text], skipinitialspace=True, strict=True)) or [""]


def _parsed(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    del context
    return column_names(option.opts[0], texts)
