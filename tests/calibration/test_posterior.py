"""Standard deviations of predictions, against Gaussian processes of scikit-learn and errors on new rows."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks, RandomFeatures
from daskkern.calibration import Posterior
from daskkern.errors import ModelError

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (250, 2))
Y = np.sin(X[:, 0]) * X[:, 1] + 0.3 * RNG.standard_normal(250)
NEW = RNG.uniform(-6, 6, (400, 2))
EXACT: dict[str, Any] = {"kernel": "gaussian:1", "solver": "direct", "loss": "squared", "scale": None, "device": "cpu"}


def _fitted(alpha: float = 1e-4, **changes: Any) -> KernelRegressor:
    return KernelRegressor(**{**EXACT, "alpha": alpha, "dtype": "float64", **changes}).fit(X, Y)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4])
def test_they_are_those_of_a_gaussian_process(alpha: float) -> None:
    model = _fitted(alpha, fit_intercept=False)
    found = model.model_.calibration
    assert found is not None
    assert found.posterior is not None
    assert found.posterior.alpha == pytest.approx(alpha, rel=1e-4)
    noise, amplitude = 250 * alpha, found.posterior.amplitude[0]
    process = GaussianProcessRegressor(
        ConstantKernel(amplitude) * RBF(1.0) + WhiteKernel(amplitude * noise), alpha=0.0, optimizer=None
    ).fit(X, Y)
    mean, deviation = process.predict(NEW, return_std=True)
    ours, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(ours, mean, atol=1e-4)
    np.testing.assert_allclose(std, deviation, rtol=1e-3)
    quiet = GaussianProcessRegressor(ConstantKernel(amplitude) * RBF(1.0), alpha=amplitude * noise, optimizer=None)
    latent = quiet.fit(X, Y).predict(NEW, return_std=True)[1]
    np.testing.assert_allclose(model.model_.predict_std(NEW, noisy=False), latent, rtol=1e-3, atol=1e-5)


def test_the_amplitude_is_near_that_of_the_highest_likelihood() -> None:
    process = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0, "fixed") + WhiteKernel(0.1)).fit(X, Y)
    amplitude, noise = process.kernel_.k1.k1.constant_value, process.kernel_.k2.noise_level
    found = _fitted(noise / amplitude / 250, fit_intercept=False).model_.calibration
    assert found is not None
    assert found.posterior is not None
    assert found.posterior.amplitude[0] == pytest.approx(amplitude, rel=0.25)


@pytest.mark.parametrize("settings", [{}, {"basis": Landmarks(60)}, {"calibrate": 0.3}, {"solver": "auto"}], ids=str)
def test_they_cover_new_targets_and_grow_away_from_the_rows(settings: dict[str, Any]) -> None:
    model = _fitted(**{"solver": "falkon" if "basis" in settings else "direct", "max_epochs": 20, **settings})
    rng = np.random.default_rng(1)
    new = rng.uniform(-3, 3, (2000, 2))
    truth = np.sin(new[:, 0]) * new[:, 1] + 0.3 * rng.standard_normal(2000)
    mean, std = model.predict(new, return_std=True)
    assert np.mean(((truth - mean) / std) ** 2) == pytest.approx(1, abs=0.3)
    assert 0.84 < np.mean(np.abs(truth - mean) < 1.645 * std) < 0.96
    far = model.predict(np.full((1, 2), 30.0), return_std=True)[1]
    assert far > 2 * std.mean()


def test_of_several_targets_from_dask_stores_and_disk(tmp_path: Path) -> None:
    both = np.stack([Y, 10 * Y + 5], axis=1)
    model = KernelRegressor(**{**EXACT, "alpha": 1e-3}).fit(X, both)
    mean, std = model.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (400, 2)
    np.testing.assert_allclose(std[:, 1], 10 * std[:, 0], rtol=1e-3)
    lazy_mean, lazy = model.predict(da.from_array(NEW, chunks=(150, 1)), return_std=True)
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), std)
    np.testing.assert_allclose(lazy_mean.compute(), mean)
    model.save(tmp_path / "m")
    np.testing.assert_allclose(daskkern.load(tmp_path / "m").predict_std(NEW), std)


@pytest.mark.repeated
def test_more_points_than_the_factor_holds_are_a_sample_of_them() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3, 3, (2600, 1))
    y = np.sin(rows[:, 0]) + 0.2 * rng.standard_normal(2600)
    model = KernelRegressor("gaussian:1", alpha=1e-4, scale=None, max_epochs=2, device="cpu").fit(rows, y)
    assert model.predict(rows[:5], return_std=True)[1] == pytest.approx(0.2, rel=0.15)


def test_what_has_none_says_so() -> None:
    features = KernelRegressor("gaussian:1", basis=RandomFeatures(50), max_epochs=1, device="cpu").fit(X, Y)
    with pytest.raises(ModelError, match="explicit features, which have no posterior variance"):
        features.predict(NEW, return_std=True)
    with pytest.raises(ModelError, match="not calibrated, so it has no standard deviations"):
        _fitted(calibrate=False).predict(NEW, return_std=True)
    labels = KernelClassifier("gaussian:1", max_epochs=1, device="cpu").fit(X, Y > 0)
    with pytest.raises(ModelError, match="a model of classification has no standard deviations"):
        labels.model_.predict_std(NEW)


@pytest.mark.parametrize(
    "change", [{"alpha": 0.0}, {"alpha": "x"}, {"n_rows": 0}, {"amplitude": [1.0, 2.0]}, {"amplitude": [float("inf")]}]
)
def test_damaged_ones_are_refused(change: dict[str, Any]) -> None:
    good = Posterior(1e-3, 10, (2.0,))
    assert Posterior.from_json(good.to_json(), 1) == good
    with pytest.raises((ValueError, TypeError, KeyError)):
        Posterior.from_json({**good.to_json(), **change}, 1)
