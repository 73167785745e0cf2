"""The second rung of a search: the best candidate of each kernel, then scalings and length scales of the leader."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.estimators.array_inputs import array_source
from daskkern.events import silent
from daskkern.model_selection import Budget
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate
from daskkern.model_selection.fit_trials import FitOutcome, try_fit
from daskkern.model_selection.fits import other_losses
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.ridge_trials import RidgeOutcome
from daskkern.model_selection.running import DrawnSample
from daskkern.model_selection.samples import draw_sample
from daskkern.model_selection.screening import Ranked, finalists, screened_again
from daskkern.model_selection.trial_log import TrialLog
from daskkern.training.feeding.sources import ArraySource
from tests.support.searches import FakeClock, TimedRunner, number_source, usual

_NAMES = ("gaussian", "matern32", "laplacian", "laplacian_l1", "additive_laplacian")
_SCALES = ("arcsinh", "affine")


def _outcome(loss: float, seconds: float = 0.0) -> RidgeOutcome:
    held = HeldOut(np.full(4, loss), np.full(4, loss), np.full(4, 0.25))
    return RidgeOutcome(held, 1e-3, 10, (), seconds)


def _ranked(*names: tuple[str, str], seconds: float = 0.0) -> Ranked:
    return [
        (KernelCandidate(name, 1.0, scale), _outcome(0.1 * (1 + place), seconds))
        for place, (name, scale) in enumerate(names)
    ]


def _again(
    source: ArraySource, found: Ranked, *, seconds: float = 1e6, reserved: float = 0.0
) -> tuple[Ranked, TimedRunner, DrawnSample]:
    """Return what a sample of 240 rows says of candidates that 60 rows were enough for."""

    def draw(m: int) -> DrawnSample:
        sample = draw_sample(source, usual(source), m, _SCALES)
        return DrawnSample(sample, sample)

    clock = FakeClock()
    runner = TimedRunner(clock, lambda name: 1.0)
    log = TrialLog(Budget(seconds, clock), runner, silent)
    log.pace["ridge"] = 1e5  # of the last trials: with metrics
    ranked, drawn = screened_again(log, found, draw(60), 240, draw, reserved)
    return ranked, runner, drawn


def _tried(runner: TimedRunner) -> list[str]:
    return [name.split(",")[0] for name in runner.ran]


def test_the_best_of_each_kernel_goes_on_whatever_the_smaller_sample_said() -> None:
    found = _ranked(*[(name, "affine") for name in _NAMES for _ in range(2)])
    ranked, runner, drawn = _again(number_source(240), found)
    assert drawn.sample.n_rows == 240
    assert _tried(runner)[:5] == list(_NAMES)
    assert {candidate.kernel for candidate, _ in ranked} == set(_NAMES)


def test_the_kernels_that_there_is_time_for_go_on_by_the_seconds_that_they_took() -> None:
    found = _ranked(*[(name, "affine") for name in _NAMES], seconds=1.0)
    growth = 4**2.5 / 5  # of the rows; trials of 60 rows have five folds
    _, few, _ = _again(number_source(240), found, seconds=1.6 * 3 * growth)
    assert set(_tried(few)) == set(_NAMES[:3])
    _, most, _ = _again(number_source(240), found, seconds=1.6 * 5 * growth)
    assert _tried(most)[:5] == list(_NAMES)
    ranked, none, drawn = _again(number_source(240), found, seconds=1.6 * 3 * growth, reserved=2.0)
    assert (ranked, none.ran, drawn.sample.n_rows) == (found, [], 60)


def test_the_best_kernel_is_compared_in_all_scalings_and_length_scales() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 3))
    source = array_source(X, X @ np.array([1.0, 2.0, -1.0]) + 0.1 * rng.standard_normal(240), None, None)
    ranked, runner, _ = _again(source, _ranked(("matern32", "arcsinh")))
    assert {f"matern32, {times:g} x median, arcsinh" for times in (0.5, 2, 4, 8)} < set(runner.ran)
    assert len(set(runner.ran)) == len(runner.ran)
    best = ranked[0][0]
    assert best.times > 1  # for a linear function
    assert [candidate.scale for candidate, _ in ranked].count(best.scale) == 1


def test_the_shortest_length_scale_of_those_that_may_be_equal_is_taken() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((240, 3))
    noise = array_source(X, 0.05 * X[:, 0] + rng.standard_normal(240), None, None)  # all are nearly constant
    ranked, runner, _ = _again(noise, _ranked(("laplacian", "affine")))
    tried = [float(name.split(", ")[1].split()[0]) for name in runner.ran if "affine" in name]
    assert ranked[0][0].times == min(tried)


def test_a_learned_metric_stays_as_it_is() -> None:
    found = [(replace(one, metric="diagonal"), outcome) for one, outcome in _ranked(("laplacian", "affine"))]
    _, runner, _ = _again(number_source(240), found)
    assert runner.ran == [found[0][0].name]


def test_without_time_for_other_scalings_and_length_scales_the_leader_is_taken() -> None:
    found = _ranked(*[(name, "affine") for name in _NAMES[:3]], seconds=0.1)
    ranked, runner, drawn = _again(number_source(240), found, seconds=5.9, reserved=1.0)
    assert drawn.sample.n_rows == 240
    assert len(ranked) == len(runner.ran) == 3
    assert [outcome.held.mean for _, outcome in ranked] == sorted(outcome.held.mean for _, outcome in ranked)


def test_losses_may_be_equal_within_two_standard_errors() -> None:
    rng = np.random.default_rng(2)
    base, gaps = rng.random(400), rng.standard_normal(400)
    gaps = (gaps - gaps.mean()) / gaps.std()  # a standard error of 0.05
    held = [HeldOut(base + gaps + shift, base, np.full(400, 1 / 400)) for shift in (0.09, 0.11)]
    best = HeldOut(base, base, np.full(400, 1 / 400))
    assert [one.may_equal(best) for one in held] == [True, False]
    assert best.may_equal(best)


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        (("a1", "b1"), ("a1", "b1")),
        (("a1", "a2", "b1", "a3"), ("a1", "a2", "b1")),
        (("a1", "b1", "a2"), ("a1", "b1")),
        (("a1", "a2"), ("a1", "a2")),
        (("a1",), ("a1",)),
    ],
)
def test_finalists_are_the_best_one_and_another_scaling_before_another_kernel(
    ranked: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    kernels, scales = {"a": "laplacian", "b": "gaussian"}, {"1": "affine", "2": "ranks", "3": "arcsinh"}
    found = _ranked(*[(kernels[kernel], scales[scale]) for kernel, scale in map(tuple, ranked)])
    named = {(kernels[name[0]], scales[name[1]]): name for name in ranked}
    assert tuple(named[one.kernel, str(one.scale)] for one, _ in finalists(found)) == expected


def test_other_losses_are_tried_with_the_kernel_that_the_default_one_is_best_with() -> None:
    settings = usual(number_source(60))
    first, second = ([FitCandidate(f"{name}, {loss}", settings, settings) for loss in "xy"] for name in "ab")
    outcomes = [
        (one, FitOutcome(_outcome(loss).held, 45, 0.0, 1e-3)) for one, loss in ((first[0], 0.2), (second[0], 0.1))
    ]
    assert other_losses(outcomes, [first, second], lambda one: one.held.mean) == second[1:]
    assert other_losses(outcomes[:1], [first, second], lambda one: one.held.mean) == first[1:]
    assert other_losses([], [first, second], lambda one: one.held.mean) == []


def test_no_candidates_have_no_outcomes_and_change_nothing() -> None:
    log = TrialLog(Budget(1e6), TimedRunner(FakeClock(), lambda name: 1.0), silent, pace={"fit": 3.0})
    sample = draw_sample(number_source(60), usual(number_source(60)), 60, _SCALES)
    assert log.run("fit", try_fit, [], DrawnSample(sample, sample), [], 1, growth=2.0) == []
    assert log.pace == {"fit": 3.0}
