"""Gradients of the scores of single rows, against differences of predictions."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

from daskkern import KernelModel, score_gradients
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian


def _differences(of, model: KernelModel, X: np.ndarray) -> np.ndarray:
    step, scale = 1e-6, np.asarray(model.scaling.scale)
    moves = zip(scale, np.eye(X.shape[1]), strict=True)
    return np.stack([(of(X + s * step * e) - of(X - s * step * e)) / (2 * step) for s, e in moves], axis=-1)


def test_a_regression_has_those_of_its_predictions(make, X: np.ndarray) -> None:
    model = make(target_scale=np.array([20.0]), target_shift=np.array([5.0]))
    np.testing.assert_allclose(score_gradients(model, X), _differences(model.predict, model, X), atol=1e-5)


def test_each_of_several_targets_has_its_own(make, X: np.ndarray) -> None:
    model = make(c=2, target_scale=np.array([20.0, 3.0]))
    expected = _differences(model.predict, model, X)
    np.testing.assert_allclose(score_gradients(model, X, output="all"), expected, atol=1e-5)
    np.testing.assert_allclose(score_gradients(model, X, output=1), expected[:, 1], atol=1e-5)
    with pytest.raises(SpecError, match="got output='predicted' for 2 targets; give the number of one, or 'all'"):
        score_gradients(model, X)


def test_classes_have_those_of_the_predicted_one_or_of_one_by_name(make, X: np.ndarray) -> None:
    model = make(c=3, classes=("a", "b", "c"))
    expected = _differences(model.scores, model, X)
    np.testing.assert_allclose(score_gradients(model, X, output="all"), expected, atol=1e-6)
    np.testing.assert_allclose(score_gradients(model, X, output="b"), expected[:, 1], atol=1e-6)
    chosen = expected[np.arange(60), model.scores(X).argmax(axis=1)]
    np.testing.assert_allclose(score_gradients(model, X), chosen, atol=1e-6)


@pytest.mark.parametrize("classes", [(0, 1), (False, True), ("no", "yes"), (1.5, 2.5)])
def test_one_score_for_two_classes_speaks_for_the_second(make, X: np.ndarray, classes: tuple) -> None:
    model = make(classes=classes)
    expected = _differences(lambda rows: model.scores(rows)[:, 0], model, X)
    np.testing.assert_allclose(score_gradients(model, X, output=classes[1]), expected, atol=1e-6)
    np.testing.assert_allclose(score_gradients(model, X, output=np.asarray(classes)[0]), -expected, atol=1e-6)
    sign = np.where(model.predict(X) == classes[1], 1, -1)
    np.testing.assert_allclose(score_gradients(model, X), sign[:, None] * expected, atol=1e-6)


def test_the_largest_of_several_scores_is_the_one_that_counts(make, X: np.ndarray) -> None:
    model = make(c=6, classes=("a", "b"), scores_each=3)
    found = score_gradients(model, X, output="all")
    assert found.shape == (60, 2, 4)
    np.testing.assert_allclose(found, _differences(model.scores, model, X), atol=1e-6)


def test_contributions_near_a_baseline_add_up_to_the_change_of_the_prediction(make, X: np.ndarray) -> None:
    model = make()
    start = X[0] + 1e-5 * np.arange(4)
    found = score_gradients(model, X[:1], baseline=start)
    np.testing.assert_allclose(found.sum(), float(model.predict(X[:1])[0] - model.predict(start[None])[0]), rtol=1e-4)
    each = score_gradients(make(c=2), X, output="all", baseline=X.mean(axis=0))
    moved = (X - X.mean(axis=0)) / np.asarray(model.scaling.scale)
    np.testing.assert_allclose(each, score_gradients(make(c=2), X, output="all") * moved[:, None])


def test_dask_arrays_and_stores_are_explained_lazily(make, X: np.ndarray, tmp_path: Path) -> None:
    model = make(c=3, classes=("a", "b", "c"))
    expected = score_gradients(model, X)
    lazy = score_gradients(model, da.from_array(X, chunks=(25, 3)))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (60, 4)
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), expected)
    every = score_gradients(model, da.from_array(X, chunks=(25, 4)), output="all")
    assert every.shape == (60, 3, 4)
    np.testing.assert_allclose(every.compute(), score_gradients(model, X, output="all"))
    for sparse in (False, True):
        place = tmp_path / str(sparse)
        with StoreWriter(place, n_features=4, dtype="float64", sparse=sparse) as writer:
            for _ in range(100):  # 6,000 rows: two blocks
                writer.append(scipy.sparse.csr_array(X) if sparse else X)
        found = score_gradients(model, str(place))
        assert found.chunks[0] == (4096, 1904)
        np.testing.assert_allclose(found[5940:].compute(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"output": "z"}, SpecError, r"got output='z'; expected 'predicted', 'all' or one of 'a', 'b', 'c'"),
        ({"output": 1}, SpecError, "got output=1"),
        ({"baseline": [1.0, 2]}, DataError, "the model was trained on 4 features, but X has 2"),
        ({"baseline": [1.0, 2, 3, np.inf]}, DataError, "infinity|inf"),
    ],
)
def test_what_is_refused(make, X: np.ndarray, words: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        score_gradients(make(c=3, classes=("a", "b", "c")), X, **words)
    with pytest.raises(DataError, match="NaN"):
        score_gradients(make(), X * np.nan)


def test_sparse_rows_have_those_of_dense_ones() -> None:
    rng = np.random.default_rng(7)
    X, points = (scipy.sparse.random_array((40, 6), density=0.4, format="csr", rng=rng) for _ in range(2))
    coef = rng.standard_normal((40, 1))
    one, other = (
        KernelModel(Gaussian(1.0), Z, coef, "squared", "regression", None) for Z in (points, points.toarray())
    )
    np.testing.assert_allclose(score_gradients(one, X), score_gradients(other, X.toarray()), atol=1e-12)
