"""Notices of tests that take long, printed while they run: a run that is ended from outside says where it stood."""

from threading import Timer

import pytest


class LongWaits:
    """Prints the name of each test that has not ended after `after_s` seconds; for the process that reports."""

    def __init__(self, config: pytest.Config, after_s: float = 150.0) -> None:
        self._config = config
        self._after_s = after_s
        self._timers: dict[str, Timer] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start the clock of a test."""
        timer = Timer(self._after_s, self._print, (nodeid,))
        timer.daemon = True
        self._timers[nodeid] = timer
        timer.start()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Stop the clock of a test."""
        timer = self._timers.pop(nodeid, None)
        if timer is not None:
            timer.cancel()

    def _print(self, nodeid: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\nstill running after {self._after_s:g} s: {nodeid}")
            terminal.flush()
