"""Events as JSON lines: every one that matters, of batches one a second, and no fit ends for a log."""

import io
import json
from pathlib import Path

import pytest

from daskkern.errors import StoreError
from daskkern.events import BatchFinished, EpochFinished, Event, FitFinished, SpectrumFound
from daskkern.monitor.json_lines import JsonLines, json_lines
from daskkern.monitor.listeners import all_of


def _lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_carry_time_kind_and_fields_and_few_batches() -> None:
    stream, now = io.StringIO(), [1000.0]
    write = JsonLines(stream, lambda: now[0])
    for batch in range(1, 101):
        now[0] = 1000 + batch / 25
        write(BatchFinished(1, batch, 100, 0.5, 10.0))
    write(EpochFinished(1, 0.5, 4.0))
    write(SpectrumFound(10, (1.0, float("inf")), (1.0,), 5, 9.0, 0.5))
    lines = _lines(stream.getvalue())
    assert [line["batch"] for line in lines if line["event"] == "BatchFinished"] == [1, 26, 51, 76, 100]
    assert lines[-2]["validation_loss"] is None
    assert lines[-1]["eigenvalues"] == [1.0, None]
    assert lines[0]["time"] == "1970-01-01T00:16:40.040+00:00"


def test_a_file_is_continued_and_one_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        with json_lines(str(tmp_path / "log")) as listener:
            listener(FitFinished("max_epochs", 1, 1.0))
    assert len(_lines((tmp_path / "log").read_text())) == 2
    with pytest.raises(StoreError, match="cannot be written: No such file"), json_lines(str(tmp_path / "no" / "log")):
        pass


def test_a_log_that_breaks_ends_alone(capfd: pytest.CaptureFixture[str]) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    write = JsonLines(Full())
    for _ in range(3):
        write(FitFinished("max_epochs", 1, 1.0))
    assert capfd.readouterr().err.count("No space left on device") == 1


def test_several_listeners_hear_everything_in_their_order() -> None:
    heard: list[tuple[str, Event]] = []
    event = FitFinished("max_epochs", 1, 1.0)
    all_of([lambda e: heard.append(("a", e)), lambda e: heard.append(("b", e))])(event)
    assert heard == [("a", event), ("b", event)]
