"""The ranks of one fit, as threads of this process: however many there are, they make one model."""

from dataclasses import replace
from socket import gethostname

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.errors import DivergenceError
from daskkern.events import BatchFinished, EpochFinished, Event, FitFinished, FitStarted
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.feeding.stored_features import is_stored, stored_features
from daskkern.training.run.early_stopping import EarlyStopping
from tests.support.fits import Fit, toy_settings, toy_source

ways = pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (AllRows(), EigenPro()),
        (Landmarks(40), EigenPro(window=1)),
        (Landmarks(40), EigenPro(window=2)),
        (Landmarks(40), EigenPro(projection="eigenpro")),
        (Landmarks(40), NystromSGD(mode="streamed")),
        (Landmarks(40), Falkon(newton_passes=3)),
    ],
    ids=["all_rows", "window_of_1", "window_of_2", "iterative_projection", "nystrom", "falkon"],
)


@pytest.mark.one_in(7)
@ways
@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-9), ("float32", 1e-4)])
def test_any_number_of_ranks_makes_the_same_model(
    basis: BasisSpec, solver: Solver[object], dtype: str, accuracy: float
) -> None:
    fit = Fit.of(toy_source(weighted=True), toy_settings(basis, solver, dtype=dtype))
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=accuracy * np.abs(alone).max())


@pytest.mark.one_in(3)
@ways
def test_kept_kernel_blocks_and_rows_change_nothing(basis: BasisSpec, solver: Solver[object]) -> None:
    fit = Fit.of(toy_source(), toy_settings(basis, solver))
    fresh = fit.scores(fit.results(2))
    some, every = 2 * 32 * 65 * 8, 1 << 30
    for kept, keeps_rows in ((some, False), (every, False), (0, True), (every, True)):
        found = fit.scores(fit.results(2, kept, keeps_rows))
        np.testing.assert_allclose(found, fresh, rtol=0, atol=1e-10)


def test_stored_eigenfeatures_make_the_streamed_model() -> None:
    source = toy_source(weighted=True)
    streamed = Fit.of(source, toy_settings(Landmarks(40), NystromSGD(mode="streamed")))
    expected = streamed.scores(streamed.results(1))
    with stored_features(source, streamed.settings, streamed.prepared) as path:
        stored = replace(streamed, features=path)
        for ranks in (1, 2, 3):
            found = stored.scores(stored.results(ranks))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_eigenfeatures_are_not_stored_where_other_machines_cannot_see_them() -> None:
    fit = Fit.of(toy_source(), replace(toy_settings(Landmarks(40), NystromSGD()), max_epochs=3))
    assert is_stored(fit.prepared, fit.settings)
    assert is_stored(fit.prepared, fit.settings, {gethostname()})
    assert not is_stored(fit.prepared, fit.settings, {gethostname(), "elsewhere"})


def test_more_ranks_than_columns_still_make_the_model() -> None:
    fit = Fit.of(toy_source(), toy_settings(Landmarks(2), EigenPro()))
    alone = fit.scores(fit.results(1))
    np.testing.assert_allclose(fit.scores(fit.results(3)), alone, rtol=0, atol=1e-9)


def test_ranks_without_columns_of_the_subsample_and_with_no_others_make_the_model() -> None:
    fit = Fit.of(toy_source(), replace(toy_settings(Landmarks(60), EigenPro(subsample=30)), batch_size=65))
    columns = [fit.prepared.basis.split(rank, 12) for rank in range(12)]
    assert any(each.n_head == 0 for each in columns)
    assert any(each.n_head == each.ids.size for each in columns)
    alone = fit.scores(fit.results(1))
    for ranks in (3, 12):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-8 * np.abs(alone).max())


def test_every_rank_ends_alike_and_the_events_tell_the_story() -> None:
    fit = Fit.of(toy_source(regression=True), toy_settings(AllRows(), EigenPro(), Squared()))
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    assert [(result.epochs, result.reason) for result in results] == [(3, "max_epochs")] * 2
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitFinished)
    batches = fit.prepared.plan.n_batches
    assert [(e.epoch, e.batch) for e in events if isinstance(e, BatchFinished)] == [
        (epoch, batch) for epoch in (1, 2, 3) for batch in range(1, batches + 1)
    ]
    losses = [event.loss for event in events if isinstance(event, EpochFinished)]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_one_rank_that_is_asked_to_stop_stops_them_all() -> None:
    fit = Fit.of(toy_source(), toy_settings(AllRows(), EigenPro()))
    requested = iter([False, False, True])
    results = fit.results(2, stop=lambda: next(requested, False))
    assert [result.reason for result in results] == ["interrupted"] * 2
    assert np.isfinite(fit.scores(results)).all()


def test_early_stopping_returns_the_best_epoch_on_every_rank() -> None:
    settings = replace(
        toy_settings(AllRows(), EigenPro(averaging=0.0)),
        early_stopping=EarlyStopping(0.2, 1, monitor="score"),
        max_epochs=30,
    )
    fit = Fit.of(toy_source(), settings)
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    assert {result.reason for result in results} == {"early_stopping"}
    watched = [event.validation_score for event in events if isinstance(event, EpochFinished)]
    assert len(watched) == results[0].epochs < 30
    held_out = fit.prepared.validation
    assert held_out is not None
    accuracy = (fit.scores(results)[held_out].argmax(axis=1) == fit.source.y[held_out]).mean()
    assert accuracy == pytest.approx(max(watched), abs=1e-12) == pytest.approx(watched[-2], abs=1e-12)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_numbers_that_left_their_range_end_the_fit_in_a_sentence() -> None:
    source = toy_source(regression=True)
    fit = Fit.of(source, toy_settings(AllRows(), EigenPro(), Squared()))
    fit.prepared = replace(fit.prepared, state=replace(fit.prepared.state, beta=1e-9, top=1e-12))
    fit.settings = replace(fit.settings, alpha=0.0, max_epochs=60)
    with pytest.raises(DivergenceError, match=r"the iteration diverged; take a smaller"):
        fit.results(2)
