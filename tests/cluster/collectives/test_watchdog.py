"""A watchdog ends what cannot end by itself, says why, and leaves alone what does."""

import threading
import time
from collections.abc import Iterator

import pytest

from daskkern.cluster.collectives.watchdog import Watchdog
from daskkern.errors import CommunicatorClosedError

LATE = CommunicatorClosedError("too late")


class Operation:
    """Blocks until it is aborted, and fails then in words of its own."""

    def __init__(self) -> None:
        self.aborted, self.problem = threading.Event(), ""
        self.watchdog = Watchdog(self.check, self.aborted.set)

    def check(self) -> None:
        if self.problem:
            raise ConnectionError(self.problem)

    def run(self) -> None:
        assert self.aborted.wait(30)
        raise RuntimeError("aborted")


@pytest.fixture
def operation() -> Iterator[Operation]:
    made = Operation()
    yield made
    made.watchdog.stop()
    made.watchdog._thread.join(5)
    assert not made.watchdog._thread.is_alive()


def test_what_takes_too_long_is_aborted_and_late(operation: Operation) -> None:
    with pytest.raises(CommunicatorClosedError, match="too late"), operation.watchdog.watching(0.05, LATE):
        operation.run()


def test_a_problem_is_told_instead_of_what_the_abort_made(operation: Operation) -> None:
    threading.Timer(0.05, lambda: setattr(operation, "problem", "a rank was lost")).start()
    with pytest.raises(ConnectionError, match="a rank was lost"), operation.watchdog.watching(30, LATE):
        operation.run()


def test_what_an_abort_lets_return_has_failed_too(operation: Operation) -> None:
    with pytest.raises(CommunicatorClosedError, match="too late"), operation.watchdog.watching(0.05, LATE):
        operation.aborted.wait(30)


def test_what_ends_in_time_is_left_alone_and_errors_of_its_own_are_its_own(operation: Operation) -> None:
    for _ in range(100):
        with operation.watchdog.watching(0.2, LATE):
            pass
    with pytest.raises(ZeroDivisionError), operation.watchdog.watching(30, LATE):
        _ = 1 / 0
    time.sleep(0.3)  # nothing is watched between two operations
    assert not operation.aborted.is_set()
