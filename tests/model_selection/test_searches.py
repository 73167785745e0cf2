"""A search finds the best of what it tries, the same one wherever it runs, and takes the defaults where nothing is."""

from dataclasses import replace

import numpy as np
import pytest
from distributed import Client

from daskkern.errors import DataError
from daskkern.estimators.array_inputs import array_source
from daskkern.events import Event, StageFinished
from daskkern.model_selection import Budget, ClusterRunner, SearchResult, search
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.fits import DEFAULT
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.ridge_trials import RidgeOutcome
from daskkern.model_selection.samples import draw_sample
from daskkern.model_selection.screening import of_each_kernel
from daskkern.training.feeding.sources import ArraySource
from tests.support.cluster import local_cluster
from tests.support.searches import class_source, classes_by_one_feature, number_source, usual


def _search(source: ArraySource, client: Client | None = None, **parameters: object) -> SearchResult:
    runner = None if client is None else ClusterRunner(client)
    found = search(source, usual(source, max_epochs=3, **parameters), budget=Budget(1e6), runner=runner)
    return replace(found, settings=replace(found.settings, max_seconds=None))


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [class_source, number_source])
def test_the_best_fit_of_all_is_chosen(make) -> None:  # type: ignore[no-untyped-def]
    source = make(240)
    found = _search(source)
    fits = [row for row in found.trials if row.method == "fit"][1:]
    assert fits[0].candidate == DEFAULT
    assert found.name == min(fits, key=lambda row: row.loss).candidate
    assert [row.verdict for row in fits].count("chosen") == 1
    sample = draw_sample(source, usual(source), 240, ("affine", "arcsinh"))
    candidate = FitCandidate(found.name, found.settings, found.settings)
    outcomes = [
        try_fit(one, sample, sample.folds(5, 0.25))
        for one in (candidate, FitCandidate("", usual(source), usual(source)))
    ]
    assert outcomes[0].held.is_better(outcomes[1].held)


@pytest.mark.repeated
def test_the_same_is_found_on_any_number_of_workers(client2: Client) -> None:
    source = class_source(80)
    here, two = _search(source), _search(source, client2)
    with local_cluster(1) as client1:
        one = _search(source, client1)
    for other in (one, two):
        assert other.name == here.name
        assert repr(other.settings) == repr(here.settings)  # landmarks are compared by identity
        np.testing.assert_allclose(other.trials["loss"], here.trials["loss"], rtol=1e-4)


@pytest.mark.repeated
def test_labels_without_any_relation_are_left_to_the_defaults() -> None:
    X, _ = classes_by_one_feature(150)
    y = np.random.default_rng(5).integers(0, 2, 150)
    found = _search(array_source(X, y, None, np.arange(2)))
    assert found.name == DEFAULT or found.trials["loss"].min() > 0.6


@pytest.mark.long
def test_features_of_one_unit_and_a_function_that_is_nearly_linear_are_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8)) * np.where(np.arange(8) < 2, 10.0, 0.1)  # in one unit only two of them count
    found = _search(array_source(X, X[:, 0] + 0.1 * X[:, 1] ** 2 / 10, None, None))
    names = [row.candidate for row in found.trials if row.method == "ridge"]
    assert sum("common" in name for name in names) > 5
    assert any("4 x median" in name or "8 x median" in name or "2.8 x median" in name for name in names)
    assert found.settings.scale == "common"
    alike = _search(array_source(X / X.std(axis=0), X[:, 0], None, None))
    assert not any("common" in row.candidate for row in alike.trials)


def test_few_rows_are_not_searched() -> None:
    source = class_source(40)
    found = _search(source)
    assert (found.name, len(found.trials)) == (DEFAULT, 0)
    assert "too few" in found.trials.note
    assert found.settings == usual(source, max_epochs=3)


@pytest.mark.long
def test_a_listener_hears_of_every_trial_and_the_choice() -> None:
    source, events = number_source(80), list[Event]()
    found = search(source, usual(source, max_epochs=2), budget=Budget(1e6), listener=events.append)
    stages = [event for event in events if isinstance(event, StageFinished)]
    assert [stage.stage for stage in stages] == ["trial"] * len(found.trials) + ["search"]
    assert "s left" in stages[0].detail


def test_rows_with_gaps_are_refused_as_by_a_fit() -> None:
    source = class_source(100)
    source.X[3, 2] = np.nan
    with pytest.raises(DataError, match="NaN"):
        _search(source)


def test_the_larger_sample_compares_the_best_of_several_kernels() -> None:
    outcome = RidgeOutcome(HeldOut(np.ones(2), np.ones(2), np.full(2, 0.5)), 1e-3, 10, (), 0.0)
    names = ["gaussian", "gaussian", "laplacian", "gaussian", "laplacian", "matern32"]
    ranked = [(KernelCandidate(name, float(k), None), outcome) for k, name in enumerate(names)]
    assert [candidate.times for candidate, _ in of_each_kernel(ranked)] == [0.0, 2.0, 5.0, 1.0, 3.0, 4.0]
