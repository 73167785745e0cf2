"""Every loss fits through the estimators, is saved by its word, and comes back."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import Landmarks
from daskkern.losses import LOSSES, Huber, Quantile, parse_loss
from daskkern.models import load_model

SPECS = [loss().spec() for loss in LOSSES.values()]
X, codes = load_digits(return_X_y=True)
X, codes = (X[:300] / 16).astype(np.float32), codes[:300]
values = np.sin(X[:, 20]) + X[:, 30]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss", [loss for loss in SPECS if "classification" in parse_loss(loss).tasks])
def test_eigenpro_classifies_with_every_loss(loss, tmp_path):
    model = KernelClassifier(
        "gaussian:median", loss=loss, basis=Landmarks(60), max_epochs=4, batch_size=60, device="cpu"
    )
    model.fit(X, codes)
    assert model.score(X, codes) > 0.9
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.loss == loss
    assert loaded.provenance["settings"]["loss"] == loss
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.one_in(4, 1)
@pytest.mark.parametrize("loss", [loss for loss in SPECS if "regression" in parse_loss(loss).tasks])
def test_eigenpro_regresses_with_every_loss(loss, tmp_path):
    model = KernelRegressor(
        "gaussian:median", loss=loss, basis=Landmarks(60), max_epochs=10, batch_size=60, device="cpu"
    )
    model.fit(X, values)
    assert model.score(X, values) > 0.8
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").loss == loss


def test_the_quantile_loss_finds_quantiles():
    noisy = values + np.random.default_rng(0).standard_normal(len(values))
    model = KernelRegressor(
        "gaussian:median",
        loss="quantile:0.8",
        basis=Landmarks(20),
        alpha=1e-3,
        max_epochs=30,
        batch_size=60,
        device="cpu",
    )
    assert np.mean(noisy < model.fit(X, noisy).predict(X)) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("loss", ["huber:0.5", Huber(0.5), Quantile(0.9)])
def test_losses_with_parameters_are_cloned(loss):
    copy = clone(KernelRegressor(loss=loss))
    assert copy.loss == loss
    assert parse_loss(copy.loss) == parse_loss(loss)
