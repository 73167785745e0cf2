"""``--json``: one JSON object on stdout and nothing else there."""

import functools
from collections.abc import Callable
from typing import Any

import click

from daskkern.cli.console import quieted, say_json


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` to a command that returns a record of what it shows; with it, the record alone is printed."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, **others: Any) -> None:
        if not as_json:
            command(*args, **others)
            return
        with quieted(everything=True):
            record = command(*args, **others)
        say_json(record)

    return wrapped
