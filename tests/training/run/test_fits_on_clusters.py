"""A fit on worker processes is the fit in this process, up to rounding."""

import os
import re
import shutil
from functools import lru_cache

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import daskkern
from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks
from daskkern.backend.current import current
from daskkern.cli.output.fit_results import time_breakdown
from daskkern.errors import ClusterError, DataError, MemoryBudgetError
from daskkern.events import PARTS_OF_TIME, FitStarted
from daskkern.kernels import Gaussian, Laplacian
from daskkern.losses import SquaredHinge
from daskkern.solvers import PCG, Direct, EigenPro, Falkon, NystromSGD
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import by_messages, local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fits")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return str(folder / "digits.zarr")


@pytest.fixture(scope="module")
def client1():
    with local_cluster(1) as client:
        yield client


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return load_digits(return_X_y=True)[0]


CASES = {
    "landmarks": {"basis": Landmarks(300)},
    "landmarks, one batch a window": {"basis": Landmarks(300), "solver": EigenPro(window=1), "alpha": 1e-4},
    "stratified landmarks, ridge": {"basis": Landmarks(200, "stratified"), "alpha": 1e-3, "loss": "logistic"},
    "projections by EigenPro": {"basis": Landmarks(300), "solver": EigenPro(projection="eigenpro")},
    "all rows": {"basis": AllRows(), "loss": "squared"},
    "all rows, ridge": {"basis": AllRows(), "loss": "multinomial_logistic", "alpha": 1e-3},
    "nystrom streamed": {"basis": Landmarks(200), "solver": NystromSGD(mode="streamed")},
    "nystrom stored": {"basis": Landmarks(200), "solver": NystromSGD(mode="stored")},
    "laplacian, class weights": {"kernel": Laplacian(3.0), "basis": Landmarks(250), "class_weight": "balanced"},
    "falkon": {"basis": Landmarks(200), "solver": Falkon(), "loss": "squared", "alpha": 1e-5},
    "falkon, logistic, class weights": {
        "basis": Landmarks(100),
        "solver": Falkon(newton_passes=3),
        "loss": "logistic",
        "alpha": 1e-4,
        "class_weight": "balanced",
    },
    "direct, on one of the workers": {"basis": Landmarks(100), "solver": Direct(), "loss": "squared", "alpha": 1e-4},
    "pcg, early stopping": {
        "basis": AllRows(),
        "solver": PCG(),
        "loss": "squared",
        "alpha": 1e-3,
        "early_stopping": True,
        "max_epochs": 8,
    },
    "early stopping": {"basis": Landmarks(200), "early_stopping": True},
}


# Threads in place of workers make the same sums: test_ranks_of_a_fit.py has these cases, too.
SLOW = {
    "landmarks, one batch a window",
    "stratified landmarks, ridge",
    "all rows, ridge",
    "laplacian, class weights",
    "falkon, logistic, class weights",
}


@lru_cache
def _scores_here(case, store):
    return _scores(case, store)


def _scores(case, store, client=None):
    settings = {"kernel": Gaussian(1.5), "max_epochs": 3, **CASES[case]}
    return KernelClassifier(**settings, client=client).fit(store).decision_function(store)


@pytest.mark.repeated
def test_one_worker_agrees_with_this_process(store, client1):
    here, there = _scores_here("landmarks", store), _scores("landmarks", store, client1)
    assert np.abs(there - here).max() <= 1e-4 * np.abs(here).max()


@pytest.mark.one_in(59)
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES], ids=str
)
@pytest.mark.parametrize("workers", [2, 3])
def test_two_and_three_workers_agree_with_this_process(case, workers, store, request):
    here, there = _scores_here(case, store), _scores(case, store, request.getfixturevalue(f"client{workers}"))
    assert np.abs(there - here).max() <= 1e-4 * np.abs(here).max()
    assert (there.argmax(axis=1) == here.argmax(axis=1)).mean() >= 0.999


def test_a_serial_solver_says_so_and_takes_one_worker(store, client2):
    events = []
    settings = KernelClassifier(Gaussian(1.5), "squared", Landmarks(50), "direct", alpha=1e-4).fit_settings()
    fit(StoreSource.at(store), settings, client=client2, listener=events.append)
    assert [event.size for event in events if isinstance(event, FitStarted)] == [1]
    assert "serial: all rows and columns on 1 rank" in [getattr(event, "detail", "") for event in events]


@pytest.mark.repeated
def test_the_hinge_loss_agrees_on_what_it_predicts(store, client2):
    settings = {"kernel": Gaussian(1.5), "loss": "hinge", "basis": Landmarks(300), "max_epochs": 3}
    here = KernelClassifier(**settings).fit(store).predict(store)
    there = KernelClassifier(**settings, client=client2).fit(store).predict(store)
    assert (here == there).mean() >= 0.999


@pytest.mark.parametrize("lazy", [False, True])
def test_stored_eigenfeatures_of_arrays_that_only_workers_have(lazy, X, client2):
    y = load_digits(return_X_y=True)[1]
    solver = NystromSGD(mode="stored")
    settings = {"kernel": Gaussian(25.0), "basis": Landmarks(200), "max_epochs": 3, "solver": solver}
    here = KernelClassifier(**settings).fit(X, y)
    rows = (da.from_array(X, chunks=(400, -1)), da.from_array(y, chunks=400)) if lazy else (X, y)
    there = KernelClassifier(**settings, client=client2).fit(*rows)
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-3)


@pytest.mark.repeated
def test_arrays_and_dask_arrays_reach_the_workers(X, client2):
    y = load_digits(return_X_y=True)[1]
    settings = {"kernel": Gaussian(25.0), "basis": Landmarks(300), "max_epochs": 3, "client": client2}
    arrays = KernelClassifier(**settings).fit(X, y, sample_weight=np.ones(len(y)))
    assert arrays.score(X, y) > 0.95
    lazy = KernelClassifier(**settings).fit(da.from_array(X, chunks=(400, 64)), da.from_array(y, chunks=400))
    assert lazy.score(X, y) > 0.95
    regressor = KernelRegressor(**settings).fit(X, X[:, :2].sum(axis=1) + X[:, 20])
    assert regressor.score(X, X[:, :2].sum(axis=1) + X[:, 20]) > 0.8


@pytest.mark.repeated
def test_persisted_dask_arrays_are_fitted_where_they_are(X, client2):
    y = load_digits(return_X_y=True)[1]
    with current(client2):
        lazy_X, lazy_y = da.from_array(X, chunks=(400, 64)).persist(), da.from_array(y, chunks=400).persist()
        model = KernelClassifier(Gaussian(25.0), basis=Landmarks(200), max_epochs=2).fit(lazy_X, lazy_y)
        assert model.score(lazy_X, lazy_y) > 0.9


def test_an_estimator_with_a_client_can_be_cloned(client2):
    model = KernelClassifier("gaussian:2", alpha=1e-3, client=client2)
    copy = clone(model)
    assert copy.client is client2
    assert copy.alpha == 1e-3


@pytest.mark.repeated
def test_many_epochs_and_a_wide_model_still_agree(store, client2, client3):
    settings = {"kernel": "gaussian:median", "basis": Landmarks(1000), "max_epochs": 10}
    here, two, three = (
        KernelClassifier(**settings, client=client).fit(store).decision_function(store)
        for client in (None, client2, client3)
    )
    for other in (two, three):
        assert np.abs(other - here).max() <= 1e-4 * np.abs(here).max()


@pytest.mark.long
def test_an_active_client_is_used(store, client2):
    with current(client2), by_messages(client2):
        model = KernelClassifier(Gaussian(1.5), basis=Landmarks(100), max_epochs=2).fit(store)
    assert sum(epoch.bytes_sent for epoch in model.history_) > 0


@pytest.mark.long
def test_a_relative_path_is_made_absolute_before_it_travels(store, client2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(store, tmp_path / "here.zarr")
    model = KernelClassifier(Gaussian(1.5), basis=Landmarks(50), max_epochs=1, client=client2).fit("here.zarr")
    assert model.n_iter_ == 1


def test_a_store_that_a_worker_cannot_read_is_refused_by_name(store, client2):
    def hide(path):
        os.rename(path, path + ".away")

    source = StoreSource.at(store)
    hide(store)
    try:
        with pytest.raises(ClusterError, match=r"worker tcp://.*cannot run the fit"):
            fit(source, KernelClassifier(Gaussian(1.5), basis=Landmarks(50)).fit_settings(), client=client2)
    finally:
        os.rename(store + ".away", store)


def test_errors_of_the_preparation_arrive_as_what_they_are(client2):
    X = np.zeros((50, 3))
    with pytest.raises(DataError, match="median"):
        KernelClassifier("gaussian:median", basis=Landmarks(20), client=client2).fit(X, np.arange(50) % 2)


def test_a_fit_over_the_memory_budget_is_refused_with_the_numbers(store, client2):
    with pytest.raises(MemoryBudgetError, match=r"would need .*MB.*budget is 1e\+?0?6|budget is 1 MB"):
        KernelClassifier(Gaussian(1.5), basis=Landmarks(300), memory_budget=10**6, client=client2).fit(store)


@pytest.mark.long
def test_nothing_is_left_on_the_cluster(store, client2):
    KernelClassifier(Gaussian(1.5), basis=Landmarks(100), max_epochs=1, client=client2).fit(store)

    def keys(dask_worker):
        return [key for key in dask_worker.data if "daskkern" in str(key)]

    for _ in range(50):
        left = client2.run(keys)
        if not any(left.values()):
            break
    assert not any(left.values()), left


@pytest.mark.long
def test_the_time_of_the_ranks_is_told_apart(store, client2):
    settings = FitSettings(Gaussian(1.5), SquaredHinge(), Landmarks(100), EigenPro(), max_epochs=2, device="cpu")
    result = fit(StoreSource.at(store), settings, client=client2)
    assert [times.epoch for times in result.times] == [1, 2]
    for times, epoch in zip(result.times, result.epochs, strict=True):
        assert times.seconds == pytest.approx(sum(getattr(times, part) for part in PARTS_OF_TIME))
        assert times.seconds <= 1.5 * epoch.seconds + 0.05
        assert min(times.computing, times.exchanging) > 0
        assert times.longest_wait >= times.waiting >= 0
        assert times.collectives >= 2
        assert times.ways == "shared memory"
    said = time_breakdown(result.times)
    assert re.fullmatch(
        r"time of the epochs: [\d.]+% computing, .*[\d.]+% exchanging sums .in memory that the ranks share.", said
    )
