"""What a terminal shows of a fit, and what is left of it where there is none."""

import io
import re
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from daskkern.events import (
    BatchFinished,
    EpochFinished,
    Event,
    FitFinished,
    FitQueued,
    FitStarted,
    RankReported,
    StageFinished,
    StopRequested,
    WorkersLost,
)
from daskkern.monitor.formatting import whole_seconds
from daskkern.monitor.progress import progress
from tests.support.cluster import wait_until

_FIT: list[Event] = [
    FitQueued("fit 1 goes first"),
    FitStarted("eigenpro", 1000, 5, 1, 100, 2, 3),
    StageFinished("spectrum", 1.5, "q = 10"),
    BatchFinished(1, 1, 4, 0.9, 50.0),
    BatchFinished(1, 4, 4, 0.8, 1234.0),
    EpochFinished(1, 0.8, 2.0, 0.7, 0.6543),
    RankReported(0, "a", "cpu", 300_000_000, 10),
    RankReported(1, "b", "cpu", 1_500_000_000, 10),
    BatchFinished(2, 2, 4, 0.7, 2345.0),
    WorkersLost("worker b was lost", 2),
    StopRequested("stopping after this step"),
    BatchFinished(2, 3, 4, 0.7, 2345.0),
    FitFinished("interrupted", 3, 9.0),
]


def _shown(terminal: bool) -> list[str]:
    """Return what each event makes of the live line, or without a terminal what was printed in all."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, force_interactive=terminal, width=140)
    states = []
    with progress(3, console) as listener:
        for event in _FIT:
            listener(event)
            task = listener._bar.tasks[0]
            states.append(f"{task.description} | {task.fields['state']}")
    return states if terminal else [stream.getvalue()]


def test_the_line_tells_stage_epoch_batch_loss_score_rate_time_and_memory() -> None:
    states = _shown(terminal=True)
    assert states[0] == "queued | waiting for workers"
    assert states[2] == "setting up | spectrum: done"
    assert states[3] == "epoch 1/3 | batch 1/4  loss 0.9  50 rows/s"
    assert re.fullmatch(
        r"epoch 2/3 \| batch 2/4  loss 0\.7  score 0\.6543  \d+ s left  2,345 rows/s  1\.5 GB a rank", states[8]
    )
    assert states[9] == "recovering | re-forming the gang"
    assert states[10].startswith("stopping | ")
    assert states[11].startswith("stopping, epoch 2/3 | batch 3/4")
    assert states[12].endswith("| ended: interrupted")


def test_without_a_terminal_there_are_whole_lines_only() -> None:
    (text,) = _shown(terminal=False)
    assert "epoch   1/3" in text
    assert "score 0.6543" in text
    assert "\nstopping after this step\n" in text
    assert "rows/s" not in text
    assert "\x1b" not in text


def test_a_fit_that_goes_on_is_measured_by_its_own_last_epoch() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, force_interactive=True, width=140)
    with progress(1, console) as listener:
        task = listener._bar.tasks[0]
        for event in (FitStarted("sgd", 10, 1, 1, 5, 1, 3), BatchFinished(3, 1, 4, 0.5, 9.0)):
            listener(event)
        assert (task.description, task.completed, task.total) == ("epoch 3/3", 9, 12)
        listener(EpochFinished(3, 0.5, 1.0))
        for batch in (2, 4, 5):  # more than was told
            listener(BatchFinished(4, batch, 4, 0.5, 9.0))
            assert task.description == "epoch 4"
            assert "left" not in task.fields["state"]
        listener(BatchFinished(3, 5, 4, 0.5, 9.0))
        assert task.completed == task.total == 12
        assert "-" not in task.fields["state"]
    assert "epoch   3/3" in stream.getvalue()


class Cell:
    """What IPython shows of one output, each time that it is replaced."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> "Cell":
        assert raw
        assert display_id
        assert not self.shown  # a second output would be below the first
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    found = Cell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=found))
    monkeypatch.setitem(sys.modules, "IPython.display", found)
    return found


def test_a_notebook_shows_one_output_of_lines_and_bar_which_ends_as_lines(cell: Cell) -> None:
    with progress(3, Console(file=io.StringIO(), force_jupyter=True)) as listener:
        for event in _FIT[:-1]:
            listener(event)
        wait_until(lambda: "batch 3/4" in cell.shown[-1]["text/plain"], 10, what="the last batch")
        drawn = cell.shown[-1]
        listener(_FIT[-1])
    assert cell.shown[0]["text/plain"].startswith("preparing ")
    assert "\n  epoch   1/3" in drawn["text/plain"]
    assert drawn["text/plain"].count("rows/s") == 1
    assert "━" in drawn["text/html"]
    left = cell.shown[-1]
    assert left["text/plain"].splitlines()[-1] == "ended (interrupted) after 3 epochs, 9.0 s"
    assert "━" not in left["text/html"]
    assert left["text/html"].startswith('<pre class="daskkern" ')
    ended = len(cell.shown)
    time.sleep(0.6)
    assert len(cell.shown) == ended


def test_a_notebook_shows_the_first_and_the_last_of_many_epochs_and_no_markup_of_others(cell: Cell) -> None:
    with progress(500, Console(file=io.StringIO(), force_jupyter=True)) as listener:
        listener(StageFinished("targets", 0.1, "<script>alert(1)</script>"))
        for epoch in range(1, 501):
            listener(EpochFinished(epoch, 0.5, 1.0))
    lines = cell.shown[-1]["text/plain"].splitlines()
    assert len(lines) == 41
    assert lines[20] == "  ... 461 lines ..."
    assert lines[-1].startswith("  epoch 500/500")
    assert "&lt;script&gt;" in cell.shown[-1]["text/html"]


@pytest.mark.parametrize(("seconds", "text"), [(9.9, "9 s"), (61, "1 min 1 s"), (7380, "2 h 3 min")])
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert whole_seconds(seconds) == text


def test_eighty_columns_keep_bar_and_clock_and_leave_out_the_last_numbers() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, force_interactive=True, width=80, color_system=None)
    with progress(3, console) as listener:
        for event in [*_FIT[:8], BatchFinished(2, 2, 4, 0.7, 2345678.0)]:
            listener(event)
        listener._bar.refresh()
        line = next(row for row in reversed(re.split(r"[\r\n]", stream.getvalue())) if "epoch 2/3" in row)
    line = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", line)
    assert len(line.rstrip()) <= 80
    assert f"{'━' * 8}{' ' * 9}batch" in line  # without colours the second half of the bar is blank
    assert re.search(r"batch 2/4  loss 0\.7  score 0\.6543 .* \d:\d\d:\d\d$", line.rstrip()), line
    assert "a rank" not in line


def test_steps_after_the_last_batch_show_how_far_the_optimum_is() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with progress(1, console) as listener:
        task = listener._bar.tasks[0]
        for batch, gap in ((1, 0.0), (2, 0.3), (9, 0.012)):
            given = ("duality gap", gap, 0.001) if batch > 1 else ()
            listener(BatchFinished(1, batch, 1, 0.5, 1000.0, *given))
        assert task.fields["state"] == "step 8  duality gap 0.012, to end at 0.001  loss 0.5"
