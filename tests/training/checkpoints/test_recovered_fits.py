"""Workers die in mid-fit, and the fit ends with the answer of the undisturbed one."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import daskkern
from daskkern import AllRows, Landmarks
from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.gang import GangSettings
from daskkern.errors import StoreError
from daskkern.events import BatchFinished, Event, FitResumed, FitStarted, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import PCG, EigenPro, Falkon, NystromSGD
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.commits import holders_of
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, worker_pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

QUICK = GangSettings(silence_s=3.0, rejoin_s=8.0, idle_s=20.0)
EPOCHS = 10
OFTEN = CheckpointPolicy(commit_s=0.0)
CASES = {
    "landmarks": (Landmarks(300), EigenPro(window=3)),
    "all rows": (AllRows(), EigenPro()),
    "nystrom stored": (Landmarks(200), NystromSGD(mode="stored")),
    "falkon": (Landmarks(300), Falkon()),
    "pcg": (AllRows(), PCG()),
}
LOSSES: dict[str, Loss] = {"pcg": Squared(), "falkon": Squared()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("recovered")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


def settings_for(case: str, max_epochs: int = EPOCHS) -> FitSettings:
    basis, solver = CASES[case]
    loss = LOSSES.get(case, SquaredHinge())
    return FitSettings(
        Gaussian(1.5),
        loss,
        basis,
        solver,
        1e-6 * (case in LOSSES),
        max_epochs=max_epochs,
        batch_size=32,
        device="cpu",
    )


class Killer:
    """Kills workers once, at the first batch of an epoch."""

    def __init__(self, epoch: int, deed: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._epoch, self._deed, self._done = epoch, deed, False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.epoch >= self._epoch and not self._done:
            self._done = True
            threading.Thread(target=self._deed, daemon=True).start()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def killed(
    source: RowSource, settings: FitSettings, workers: int, victim: int, **how: object
) -> tuple[FitResult, Killer]:
    with local_cluster(workers) as client:
        pids = list(worker_pids(client).values())
        killer = Killer(3, lambda: os.kill(pids[victim], signal.SIGKILL))
        result = fit(source, settings, client=client, listener=killer, gang=QUICK, **how)
    return result, killer


@pytest.mark.repeated
@pytest.mark.parametrize("victims", [(0,), (0, 2)], ids=["one holder", "two of three holders"])
def test_a_commit_survives_with_one_of_its_holders(victims: tuple[int, ...], source: StoreSource) -> None:
    assert holders_of(5) == (0, 1, 3)
    with local_cluster(5) as client:
        names = {address: str(worker["name"]) for address, worker in live_workers(client).items()}
        pids = {names[address]: pid for address, pid in worker_pids(client).items()}
        order = sorted(pids)  # of the ranks
        lost = [pids[order[holders_of(5)[victim]]] for victim in victims]
        killer = Killer(4, lambda: [os.kill(pid, signal.SIGKILL) for pid in lost])
        gang = replace(QUICK, workers=tuple(order), elastic=False)
        policy = replace(OFTEN, commit_share=1.0)
        found = fit(source, settings_for("landmarks"), client=client, listener=killer, gang=gang, policy=policy)
    assert min(event.epoch for event in killer.kinds(FitResumed)) >= 3
    assert len(killer.kinds(FitStarted)) == 1
    with local_cluster(1) as client:
        expected = fit(source, settings_for("landmarks"), client=client)
    X = load_digits(return_X_y=True)[0]
    np.testing.assert_allclose(found.model.scores(X), expected.model.scores(X), atol=1e-4)


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("case", "workers", "victim"),
    [
        ("landmarks", 2, 0),
        pytest.param("all rows", 2, 1, marks=pytest.mark.slow),
        ("nystrom stored", 3, 2),
        ("falkon", 2, 1),
        pytest.param("pcg", 2, 1, marks=pytest.mark.slow),
    ],
)
def test_a_killed_worker_changes_not_a_bit(case: str, workers: int, victim: int, source: StoreSource) -> None:
    settings = settings_for(case)
    with local_cluster(workers) as client:
        expected = fit(source, settings, client=client)
    found, killer = killed(source, settings, workers, victim, policy=OFTEN)
    np.testing.assert_array_equal(found.model.coef, expected.model.coef)
    assert killer.kinds(WorkersLost)
    assert [epoch.epoch for epoch in found.epochs] == list(range(1, EPOCHS + 1))
    resumed = killer.kinds(FitResumed)
    assert resumed, "it began anew instead of going on"
    assert (resumed[-1].epoch, resumed[-1].batch) > (1, 0)
    np.testing.assert_array_equal([e.loss for e in found.epochs], [e.loss for e in expected.epochs])


@pytest.mark.slow  # the kill matrix retires workers, too
def test_fewer_workers_give_the_same_scores(source: StoreSource) -> None:
    settings = settings_for("landmarks")
    expected = fit(source, settings)
    with local_cluster(3) as client:
        retired = next(iter(worker_pids(client)))
        killer = Killer(3, lambda: client.retire_workers([retired]))
        found = fit(source, settings, client=client, listener=killer, gang=replace(QUICK, rejoin_s=0.5), policy=OFTEN)
    assert killer.kinds(FitResumed)[-1].size == 2
    X = load_digits(return_X_y=True)[0]
    want, got = expected.model.scores(X), found.model.scores(X)
    assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.repeated
@pytest.mark.timeout(900)  # epochs of two ranks, each of 100 sums, take a second on a busy machine
def test_workers_that_join_take_part(source: StoreSource) -> None:
    settings = settings_for("landmarks", max_epochs=400)  # more than a worker takes to start, also on an idle machine
    with local_cluster(1) as client:
        killer = Killer(3, lambda: client.cluster.scale(2))
        found = fit(source, settings, client=client, listener=killer, gang=QUICK, policy=CheckpointPolicy(commit_s=0.5))
    assert [event.size for event in killer.kinds(FitResumed)] == [2]
    expected = fit(source, settings)
    X = load_digits(return_X_y=True)[0]
    want, got = expected.model.scores(X), found.model.scores(X)
    assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.repeated
def test_a_cluster_that_is_gone_leaves_a_checkpoint_to_go_on_from(source: StoreSource, tmp_path: Path) -> None:
    settings = settings_for("landmarks")
    policy = CheckpointPolicy(commit_s=0.0, checkpoint=str(tmp_path / "c"), checkpoint_s=0.0)
    with local_cluster(2) as client:
        killer, impatient = Killer(3, lambda: client.cluster.scale(0)), replace(QUICK, idle_s=2.0)
        with pytest.raises(daskkern.errors.ClusterError):
            fit(source, settings, client=client, listener=killer, gang=impatient, policy=policy)
    with pytest.raises(StoreError, match="continue from it with --resume"):
        fit(source, settings, policy=policy)
    with pytest.raises(StoreError, match=r"was made by another fit: settings alpha was 0.0 and is 0.5"):
        fit(source, replace(settings, alpha=0.5), policy=replace(policy, resume=True))
    with local_cluster(2) as client:
        killer = Killer(99, lambda: None)
        found = fit(source, settings, client=client, listener=killer, gang=QUICK, policy=replace(policy, resume=True))
        first = killer.kinds(FitResumed)[0]
        assert (first.epoch, first.batch) > (1, 0)  # a checkpoint is written beside the fit, and may be an older one
        expected = fit(source, settings, client=client)
    np.testing.assert_array_equal(found.model.coef, expected.model.coef)
    assert [epoch.epoch for epoch in found.epochs] == list(range(1, EPOCHS + 1))
