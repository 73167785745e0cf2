"""What models say of how sure they are: coverage, errors, lazy arrays, and damaged files."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.datasets import make_moons

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.calibration import Calibration, ScoreScaling
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError, ModelError
from daskkern.kernels import Linear
from daskkern.models import KernelModel

RNG = np.random.default_rng(0)


def _linear(task: str, outputs: int, calibration: Calibration | None, **others: Any) -> KernelModel:
    """Return a model of 3 features whose scores are the first `outputs` of them."""
    points, coef = np.eye(3), np.eye(3)[:, :outputs]
    return KernelModel(
        Linear(),
        points,
        coef,
        "squared",
        task,
        others.pop("classes", None),
        Scaling(),
        calibration=calibration,
        **others,
    )


def _classifier(calibration: Calibration | None) -> KernelModel:
    return _linear("classification", 3, calibration, classes=("a", "b", "c"))


def _found(scores: Any, scale: float | None = None) -> Calibration:
    array = np.asarray(scores, np.float64)
    return Calibration("held-out", len(array), array, None if scale is None else ScoreScaling(scale))


def test_sets_of_a_split_cover_at_least_as_often_as_they_say() -> None:
    X, y = make_moons(6000, noise=0.4, random_state=0)
    model = KernelClassifier("gaussian:0.5", basis=Landmarks(50), calibrate=0.3, max_epochs=2, device="cpu")
    model.fit(X[:2000], y[:2000])
    right = model.score(X[2000:], y[2000:])  # which the most probable label covers
    for confidence in (0.8, 0.9, 0.95):
        sets = model.predict_set(X[2000:], confidence)
        assert sets.shape == (4000, 2)
        assert sets.dtype == bool
        covered = sets[np.arange(4000), y[2000:]].mean()
        assert (
            confidence - 0.04 < covered < max(confidence, right) + 0.04
        )  # 600 calibration rows: a deviation of 0.012 to 0.016
    wider = model.predict_set(X[2000:], 0.95)
    assert (wider | ~model.predict_set(X[2000:], 0.8)).all()


def test_a_model_that_is_right_more_often_than_asked_has_no_empty_sets() -> None:
    X, y = make_moons(3000, noise=0.1, random_state=0)
    model = KernelClassifier("gaussian:0.5", basis=Landmarks(50), max_epochs=2, device="cpu").fit(X[:1000], y[:1000])
    sets = model.predict_set(X[1000:], 0.5)
    assert sets.any(axis=1).all()
    assert sets[np.arange(2000), y[1000:]].mean() >= model.score(X[1000:], y[1000:]) > 0.95


def test_intervals_of_a_split_cover_for_each_target_by_itself() -> None:
    X = RNG.standard_normal((5000, 2))
    Y = np.stack([X[:, 0] + RNG.standard_normal(5000), 100 * X[:, 1] + 30 * RNG.standard_normal(5000)], axis=1)
    model = KernelRegressor("gaussian:2", basis=Landmarks(50), calibrate=0.3, max_epochs=3, device="cpu")
    model.fit(X[:2000], Y[:2000])
    found = model.predict_interval(X[2000:], 0.9)
    assert found.shape == (3000, 2, 2)
    inside = (found[..., 0] <= Y[2000:]) & (Y[2000:] <= found[..., 1])
    np.testing.assert_allclose(inside.mean(axis=0), 0.9, atol=0.04)
    lazy = model.predict_interval(da.from_array(X[2000:], chunks=(700, 1)), 0.9)
    assert lazy.shape == (3000, 2, 2)
    np.testing.assert_allclose(lazy.compute(), found)
    one = KernelRegressor("gaussian:2", basis=Landmarks(50), max_epochs=1, device="cpu").fit(X[:200], Y[:200, 0])
    assert one.predict_interval(X).shape == (5000, 2)


def test_probabilities_and_sets_of_dask_arrays_are_lazy() -> None:
    X, y = make_moons(300, noise=0.3, random_state=0)
    model = KernelClassifier("gaussian:0.5", basis=Landmarks(30), max_epochs=1, device="cpu").fit(X, y)
    lazy = da.from_array(X, chunks=(100, 1))
    for method in ("predict_proba", "predict_set"):
        found = getattr(model, method)(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(), getattr(model, method)(X))


def test_models_without_calibration_say_so() -> None:
    X = np.eye(3)
    with pytest.raises(ModelError, match="not calibrated has no probabilities; fit a classifier with calibrate=True"):
        _classifier(None).predict_proba(X)
    with pytest.raises(ModelError, match="not calibrated, so it has no sets of labels"):
        _classifier(None).predict_set(X)
    with pytest.raises(ModelError, match="not calibrated, so it has no intervals"):
        _linear("regression", 1, None).predict_interval(X)
    with pytest.raises(ModelError, match="a model of classification has no intervals"):
        _classifier(_found([[0.1]], 1.0)).predict_interval(X)
    with pytest.raises(ModelError, match="a model of regression has no sets"):
        _linear("regression", 1, _found([[0.1]])).predict_set(X)
    with pytest.raises(ModelError, match="a model of regression"):
        _linear("regression", 1, _found([[0.1]])).predict_proba(X)
    with pytest.raises(DataError, match="needs at least 9 calibration rows, but the model has 1"):
        _classifier(_found([[0.1]], 1.0)).predict_set(X)


def test_a_set_has_the_labels_whose_probability_is_high_enough() -> None:
    model = _classifier(_found(np.linspace(0.05, 0.6, 9)[:, None], 1.0))
    p = model.predict_proba(np.array([[2.0, 1.0, -3.0], [0.0, 0, 0]]))
    np.testing.assert_allclose(p[1], 1 / 3)
    np.testing.assert_array_equal(
        model.predict_set(np.array([[2.0, 1.0, -3.0], [0.0, 0, 0]])), [p[0] >= 0.4, [True, False, False]]
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("change", "scores"),
    [
        ({"method": "guess"}, None),
        ({"n_rows": 3}, None),
        ({"n_rows": -1}, None),
        ({"scale": -1.0}, None),
        ({"scale": "x"}, None),
        ({"scale": float("nan")}, None),
        ({"offset": [1.0]}, None),
        ({"offset": None}, None),
        ({"log_loss": "x"}, None),
        ({}, [[0.2], [0.1]]),
        ({}, [[-0.1], [0.1]]),
        ({}, [[0.1], [float("nan")]]),
        ({}, [[0.1, 0.1], [0.2, 0.2]]),
    ],
)
def test_damaged_calibrations_are_refused(tmp_path: Path, change: dict[str, Any], scores: Any) -> None:
    model = _classifier(_found([[0.1], [0.2]], 2.0))
    daskkern.models.save_model(model, tmp_path / "m")
    group = zarr.open_group(tmp_path / "m")
    assert daskkern.load(tmp_path / "m").calibration.scaling == ScoreScaling(2.0)
    group.update_attributes({"calibration": {**dict(group.attrs["calibration"]), **change}})
    if scores is not None:
        group.create_array("calibration_scores", data=np.array(scores), overwrite=True)
    with pytest.raises(ModelError, match="damaged"):
        daskkern.load(tmp_path / "m")


def test_models_without_the_attribute_open(tmp_path: Path) -> None:
    daskkern.models.save_model(_classifier(None), tmp_path / "m")
    group = zarr.open_group(tmp_path / "m")
    attributes = {name: value for name, value in group.attrs.items() if name != "calibration"}
    group.attrs.clear()
    group.attrs.update(attributes)
    loaded = daskkern.load(tmp_path / "m")
    assert loaded.calibration is None
    np.testing.assert_array_equal(loaded.predict(np.eye(3)), ["a", "b", "c"])
