"""Metrics that a fit learns: what they gain, what a model records of them, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_selection import SelectFromModel

import daskkern
from daskkern import FeatureLearning, KernelClassifier, KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError
from daskkern.events import Event, StageFinished
from daskkern.kernels import AutoKernel, Gaussian, Laplacian
from daskkern.training.setup.learned_metric import candidates

N = 900
SMALL = FeatureLearning(n_iter=3, n_landmarks=150)


def _rows(n: int = N, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12)) * 10.0 ** np.arange(12) / 1e6
    Z = X / (10.0 ** np.arange(12) / 1e6)
    return X, np.sin(2 * Z[:, 3]) + Z[:, 4] * Z[:, 5]


def _stages(**parameters: Any) -> tuple[list[str], KernelRegressor]:
    found: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "features":
            found.append(event.detail)

    return found, KernelRegressor(callbacks=[listen], **parameters)


@pytest.mark.long
def test_a_learned_metric_lowers_the_error_and_says_which_features_matter(tmp_path: Path) -> None:
    X, y = _rows()
    stages, model = _stages(learn_features=SMALL)
    plain, learned = KernelRegressor(learn_features=False).fit(X[:600], y[:600]), model.fit(X[:600], y[:600])
    assert 1 - learned.score(X[600:], y[600:]) < 0.5 * (1 - plain.score(X[600:], y[600:]))
    assert set(np.argsort(learned.feature_importances_)[-3:]) == {3, 4, 5}
    assert learned.feature_importances_.sum() == pytest.approx(1)
    assert len(stages) == 1
    assert "12 features" in stages[0]
    learned.save(tmp_path / "model.zarr")
    again = daskkern.load(tmp_path / "model.zarr")
    np.testing.assert_allclose(again.predict(X[600:]), learned.predict(X[600:]), rtol=1e-6)
    np.testing.assert_allclose(again.feature_importances(), learned.feature_importances_)
    assert not hasattr(plain, "feature_importances_")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kernel", "metric"),
    [
        ("laplacian:median", "full"),
        ("laplacian_l1:median", "diagonal"),
        ("gaussian:2", "diagonal"),
        ("matern52:3", "auto"),
    ],
)
def test_a_named_kernel_keeps_its_name(kernel: str, metric: str) -> None:
    X, y = _rows(500)
    _, model = _stages(kernel=kernel, learn_features=FeatureLearning(metric, n_iter=2, n_landmarks=100), scale="always")
    model.fit(X, y)
    assert model.model_.kernel.name == kernel.split(":")[0]
    assert model.feature_importances_[3:6].sum() > 0.6


def test_sparse_rows_learn_weights_and_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((400, 300), density=0.1, rng=rng, format="csr")
    y = np.asarray(X[:, [0]].toarray() > 0).ravel().astype(int) * 2 + (X[:, [1]].toarray().ravel() > 0)
    model = KernelClassifier(learn_features=SMALL).fit(X, y)
    assert scipy.sparse.issparse(model.landmarks_)
    assert set(np.argsort(model.feature_importances_)[-2:]) == {0, 1}


def test_the_rank_of_a_full_metric_is_bounded() -> None:
    X, _ = _rows(700)
    y = np.sin(2 * X[:, 3] * 1e3) + np.sin(2 * X[:, 4] * 1e2)
    model = KernelRegressor("laplacian:median", learn_features=FeatureLearning("full", rank=2, n_landmarks=300))
    model.fit(X, y)
    kernel = model.model_.kernel
    assert isinstance(kernel, Laplacian)
    assert np.shape(kernel.factor) == (12, 2)


def test_targets_that_say_nothing_leave_the_kernel_as_it_is() -> None:
    X, _ = _rows(300)
    stages, model = _stages(kernel="laplacian:median", learn_features=SMALL)
    model.fit(X, np.random.default_rng(5).standard_normal(300))
    assert stages == ["no metric: held-out rows of 300 gain nothing by one"]
    assert model.feature_importances_ == pytest.approx(np.full(12, 1 / 12))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("basis", "solver"),
    [(daskkern.RandomFeatures(400), "auto"), (daskkern.DoublyStochastic(400), "doubly_sgd")],
    ids=["stored", "drawn"],
)
def test_random_features_say_which_features_matter(basis: Any, solver: str) -> None:
    X, y = _rows(500)
    settings = FeatureLearning("diagonal", n_iter=2, n_landmarks=100)
    model = KernelRegressor("gaussian:median", basis=basis, solver=solver, learn_features=settings, scale="always")
    model.fit(X, y)
    assert model.feature_importances_[3:6].sum() > 0.6
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_rows_of_weight_zero_say_nothing() -> None:
    X, y = _rows(300)
    for counted, expected in ((5, "no metric: 5 rows that count are too few"), (40, "held-out rows of 40")):
        stages, model = _stages(learn_features=SMALL)
        model.fit(X, y, sample_weight=(np.arange(300) < counted).astype(float))
        assert expected in stages[0]
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learn_features": "squares"}, "expected one of auto, diagonal, full"),
        ({"learn_features": 7}, "got learn_features=7"),
        ({"learn_features": True, "kernel": "polynomial:2"}, "expected one with a length scale"),
        ({"learn_features": True, "kernel": Laplacian((1.0,) * 12)}, "has a metric or length scales per feature"),
        ({"learn_features": "full", "kernel": "laplacian_l1:median"}, "choose 'diagonal'"),
        ({"learn_features": True, "basis": daskkern.Linear()}, "which uses no kernel"),
    ],
    ids=["metric", "number", "polynomial", "scales", "l1", "linear"],
)
def test_what_cannot_be_learned_is_refused(parameters: dict[str, Any], message: str) -> None:
    X, y = _rows(100)
    with pytest.raises(SpecError, match=message):
        KernelRegressor(**parameters).fit(X, y)


def test_a_full_metric_of_sparse_rows_is_refused() -> None:
    X = scipy.sparse.csr_array(np.eye(60))
    with pytest.raises(SpecError, match="got learn_features='full' for sparse rows"):
        KernelRegressor(learn_features="full").fit(X, np.arange(60.0))


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [2, 3])
def test_the_metric_is_the_same_on_any_number_of_ranks(workers: int, request: pytest.FixtureRequest) -> None:
    X, y = _rows(300)
    few = {"learn_features": FeatureLearning(n_iter=2, n_landmarks=80), "basis": Landmarks(100)}
    alone = KernelRegressor(**few).fit(X, y)
    assert np.ptp(alone.feature_importances_) > 0.1
    shared = KernelRegressor(client=request.getfixturevalue(f"client{workers}"), **few).fit(X, y)
    assert shared.model_.kernel == alone.model_.kernel
    np.testing.assert_allclose(shared.predict(X), alone.predict(X), atol=1e-3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"learn_features": "diagonal"}, FeatureLearning("diagonal")),
        ({"learn_features": True}, FeatureLearning()),
        ({"learn_features.n_iter": 2}, FeatureLearning(n_iter=2)),
        ({"learn_features": "full", "learn_features.n_rows": "all"}, FeatureLearning("full", n_rows="all")),
        ({"learn_features": "full", "learn_features.rank": 8}, FeatureLearning("full", rank=8)),
        ({"learn_features": "none"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_command_line_takes_the_same_settings(values: dict[str, Any], expected: FeatureLearning | None) -> None:
    assert FitRequest(values).settings("regression").learn_features == expected


def test_a_system_keeps_what_is_not_given() -> None:
    for values, expected in (
        ({}, FeatureLearning("full")),
        ({"learn_features.rank": 3}, FeatureLearning("full", rank=3)),
        ({"learn_features": "none"}, None),
    ):
        assert FitRequest({"system": "rfm", **values}).settings("regression").learn_features == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learn_features": "none", "learn_features.rank": 3}, "leave one of them out"),
        ({"learn_features.depth": 3}, "has no setting 'depth'"),
        ({"learn_features": "some"}, "expected one of auto, diagonal, full"),
    ],
    ids=str,
)
def test_the_command_line_refuses_others(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        FitRequest(values).settings("regression")


def test_a_full_metric_is_not_compared_with_another_kernel_than_the_fits_own() -> None:
    X = np.random.default_rng(0).standard_normal((100, 12))
    own = Laplacian(2.0)
    for learning in (FeatureLearning("full"), FeatureLearning()):
        found = candidates(own, AutoKernel(), learning, X)
        assert found[0].kernel == own
        assert {one.kernel.name for one in found if learning.metric == "full"} <= {"laplacian"}


def test_rows_of_many_features_learn_a_few_directions() -> None:
    d = 2100
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 12)) @ (rng.standard_normal((12, d)) / 12**0.5)
    y = np.tanh(X[:, 3]) + X[:, 7] ** 2
    learning = FeatureLearning("full", rank=6, n_rows="all", n_iter=1, n_landmarks=150)
    stages, model = _stages(kernel="gaussian:median", learn_features=learning, basis=Landmarks(100), scale=None)
    kernel = model.fit(X, y).model_.kernel
    assert isinstance(kernel, Gaussian)
    assert np.shape(kernel.factor) == (d, 6)
    assert stages[0].startswith("6 directions of 2,100 features for the gaussian kernel")


def test_automatic_metrics_of_many_features_are_weights() -> None:
    X = np.random.default_rng(0).standard_normal((50, 2100))
    assert {one.diagonal for one in candidates(Laplacian(50.0), AutoKernel(), FeatureLearning(), X)} == {True}
    assert {one.diagonal for one in candidates(Laplacian(50.0), AutoKernel(), FeatureLearning("full"), X)} == {False}


def test_importances_are_those_of_the_columns_of_a_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(200), "kind": rng.choice(["a", "b", "c", "d"], 200)})
    y = np.sin(2 * frame["x"]) + (frame["kind"] == "b")
    model = KernelRegressor("gaussian:median", learn_features="diagonal", max_epochs=2, device="cpu").fit(frame, y)
    assert model.model_.n_features == 5
    assert model.feature_importances_.shape == (model.n_features_in_,) == (2,)
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)
    assert SelectFromModel(model, prefit=True).get_support().shape == (2,)
    model.save(tmp_path / "m")
    found = KernelRegressor.from_model(tmp_path / "m")
    np.testing.assert_allclose(found.feature_importances_, model.feature_importances_)
