"""Calibration of fitted models: their probabilities on new rows, and where the calibration rows come from."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from distributed import Client
from sklearn.datasets import load_digits, make_classification, make_friedman1, make_moons
from sklearn.exceptions import ConvergenceWarning

import daskkern
from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks, RandomFeatures
from daskkern.basis import BasisSpec
from daskkern.calibration import ScoreScaling, calibration_error, fit_scaling, log_loss, quantile_shifts
from daskkern.errors import SpecError
from daskkern.training.run.held_out_sizes import rows_set_aside

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _two(n: int = 400) -> Split:
    X, y = make_moons(n + 1500, noise=0.4, random_state=0)
    return X[:n], X[n:], y[:n], y[n:]


def _three() -> Split:
    X, y = make_classification(
        2000, 8, n_informative=5, n_classes=3, flip_y=0.1, class_sep=1.5, random_state=1
    )  # fmt: skip
    return X[:500], X[500:], y[:500], y[500:]


def _digits() -> Split:
    X, y = load_digits(return_X_y=True)
    return X[:500], X[500:], y[:500], y[500:]


DATA = {"two": _two, "three": _three, "digits": _digits}


def _fitted(data: Split, **settings: Any) -> KernelClassifier:
    return KernelClassifier(**{"kernel": "gaussian:median", "max_epochs": 5, "device": "cpu", **settings}).fit(
        data[0], data[2]
    )


def _losses(model: KernelClassifier, data: Split) -> tuple[float, float]:
    """Return the log loss on test rows, and the least that a temperature gives that is fitted to these rows."""
    X, y, ones = data[1], data[3], np.ones(len(data[3]))
    scores = model.model_.scores(X).astype(np.float64)
    best = fit_scaling(scores, y, ones).probabilities(scores)
    return log_loss(model.predict_proba(X), y, ones), log_loss(best, y, ones)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize(
    "loss",
    ["squared_hinge", "squared", "hinge", "smoothed_hinge", "logistic", "multinomial_logistic", "multiclass_hinge"],
)
def test_probabilities_of_every_loss_are_nearly_as_good_as_the_test_rows_own_temperature(loss: str, name: str) -> None:
    data = DATA[name]()
    model = _fitted(data, loss=loss)
    ours, best = _losses(model, data)
    assert ours < 1.03 * best + 0.01
    p, ones = model.predict_proba(data[1]), np.ones(len(data[3]))
    scores = model.model_.scores(data[1]).astype(np.float64)
    own = fit_scaling(scores, data[3], ones).probabilities(scores)
    assert calibration_error(p, data[3], ones) < calibration_error(own, data[3], ones) + 0.03
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(data[1]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": 0.0, "max_epochs": 20},
        {"alpha": 0.0, "loss": "squared", "basis": Landmarks(400)},
        {"alpha": 0.0, "loss": "logistic", "max_epochs": 20},
        {"basis": Landmarks(60), "loss": "hinge"},
        {"basis": RandomFeatures(200)},
        {"basis": "linear", "loss": "squared"},
        {"solver": "direct", "loss": "squared", "dtype": "float64"},
    ],
    ids=str,
)
def test_models_that_interpolate_their_rows_and_models_of_few_columns_are_calibrated_too(
    settings: dict[str, Any],
) -> None:
    data = _two()
    if settings.get("basis") == "linear":
        settings = {**settings, "basis": daskkern.Linear()}
    model = _fitted(data, **settings)
    ours, best = _losses(model, data)
    assert ours < 1.05 * best


def test_class_weights_move_labels_and_not_probabilities() -> None:
    rng = np.random.default_rng(0)
    X, y = make_moons(4000, noise=0.4, random_state=0)
    kept = (y == 0) | (rng.uniform(size=4000) < 0.15)
    X, y = X[kept], y[kept]
    data = X[:800], X[800:], y[:800], y[800:]
    plain, balanced = _fitted(data), _fitted(data, class_weight="balanced")
    assert balanced.predict(data[1]).mean() > 1.5 * plain.predict(data[1]).mean()
    for model in (plain, balanced):
        assert model.predict_proba(data[1])[:, 1].mean() == pytest.approx(data[3].mean(), abs=0.03)
    assert _losses(balanced, data)[0] < 1.05 * _losses(plain, data)[0]


def test_labels_and_scores_are_those_of_a_fit_without_calibration() -> None:
    data = _digits()
    plain, calibrated = (_fitted(data, calibrate=calibrate, max_epochs=2) for calibrate in (False, True))
    np.testing.assert_array_equal(plain.decision_function(data[1]), calibrated.decision_function(data[1]))
    assert plain.model_.calibration is None
    assert not hasattr(plain, "predict_proba")
    assert hasattr(_fitted(data, calibrate=False, loss="logistic", max_epochs=1), "predict_proba")


def test_twenty_rows_and_a_class_with_two_of_them_have_probabilities() -> None:
    rng = np.random.default_rng(0)
    y = np.array(["a"] * 10 + ["b"] * 8 + ["c"] * 2)
    X = rng.standard_normal((20, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[np.repeat([0, 1, 2], [10, 8, 2])]
    p = KernelClassifier(device="cpu").fit(X, y).predict_proba(X)
    assert np.isfinite(p).all()
    assert 0 < p.min() < p.max() < 1
    two = KernelClassifier(device="cpu").fit(X[[0, 10]], y[[0, 10]])
    np.testing.assert_allclose(two.predict_proba(X).sum(axis=1), 1, rtol=1e-5)


def test_sparse_rows_and_weights_count() -> None:
    X, X_test, y, _ = _digits()
    weight = np.where(y < 5, 3.0, 1.0)
    dense, sparse = (
        KernelClassifier("gaussian:20", basis=Landmarks(200), scale=None, max_epochs=3, device="cpu").fit(
            rows, y, sample_weight=weight
        )
        for rows in (X, scipy.sparse.csr_array(X))
    )
    np.testing.assert_allclose(
        sparse.predict_proba(scipy.sparse.csr_array(X_test)), dense.predict_proba(X_test), atol=1e-4
    )


@pytest.mark.parametrize(
    ("n", "settings", "expected"),
    [
        (10_000, {}, 0),
        (10_001, {}, 500),
        (1_000_000, {}, 2000),
        (100, {"calibrate": 0.2}, 20),
        (1_000_000, {"calibrate": 0.2}, 2000),
        (20_000, {"calibrate": False}, 0),
        (20_000, {"early_stopping": True}, 2000),
    ],
)
def test_rows_are_set_aside_of_many_or_on_request(n: int, settings: dict[str, Any], expected: int) -> None:
    assert rows_set_aside(n, KernelClassifier(**settings).fit_settings(n)) == expected


@pytest.mark.parametrize("share", [0, 1, 1.0, 0.0, -0.1, "auto", None])
def test_other_values_of_calibrate_are_refused(share: Any) -> None:
    with pytest.raises(SpecError, match="a share of the rows between 0 and 1"):
        KernelClassifier(calibrate=share).fit_settings(100)


def test_calibration_rows_are_validation_rows_or_rows_that_are_set_aside() -> None:
    X, X_test, y, y_test = _two()
    aside = _fitted((X, X_test, y, y_test), calibrate=0.25)
    found = aside.model_.calibration
    assert found is not None
    assert (found.method, found.n_rows) == ("held-out", 100)
    assert aside.landmark_indices_.size == 300
    early = _fitted((X, X_test, y, y_test), early_stopping=True, validation_fraction=0.2)
    assert (early.model_.calibration.method, early.model_.calibration.n_rows) == ("validation", 80)
    settings: dict[str, Any] = {"kernel": "gaussian:median", "max_epochs": 2, "device": "cpu"}
    given = KernelClassifier(**settings).fit(X, y, validation=(X_test[:300], y_test[:300]))
    assert (given.model_.calibration.method, given.model_.calibration.n_rows) == ("validation", 300)
    scores = given.model_.scores(X_test[:300])
    exact = fit_scaling(scores, y_test[:300], np.ones(300))
    assert given.model_.calibration.scaling.scale == pytest.approx(exact.scale, rel=1e-4)
    plain = KernelClassifier(**settings, calibrate=False).fit(X, y)
    np.testing.assert_array_equal(plain.decision_function(X), given.decision_function(X))


def test_probabilities_of_partial_fits() -> None:
    data = _two(900)
    model = KernelClassifier("gaussian:median", basis=Landmarks(100), device="cpu")
    for part in range(3):
        model.partial_fit(data[0][part::3], data[2][part::3], classes=[0, 1])
    ours, best = _losses(model, data)
    assert ours < 1.05 * best


@pytest.mark.parametrize("loss", ["squared", "absolute", "epsilon_insensitive"])
def test_intervals_of_leave_one_out_errors_cover(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2300, 3))
    y = 5 + 3 * np.sin(2 * X[:, 0]) * X[:, 1] + rng.standard_normal(2300)
    model = KernelRegressor("gaussian:median", loss=loss, max_epochs=10, device="cpu").fit(X[:300], y[:300])
    for confidence in (0.8, 0.9):
        low, high = model.predict_interval(X[300:], confidence).T
        covered = np.mean((low <= y[300:]) & (y[300:] <= high))
        assert confidence - 0.06 < covered < confidence + 0.06
    np.testing.assert_allclose((low + high) / 2, model.predict(X[300:]))


def test_calibration_is_saved_with_the_model(tmp_path: Path) -> None:
    data = _digits()
    model = _fitted(data, class_weight={0: 2.0}, max_epochs=2)
    model.save(tmp_path / "m")
    loaded = daskkern.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(data[1]), model.predict_proba(data[1]))
    np.testing.assert_array_equal(loaded.predict_set(data[1]), model.predict_set(data[1]))
    before, after = model.model_.calibration, loaded.calibration
    assert before is not None
    assert after is not None
    assert before.to_json() == after.to_json()


@pytest.mark.long
def test_a_logistic_loss_keeps_its_probabilities_where_a_temperature_gains_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 2))
    y = (rng.uniform(size=1000) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    model = KernelClassifier(loss="logistic", basis=daskkern.Linear(), alpha=0.0, max_epochs=30, device="cpu").fit(X, y)
    found = model.model_.calibration
    assert found is not None
    scaling = found.scaling or ScoreScaling(1.0)
    assert scaling.scale == pytest.approx(1, abs=0.1)


@pytest.mark.repeated
def test_calibration_is_the_same_on_workers(client2: Client) -> None:
    data = _two()
    for settings in ({}, {"calibrate": 0.2}):
        alone, together = (
            _fitted(data, basis=Landmarks(50), max_epochs=2, client=client, **settings) for client in (None, client2)
        )
        before, after = alone.model_.calibration, together.model_.calibration
        assert before is not None
        assert after is not None
        assert (before.method, before.n_rows) == (after.method, after.n_rows)
        np.testing.assert_allclose(before.scores, after.scores, atol=1e-4)
        np.testing.assert_allclose(together.predict_proba(data[1]), alone.predict_proba(data[1]), atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"alpha": 1e-6, "noise": 0.3}], ids=["little noise", "hardly a penalty"])
def test_intervals_of_models_that_interpolate_cover(settings: dict[str, Any]) -> None:
    noise = settings.get("noise", 0.01)
    alpha = settings.get("alpha", "auto")
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(700, 2))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=700)
        model = KernelRegressor(solver="falkon", alpha=alpha, device="cpu").fit(X[:200], y[:200])
        low, high = model.predict_interval(X[200:], confidence=0.9).T
        shares.append(((y[200:] >= low) & (y[200:] <= high)).mean())
    assert np.mean(shares) > 0.8


@pytest.mark.parametrize("seed", [1, 32])
def test_probabilities_of_a_fit_that_has_not_converged_are_near_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, noise = rng.normal(size=(200, 2)), rng.normal(size=200)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * noise > 0
    more, noise = rng.normal(size=(1000, 2)), rng.normal(size=1000)
    labels = np.sin(2 * more[:, 0]) + more[:, 1] + 0.5 * noise > 0
    model = KernelClassifier(device="cpu").fit(X, y)
    loss = -np.log(model.predict_proba(more)[np.arange(1000), labels.astype(int)]).mean()
    signed = model.decision_function(more) * np.where(labels, 1, -1)
    best = min(np.logaddexp(0, -signed * factor).mean() for factor in np.logspace(-2, 2, 100))
    assert loss < 1.2 * best


@pytest.mark.parametrize("seed", [0, 2])
def test_intervals_of_a_fit_that_has_not_converged_are_as_wide_as_they_must_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=2000), rng.integers(0, 2, (2000, 4)), rng.integers(1, 5, 2000)])
    y = X @ [1.0, 2.0, 1.0, 0.0, 0.0, 0.5] + 0.1 * rng.normal(size=2000)
    model = KernelRegressor(device="cpu").fit(X[:500], y[:500])
    low, high = model.predict_interval(X[500:], confidence=0.9).T
    assert 0.86 < ((low <= y[500:]) & (y[500:] <= high)).mean() < 0.94


def test_deviations_of_a_fit_that_interpolates_few_rows_have_the_size_of_its_errors() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(1560, 6))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.02 * rng.normal(size=1560)
    model = KernelRegressor(device="cpu").fit(X[:60], y[:60])
    values, std = model.predict(X[60:], return_std=True)
    assert 0.6 < std.mean() / np.sqrt(np.mean((y[60:] - values) ** 2)) < 1.6


@pytest.mark.parametrize(
    ("basis", "n", "expected"),
    [
        (Landmarks(1999), 4000, 0),
        (Landmarks(2000), 4000, 200),
        (Landmarks(4000), 4000, 0),
        (RandomFeatures(3000), 4000, 0),
        (AllRows(), 4000, 0),
    ],
)
def test_many_landmarks_are_calibrated_on_rows_that_are_set_aside(basis: BasisSpec, n: int, expected: int) -> None:
    assert rows_set_aside(n, KernelRegressor(basis=basis).fit_settings(n)) == expected


def test_intervals_of_many_landmarks_are_no_wider_than_they_need_to_be() -> None:
    X, y = make_friedman1(4400, noise=1.0, random_state=0)
    model = KernelRegressor("laplacian:median", basis=Landmarks(2000), max_epochs=3, alpha=1e-6, device="cpu")
    low, high = model.fit(X[:2400], y[:2400]).predict_interval(X[2400:], confidence=0.9).T
    assert np.mean((y[2400:] >= low) & (y[2400:] <= high)) == pytest.approx(0.9, abs=0.07)
    errors = model.predict(X[2400:]) - y[2400:]
    assert np.mean(high - low) < 1.4 * 2 * 1.645 * errors.std()


@pytest.mark.parametrize("loss", ["quantile:0.1", "quantile:0.1,0.5,0.9", "absolute"])
def test_the_right_share_of_targets_is_below_a_quantile_of_a_short_fit(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 2))
    y = X[:, 0] + rng.standard_normal(4000)
    settings = {"kernel": "laplacian:median", "loss": loss, "alpha": 1e-6, "max_epochs": 4, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KernelRegressor(**settings).fit(X[:1500], y[:1500])
        plain = KernelRegressor(**settings, calibrate=False).fit(X[:1500], y[:1500])
    levels = model.model_.loss_function.quantiles

    def shares(fitted: KernelRegressor) -> np.ndarray:
        return (y[1500:, None] <= fitted.predict(X[1500:]).reshape(2500, -1)).mean(axis=0)

    np.testing.assert_allclose(shares(model), levels, atol=0.035)
    if loss == "quantile:0.1":
        assert shares(plain)[0] > 0.15


def test_quantiles_that_are_right_are_left_alone() -> None:
    errors = np.linspace(-1, 1, 201)[:, None]
    assert quantile_shifts((0.5,), errors, np.ones(201)) == 0
    assert quantile_shifts((0.1,), errors, np.ones(201)) == pytest.approx(-0.8)
    weight = np.where(errors[:, 0] < 0, 3.0, 1.0)
    assert quantile_shifts((0.75,), errors, weight) == 0
    several = quantile_shifts((0.1, 0.9), np.hstack([errors, errors]), np.ones(201))
    np.testing.assert_allclose(several, [-0.8, 0.8], atol=0.011)


@pytest.mark.parametrize("loss", ["logistic", "multinomial_logistic", "multiclass_hinge"])
def test_sets_of_short_fits_to_several_classes_cover(loss: str) -> None:
    shares = []
    for seed in range(4):
        X, y = make_classification(1200, 10, n_informative=5, n_classes=3, flip_y=0.1, random_state=seed)
        model = KernelClassifier(loss=loss, device="cpu").fit(X[:200], y[:200])
        shares.append(model.predict_set(X[200:], confidence=0.9)[np.arange(1000), y[200:]].mean())
    assert np.mean(shares) > 0.85
    assert min(shares) > 0.72
