"""The parameters of all commands as plain records, from a file that is written from the commands themselves.

Commands import what they compute with, which takes a second or more. Help, wrong options and the completion of shells
need no more than names, types and sentences: they come from ``commands.json``, which
``python -m daskkern.cli.help.write`` makes and a test compares with the commands.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

PLACE = Path(__file__).with_name("commands.json")


@dataclass(frozen=True)
class ParameterRecord:
    """One argument or option of a command.

    Attributes
    ----------
    name : str
        The parameter of the function that gets its value.
    flags : tuple of str
        ``--out`` for example; empty for an argument.
    off : tuple of str
        Flags that turn it off, such as ``--no-shuffle``.
    kind : str
        ``text``, ``int``, ``float``, ``flag``, ``path`` or ``choice``.
    choices : tuple of str
        All values of a choice. For text, values that shells complete; others are taken, too.
    least, most : int or None
        Bounds of an int, both included.
    bare : str
        The value of an option that is given without one; "" where it needs one.
    nargs : int
        Number of values of an argument; -1 for any number.
    """

    name: str
    flags: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    kind: str = "text"
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    bare: str = ""
    nargs: int = 1
    required: bool = False
    multiple: bool = False
    metavar: str | None = None
    help: str = ""
    default: str | int | float | bool | None = None
    shows_default: bool = False


@dataclass(frozen=True)
class CommandRecord:
    """A command: its name, what it does, and its parameters in the order in which they are declared."""

    name: str
    help: str
    parameters: tuple[ParameterRecord, ...]


def command_record(command: click.Command, completed: Mapping[str, tuple[str, ...]]) -> CommandRecord:
    """Return the record of a command. `completed` has values that shells complete, by the name of the parameter."""
    name = command.name or ""
    return CommandRecord(name, command.help or "", tuple(_parameter(item, completed) for item in command.params))


def _parameter(item: click.Parameter, completed: Mapping[str, tuple[str, ...]]) -> ParameterRecord:
    kind, known = item.type, completed.get(item.name or "", ())
    bounds = (kind.min, kind.max) if isinstance(kind, click.IntRange) else (None, None)
    default = item.default if isinstance(item.default, str | int | float | bool) else None
    option = item if isinstance(item, click.Option) else None
    return ParameterRecord(
        name=item.name or "",
        flags=() if option is None else tuple(item.opts),
        off=tuple(item.secondary_opts),
        kind=_kind(item),
        choices=tuple(map(str, kind.choices)) if isinstance(kind, click.Choice) else known,
        least=bounds[0],
        most=bounds[1],
        bare=_bare(option),
        nargs=item.nargs,
        required=item.required,
        multiple=item.multiple,
        metavar=item.metavar,
        help="" if option is None else option.help or "",
        default=default,
        shows_default=option is not None and bool(option.show_default),
    )


def _bare(option: click.Option | None) -> str:
    is_bare = option is not None and not option.is_flag and isinstance(option.flag_value, str)
    return str(option.flag_value) if option is not None and is_bare else ""


def _kind(item: click.Parameter) -> str:
    if isinstance(item, click.Option) and item.is_flag:
        return "flag"
    kinds: tuple[tuple[type[click.ParamType[Any]], str], ...] = (
        (click.Choice, "choice"),
        (click.IntRange, "int"),
        (type(click.INT), "int"),
        (type(click.FLOAT), "float"),
        (click.Path, "path"),
        (type(click.STRING), "text"),
    )
    for base, kind in kinds:
        if isinstance(item.type, base):
            return kind
    raise TypeError(f"got a parameter {item.name} of type {item.type!r}; expected one of {[kind for _, kind in kinds]}")


@cache
def stored_records() -> dict[str, CommandRecord]:
    """Return the records of all commands, by name, as the file has them."""
    rows: list[dict[str, Any]] = json.loads(PLACE.read_text(encoding="utf-8"))
    return {row["name"]: CommandRecord(row["name"], row["help"], tuple(map(_read, row["parameters"]))) for row in rows}


def _read(row: dict[str, Any]) -> ParameterRecord:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return ParameterRecord(**values)
