"""The commands are found by name, and are imported when they are called."""

import subprocess
import sys

import click
import pytest

from daskkern.cli.main import COMMANDS, cli

NAMES = cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_its_name_and_a_line_of_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


def test_they_are_listed_in_alphabetical_order() -> None:
    assert sorted(NAMES) == NAMES
    assert len(NAMES) > 15


def _run(*words: str) -> tuple[int, str, str]:
    run = subprocess.run([sys.executable, "-m", "daskkern", *words], capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize(
    ("word", "hint"), [("fti", "did you mean 'fit'?"), ("zzz", "daskkern --help lists them")], ids=["close", "far"]
)
def test_an_unknown_command_is_one_line(word: str, hint: str) -> None:
    assert _run(word) == (2, "", f"daskkern: error: command {word!r} is unknown; {hint}\n")


def test_without_a_command_the_help_is_shown() -> None:
    code, out, errors = _run()
    assert (code, out) == (2, "")
    assert "\nModels:\n" in errors


def test_the_list_of_commands_imports_none() -> None:
    listed = "with contextlib.redirect_stdout(io.StringIO()): cli.main(['--help'], standalone_mode=False)"
    loaded = "[name for name in ('dask', 'numpy', 'daskkern.cli.fit') if name in sys.modules]"
    check = f"import contextlib, io, sys; from daskkern.cli.main import cli\n{listed}\nprint({loaded})"
    assert subprocess.check_output([sys.executable, "-c", check], text=True, timeout=60) == "[]\n"
