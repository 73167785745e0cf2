"""Several quantiles in one fit: the loss, the predictions, their coverage, and what they mean elsewhere."""

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.errors import SpecError
from daskkern.evaluation.metrics import MetricAccumulator
from daskkern.losses import Quantile, parse_loss

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (3000, 1))
SPREAD = 0.2 + np.abs(X[:, 0])
Y = 10 + 5 * (np.sin(2 * X[:, 0]) + SPREAD * RNG.standard_normal(3000))
LOSS = "quantile:0.1,0.5,0.9"
SETTINGS: dict[str, Any] = {"kernel": "gaussian:0.7", "basis": Landmarks(60), "max_epochs": 30, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted() -> KernelRegressor:
    return KernelRegressor(loss=LOSS, alpha=1e-5, **SETTINGS).fit(X[:2000], Y[:2000])


def test_the_loss_is_the_sum_of_those_of_each_quantile() -> None:
    f, y = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 3))
    loss = parse_loss(LOSS)
    parts = [Quantile(q) for q in (0.1, 0.5, 0.9)]
    each = [(part, f[:, k : k + 1], y[:, k : k + 1]) for k, part in enumerate(parts)]
    np.testing.assert_allclose(loss.value(f, y), sum(part.value(*at) for part, *at in each))
    np.testing.assert_allclose(loss.gradient(f, y), np.hstack([part.gradient(*at) for part, *at in each]))
    assert loss.gradient(f.astype(np.float32), y.astype(np.float32)).dtype == np.float32
    assert loss.spec() == LOSS
    assert parse_loss(loss.spec()) == loss == Quantile((0.1, 0.5, 0.9))
    assert Quantile(0.9).spec() == "quantile:0.9"
    assert (Quantile(0.9).heads, loss.heads) == (1, 3)


@pytest.mark.parametrize(
    "text", ["quantile:0.5,0.1", "quantile:0.5,0.5", "quantile:0.1,1.5", "quantile:", "quantile:a,b"]
)
def test_other_quantiles_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_loss(text)


@pytest.mark.repeated
def test_quantiles_ascend_and_cover(fitted: KernelRegressor) -> None:
    found = fitted.predict(X[2000:])
    assert found.shape == (1000, 3)
    assert (np.diff(found, axis=1) >= 0).all()
    below = (Y[2000:, None] <= found).mean(axis=0)
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=0.06)
    wide = found[:, 2] - found[:, 0]
    assert np.corrcoef(wide, SPREAD[2000:])[0, 1] > 0.8


@pytest.mark.repeated
def test_intervals_of_quantiles_have_widths_of_their_own_and_cover(fitted: KernelRegressor) -> None:
    for confidence in (0.5, 0.8, 0.95):
        low, high = fitted.predict_interval(X[2000:], confidence).T
        assert (low <= high).all()
        assert np.mean((low <= Y[2000:]) & (Y[2000:] <= high)) == pytest.approx(confidence, abs=0.06)
    assert (high - low).max() > 2 * (high - low).min()


@pytest.mark.long
def test_they_score_are_lazy_and_are_saved(fitted: KernelRegressor, tmp_path: Path) -> None:
    middle = fitted.predict(X[2000:])[:, 1]
    expected = 1 - np.sum((Y[2000:] - middle) ** 2) / np.sum((Y[2000:] - Y[2000:].mean()) ** 2)
    assert fitted.score(X[2000:], Y[2000:]) == pytest.approx(expected)
    lazy = da.from_array(X[2000:], chunks=(300, 1))
    assert fitted.score(lazy, da.from_array(Y[2000:], chunks=300)) == pytest.approx(expected)
    assert fitted.predict(lazy).shape == (1000, 3)
    np.testing.assert_array_equal(fitted.predict(lazy).compute(), fitted.predict(X[2000:]))
    fitted.save(tmp_path / "m")
    model = daskkern.load(tmp_path / "m")
    np.testing.assert_array_equal(model.predict(X[:9]), fitted.predict(X[:9]))
    np.testing.assert_array_equal(model.predict_interval(X[:9]), fitted.predict_interval(X[:9]))
    accumulator = MetricAccumulator(model, None)
    accumulator.add(model.scores(X[2000:]), Y[2000:, None])
    assert accumulator.result().r2 == pytest.approx(expected, abs=1e-4)
    json.dumps(model.provenance["settings"]["loss"])


def test_several_targets_are_refused() -> None:
    with pytest.raises(SpecError, match="several quantiles are for one target"):
        KernelRegressor(loss=LOSS, **SETTINGS).fit(X[:50], np.stack([Y[:50], Y[:50]], axis=1))
