"""Workers that are lost while they are asked, and clients that connect at that moment."""

import multiprocessing
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import CommClosedError

from daskkern.cluster.connect.connecting import connected
from daskkern.cluster.connect.membership import BrokenOffError, has_left, live_workers, run_on
from daskkern.cluster.connect.preflight import choose_workers
from daskkern.cluster.gang.worker_plugin import install
from daskkern.cluster.scheduler.detached_drivers import DetachedDrivers
from daskkern.cluster.scheduler.fits import FAILED, FitRecord
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from tests.support.cluster import local_cluster

pytestmark = [pytest.mark.timeout(60)]


@pytest.mark.repeated
@pytest.mark.cluster
def test_a_worker_that_dies_while_it_is_asked_is_told_from_one_that_cannot() -> None:
    with local_cluster(2) as client:
        workers = list(live_workers(client))
        assert not has_left(client, workers, 0.2)
        with pytest.raises(BrokenOffError, match=rf"worker {workers[0]} was lost during a call"):
            run_on(client, workers[:1], os._exit, 1)
        assert has_left(client, workers, 20.0)


class _Heavy:
    """Code that a worker does not survive, as one that has too little memory for it."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _exit_in_a_child, ()


def _exit_in_a_child() -> None:
    if multiprocessing.parent_process() is not None:
        os._exit(1)


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_worker_that_does_not_survive_loading_daskkern_is_told() -> None:
    with local_cluster(1) as client:
        told = r"^worker tcp://\S+ was lost while it loaded daskkern, as one is that has too little memory for it; see"
        with pytest.raises(BrokenOffError, match=told):
            choose_workers(client, None, None, _Heavy(), lambda: 60.0)


def test_a_client_that_the_scheduler_greets_with_other_news_connects_again() -> None:
    tries: list[int] = []

    def connect() -> Any:
        tries.append(1)
        assert len(tries) == 3  # as Dask's client has it
        return "client"

    assert connected(connect) == "client"

    def never() -> Any:
        raise AssertionError

    with pytest.raises(AssertionError):
        connected(never)


class Scheduler:
    """A client whose scheduler answers a registration of workers' plugins with what it is told to raise, in turn."""

    def __init__(self, *answers: type[Exception]) -> None:
        self.answers = list(answers)

    def _register_worker_plugin(self) -> None:
        raise AssertionError

    def register_plugin(self, plugin: object) -> None:
        """Take the scheduler's plugin."""

    def sync(self, function: Any, **arguments: Any) -> dict[str, Any]:
        assert function == self._register_worker_plugin
        assert arguments["idempotent"]
        if self.answers:
            raise self.answers.pop(0)("Stream is closed")
        return {}


def test_a_worker_that_dies_while_all_get_the_handlers_does_not_end_the_fit() -> None:
    clients: Any = Scheduler(CommClosedError), Scheduler(OSError, CommClosedError), Scheduler(TimeoutError)
    assert [install(client, pause_s=0.0) for client in clients] == [True, True, False]
    gone: Any = Scheduler(*[CommClosedError] * 9)
    with pytest.raises(CommClosedError):
        install(gone, pause_s=0.0)


def test_a_task_that_failed_without_a_text_lost_its_workers() -> None:
    record = FitRecord(FitMetadata(fit="f", name="eigenpro"))
    record.task = "t"
    scheduler = SimpleNamespace(tasks={"t": SimpleNamespace(exception_text="")})
    DetachedDrivers(scheduler, FitRegistry(), lambda fit: None)._settle(record, "erred")
    assert record.state == FAILED
    assert "workers were lost under it again and again" in record.error
