"""Models in the leaves of a partition: what they gain, on any input, in this process and on workers."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

import daskkern
from daskkern import FeatureLearning, KernelClassifier, KernelRegressor, Landmarks, LocalRows
from daskkern.arrays import HostArray
from daskkern.cli.main import main
from daskkern.errors import DataError, SpecError
from daskkern.inspection import gradient_importance
from daskkern.kernels import Laplacian, Partitioned
from daskkern.solvers import LocalRidge
from daskkern.training.planning.planner import upper_bound_plan
from tests.support.cluster import local_cluster
from tests.support.fits import toy_source

N = 3000


def _rows(n: int = N, seed: int = 0) -> tuple[HostArray, HostArray]:
    """Return rows whose class changes more often than few landmarks can say."""
    X = np.random.default_rng(seed).uniform(0, 8, (n, 2))
    return X, (np.floor(X[:, 0]) + np.floor(X[:, 1])).astype(int) % 3


def _local(leaf_rows: int = 300, n_trees: int = 1, **parameters: Any) -> KernelClassifier:
    return KernelClassifier(basis=LocalRows(leaf_rows, n_trees), loss="squared", **parameters)


@pytest.mark.repeated
def test_many_leaves_say_more_than_few_landmarks(tmp_path: Path) -> None:
    X, y = _rows()
    T, t = _rows(800, 1)
    local = _local().fit(X, y)
    few = KernelClassifier(basis=Landmarks(100), loss="squared").fit(X, y)
    assert 1 - local.score(T, t) < 0.5 * (1 - few.score(T, t))
    assert isinstance(local.model_.kernel, Partitioned)
    assert local.alpha_ > 0
    assert local.n_iter_ == 1
    local.save(tmp_path / "model.zarr")
    again = daskkern.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.predict(T), local.predict(T))
    np.testing.assert_allclose(again.decision_function(T), local.decision_function(T), rtol=1e-6)
    lazy = local.predict(da.from_array(T, chunks=(100, -1)))
    np.testing.assert_array_equal(lazy.compute(), local.predict(T))


def test_leaves_of_close_rows_are_solved_in_float32_too() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(3 * rng.standard_normal((60, 8)), 20, axis=0) + 1e-3 * rng.standard_normal((1200, 8))
    y = np.sin(X[:, 0])
    model = KernelRegressor(basis=LocalRows(), kernel=Laplacian(20.0), alpha=1e-4 / 1200, scale=None).fit(X, y)
    assert model.score(X, y) > 0.99
    assert np.abs(model.dual_coef_).max() < 20


def test_one_leaf_is_ridge_regression_on_all_rows() -> None:
    X, y = _rows(200)
    settings: dict[str, Any] = {"kernel": Laplacian(1.0), "loss": "squared", "alpha": 1e-4, "dtype": "float64"}
    one = KernelRegressor(basis=LocalRows(1000), **settings).fit(X, y)
    whole = KernelRegressor(solver="direct", basis=daskkern.AllRows(), **settings).fit(X, y)
    np.testing.assert_allclose(one.predict(X), whole.predict(X), atol=1e-8)


@pytest.mark.repeated
def test_the_penalty_is_near_the_best_of_fresh_rows() -> None:
    X, y = _rows()
    rng = np.random.default_rng(5)
    noisy = np.where(rng.random(N) < 0.3, rng.integers(0, 3, N), y)
    T, t = _rows(1500, 1)
    chosen = _local().fit(X, noisy)
    errors = [1 - _local(alpha=chosen.alpha_ * times).fit(X, noisy).score(T, t) for times in (0.01, 0.1, 10, 100)]
    assert 1 - chosen.score(T, t) < min(errors) + 0.02
    assert 1 - chosen.score(T, t) < max(errors) - 0.03


@pytest.mark.repeated
def test_a_learned_metric_cuts_the_leaves_too() -> None:
    X, T = (np.random.default_rng(seed).uniform(0, 1, (N, 8)) for seed in (0, 1))
    y, t = (np.sin(9 * rows[:, 0]) + rows[:, 1] ** 2 for rows in (X, T))
    settings: dict[str, Any] = {"basis": LocalRows(300), "kernel": "laplacian:median"}
    plain = KernelRegressor(**settings).fit(X, y)
    learned = KernelRegressor(**settings, learn_features=FeatureLearning("diagonal", n_landmarks=300)).fit(X, y)
    assert set(np.argsort(learned.feature_importances_)[-2:]) == {0, 1}
    assert 1 - learned.score(T, t) < 0.5 * (1 - plain.score(T, t))


def test_several_trees_are_one_model(tmp_path: Path) -> None:
    X, y = _rows(1200)
    T, t = _rows(800, 1)
    three = _local(100, n_trees=3, kernel=Laplacian(1.0)).fit(X, y)
    assert three.score(T, t) > 0.8
    assert three.model_.points.shape == (3600, 3)
    assert three.model_.n_features == three.n_features_in_ == 2
    assert three.model_.feature_importances() == pytest.approx([0.5, 0.5])
    three.save(tmp_path / "model.zarr")
    again = daskkern.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.predict(T), three.predict(T))
    np.testing.assert_allclose(again.predict_proba(T), three.predict_proba(T), atol=1e-6)
    lazy = three.predict(da.from_array(T, chunks=(100, -1)))
    np.testing.assert_array_equal(lazy.compute(), three.predict(T))


@pytest.mark.repeated
def test_several_trees_know_their_errors_and_gradients() -> None:
    X, T = (np.random.default_rng(seed).uniform(0, 1, (1500, 3)) for seed in (0, 1))
    rng = np.random.default_rng(2)
    y, t = (np.sin(9 * rows[:, 0]) + 0.2 * rng.standard_normal(1500) for rows in (X, T))
    model = KernelRegressor(basis=LocalRows(200, n_trees=3), kernel="gaussian:median").fit(X, y)
    low, high = model.predict_interval(T, 0.9).T
    assert 0.86 < np.mean((t >= low) & (t <= high)) < 0.94
    assert np.mean(high - low) < 1.0
    one = KernelRegressor(basis=LocalRows(40), kernel="gaussian:median", calibrate=False).fit(X, y)
    five = KernelRegressor(basis=LocalRows(40, n_trees=5), kernel="gaussian:median", calibrate=False).fit(X, y)
    true = np.sin(9 * T[:, 0])
    assert np.square(five.predict(T) - true).mean() < 0.8 * np.square(one.predict(T) - true).mean()
    gradients = gradient_importance(model, X[:200])
    assert np.argmax(gradients.importances) == 0


def test_several_trees_of_sparse_rows() -> None:
    X, y = _rows(900)
    X[X < 3] = 0
    settings: dict[str, Any] = {"kernel": Laplacian(1.0), "scale": None, "alpha": 1e-4, "dtype": "float64"}
    dense = _local(100, 2, **settings).fit(X, y)
    sparse = _local(100, 2, **settings).fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-6)


def test_sparse_rows_and_weights() -> None:
    X, y = _rows(900)
    X[X < 3] = 0
    weight = np.random.default_rng(0).integers(1, 3, 900)
    settings: dict[str, Any] = {"kernel": Laplacian(1.0), "scale": None, "alpha": 1e-4, "dtype": "float64"}
    dense = _local(100, **settings).fit(X, y, sample_weight=weight)
    sparse = _local(100, **settings).fit(scipy.sparse.csr_matrix(X), y, sample_weight=weight)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("n", [20, 60])
def test_few_rows_and_repeated_ones(n: int) -> None:
    X, y = _rows(n)
    X, y = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    assert _local(10, kernel=Laplacian(1.0)).fit(X, y).score(X, y) > 0.9
    assert _local(10, kernel=Laplacian(1.0)).fit(np.ones_like(X), y).score(X, y) > 0.2


def test_what_cannot_be_fitted_is_said() -> None:
    X, y = _rows(100)
    with pytest.raises(SpecError, match="squared_hinge"):
        KernelClassifier(basis=LocalRows(), loss="squared_hinge").fit(X, y)
    with pytest.raises(SpecError, match=r"LocalRows\(leaf_rows\).*local_ridge"):
        KernelClassifier(basis=LocalRows(), solver="eigenpro").fit(X, y)
    with pytest.raises(SpecError, match="precision='float16'"):
        _local(precision="float16").fit(X, y)
    with pytest.raises(SpecError, match="leaf_rows=5"):
        LocalRows(5)
    with pytest.raises(DataError):
        _local().fit(np.where(X > 7, np.nan, X), y)


def test_the_plan_has_the_leaves() -> None:
    estimator = KernelClassifier(basis=LocalRows(50), loss="squared")
    plan = upper_bound_plan(toy_source(), estimator.fit_settings(130), 1, 2, 1 << 34)
    items = dict(plan.items)
    assert items["leaves in work"] == 2 * 3 * 8 * 100**2
    assert items["targets"] > 0
    assert plan.kept == 0
    three = KernelClassifier(basis=LocalRows(50, n_trees=3), loss="squared")
    more = dict(upper_bound_plan(toy_source(), three.fit_settings(130), 1, 2, 1 << 34).items)
    assert more["targets"] == 3 * items["targets"]
    assert more["own columns"] == 3 * items["own columns"]
    assert more["leaves in work"] == items["leaves in work"]


@pytest.mark.long
def test_the_command_line_fits_scores_and_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = _rows(1200)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    store, model = str(tmp_path / "rows.zarr"), str(tmp_path / "model.zarr")

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        found = capsys.readouterr()
        assert (ended.value.code or 0) == 0, found.err
        return found.out + found.err

    run("ingest", str(tmp_path / "rows.npz"), "--out", store)
    assert "leaves" in run("fit", store, "--out", model, "--leaf-rows", "150", "--workers", "0")
    assert "accuracy" in run("score", model, store)
    assert "leaves in work" in run("plan", store, "--basis", "local_rows")
    assert "of 2 trees" in run(
        "fit", store, "--out", f"{model}3", "--trees", "2", "--leaf-rows", "150", "--workers", "0"
    )
    assert "2,400 of 2 trees" in run("info", f"{model}3")
    assert "accuracy" in run("score", f"{model}3", store)
    with pytest.raises(AssertionError, match="n_trees=0"):
        run("fit", store, "--out", f"{model}2", "--trees", "0")
    with pytest.raises(AssertionError, match="--landmarks"):
        run("fit", store, "--out", f"{model}2", "--leaf-rows", "150", "--landmarks", "10")


@pytest.mark.cluster
@pytest.mark.repeated
@pytest.mark.timeout(240)
def test_workers_make_the_model_of_this_process(tmp_path: Path) -> None:
    X, y = _rows(1500)
    here = _local(150, kernel=Laplacian(1.0)).fit(X, y)
    with local_cluster(2) as client:
        there = _local(150, kernel=Laplacian(1.0), client=client).fit(X, y)
        np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-4)
        trees = [_local(150, 2, kernel=Laplacian(1.0), client=where).fit(X, y) for where in (client, None)]
        np.testing.assert_allclose(trees[0].decision_function(X), trees[1].decision_function(X), atol=1e-4)
        lazy = _local(150, kernel=Laplacian(1.0), client=client).fit(da.from_array(X, chunks=(300, -1)), y)
        np.testing.assert_allclose(lazy.decision_function(X), here.decision_function(X), atol=1e-4)


def test_the_solver_brings_its_basis() -> None:
    settings = KernelClassifier(solver=LocalRidge(), loss="squared").fit_settings(5000)
    assert settings.basis == LocalRows()
    assert KernelClassifier(basis=LocalRows(), loss="squared").fit_settings(5000).solver == LocalRidge()
