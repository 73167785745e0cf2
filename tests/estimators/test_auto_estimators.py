"""The estimators that search: scikit-learn's conventions, kinds of rows, and what remains of the search."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import daskkern
from daskkern import AutoKernelClassifier, AutoKernelRegressor, KernelClassifier, KernelRegressor
from daskkern.errors import DataError, SpecError
from daskkern.model_selection import trials_of
from tests.support.searches import classes_by_one_feature

_STOCHASTIC = (
    "scikit-learn's meta-issue #16298: of stochastic methods, which meet repeated rows in other batches than weighted "
    "ones, the check would have to be statistical; scikit-learn expects the same of its SGDClassifier and SGDRegressor"
)
_EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": _STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": _STOCHASTIC,
}
_LEARNING = {"check_classifiers_train", "check_regressors_train"}
"""The checks that ask for a good score, for which a fit needs time."""


def _expected(estimator: object) -> dict[str, str]:
    del estimator
    return _EXPECTED


def _name(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


# A search of no time is one trial and the defaults: the checks ask for manners, and fit some hundred times.
@pytest.mark.one_in(3)
@parametrize_with_checks(
    [AutoKernelClassifier(max_seconds=1e-9, device="cpu"), AutoKernelRegressor(max_seconds=1e-9, device="cpu")],
    expected_failed_checks=_expected,
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    if _name(check) in _LEARNING:
        pytest.skip("test_scikit_learns_checks_of_scores_pass gives them time")
    check(estimator)


@pytest.mark.long
@pytest.mark.parametrize("kind", [AutoKernelClassifier, AutoKernelRegressor])
def test_scikit_learns_checks_of_scores_pass(kind: Any) -> None:
    found = estimator_checks_generator(kind(max_seconds=3.0, device="cpu"))
    chosen = [(estimator, check) for estimator, check in found if _name(check) in _LEARNING]
    assert len(chosen) == 3
    for estimator, check in chosen:
        check(estimator)


@pytest.fixture(scope="module")
def fitted() -> AutoKernelClassifier:
    X, y = classes_by_one_feature(200)
    return AutoKernelClassifier(max_seconds=1e6, device="cpu").fit(X, np.array(["a", "b", "c"])[y])


@pytest.mark.repeated
def test_the_parameters_that_were_found_fit_the_same_model_again(fitted: AutoKernelClassifier) -> None:
    X, y = classes_by_one_feature(200)
    again = KernelClassifier(**fitted.best_params_, device="cpu").fit(X, np.array(["a", "b", "c"])[y])
    np.testing.assert_allclose(again.decision_function(X), fitted.decision_function(X), rtol=1e-4, atol=1e-4)
    assert isinstance(fitted.best_estimator_, KernelClassifier)
    assert set(fitted.best_estimator_.get_params(deep=False)) == set(KernelClassifier().get_params(deep=False))
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.n_features_in_ == 6


@pytest.mark.long
def test_the_model_keeps_the_trials(fitted: AutoKernelClassifier, tmp_path: Path) -> None:
    X, _ = classes_by_one_feature(50, seed=1)
    fitted.save(tmp_path / "model.zarr")
    light = daskkern.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(light.predict(X), fitted.predict(X))
    trials = trials_of(light)
    assert repr(trials) == repr(fitted.trials_)
    assert trials_of(KernelClassifier("gaussian:1").fit(*classes_by_one_feature(60)).model_) is None
    assert (fitted.trials_["method"] == "ridge").sum() > 5
    assert "chosen" in fitted.trials_["verdict"]


@pytest.mark.long
def test_it_is_better_than_the_defaults_where_few_features_matter(fitted: AutoKernelClassifier) -> None:
    X, y = classes_by_one_feature(200)
    more, labels = classes_by_one_feature(1000, seed=7)
    plain = KernelClassifier(device="cpu").fit(X, y)
    assert 1 - fitted.score(more, np.array(["a", "b", "c"])[labels]) < 0.9 * (1 - plain.score(more, labels))


def test_without_a_fit_nothing_is_predicted() -> None:
    for estimator in (AutoKernelClassifier(), AutoKernelRegressor()):
        for method in ("predict", "save"):
            with pytest.raises(NotFittedError):
                getattr(estimator, method)(np.zeros((2, 2)))
    assert clone(AutoKernelClassifier(client="tcp://127.0.0.1:1")).client == "tcp://127.0.0.1:1"


def test_it_says_how_sure_it_is_as_the_estimator_it_found() -> None:
    X, y = classes_by_one_feature(60)
    classes = AutoKernelClassifier(max_seconds=1e-9, device="cpu").fit(X, y)
    numbers = AutoKernelRegressor(max_seconds=1e-9, device="cpu").fit(X, X[:, 0])
    sets = classes.predict_set(X, 0.8)
    assert sets.shape == (60, 3)
    np.testing.assert_array_equal(sets, classes.best_estimator_.predict_set(X, 0.8))
    mean, std = numbers.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, numbers.predict(X))
    assert std.shape == (60,)
    assert (std > 0).all()
    low, high = numbers.predict_interval(X, confidence=0.8).T
    assert (low < high).all()
    numbers.best_estimator_ = KernelRegressor("gaussian:1", max_epochs=2, device="cpu").fit(X, X[:, 0])
    assert numbers.plot().get_xlabel() == "epoch"


def _regression(n: int = 120) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, np.stack([X[:, 0] ** 2, 10 * X[:, 1]], axis=1)


@pytest.mark.repeated
def test_a_regressor_takes_several_targets_weights_and_absolute_errors() -> None:
    X, y = _regression()
    model = AutoKernelRegressor(scoring="absolute_error", device="cpu").fit(X, y, np.linspace(0, 2, len(X)))
    assert model.predict(X[:5]).shape == (5, 2)
    assert model.score(X, y) > 0.8
    assert isinstance(model.best_estimator_, KernelRegressor)
    assert not hasattr(model, "predict_proba")


@pytest.mark.repeated
def test_stores_frames_dask_arrays_and_sparse_rows_are_taken(tmp_path: Path) -> None:
    X, y = classes_by_one_feature(120)
    auto = AutoKernelClassifier(max_seconds=1e6, device="cpu")
    expected = auto.fit(X, y).predict(X)
    lazy = clone(auto).fit(da.from_array(X, chunks=(50, -1)), da.from_array(y, chunks=50))
    np.testing.assert_array_equal(lazy.predict(X), expected)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskkern.ingest(str(tmp_path / "rows.npz"), tmp_path / "rows.zarr", shuffle=False)
    stored = clone(auto).fit(str(tmp_path / "rows.zarr"))
    assert np.mean(stored.predict(X) == expected) > 0.9
    assert stored.score(str(tmp_path / "rows.zarr")) > 0.8
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = clone(auto).fit(frame, y)
    assert named.feature_names_in_.tolist() == list("abcdef")
    assert named.model_.feature_names == tuple("abcdef")
    np.testing.assert_array_equal(named.predict(frame), expected)
    sparse = clone(auto).fit(scipy.sparse.csr_array(np.where(X > 0, X, 0)), y)
    assert {row.candidate.split(",")[0] for row in sparse.trials_ if row.method == "ridge"} == {
        "laplacian",
        "matern32",
        "gaussian",
    }


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("n_classes", [2, 26])
def test_rare_and_many_classes_and_constant_features(n_classes: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((150, 4))
    X[:, 2] = 7.0
    y = rng.integers(0, n_classes, 150)
    if n_classes == 2:
        y[:] = 0
        y[[3, 90]] = 1
    model = AutoKernelClassifier(class_weight="balanced", device="cpu").fit(X, y)
    assert set(model.predict(X)) <= set(range(n_classes))
    assert np.isfinite(model.trials_["loss"]).all()


def test_what_cannot_be_fitted_is_refused() -> None:
    X, y = classes_by_one_feature(60)
    with pytest.raises(SpecError, match="scoring='r2'"):
        AutoKernelClassifier(scoring="r2").fit(X, y)
    with pytest.raises(SpecError, match="max_seconds=0"):
        AutoKernelClassifier(max_seconds=0).fit(X, y)
    with pytest.raises(DataError, match="one class"):
        AutoKernelClassifier().fit(X, np.zeros(60))
    X[5, 1] = np.nan
    with pytest.raises(DataError):
        AutoKernelClassifier().fit(X, y)
