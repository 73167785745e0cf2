"""How many groups of ranks a fit has, in the log, the page, the record of the model and the report."""

from dataclasses import replace

from daskkern.events import FitResumed, FitStarted, to_message
from daskkern.monitor.dashboard.tables import notices_table
from daskkern.monitor.event_text import line_of
from daskkern.monitor.history import History

STARTED = FitStarted("eigenpro", 1000, 5, 1, 100, 16, 3, 4)


def test_lines_of_the_log_name_the_groups() -> None:
    assert str(line_of(STARTED, 3)).endswith("1 output, on 16 ranks in 4 groups")
    assert str(line_of(replace(STARTED, size=1, groups=1), 3)).endswith("1 output, on 1 rank")
    assert line_of(FitResumed(2, 5, 6, 3), 3) == "  going on after batch 5 of epoch 2, on 6 ranks in 3 groups"


def test_the_page_names_the_groups_also_of_records_without_them() -> None:
    events = [{**to_message(event), "time": 1.0} for event in (STARTED, FitResumed(2, 5, 6, 3))]
    shown = notices_table({"notices": events})
    assert "on 16 ranks in 4 groups" in shown
    assert "on 6 ranks in 3 groups; later work is repeated" in shown
    older = [{key: value for key, value in event.items() if key != "groups"} for event in events]
    assert "on 16 ranks<" in notices_table({"notices": older})


def test_the_record_of_a_model_has_the_groups() -> None:
    record = History((), STARTED).to_json()
    assert History.from_json(record).started == STARTED
    del record["run"]["started"]["groups"]
    assert History.from_json(record).started == replace(STARTED, groups=1)
