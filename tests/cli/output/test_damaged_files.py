"""The end of a damaged file is not taken for an interrupt of the user."""

import click
import pytest

from daskkern.cli.console import FAILED, INTERRUPTED, run


def test_an_end_of_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def damaged() -> None:
        raise EOFError("the file ended early")

    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert run(lambda: damaged.main([], standalone_mode=False), debug=False) == FAILED
    assert "EOFError: the file ended early" in capsys.readouterr().err
    assert run(lambda: interrupted.main([], standalone_mode=False), debug=False) == INTERRUPTED
    assert "interrupted; nothing was written" in capsys.readouterr().err
