"""Messages of Dask that do not wait for a wall clock that is set back, as on virtual machines that are resumed.

Dask sends messages in batches, each at a time by the wall clock after the last one. When the clock is set back in
between, the next batch waits for as long as the clock was set back.
"""

import time

import distributed.batched
import pytest
from tornado.ioloop import IOLoop

_LEAST_S = 1.0
_OFFSET = time.time() - time.monotonic()


def steady() -> float:
    """Return the time in s since 1970 by a clock that nobody sets."""
    return _OFFSET + time.monotonic()


def use_steady_clock() -> None:
    """Let event loops and batches of messages in this process go by the steady clock."""
    IOLoop.time = lambda self: steady()  # type: ignore[method-assign]
    distributed.batched.time = steady


class ClockSteps:
    """Prints by how much the wall clock was set during a test; for the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ahead_s = time.time() - steady()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Compare the clocks."""
        before, self._ahead_s = self._ahead_s, time.time() - steady()
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if abs(self._ahead_s - before) > _LEAST_S and terminal is not None:
            terminal.write_line(
                f"\nthe wall clock was set by {self._ahead_s - before:+.1f} s before the end of {nodeid}"
            )
            terminal.flush()
