"""Metrics from gradients at all rows: the same from any number of ranks, any kind of rows, and after a lost worker."""

import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

import daskkern
from daskkern import FeatureLearning, KernelClassifier, KernelRegressor, Landmarks
from daskkern.arrays import FloatArray, HostArray
from daskkern.cluster.gang.gang import GangSettings
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows
from daskkern.events import Event, StageFinished, WorkersLost
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, wait_until, worker_pids

N, D = 700, 8
ALL = FeatureLearning("full", rank=4, n_rows="all", n_iter=2, n_landmarks=60)
SHARED: dict[str, Any] = {"kernel": "laplacian:median", "basis": Landmarks(80), "max_epochs": 5, "batch_size": 100}


SETTINGS = FitSettings(
    Laplacian(3.0), Squared(), Landmarks(80), EigenPro(), 1e-3, 5, 100, device="cpu", learn_features=ALL
)


@dataclass(frozen=True)
class ShortBlocks(StoreSource):
    """A store of which a block of a pass is one chunk; where there is a `mark`, passes are slow and make that file."""

    mark: str = ""

    def open(self, dtype: str) -> Rows:
        rows = super().open(dtype)
        return ShortRows(rows, self.mark)


class ShortRows(Rows):
    """Rows as if they were wide."""

    row_bytes = 32 << 20

    def __init__(self, rows: Rows, mark: str) -> None:
        self._rows, self._mark = rows, mark
        for name in ("n_rows", "n_features", "n_targets", "chunk_rows", "task", "classes", "has_weight", "dtype"):
            setattr(self, name, getattr(rows, name))

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        if self._mark and threading.current_thread().name.startswith("daskkern-read"):
            Path(self._mark).touch()
            time.sleep(0.05)
        return self._rows._read_features(start, stop)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return self._rows._read_targets(start, stop)

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return self._rows._read_weight(start, stop)


def _rows(n: int = N) -> tuple[HostArray, HostArray]:
    X = np.random.default_rng(0).standard_normal((n, D))
    return X, np.sin(2 * X[:, 3]) + X[:, 4] * X[:, 5]


def _store(tmp_path: Path, X: Any, y: Any, chunk_rows: int = 64) -> str:
    where = tmp_path / "rows.zarr"
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskkern.ingest([str(tmp_path / "rows.npz")], where, chunk_rows=chunk_rows)
    return str(where)


def _metric(model: Any) -> FloatArray:
    kernel = getattr(model, "model_", model).kernel
    if kernel.has_metric:
        F = np.asarray(kernel.factor) / kernel.length_scale
        return F @ F.T
    return np.asarray(kernel.feature_weights)


def _agree(one: Any, other: Any, X: Any) -> None:
    M, other_M = _metric(one), _metric(other)
    np.testing.assert_allclose(other_M, M, rtol=1e-9, atol=1e-9 * np.abs(M).max())
    wanted = one.predict(X)
    np.testing.assert_allclose(other.predict(X), wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.long
@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_of_rows_that_are_all_sampled_it_is_the_metric_of_the_sample(metric: str) -> None:
    X, y = _rows()
    sampled, found = (
        KernelRegressor(dtype="float64", learn_features=replace(ALL, metric=metric, n_rows=n), **SHARED).fit(X, y)
        for n in (N, "all")
    )
    _agree(sampled, found, X)


@pytest.mark.repeated
def test_more_rows_than_the_sample_change_it_and_a_stage_says_so() -> None:
    X, y = _rows(5000)
    stages: list[StageFinished] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished):
            stages.append(event)

    few, found = (
        KernelRegressor(learn_features=replace(ALL, n_rows=n), callbacks=[listen], **SHARED).fit(X, y)
        for n in (20_000, "all")
    )
    assert np.abs(_metric(found) - _metric(few)).max() > 1e-6 * np.abs(_metric(few)).max()
    assert [stage.detail for stage in stages if stage.stage == "gradients"] == ["the metric is that of all 5,000 rows"]
    assert found.feature_importances_[3:6].sum() > 0.9


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.repeated)])
def test_ranks_of_a_cluster_find_the_same_from_a_store(
    workers: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    X, y = _rows()
    source = ShortBlocks.at(_store(tmp_path, X, y))
    alone = fit(source, SETTINGS)
    shared = fit(source, SETTINGS, client=request.getfixturevalue(f"client{workers}"))
    _agree(alone.model, shared.model, X)


@pytest.mark.repeated
@pytest.mark.one_in(2)
def test_arrays_and_dask_arrays_have_the_metric_of_the_same_rows(client2: Any) -> None:
    X, y = _rows()
    alone = KernelRegressor(learn_features=ALL, **SHARED).fit(X, y)
    lazy, targets = da.from_array(X, chunks=(90, D)), da.from_array(y, chunks=90)
    for client, rows, values in ((None, lazy, targets), (client2, X, y), (client2, lazy, targets)):
        found = KernelRegressor(learn_features=ALL, client=client, **SHARED).fit(rows, values)
        np.testing.assert_allclose(_metric(found), _metric(alone), rtol=1e-5, atol=1e-5 * np.abs(_metric(alone)).max())


@pytest.mark.repeated
@pytest.mark.one_in(2)
def test_sparse_rows_have_weights_of_all_rows(client2: Any) -> None:
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((400, 200), density=0.1, rng=rng, format="csr")
    y = np.asarray(X[:, [0]].toarray() > 0).ravel().astype(int) * 2 + (X[:, [1]].toarray().ravel() > 0)
    learning = replace(ALL, metric="diagonal", rank=None, n_landmarks=150)
    alone, shared = (
        KernelClassifier("laplacian:median", basis=Landmarks(100), learn_features=learning, client=client).fit(X, y)
        for client in (None, client2)
    )
    assert set(np.argsort(alone.feature_importances_)[-2:]) == {0, 1}
    np.testing.assert_allclose(_metric(shared), _metric(alone), rtol=1e-9)


@pytest.mark.long
def test_weights_count_and_rows_that_are_held_out_do_not() -> None:
    X, y = _rows()
    weight = (np.arange(N) < 350).astype(float)
    shared = {**SHARED, "dtype": "float64", "learn_features": replace(ALL, n_landmarks=350)}
    half = KernelRegressor(**shared).fit(X[:350], y[:350])
    weighted = KernelRegressor(**shared).fit(X, y, sample_weight=weight)
    assert np.corrcoef(half.feature_importances_, weighted.feature_importances_)[0, 1] > 0.99
    stopped = KernelRegressor(early_stopping=True, **shared).fit(X, y)
    assert np.abs(_metric(stopped) - _metric(KernelRegressor(**shared).fit(X, y))).max() > 0


@pytest.mark.long
def test_virtual_shards_give_the_same_bits_on_any_number_of_workers(client2: Any) -> None:
    X, y = _rows()
    alone, shared = (
        KernelRegressor(learn_features=ALL, virtual_shards=3, client=client, **SHARED).fit(X, y)
        for client in (None, client2)
    )
    assert shared.model_.kernel == alone.model_.kernel
    np.testing.assert_array_equal(shared.predict(X), alone.predict(X))


@pytest.mark.cluster
@pytest.mark.timeout(180)
@pytest.mark.repeated
def test_a_worker_that_dies_in_the_pass_changes_nothing(tmp_path: Path) -> None:
    X, y = _rows()
    source = replace(ShortBlocks.at(_store(tmp_path, X, y, chunk_rows=20)), mark=str(tmp_path / "mark"))
    events: list[Event] = []
    with local_cluster(2) as client:

        def kill() -> None:
            wait_until((tmp_path / "mark").exists)
            os.kill(list(worker_pids(client).values())[1], signal.SIGKILL)  # one may have been started again by now

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        gang = GangSettings(silence_s=3.0, rejoin_s=8.0, idle_s=20.0)
        found = fit(source, SETTINGS, client=client, listener=events.append, gang=gang)
    assert [event for event in events if isinstance(event, WorkersLost)]
    _agree(fit(ShortBlocks.at(source.location), SETTINGS).model, found.model, X)
