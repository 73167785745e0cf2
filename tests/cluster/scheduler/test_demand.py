"""What adaptive clusters are told of the workers that fits lack, without a cluster."""

from typing import Any

from daskkern.cluster.scheduler.demand import WorkerDemand
from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.requests import Place, WorkerRequest


class Scheduler:
    """A scheduler whose tasks need `needed` workers."""

    def __init__(self, workers: str = "", needed: int = 0) -> None:
        self.workers = dict.fromkeys(workers)
        self.needed = needed
        self.handlers: dict[str, Any] = {"adaptive_target": self.adaptive_target}
        self.admission = Admission()
        self.demand = WorkerDemand(self, self.admission, lambda: [Place(name) for name in self.workers])
        self.demand.install()

    def adaptive_target(self, target_duration: str | None = None) -> int:
        return self.needed

    def targets(self) -> tuple[int, int]:
        """Return the answers to the RPC, which Dask's clusters use, and to the HTTP interface."""
        return self.handlers["adaptive_target"](target_duration="5s"), self.adaptive_target()


def test_without_fits_the_target_is_that_of_the_tasks() -> None:
    assert Scheduler("ab", needed=5).targets() == (5, 5)


def test_what_fits_lack_comes_on_top_of_the_workers_that_there_are() -> None:
    scheduler = Scheduler("ab", needed=1)
    scheduler.admission.ask(WorkerRequest("f", 0.0, n_ranks=6), [])
    assert scheduler.targets() == (6, 6)
    scheduler.needed = 9
    assert scheduler.targets() == (9, 9)


def test_a_fit_that_will_ask_is_told_whether_the_cluster_is_adaptive() -> None:
    scheduler = Scheduler()
    assert not scheduler.demand.want("client", 3)
    assert scheduler.targets() == (3, 3)
    assert scheduler.demand.want("client", 3), "it has asked for its target"
    assert scheduler.targets() == (3, 3)
    scheduler.demand.forget("client")
    assert scheduler.targets() == (0, 0)


def test_a_cluster_that_has_just_lost_its_last_worker_expects_others() -> None:
    scheduler = Scheduler("ab")
    del scheduler.workers["a"]
    scheduler.demand.left("a")
    assert not scheduler.demand.want("client", 3), "it has another one"
    scheduler.demand.left("b")
    assert not scheduler.demand.want("client", 3), "the scheduler counts it still"
    del scheduler.workers["b"]
    assert scheduler.demand.want("client", 3)


def test_a_scheduler_that_cannot_be_adapted_is_left_as_it_is() -> None:
    class Fixed:
        def __init__(self) -> None:
            self.handlers: dict[str, Any] = {}

    fixed = Fixed()
    WorkerDemand(fixed, Admission(), list).install()
    assert fixed.handlers == {}
