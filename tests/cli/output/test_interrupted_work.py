"""An interrupt that leaves work which the same command continues says so."""

from pathlib import Path

import click
import pytest

from daskkern.cli.console import INTERRUPTED, run
from daskkern.data.transactions.resumable import resumable_group


@pytest.mark.parametrize(
    ("is_recorded", "words"),
    [(True, "what is done is kept, and the same command continues"), (False, "nothing was written")],
)
def test_the_message_says_whether_work_is_kept(
    is_recorded: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def interrupted() -> None:
        with resumable_group(tmp_path / "s", kind="k", key="a") as partial:
            if is_recorded:
                partial.progress.write_text("here")
            raise KeyboardInterrupt

    assert run(lambda: interrupted.main([], standalone_mode=False), debug=False) == INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == f"daskkern: error: interrupted; {words}"
