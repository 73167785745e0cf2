"""Clusters of tests work on while the wall clock is set back."""

import time
from operator import add

import pytest

from tests.support.cluster import one_process_cluster
from tests.support.runs.steady_clock import ClockSteps


@pytest.mark.timeout(60)
def test_messages_do_not_wait_for_a_clock_that_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real, back = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() - back)
    with one_process_cluster(1) as client:
        for _ in range(10):
            for number in range(5):
                assert client.submit(add, number, 1, pure=False).result(timeout=10) == number + 1
            back += 1000.0


def test_steps_of_the_wall_clock_are_reported(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Terminal:
        def write_line(self, line: str) -> None:
            lines.append(line)

        def flush(self) -> None:
            pass

    real, back = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() - back)
    monkeypatch.setattr(pytestconfig.pluginmanager, "get_plugin", lambda name: Terminal())
    steps = ClockSteps(pytestconfig)
    steps.pytest_runtest_logfinish("tests/a.py::test_before")
    back = 100.0
    steps.pytest_runtest_logfinish("tests/a.py::test_meanwhile")
    steps.pytest_runtest_logfinish("tests/a.py::test_after")
    assert lines == ["\nthe wall clock was set by -100.0 s before the end of tests/a.py::test_meanwhile"]
