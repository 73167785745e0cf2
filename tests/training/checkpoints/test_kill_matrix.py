"""Every fault x every solver x 2 and 3 workers: the fit ends with the answer of an undisturbed one.

``pytest -m kill_matrix`` runs all of it. The checks of a change run a cover: every fault, every solver, and both
numbers of workers; four faults are in the default run.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from distributed import Client
from distributed.core import Status
from sklearn.datasets import load_digits

import daskkern
from daskkern import AllRows, Landmarks
from daskkern.basis import BasisSpec, DoublyStochastic
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.events import BatchFinished, Event, FitPreempted, FitResumed, WorkersLeft, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import DoublySGD, EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support import ranks
from tests.support.cluster import child_processes, local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_held

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

QUICK = GangSettings(silence_s=3.0, rejoin_s=6.0, idle_s=30.0)
DEAF = replace(QUICK, silence_s=30.0)
"""For faults that Dask notices itself: where much else runs, a healthy worker may be silent for 3 s."""
MEMORY = 800 << 20
EPOCHS = 12
MORE = {"EigenPro centres": 30, "EigenPro full": 40, "NystromSGD": 60, "Falkon": 150}
"""Epochs while a worker's memory is filled, which takes longer than a dozen of a fast solver."""
SAFE = CheckpointPolicy(commit_s=0.05)

SOLVERS: dict[str, tuple[BasisSpec, Solver[Any], Loss, float]] = {
    "EigenPro centres": (Landmarks(200), EigenPro(window=3), SquaredHinge(), 0.0),
    "EigenPro full": (AllRows(), EigenPro(), SquaredHinge(), 0.0),
    "NystromSGD": (Landmarks(150), NystromSGD(mode="streamed"), SquaredHinge(), 0.0),
    "Falkon": (Landmarks(200), Falkon(), Squared(), 1e-5),
    "DoublySGD": (DoublyStochastic(16), DoublySGD(), SquaredHinge(), 1e-5),
}


@dataclass
class Scene:
    """A running fit's cluster: processes and addresses of its workers, in rank order."""

    client: Client
    pids: list[int]
    addresses: list[str]
    hoarding: Any = None
    preempting: list[int] = field(default_factory=list)
    """The numbers of ranks of fits that have preempted the one that runs."""

    def kill(self, *ranks: int, how: int = signal.SIGKILL) -> None:
        for rank in ranks:
            os.kill(self.pids[rank], how)

    def supervisor(self) -> int:
        """Return which worker supervises the fit."""

        def where(dask_scheduler: Any) -> str:
            tasks = dask_scheduler.tasks.items()
            return next(task.processing_on.address for key, task in tasks if "supervisor" in str(key))

        return self.addresses.index(self.client.run_on_scheduler(where))


def hoard() -> None:
    """Take memory until the nanny ends this process."""
    held = []
    while True:
        held.append(np.ones(25 << 17))
        time.sleep(0.02)


def fill_memory(scene: Scene) -> None:
    scene.hoarding = scene.client.submit(hoard, workers=[scene.addresses[-1]], pure=False, retries=0)


def expire(scene: Scene) -> None:
    """Do what a worker does at the end of its lifetime."""

    def close(dask_worker: Any) -> None:
        dask_worker.loop.add_callback(dask_worker.close_gracefully)

    scene.client.run(close, workers=scene.addresses[-1:])


def kill_beside_a_paused_worker(scene: Scene) -> None:
    """Kill the last rank while the first worker's memory is full; its rank goes on, but it starts no other."""

    def pause(dask_worker: Any) -> None:
        dask_worker.status = Status.paused

    scene.client.run(pause, workers=scene.addresses[:1])
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


NOBODY_KNEW = {("two ranks are killed", 2), ("a rank is killed, a worker is paused", 2)}
"""Faults after which no worker is left that has a commit and may be a rank."""


def cover() -> set[tuple[str, str, int]]:
    """Return cells that have every fault once, in turn with the solvers and the numbers of workers."""
    solvers, workers = cycle(SOLVERS), cycle((2, 3, 3, 2))
    return {(fault, next(solvers), next(workers)) for fault in FAULTS}


def _marks(cell: tuple[str, str, int]) -> list[pytest.MarkDecorator]:
    if cell not in cover():
        return [pytest.mark.kill_matrix]
    return [pytest.mark.repeated]


CELLS = [
    pytest.param(*cell, id=", ".join(map(str, cell)), marks=_marks(cell)) for cell in product(FAULTS, SOLVERS, (2, 3))
]


def epochs_of(solver: str, fault: str) -> int:
    """Return the epochs of a fit that lasts longer than its fault takes to begin."""
    if "memory" in fault:
        return MORE.get(solver, EPOCHS)
    return min(40, MORE.get(solver, EPOCHS)) if "preemption" in fault else EPOCHS


def settings_for(solver: str, n_epochs: int) -> FitSettings:
    basis, method, loss, alpha = SOLVERS[solver]
    return FitSettings(Gaussian(1.5), loss, basis, method, alpha, max_epochs=n_epochs, batch_size=64, device="cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("matrix")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


@pytest.fixture(scope="module")
def expected(source: StoreSource) -> Callable[[FitSettings], np.ndarray]:
    """Return the scores of an undisturbed fit in this process, computed once for each settings."""
    known: dict[FitSettings, np.ndarray] = {}

    def scores(settings: FitSettings) -> np.ndarray:
        if settings not in known:
            known[settings] = fit(source, settings).model.scores(load_digits(return_X_y=True)[0])
        return known[settings]

    return scores


class Story:
    """Listens to a fit, and does something once, in its third epoch."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._deed, self._done = deed, False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.epoch >= 3 and not self._done:
            self._done = True
            threading.Thread(target=self._deed, daemon=True).start()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def goes_back(self) -> list[FitResumed]:
        """Return where a gang went on from an earlier batch than one that had been reported."""
        found, farthest = [], (0, 0)
        for event in self.events:
            if isinstance(event, BatchFinished):
                farthest = max(farthest, (event.epoch, event.batch))
            elif isinstance(event, FitResumed) and (event.epoch, event.batch) < farthest:
                found.append(event)
        return found


@pytest.mark.parametrize(("fault", "solver", "workers"), CELLS)
def test_a_fault_does_not_change_the_answer(
    fault: str, solver: str, workers: int, source: StoreSource, expected: Callable[[FitSettings], np.ndarray]
) -> None:
    settings = settings_for(solver, epochs_of(solver, fault))
    before = {process.pid for process in child_processes()}
    with local_cluster(workers, memory_limit=MEMORY if "memory" in fault else 0) as client:
        pids = worker_pids(client)
        scene = Scene(client, list(pids.values()), list(pids))
        story = Story(lambda: FAULTS[fault](scene))
        gang = QUICK if "hangs" in fault else DEAF
        try:
            found = fit(source, settings, client=client, listener=story, gang=gang, policy=SAFE)
        finally:
            if "hangs" in fault:
                for pid in scene.pids:
                    with suppress(ProcessLookupError):  # its nanny has started another
                        os.kill(pid, signal.SIGCONT)
        want, got = expected(settings), found.model.scores(load_digits(return_X_y=True)[0])
        assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()
        if fault in PLANNED:
            assert story.kinds(FitPreempted if fault == "preemption" else WorkersLeft), "the departure was not noticed"
            assert not story.kinds(WorkersLost), "the worker was not waited for"
            assert story.goes_back() == [], "steps were repeated"
        else:
            assert story.kinds(WorkersLost), "the fault was not noticed"
        if (fault, workers) not in NOBODY_KNEW:
            lost = [event.reason for event in story.kinds(WorkersLost)]
            assert story.kinds(FitResumed), f"it began anew instead of going on: {lost}"
        if "preemption" in fault:
            wait_until(lambda: scene.preempting == [workers if fault == "preemption" else 1], what="the urgent fit")
        assert [epoch.epoch for epoch in found.epochs] == list(range(1, settings.max_epochs + 1))
        scene.hoarding = None
        assert_nothing_held(client)
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of all processes")
