"""Tasks of a fit are restricted to its workers, and those that prefer one of them go on elsewhere when it is lost."""

from types import SimpleNamespace
from typing import Any

import pytest

from daskkern.cluster.scheduler.task_placement import FIT_ANNOTATION, TaskPlacement

A, B, C = "tcp://a", "tcp://b", "tcp://c"


class Cluster:
    """A scheduler with workers and tasks, and the workers that the fit holds."""

    def __init__(self) -> None:
        self.workers = dict.fromkeys([A, B, C])
        self.tasks: dict[str, Any] = {}
        self.held = [A, B]
        self.recommended: dict[str, str] = {}
        self.placement = TaskPlacement(self, lambda fit: [one for one in self.held if one in self.workers])

    def transitions(self, recommended: dict[str, str], stimulus: str) -> None:
        del stimulus
        self.recommended = recommended

    def submit(self, key: str, restricted: set[str] | None = None, *, loose: bool = False) -> Any:
        self.tasks[key] = SimpleNamespace(
            key=key,
            worker_restrictions=restricted,
            host_restrictions=None,
            loose_restrictions=loose,
            state="processing",
        )
        self.placement.submitted({FIT_ANNOTATION: {key: "fit"}})
        return self.tasks[key]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_tasks_follow_the_workers_of_their_fit(cluster: Cluster) -> None:
    task = cluster.submit("plain")
    assert task.worker_restrictions == {A, B}
    cluster.held = [B, C]
    cluster.placement.refresh()
    assert task.worker_restrictions == {B, C}
    cluster.held = [A, B, C]
    cluster.placement.refresh()
    assert task.worker_restrictions is None


def test_tasks_that_name_their_workers_are_left_alone(cluster: Cluster) -> None:
    task = cluster.submit("named", {C})
    cluster.held = [B]
    cluster.placement.refresh()
    assert task.worker_restrictions == {C}


@pytest.mark.parametrize("held", [[A, B], [A, B, C]])
def test_a_preferred_worker_is_replaced_by_others_of_the_fit_when_it_is_lost(cluster: Cluster, held: list[str]) -> None:
    cluster.held = held
    task = cluster.submit("set-up", {A}, loose=True)
    assert (task.worker_restrictions, task.loose_restrictions) == ({A}, False)
    del cluster.workers[A]
    task.state = "no-worker"
    cluster.placement.refresh()
    assert task.worker_restrictions == (None if C in held else {B})
    assert cluster.recommended == {"set-up": "processing"}
    cluster.placement.forget("set-up")
    cluster.placement.refresh()
