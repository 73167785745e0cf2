"""Permutation importances: scikit-learn's of arrays, and the same in expectation of rows that are streamed."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from sklearn.inspection import permutation_importance as by_scikit_learn
from sklearn.metrics import accuracy_score, get_scorer, log_loss, r2_score

from daskkern import KernelClassifier, KernelModel, KernelRegressor, Landmarks, permutation_importance
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError, SpecError
from daskkern.inspection.measures import codes_of, measure_of, values_of
from daskkern.kernels import Gaussian

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    X = RNG(0).standard_normal((500, 4))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * RNG(1).standard_normal(500)


@pytest.fixture(scope="module")
def regressor(table) -> KernelRegressor:
    return KernelRegressor(Gaussian(2.0), basis=Landmarks(80), max_epochs=4, device="cpu").fit(*table)


@pytest.fixture(scope="module")
def classifier(table) -> KernelClassifier:
    X, y = table
    words = {"loss": "multinomial_logistic", "basis": Landmarks(80), "max_epochs": 4, "device": "cpu"}
    return KernelClassifier(Gaussian(2.0), **words).fit(X, _labels(y))


def _labels(y: np.ndarray) -> np.ndarray:
    return np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]


@pytest.fixture
def stores(table, tmp_path: Path):
    """Return a function that writes the rows, several times, with targets or with labels in another order."""
    X, y = table

    def made(times: int = 1, *, labels: bool = False, sparse: bool = False, weight: np.ndarray | None = None) -> str:
        place, words = tmp_path / f"{times}{labels}{sparse}", {"n_features": 4, "dtype": "float64", "chunk_rows": 200}
        names = ("high", "low", "middle")
        task = {"task": "classification", "classes": names} if labels else {"task": "regression"}
        targets = np.array([names.index(label) for label in _labels(y)]) if labels else y
        with StoreWriter(place, **words, **task, sparse=sparse, has_weight=weight is not None) as writer:
            for _ in range(times):
                writer.append(scipy.sparse.csr_array(X) if sparse else X, targets, weight)
        return str(place)

    return made


def _near(found: Any, expected: Any, n: float = 5.0) -> None:
    """Both are means of as many repeats; they agree within `n` standard errors of their difference."""
    repeats = expected.importances.shape[1]
    error = np.sqrt((found.importances.var(axis=1) + expected.importances.var(axis=1)) / repeats)
    assert (np.abs(found.importances_mean - expected.importances_mean) <= n * error + 1e-3).all()


@pytest.mark.parametrize("scoring", [None, "neg_root_mean_squared_error", "neg_mean_absolute_error"])
def test_a_regression_has_scikit_learns(regressor, table, scoring: str | None) -> None:
    found = permutation_importance(regressor, *table, n_repeats=12, scoring=scoring)
    _near(found, by_scikit_learn(regressor, *table, n_repeats=12, random_state=1, scoring=scoring))
    scorer = regressor.score if scoring is None else lambda X, y: get_scorer(scoring)(regressor, X, y)
    assert found.score == pytest.approx(scorer(*table), rel=1e-5)
    assert found.importances.shape == (4, 12)
    np.testing.assert_allclose(found.importances_mean, found.importances.mean(axis=1))
    np.testing.assert_allclose(found.importances_std, found.importances.std(axis=1))
    assert found.columns == ("feature 0", "feature 1", "feature 2", "feature 3")


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_a_classifier_has_scikit_learns(classifier, table, scoring: str | None) -> None:
    X, y = table[0], _labels(table[1])
    found = permutation_importance(classifier, X, y, n_repeats=10, scoring=scoring)
    _near(found, by_scikit_learn(classifier, X, y, n_repeats=10, random_state=1, scoring=scoring))
    expected = classifier.score(X, y) if scoring is None else -log_loss(y, classifier.predict_proba(X))
    assert found.score == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("offset", [1e6, 1e9])
def test_targets_far_from_zero_have_scikit_learns_r2(make, X, offset: float) -> None:
    model = make(c=2, target_shift=np.array([offset, -offset]))
    y = model.predict(X) + RNG(0).standard_normal((60, 2))
    w = RNG(3).uniform(0, 2, 60)
    expected = r2_score(y, model.predict(X), sample_weight=w)
    for rows in (X, da.from_array(X, chunks=(13, 4))):
        found = permutation_importance(model, rows, y, sample_weight=w, n_repeats=1)
        assert found.score == pytest.approx(expected, abs=1e-6)
    weightless = np.where(np.arange(60) < 13, 0.0, w)
    found = permutation_importance(model, da.from_array(X, chunks=(13, 4)), y, sample_weight=weightless, n_repeats=1)
    assert found.score == pytest.approx(r2_score(y, model.predict(X), sample_weight=weightless), abs=1e-6)


def test_weights_count(regressor, classifier, table) -> None:
    X, y = table
    w = RNG(3).uniform(0, 2, 500)
    found = permutation_importance(regressor, X, y, sample_weight=w, n_repeats=10)
    assert found.score == pytest.approx(r2_score(y, regressor.predict(X), sample_weight=w), rel=1e-6)
    _near(found, by_scikit_learn(regressor, X, y, sample_weight=w, n_repeats=10, random_state=1))
    found = permutation_importance(classifier, X, _labels(y), sample_weight=w, n_repeats=1)
    expected = accuracy_score(_labels(y), classifier.predict(X), sample_weight=w)
    assert found.score == pytest.approx(expected, rel=1e-9)


def test_several_labels_are_right_together(table) -> None:
    X, y = table
    labels = np.column_stack([y > 0, X[:, 1] > 0.3]).astype(int)
    words = {"loss": "logistic", "basis": Landmarks(80), "max_epochs": 4, "device": "cpu"}
    model = KernelClassifier(Gaussian(2.0), **words).fit(X, labels)
    found = permutation_importance(model, X, labels, n_repeats=10)
    assert found.score == pytest.approx(model.score(X, labels))
    _near(found, by_scikit_learn(model, X, labels, n_repeats=10, random_state=1))
    by_log_loss = permutation_importance(model, X, labels, n_repeats=2, scoring="neg_log_loss")
    p = model.predict_proba(X)
    expected = np.mean([-log_loss(labels[:, k], p[:, k]) for k in range(2)])
    assert by_log_loss.score == pytest.approx(expected, rel=1e-4)
    assert by_log_loss.importances_mean.argmin() in (2, 3)


def test_of_several_quantiles_the_middle_one_counts(table) -> None:
    X, y = table
    words = {"loss": "quantile:0.1,0.5,0.9", "basis": Landmarks(80), "max_epochs": 10, "device": "cpu"}
    model = KernelRegressor(Gaussian(2.0), solver="eigenpro", **words).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=10)
    assert found.score == pytest.approx(model.score(X, y), rel=1e-6)
    _near(found, by_scikit_learn(model, X, y, n_repeats=10, random_state=1))


def test_streamed_rows_have_the_same_in_expectation(regressor, classifier, table, stores) -> None:
    X, y = table
    expected = by_scikit_learn(regressor, X, y, n_repeats=10, random_state=1)
    _near(permutation_importance(regressor, da.from_array(X, chunks=(130, 2)), y, n_repeats=10), expected)
    lazy = permutation_importance(
        regressor, da.from_array(X, chunks=(130, 4)), da.from_array(y, chunks=99), n_repeats=10
    )
    _near(lazy, expected)
    _near(permutation_importance(regressor, stores(), n_repeats=10), expected)
    _near(permutation_importance(regressor, stores(sparse=True), n_repeats=10), expected)
    many = permutation_importance(regressor, stores(9), n_repeats=4)  # 4,500 rows: two blocks
    assert (np.abs(many.importances_mean - expected.importances_mean) < 0.05).all()
    assert many.score == pytest.approx(regressor.score(X, y), rel=1e-5)
    labels = permutation_importance(classifier, stores(labels=True), n_repeats=10)
    _near(labels, by_scikit_learn(classifier, X, _labels(y), n_repeats=10, random_state=1))
    weight = RNG(3).uniform(0, 2, 500)
    weighed = permutation_importance(regressor, stores(2, weight=weight), n_repeats=1)
    assert weighed.score == pytest.approx(r2_score(y, regressor.predict(X), sample_weight=weight), rel=1e-5)


def test_a_seed_gives_the_same_and_a_sample_is_in_memory(regressor, table, stores) -> None:
    X, y = table
    one, same, other = (
        permutation_importance(regressor, X, y, n_repeats=2, random_state=k).importances for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one[:2] != other[:2]).all()
    words = {"n_repeats": 2, "max_rows": 200, "random_state": 5}
    lazy = da.from_array(X, chunks=(99, 4))
    found = [permutation_importance(regressor, *rows, **words).importances for rows in ((X, y), (lazy, y), (stores(),))]
    np.testing.assert_allclose(found[1], found[0])
    np.testing.assert_allclose(found[2], found[0], rtol=1e-4, atol=1e-6)


def test_one_hot_features_are_permuted_together() -> None:
    rng = RNG(4)
    kinds, number = rng.integers(3, size=400), rng.standard_normal(400)
    X = np.column_stack([number, np.eye(3)[kinds]])
    encoding = (ColumnEncoding("x"), ColumnEncoding("kind", "onehot", ("a", "b", "c")))
    seen: list[np.ndarray] = []

    class Seen(KernelModel):
        def scores(self, X: np.ndarray, **more: Any) -> np.ndarray:
            seen.append(X)
            return X @ np.array([[1.0], [0], [1], [2]])

    model = Seen(Gaussian(1.0), X[:5], np.ones((5, 1)), "squared", "regression", None, encoding=encoding)
    found = permutation_importance(model, X, number + kinds, n_repeats=2)
    assert found.columns == ("x", "kind")
    assert found.score == 1
    for rows in seen:
        np.testing.assert_array_equal(rows[:, 1:].sum(axis=1), 1)
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(X, axis=0))  # permuted, not drawn
    assert len(seen) == 1 + 2 * 2
    only = permutation_importance(model, X, number + kinds, columns=["kind"], n_repeats=3)
    assert (only.columns, only.importances.shape) == (("kind",), (1, 3))
    grouped = permutation_importance(model, X, number + kinds, groups={"most": [0, 1]}, n_repeats=1)
    assert grouped.columns == ("most", "feature 2", "feature 3")


def test_a_column_without_any_use_has_no_importance(regressor, table) -> None:
    X, y = table
    constant = X.copy()
    constant[:, 3] = 0.3
    assert permutation_importance(regressor, constant, y, columns=[3]).importances_mean == 0


@pytest.mark.cluster
def test_workers_score_the_blocks(client2, regressor, table) -> None:
    X, y = table
    lazy = da.from_array(X, chunks=(130, 4))
    here = permutation_importance(regressor, lazy, y, n_repeats=2)
    with client2.as_current():
        there = permutation_importance(regressor, lazy, y, n_repeats=2)
    np.testing.assert_allclose(there.importances, here.importances, rtol=1e-6)


def test_labels_are_compared_by_value(make) -> None:
    model = make(c=3, classes=("a", "b", "c"))
    assert codes_of(model, np.array(["b", "a", "z"]), None).tolist() == [1, 0, -1]
    assert codes_of(model, np.array([1, 0, 1]), ("c", "b")).tolist() == [1, 2, 1]
    assert codes_of(make(classes=(False, True)), np.array([True, False]), None).tolist() == [1, 0]
    for same in (np.array([1.0, 0.0]), np.array([True, False]), np.array([[1], [0]]), np.array([1, 0], object)):
        assert codes_of(make(classes=(0, 1)), same, None).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"none of the labels of the rows \(\['y', 'z'\]\) is a class of the model"):
        codes_of(model, np.array(["y", "z"]), None)
    with pytest.raises(DataError, match="got labels of shape"):
        codes_of(model, np.eye(2), None)
    with pytest.raises(DataError, match="y holds NaN or infinity"):
        values_of(make(), np.array([1.0, np.nan]))
    with pytest.raises(DataError, match=r"got targets of shape \(2, 2\) for a model of 1 targets"):
        values_of(make(), np.eye(2))


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"n_repeats": 0}, SpecError, "got n_repeats=0; give 1 or more"),
        ({"scoring": "accuracy"}, SpecError, "got scoring='accuracy' for a regression model; expected one of r2, neg_"),
        ({"columns": ["x"]}, SpecError, "got column 'x'; expected one of feature 0"),
        ({"y": None}, DataError, "got X without y; pass arrays X and y, or a store"),
        ({"y": np.ones(3)}, DataError, "X has 500 rows, but y has 3"),
        ({"sample_weight": np.zeros(500)}, DataError, "weights that add up to 0"),
        ({"max_rows": 0}, SpecError, "got max_rows=0"),
    ],
)
def test_what_is_refused(regressor, table, words: dict, error: type[Exception], sentence: str) -> None:
    X, y = table
    with pytest.raises(error, match=sentence):
        permutation_importance(regressor, X, words.pop("y", y), **words)


def test_rows_that_do_not_fit_are_refused(regressor, table, stores, make) -> None:
    X, y = table
    with pytest.raises(DataError, match="NaN"):
        permutation_importance(regressor, X * np.nan, y)
    with pytest.raises(DataError, match="the model was trained on 4 features, but X has 3"):
        permutation_importance(regressor, X[:, :3], y)
    with pytest.raises(DataError, match="a store brings its own targets"):
        permutation_importance(regressor, stores(), y)
    with pytest.raises(DataError, match="got a dask array of shape"):
        permutation_importance(regressor, da.from_array(X[:, :3], chunks=100), y)
    measure_of(make(classes=("a", "b")), "neg_log_loss")


def test_targets_that_are_all_the_same_give_no_numbers_of_rounding(table, regressor: KernelRegressor) -> None:
    X, _ = table
    found = permutation_importance(regressor, X, np.full(500, 0.1), random_state=0)
    np.testing.assert_array_equal(found.importances_mean, 0)
