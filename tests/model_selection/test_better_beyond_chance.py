"""When one candidate is better than another beyond chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.errors import SpecError
from daskkern.model_selection.held_out import HeldOut, check_scoring, held_out_losses
from daskkern.model_selection.samples import draw_sample
from tests.support.searches import class_source, number_source, usual


def _held(losses: list[float], errors: list[float] | None = None) -> HeldOut:
    k = len(losses)
    return HeldOut(np.array(losses), np.array(losses if errors is None else errors), np.full(k, 1 / k))


_LOSSES = st.lists(st.floats(0, 10), min_size=4, max_size=30)


@pytest.mark.long
@given(losses=_LOSSES, seed=st.integers(0, 100))
def test_no_two_candidates_are_better_than_each_other(losses: list[float], seed: int) -> None:
    others = list(np.random.default_rng(seed).permutation(losses) + 0.01)
    one, other = _held(losses), _held(others)
    assert not (one.is_better(other) and other.is_better(one))
    assert not one.is_better(one)


@given(losses=_LOSSES)
def test_what_is_lower_everywhere_by_a_share_is_better(losses: list[float]) -> None:
    other = _held([loss + 1 for loss in losses])
    assert _held([0.5 * (loss + 1) for loss in losses]).is_better(other) == (
        float(np.mean(other.losses)) > float(np.std(other.losses)) / len(losses) ** 0.5
    )


def test_a_gain_of_chance_is_none_and_more_errors_are_not_accepted() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(400)
    assert not _held(list(base - 0.02 + rng.standard_normal(400))).is_better(_held(list(base)))
    errors = [0.0] * 380 + [1.0] * 20
    more = [0.0] * 340 + [1.0] * 60
    assert _held(list(0.5 * base), errors).is_better(_held(list(base), errors))
    assert not _held(list(0.5 * base), more).is_better(_held(list(base), errors))


def test_accuracy_and_absolute_errors_are_what_is_compared() -> None:
    source = class_source(90)
    for scoring in ("log_loss", "accuracy"):
        sample = draw_sample(source, usual(source), 90, ("affine",), scoring)
        folds = sample.folds(1, 0.25)
        scores = np.where(np.arange(3) == 1, 1.0, -1.0) * np.ones((len(folds[0].held), 1))
        assert sample.labels is not None
        wrong = sample.labels[folds[0].held] != 1
        held = held_out_losses(sample, folds, [scores])
        np.testing.assert_array_equal(held.errors, wrong)
        assert (abs(held.mean - wrong.mean()) < 0.02) == (scoring == "accuracy")
    source = number_source(90)
    sample = draw_sample(source, usual(source), 90, ("affine",), "absolute_error")
    folds = sample.folds(1, 0.25)
    held = held_out_losses(sample, folds, [np.zeros((len(folds[0].held), 1))])
    np.testing.assert_allclose(held.losses, np.abs(sample.y[folds[0].held][:, 0]))
    np.testing.assert_allclose(held.errors, held.losses**2)


def test_a_lower_loss_has_to_outweigh_more_errors_of_a_rare_class() -> None:
    rng = np.random.default_rng(0)
    base = list(1 + 0.1 * rng.random(400))
    usual = _held(base, [1.0] * 8 + [0.0] * 392)
    lower = list(0.9 * np.array(base))
    assert _held(lower, [1.0] * 8 + [0.0] * 392).replaces(usual, "auto")
    more = _held(lower, [0.0] * 3 + [1.0] * 5 + [0.0] * 387 + [1.0] * 5)
    assert more.is_better(usual)
    assert not more.replaces(usual, "auto")
    assert more.replaces(usual, "log_loss")


@pytest.mark.parametrize(
    ("scoring", "task"), [("accuracy", "regression"), ("r2", "classification"), (None, "regression")]
)
def test_an_unknown_scoring_is_refused(scoring: object, task: str) -> None:
    with pytest.raises(SpecError, match="scoring"):
        check_scoring(scoring, task)


def test_what_is_chosen_has_little_loss_and_few_errors() -> None:
    few, sure = _held([0.32] * 10, [1.0] + [0.0] * 9), _held([0.30] * 10, [1.0] * 2 + [0.0] * 8)
    assert few.rank_by("auto") < sure.rank_by("auto")
    assert few.rank_by("log_loss") > sure.rank_by("log_loss")
    without = _held([0.2] * 10, [0.0] * 10)
    assert 0 < without.rank_by("auto") < few.rank_by("auto")
