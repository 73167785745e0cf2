"""Tests that hang are named while they hang."""

from time import sleep

import pytest

from tests.support.runs.long_waits import LongWaits


def test_only_what_takes_long_is_named(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Terminal:
        def write_line(self, line: str) -> None:
            lines.append(line)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(pytestconfig.pluginmanager, "get_plugin", lambda name: Terminal())
    waits = LongWaits(pytestconfig, after_s=0.05)
    waits.pytest_runtest_logstart("tests/a.py::test_short")
    waits.pytest_runtest_logfinish("tests/a.py::test_short")
    waits.pytest_runtest_logstart("tests/a.py::test_long")
    for _ in range(200):
        if lines:
            break
        sleep(0.05)
    waits.pytest_runtest_logfinish("tests/a.py::test_long")
    assert lines == ["\nstill running after 0.05 s: tests/a.py::test_long"]
