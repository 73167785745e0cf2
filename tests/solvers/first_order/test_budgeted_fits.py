"""Fits on a budget of support points: the model has the points that were found, wherever the fit ends."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern import KernelClassifier, Landmarks
from daskkern.errors import SpecError
from daskkern.events import EpochFinished, Event
from daskkern.kernels import Gaussian
from daskkern.losses import Hinge
from daskkern.solvers import BSGD
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs, toy_source


def _fit(**changes: object) -> Fit:
    settings = FitSettings(
        Gaussian(1.5), Hinge(), Landmarks(12), BSGD(), 2e-2, max_epochs=3, batch_size=30, dtype="float64", device="cpu"
    )
    return Fit.of(toy_source(weighted=True), replace(settings, **changes))


@pytest.mark.long
def test_a_run_in_parts_has_the_same_bits() -> None:
    fit = _fit()
    whole = fit.scores(fit.results(1))
    runs = Runs(fit)
    for until in (4, 9):
        runs.run(1, until=until)
    np.testing.assert_array_equal(runs.scores(1), whole)


def test_the_best_epoch_has_its_own_points() -> None:
    fit = _fit(early_stopping=EarlyStopping(0.3, patience=2), max_epochs=15, seed=1)
    events: list[Event] = []
    results = fit.results(1, listen=events.append)
    watched = [event.validation_score for event in events if isinstance(event, EpochFinished)]
    assert results[0].reason == "early_stopping"
    assert watched[-1] < max(watched)  # the last points are others
    held_out = fit.prepared.validation
    assert held_out is not None
    scores = fit.scores(results)
    weight = fit.source.weight[held_out]
    right = scores[held_out].argmax(axis=1) == fit.source.y[held_out]
    assert (weight * right).sum() / weight.sum() == pytest.approx(max(watched), abs=1e-12)
    runs = Runs(fit)
    runs.run(1, until=4 * (len(watched) - 1))
    np.testing.assert_array_equal(runs.scores(1), scores)


def test_an_estimator_has_the_points_that_were_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2)).astype(np.float32)
    y = np.where((X**2).sum(axis=1) > 1.4, "outside", "inside")
    model = KernelClassifier(
        "gaussian:1", loss="hinge", basis=Landmarks(20), solver="bsgd", alpha=5e-3, max_epochs=5, early_stopping=False
    )
    model.fit(X, y)
    points = np.asarray(model.model_.points)
    assert points.shape == (20, 2)
    merged = ~(points[:, None] == X[None]).all(axis=2).any(axis=1)
    assert merged.sum() > 3  # they are no training rows
    assert model.score(X, y) > 0.93
    with pytest.raises(SpecError, match="keep_blocks='memory', but its points move"):
        model.set_params(keep_blocks="memory").fit(X, y)
