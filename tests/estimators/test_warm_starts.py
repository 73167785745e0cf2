"""A fit that goes on is the fit that was never interrupted."""

import pickle
from functools import cache

import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_diabetes, load_digits

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks
from daskkern.errors import StoreError

SETTINGS = {"kernel": "gaussian:25", "basis": Landmarks(100), "batch_size": 64, "max_epochs": 9}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


@pytest.fixture(scope="module")
def of_one_run(digits):
    """Return a model of nine epochs, fitted once for each basis."""
    return cache(lambda basis: KernelClassifier(**{**SETTINGS, "basis": basis}).fit(*digits))


@pytest.mark.one_in(11)
@pytest.mark.parametrize("through", ["memory", "checkpoint", "pickle"])
@pytest.mark.parametrize("basis", [Landmarks(100), AllRows()], ids=["landmarks", "all rows"])
def test_more_epochs_give_the_bits_of_one_run(digits, of_one_run, basis, through, tmp_path):
    whole = of_one_run(basis)
    place = str(tmp_path / "c") if through == "checkpoint" else None
    parts = KernelClassifier(**{**SETTINGS, "basis": basis, "max_epochs": 4}, warm_start=True, checkpoint=place)
    parts.fit(*digits)
    assert parts.n_iter_ == 4
    if through == "pickle":
        parts = pickle.loads(pickle.dumps(parts))
    parts.set_params(max_epochs=9).fit(*digits)
    np.testing.assert_array_equal(parts.dual_coef_, whole.dual_coef_)
    assert [epoch.epoch for epoch in parts.history_] == list(range(1, 10))
    assert [epoch.loss for epoch in parts.history_] == [epoch.loss for epoch in whole.history_]
    assert parts.n_iter_ == 9


def test_a_fit_that_is_complete_is_not_run_again(digits):
    model = KernelClassifier(**SETTINGS, warm_start=True).fit(*digits)
    before = model.dual_coef_
    np.testing.assert_array_equal(model.fit(*digits).dual_coef_, before)


def test_without_warm_start_a_fit_begins_anew(digits, tmp_path):
    place = str(tmp_path / "c")
    first = KernelClassifier(**SETTINGS, checkpoint=place).fit(*digits)
    second = KernelClassifier(**{**SETTINGS, "random_state": 1}, checkpoint=place).fit(*digits)
    assert not np.array_equal(first.landmark_indices_, second.landmark_indices_)


def test_other_data_and_settings_are_refused(digits, tmp_path):
    X, y = digits
    place = str(tmp_path / "c")
    for checkpoint in (None, place):
        model = KernelClassifier(**SETTINGS, warm_start=True, checkpoint=checkpoint).fit(X, y)
        with pytest.raises(StoreError, match="data checksums X was"):
            model.fit(X + 1, y)
        with pytest.raises(StoreError, match="data n_samples was 600 and is 500"):
            model.fit(X[:500], y[:500])
        with pytest.raises(StoreError, match=r"settings alpha was 'auto' and is 1\.0"):
            model.set_params(alpha=1.0).fit(X, y)


def _one(X, Z):
    return X @ Z.T


def _other(X, Z):
    return (X @ Z.T) ** 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({"basis": Landmarks(points=np.eye(64)[:9])}, {"basis": Landmarks(points=np.eye(64)[9:18])}, "basis points"),
        ({"basis": Landmarks(50)}, {"basis": Landmarks(50, "stratified")}, "basis selector"),
        ({"kernel": _one}, {"kernel": _other}, "function"),
    ],
    ids=["points", "selector", "function"],
)
def test_another_model_of_the_same_size_is_refused(digits, before, after, what):
    model = KernelClassifier(**{**SETTINGS, "max_epochs": 2, **before}, warm_start=True).fit(*digits)
    with pytest.raises(StoreError, match=f"settings {what} was"):
        model.set_params(**after).fit(*digits)


@pytest.mark.repeated
@pytest.mark.cluster
def test_a_regressor_goes_on_on_a_cluster(client2: Client, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    settings = {"kernel": "gaussian:median", "basis": Landmarks(80), "batch_size": 50, "client": client2}
    whole = KernelRegressor(**settings, max_epochs=9).fit(X, y)
    for place in (None, str(tmp_path / "c")):
        parts = KernelRegressor(**settings, max_epochs=4, warm_start=True, checkpoint=place).fit(X, y)
        parts.set_params(max_epochs=9).fit(X, y)
        np.testing.assert_array_equal(parts.dual_coef_, whole.dual_coef_)
