"""Lightweight commands built from the records: they print help, reject wrong options and complete shell input."""

import re
from collections.abc import Callable
from dataclasses import replace
from textwrap import indent
from typing import Any

import click
from click.shell_completion import CompletionItem

from daskkern.cli.help.groups import EXAMPLES, GROUPS, OTHERS, PLACEHOLDERS
from daskkern.cli.help.records import CommandRecord, ParameterRecord

_PATHS = {"store", "model", "models", "sources", "place", "report"}
"""Parameters that name files; shells complete them with files, and so those with the placeholders below."""
_PLACEHOLDERS = {"STORE", "MODEL", "FILE", "FOLDER", "DIR", "PLACE", "SOURCE..."}


class Text(click.types.StringParamType):
    """Any text; shells offer the given values, or files."""

    def __init__(self, values: tuple[str, ...], names_files: bool) -> None:
        self._values, self._names_files = values, names_files

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the values that begin with what was typed, or let the shell list files."""
        if self._names_files:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(value) for value in self._values if value.startswith(incomplete)]


class LightCommand(click.Command):
    """A command whose function, and all that it imports, is loaded when its options are right.

    Parameters
    ----------
    record : CommandRecord
    load : callable
        Returns the whole command.
    """

    def __init__(self, record: CommandRecord, load: Callable[[], click.Command]) -> None:
        params = [_parameter(replace(item, metavar=_shown(record.name, item))) for item in record.parameters]
        super().__init__(record.name, params=params, help=record.help)
        self._load, self._words = load, list[str]()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the words of the command, which the whole command will get as they are."""
        self._words = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Load the whole command and run it."""
        whole = self._load()
        with whole.make_context(ctx.info_name, self._words, parent=ctx.parent) as inner:
            return whole.invoke(inner)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by their headings."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        rows = {param.name: row for param in options if (row := param.get_help_record(ctx)) is not None}
        groups = GROUPS.get(self.name or "")
        named = {name for names in (groups or OTHERS).values() for name in names}
        rest = [row for name, row in rows.items() if name not in named]
        if groups is None:
            _section(formatter, "Options", rest)
        for heading, names in (groups or OTHERS).items():
            _section(formatter, heading, [rows[name] for name in names if name in rows])
        if groups is not None:
            _section(formatter, "Other options", rest)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples; one that is wider than the terminal continues in the next line, as shells read it."""
        if lines := EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                width = formatter.width - formatter.current_indent
                shown = "\n".join(_joined(re.split(r" (?=--)", line), width, " ", " \\", "    ") for line in lines)
                formatter.write(indent(shown, " " * formatter.current_indent) + "\n")


def _shown(command: str, item: ParameterRecord) -> str | None:
    """Return what the help shows for the value of a parameter, None for what click shows."""
    if item.metavar or not item.flags or item.kind == "flag":
        return item.metavar
    if item.kind == "choice":
        return "|".join(item.choices)
    return PLACEHOLDERS.get((command, item.name), {"int": "N", "float": "NUMBER"}.get(item.kind))


def _section(formatter: click.HelpFormatter, heading: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            width, further = formatter.width - formatter.current_indent, " " * (formatter.current_indent + 4)
            formatter.write_dl([(_joined(first.split("|"), width, "|", "|", further), text) for first, text in rows])


def _joined(parts: list[str], width: int, separator: str, end: str, start: str) -> str:
    """Join parts to lines of at most `width` columns; `end` closes a line that continues, `start` begins the next."""
    lines, line = list[str](), parts[0]
    for part in parts[1:]:
        if len(line) + len(separator) + len(part) + len(end) > width:
            lines.append(line + end)
            line = start + part
        else:
            line += separator + part
    return "\n".join([*lines, line])


def _parameter(item: ParameterRecord) -> click.Parameter:
    kind = _type(item)
    if not item.flags:
        return click.Argument([item.name], type=kind, nargs=item.nargs, required=item.required, metavar=item.metavar)
    flags = [item.name, *item.flags]
    if item.off:
        flags[1:] = [f"{item.flags[0]}/{item.off[0]}"]
    if item.kind == "flag":
        shown = item.shows_default
        return click.Option(flags, is_flag=True, default=item.default, help=item.help, show_default=shown)
    if item.bare:
        return click.Option(flags, type=kind, is_flag=False, flag_value=item.bare, metavar=item.metavar, help=item.help)
    return click.Option(
        flags,
        type=kind,
        required=item.required,
        multiple=item.multiple,
        metavar=item.metavar,
        default=item.default,
        help=item.help,
        show_default=item.shows_default,
    )


def _type(item: ParameterRecord) -> click.ParamType[Any]:
    if item.kind == "choice":
        return click.Choice(item.choices)
    if item.kind == "int":
        return click.INT if item.least is None and item.most is None else click.IntRange(item.least, item.most)
    if item.kind == "float":
        return click.FLOAT
    if item.kind == "path":
        return click.Path()
    is_file = item.metavar in _PLACEHOLDERS or item.name in _PATHS
    values = item.choices
    if not values and item.metavar and "|" in item.metavar:
        values = tuple(item.metavar.split("|"))
    return Text(values, is_file and not values)
