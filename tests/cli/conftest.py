"""The command line, called as a process would call it."""

from collections.abc import Callable

import pytest

from daskkern.cli.main import main


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A function of the words of a command, which returns its exit code, standard output and standard error."""

    def command(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return command
