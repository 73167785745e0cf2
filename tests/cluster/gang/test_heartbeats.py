"""Which workers a fit takes for silent, by a clock of the test's own."""

from typing import Any

from daskkern.cluster.gang.heartbeats import HeartbeatMonitor

SILENCE_S = 15.0


class Scheduler:
    """A clock, and what a scheduler says of two workers; the first, "own", is that of the process that asks."""

    def __init__(self, own: str = "own") -> None:
        self.now = 100.0
        self.seen = {"own": 0.0, "peer": 0.0}
        self.monitor = HeartbeatMonitor(SILENCE_S, own, lambda: self.now)

    def ask(self, after_s: float, *heard: str) -> set[str]:
        """Ask `after_s` seconds after the last time; meanwhile the scheduler has heard of the workers `heard`."""
        self.now += after_s
        self.seen |= dict.fromkeys(heard, self.now)
        workers: dict[str, dict[str, Any]] = {address: {"last_seen": seen} for address, seen in self.seen.items()}
        return self.monitor.silent(workers)


def test_a_worker_without_heartbeats_is_silent() -> None:
    scheduler = Scheduler()
    for _ in range(16):
        assert scheduler.ask(1.0, "own") == set()
    assert scheduler.ask(1.0, "own") == {"peer"}
    assert scheduler.ask(1.0, "own", "peer") == set()


def test_without_ones_own_heartbeats_the_scheduler_is_slow() -> None:
    scheduler = Scheduler()
    for _ in range(30):
        assert scheduler.ask(1.0) == set()


def test_time_in_which_the_scheduler_did_not_answer_makes_nobody_silent() -> None:
    for own in ("own", ""):
        scheduler = Scheduler(own)
        for _ in range(3):
            scheduler.ask(1.0, "own", "peer")
        assert scheduler.ask(60.0) == set(), "the heartbeats of that minute are not read yet"
        for _ in range(15):
            assert scheduler.ask(1.0, "own") == set()
        assert scheduler.ask(1.0, "own") == {"peer"}, "a worker that is lost is missed all the same"


def test_the_more_workers_there_are_the_longer_one_may_be_silent() -> None:
    scheduler = Scheduler("")
    workers = {"peer": {"last_seen": 0.0}}
    for _ in range(19):
        scheduler.now += 1.0
        assert scheduler.monitor.silent(workers, interval_s=6.0) == set()
    scheduler.now += 1.0
    assert scheduler.monitor.silent(workers, interval_s=6.0) == {"peer"}
    assert scheduler.monitor.patience_s == 18.0
    assert scheduler.monitor.silent(workers, interval_s=0.5) == {"peer"}
    assert scheduler.monitor.patience_s == SILENCE_S
