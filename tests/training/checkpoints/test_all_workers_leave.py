"""Fits whose workers all leave: their checkpoint has the last step, and the next run begins with the one after it."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import daskkern
from daskkern import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.errors import ClusterError
from daskkern.events import BatchFinished, Event, FitResumed
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.repeated, pytest.mark.timeout(120)]

QUICK = GangSettings(silence_s=10.0, rejoin_s=2.0, idle_s=3.0)
SETTINGS = FitSettings(
    Gaussian(1.5), SquaredHinge(), Landmarks(200), EigenPro(window=3), max_epochs=12, batch_size=32, device="cpu"
)
RARELY = CheckpointPolicy(commit_s=1000.0, checkpoint_s=1000.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("departures")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


def test_a_fit_whose_workers_all_leave_is_resumed_without_a_lost_step(source: StoreSource, tmp_path: Path) -> None:
    policy = replace(RARELY, checkpoint=str(tmp_path / "fit.checkpoint"))
    events: list[Event] = []
    with local_cluster(2) as client:

        def listener(event: Event) -> None:
            events.append(event)
            if isinstance(event, BatchFinished) and event.epoch >= 3 and leaving.ident is None:
                leaving.start()

        leaving = threading.Thread(target=client.cluster.scale, args=(0,), daemon=True)
        with pytest.raises(ClusterError, match="all workers have left the cluster"):
            fit(source, SETTINGS, client=client, listener=listener, gang=QUICK, policy=policy)
    last = max((event.epoch, event.batch) for event in events if isinstance(event, BatchFinished))
    again: list[Event] = []
    found = fit(source, SETTINGS, listener=again.append, policy=replace(policy, resume=True))
    (resumed,) = [event for event in again if isinstance(event, FitResumed)]
    assert (resumed.epoch, resumed.batch) >= last > (3, 0)
    X = load_digits(return_X_y=True)[0]
    want, got = fit(source, SETTINGS).model.scores(X), found.model.scores(X)
    assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()
