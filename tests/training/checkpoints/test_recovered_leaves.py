"""Fits in leaves whose workers are killed, or that Ctrl-C ends, and go on: the model of an undisturbed fit."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import LocalRows
from daskkern.arrays import HostArray
from daskkern.cluster.gang.gang import GangSettings
from daskkern.errors import StoreError
from daskkern.events import BatchFinished, Event, FitResumed, WorkersLost
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.models import KernelModel
from daskkern.solvers import LocalRidge
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, worker_pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

N = 12_000
QUICK = GangSettings(silence_s=10.0, rejoin_s=10.0, idle_s=30.0)
SETTINGS = FitSettings(
    Laplacian(2.0), Squared(), LocalRows(500, n_trees=2), LocalRidge(), 1e-6, max_epochs=1, batch_size=100, device="cpu"
)


def _rows(seed: int, n: int) -> tuple[HostArray, HostArray]:
    X = np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)
    return X, np.digitize(X[:, 0] + np.sin(3 * X[:, 1]), [-0.7, 0.7])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("leaves")
    X, y = _rows(0, N)
    np.savez(folder / "rows.npz", X=X, y=y)
    daskkern.ingest([str(folder / "rows.npz")], folder / "rows.zarr", chunk_rows=1000)
    return StoreSource.at(str(folder / "rows.zarr"))


@pytest.fixture(scope="module")
def expected(source: StoreSource) -> KernelModel:
    """The model of an undisturbed fit in this process."""
    return fit(source, SETTINGS).model


class Once:
    """Listens to a fit, and does something once, after some batches."""

    def __init__(self, after: int, deed: Callable[[], None]) -> None:
        self.events: list[Event] = []
        self._after, self._deed, self._done = after, deed, False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.batch >= self._after and not self._done:
            self._done = True
            self._deed()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def _same(found: KernelModel, expected: KernelModel) -> None:
    X = _rows(1, 500)[0]
    np.testing.assert_allclose(found.scores(X), expected.scores(X), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("workers", "victim"), [(2, 1), pytest.param(3, 0, marks=pytest.mark.repeated)])
def test_a_killed_worker_does_not_change_the_model(
    workers: int, victim: int, source: StoreSource, expected: KernelModel
) -> None:
    with local_cluster(workers) as client:
        pid = list(worker_pids(client).values())[victim]
        listener = Once(5, lambda: os.kill(pid, signal.SIGKILL))
        policy = CheckpointPolicy(commit_s=0, commit_share=1.0, signal_batches=1)
        found = fit(source, SETTINGS, client=client, listener=listener, gang=QUICK, policy=policy)
    assert listener.kinds(WorkersLost)
    resumed = listener.kinds(FitResumed)
    assert resumed, "it began anew instead of going on"
    assert (resumed[-1].epoch, resumed[-1].batch) > (1, 0)
    _same(found.model, expected)


@pytest.mark.repeated
def test_an_interrupted_fit_goes_on_to_the_same_model(
    source: StoreSource, expected: KernelModel, tmp_path: Path
) -> None:
    policy = CheckpointPolicy(commit_s=0, checkpoint=str(tmp_path / "c"), checkpoint_s=0.0)
    assert threading.current_thread() is threading.main_thread()
    with local_cluster(2) as client:
        listener = Once(5, lambda: signal.raise_signal(signal.SIGINT))
        partial = fit(source, SETTINGS, client=client, listener=listener, policy=policy)
        assert partial.finished.reason == "interrupted"
        assert 0 < np.count_nonzero(partial.model.coef.any(axis=1)) < 2 * N
        with pytest.raises(StoreError, match="n_trees"):
            fit(source, replace(SETTINGS, basis=LocalRows(500)), policy=replace(policy, resume=True))
        listener = Once(1 << 30, lambda: None)
        found = fit(source, SETTINGS, client=client, listener=listener, policy=replace(policy, resume=True))
    assert listener.kinds(FitResumed)[0].batch > 0
    assert found.finished.reason != "interrupted"
    _same(found.model, expected)
