"""The commands are found by name, and are imported when they are called."""

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest

from daskkern.cli.console import run
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ingest", "a.csv"], "Missing option '--out'; see 'daskkern ingest --help'"),
        (["score"], "Missing argument 'MODEL'; see 'daskkern score --help'"),
        (["plan", "s.zarr", "--landmark-rows", "3"], "see 'daskkern plan --help'"),
        (["systems", "falkon"], "Got unexpected extra argument (falkon); see 'daskkern systems --help'"),
    ],
    ids=["option", "argument", "unknown option", "extra argument"],
)
def test_what_is_missing_leads_to_the_help(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: cli.main(words, prog_name="daskkern", standalone_mode=False), debug=False) == 2
    errors = capfd.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "out.zarr"), "out.zarr: no space left on device; make room"),
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: read-only file system; write to another place"),
        (OSError(errno.EMFILE, "Too many open files"), "error: too many open files; raise the limit"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), "error: x: no such file or directory; run"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/a/..x.zarr.staged.partial-h-1-2"),
            "error: /a/x.zarr: no such file or directory; choose another place",
        ),
        (ConnectionError("the peer is gone"), "ConnectionError: the peer is gone (run again with --debug"),
    ],
)
def test_what_the_operating_system_refuses_is_said(
    error: OSError, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert run(fail, debug=False) == 1
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "row", "target"), [("t.csv", "a,y\n1,0.5\n", " --target COLUMN"), ("t.svm", "1 1:2\n", "")]
)
def test_a_fit_of_a_text_table_leads_to_ingestion(
    name: str, row: str, target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(row)
    words = ["fit", str(tmp_path / name), "--out", str(tmp_path / "m.zarr"), "--workers", "0"]
    assert run(lambda: cli.main(words, standalone_mode=False), debug=False) == 1
    assert f"daskkern ingest {tmp_path / name}{target} --out STORE" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", "-3"], "got epochs=-3; give a whole number of at least 1"),
        (["--set", "epochz=3"], "did you mean 'epochs'?"),
    ],
)
def test_options_of_a_fit_are_named_as_they_were_given(
    words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["fit", str(tmp_path / "none.zarr"), "--out", str(tmp_path / "m.zarr"), "--workers", "0", *words]
    assert run(lambda: cli.main(line, standalone_mode=False), debug=False) == 2
    assert said in capfd.readouterr().err


def test_messages_of_commands_name_options_and_no_arguments_of_python(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, taken = tmp_path / "rows.csv", tmp_path / "rows.zarr"
    rows.write_text("a,b\n1,0\n2,1\n3,0\n")
    line = ["ingest", str(rows), "--target", "b", "--out", str(taken)]
    assert run(lambda: cli.main(line, standalone_mode=False), debug=False) == 0
    assert run(lambda: cli.main(line, standalone_mode=False), debug=False) == 1
    assert "replace it with --overwrite\n" in capfd.readouterr().err


def test_a_missing_file_is_no_missing_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["info", str(tmp_path / "rows.csv")]
    assert run(lambda: cli.main(line, standalone_mode=False), debug=False) == 1
    assert f"there is no file or store at {tmp_path}/rows.csv; check the name" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_no_worker_is_started_for_a_store_that_is_not_there(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda: cli.main([command, str(tmp_path / "none.zarr")], standalone_mode=False), debug=False) == 1
    found = capfd.readouterr()
    assert "there is no store at" in found.err
    assert "cluster" not in found.out
