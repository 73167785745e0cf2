"""Every fault x every solver x 2 and 3 workers: the fit ends with the answer of an undisturbed one.

``pytest -m kill_matrix`` runs all of it. The checks of a change run a cover: every fault, every solver, and both
numbers of workers; four faults are in the default run.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from distributed.core import Status

from daskkern.cluster.gang.gang import run_gang
from daskkern.events import FitPreempted, FitResumed, WorkersLeft, WorkersLost
from daskkern.training.run.fit import fit
from tests.support import ranks
from tests.support.cluster import child_processes, local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_held
from tests.support.recovery.kill_matrix import (
    DEAF,
    EPOCHS,
    LONGER,
    QUICK,
    SAFE,
    Scene,
    Story,
    Undisturbed,
    cells,
    digits_store,
    settings_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MEMORY = 800 << 20
BUSY_S = 60.0


def hoard() -> None:
    """Take memory until the nanny ends this process."""
    held = []
    while True:
        held.append(np.ones(150 << 17))  # in few steps: a rank leaves this thread little time
        time.sleep(0.02)


def fill_memory(scene: Scene) -> None:
    scene.hoarding = scene.client.submit(hoard, workers=[scene.addresses[-1]], pure=False, retries=0)


def expire(scene: Scene) -> None:
    """Do what a worker does at the end of its lifetime."""

    def close(dask_worker: Any) -> None:
        dask_worker.loop.add_callback(dask_worker.close_gracefully)

    scene.client.run(close, workers=scene.addresses[-1:])


def pause(scene: Scene) -> None:
    """Let the first worker's memory be full: its rank goes on, but it starts no other."""

    def paused(dask_worker: Any) -> None:
        dask_worker.status = Status.paused

    scene.client.run(paused, workers=scene.addresses[:1])


def kill_beside_a_paused_worker(scene: Scene) -> None:
    pause(scene)
    scene.kill(-1)


def kill_beside_a_busy_scheduler(scene: Scene) -> None:
    scene.kill(-1)
    scene.client.run_on_scheduler(time.sleep, 5.0)


def preempt(scene: Scene, n_ranks: int | None = None) -> None:
    """Run a short fit of a higher priority on all workers, or on some."""
    with Client(scene.client.scheduler.address, set_as_default=False) as client:
        settings = replace(DEAF, priority=1, n_ranks=n_ranks)
        scene.preempting.append(len(run_gang(client, ranks.many_steps, 50, name="urgent", settings=settings)))


FAULTS: dict[str, Callable[[Scene], None]] = {
    "a rank is killed": lambda scene: scene.kill(-1),
    "two ranks are killed": lambda scene: scene.kill(0, 1),
    "the supervisor is killed": lambda scene: scene.kill(scene.supervisor()),
    "a worker hangs": lambda scene: scene.kill(-1, how=signal.SIGSTOP),
    "the supervisor hangs": lambda scene: scene.kill(scene.supervisor(), how=signal.SIGSTOP),
    "a worker is out of memory": fill_memory,
    "a lifetime ends": expire,
    "a worker is retired": lambda scene: scene.client.retire_workers(scene.addresses[-1:]),
    "the cluster shrinks": lambda scene: scene.client.cluster.scale(len(scene.addresses) - 1),
    "a worker is told to end": lambda scene: scene.kill(-1, how=signal.SIGTERM),
    "the supervisor is told to end": lambda scene: scene.kill(scene.supervisor(), how=signal.SIGTERM),
    "a worker is paused": pause,
    "the scheduler is busy for a minute": lambda scene: scene.client.run_on_scheduler(time.sleep, BUSY_S),
    "a rank is killed, a worker is paused": kill_beside_a_paused_worker,
    "a rank is killed, the scheduler is busy": kill_beside_a_busy_scheduler,
    "preemption": preempt,
    "preemption on one worker": lambda scene: preempt(scene, 1),
}

PLANNED = {
    "a lifetime ends",
    "a worker is retired",
    "the cluster shrinks",
    "a worker is told to end",
    "the supervisor is told to end",
    "preemption",
    "preemption on one worker",
}
"""Faults that workers or the scheduler announce: the gang commits first, and no step is made twice."""

HARMLESS = {"a worker is paused", "the scheduler is busy for a minute"}
"""Faults during which all ranks go on: no gang is formed again."""

NOBODY_KNEW = {("two ranks are killed", 2), ("a rank is killed, a worker is paused", 2)}
"""Faults after which no worker is left that has a commit and may be a rank."""


_CHOOSING_S = 2.0


CELLS = cells(list(FAULTS))


def epochs_of(solver: str, fault: str) -> int:
    """Return the epochs of a fit that lasts longer than its fault takes to begin."""
    if "memory" in fault:
        return LONGER.get(solver, EPOCHS)
    return min(40, LONGER.get(solver, EPOCHS)) if "preemption" in fault else EPOCHS


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(digits_store(tmp_path_factory.mktemp("matrix")))


@pytest.mark.parametrize(("fault", "solver", "workers"), CELLS)
def test_a_fault_does_not_change_the_answer(fault: str, solver: str, workers: int, undisturbed: Undisturbed) -> None:
    settings = settings_for(solver, epochs_of(solver, fault))
    before = {process.pid for process in child_processes()}
    with local_cluster(workers, memory_limit=MEMORY if "memory" in fault else 0) as client:
        pids = worker_pids(client)
        scene = Scene(client, list(pids.values()), list(pids))
        story = Story(lambda: FAULTS[fault](scene))
        gang = QUICK if "hangs" in fault else DEAF
        try:
            found = fit(undisturbed.source, settings, client=client, listener=story, gang=gang, policy=SAFE)
        finally:
            if "hangs" in fault:
                for pid in scene.pids:
                    with suppress(ProcessLookupError):  # its nanny has started another
                        os.kill(pid, signal.SIGCONT)
        undisturbed.assert_same(settings, found.model)
        if fault == "the cluster shrinks" and story.seconds_after < _CHOOSING_S and not story.kinds(WorkersLeft):
            return  # on a fast machine a fit ends before Dask has chosen the worker to retire
        if fault in PLANNED:
            assert story.kinds(FitPreempted if fault == "preemption" else WorkersLeft), "the departure was not noticed"
            assert not story.kinds(WorkersLost), "the worker was not waited for"
            assert story.goes_back() == [], "steps were repeated"
        elif fault in HARMLESS:
            assert not story.kinds(WorkersLost), "the gang broke up"
            assert not story.kinds(FitResumed), "the gang was formed again"
        else:
            assert story.kinds(WorkersLost), "the fault was not noticed"
        if fault not in HARMLESS and (fault, workers) not in NOBODY_KNEW:
            lost = [event.reason for event in story.kinds(WorkersLost)]
            assert story.kinds(FitResumed), f"it began anew instead of going on: {lost}"
        if "preemption" in fault:
            wait_until(lambda: scene.preempting == [workers if fault == "preemption" else 1], what="the urgent fit")
        assert [epoch.epoch for epoch in found.epochs] == list(range(1, settings.max_epochs + 1))
        scene.hoarding = None
        assert_nothing_held(client)
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of all processes")
