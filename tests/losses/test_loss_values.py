"""Losses against formulas, finite differences, and the laws of convex and smooth functions."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.losses import (
    LOSSES,
    Curved,
    EpsilonInsensitive,
    Huber,
    Logistic,
    Loss,
    MulticlassHinge,
    MultinomialLogistic,
    Probabilistic,
    Quantile,
    Smooth,
    SmoothedHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    decode,
    encode,
    n_outputs,
    parse_loss,
)
from tests.support import naive

EVERY = [
    *(loss() for loss in LOSSES.values()),
    SmoothedHinge(0.3),
    Huber(0.4),
    Quantile(0.9),
    EpsilonInsensitive(0.7),
    SquaredEpsilonInsensitive(0.7),
    MulticlassHinge([[0, 1, 5], [0.5, 0, 1], [2.25, 0, 0]]),
]
NOT_SMOOTH = {"hinge", "multiclass_hinge", "absolute", "quantile", "epsilon_insensitive"}
each_loss = pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.spec())
each_for_classes = pytest.mark.parametrize(
    "loss", [loss for loss in EVERY if "classification" in loss.tasks], ids=lambda loss: loss.spec()
)
laws = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 1 << 30)


def _targets(loss: Loss, m: int, c: int, rng: np.random.Generator) -> HostArray:
    if "regression" in loss.tasks:
        return rng.standard_normal((m, c))
    if loss.joint:
        return np.eye(c)[rng.integers(0, c, m)]
    return rng.choice([-1.0, 1.0], (m, c))


def _sample(loss: Loss, seed: int, m: int = 12, c: int = 3) -> tuple[HostArray, HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((m, c)), 2 * rng.standard_normal((m, c)), _targets(loss, m, c, rng)


@pytest.mark.one_in(4)
@each_loss
@laws
@given(seed=seeds)
def test_value_equals_the_formula(loss: Loss, seed: int) -> None:
    f, _, y = _sample(loss, seed)
    assert loss.value(f, y).shape == (12,)
    np.testing.assert_allclose(loss.value(f, y), naive.loss_value(loss.spec(), f, y), rtol=1e-12, atol=1e-13)


@pytest.mark.one_in(4, 1)
@each_loss
@laws
@given(seed=seeds)
def test_curvature_is_the_derivative_of_the_gradient(loss: Loss, seed: int) -> None:
    f, v, y = _sample(loss, seed)
    if not isinstance(loss, Curved):
        return
    step = 1e-6
    ahead = (loss.gradient(f + step * v, y) - loss.gradient(f, y)) / step
    behind = (loss.gradient(f, y) - loss.gradient(f - step * v, y)) / step
    smooth = np.abs(ahead - behind) < 1e-3  # at a kink of the gradient there are two
    np.testing.assert_allclose(loss.curved(f, y, v)[smooth], ((ahead + behind) / 2)[smooth], atol=1e-7)
    diagonal = np.stack([loss.curved(f, y, np.eye(3)[[k] * 12])[:, k] for k in range(3)], axis=1)
    np.testing.assert_allclose(loss.curvature(f, y), diagonal, atol=1e-14)


@pytest.mark.one_in(4, 3)
@each_loss
@laws
@given(seed=seeds)
def test_gradient_is_the_derivative_of_the_value(loss: Loss, seed: int) -> None:
    f, _, y = _sample(loss, seed)
    wide, narrow = (naive.numerical_gradient(loss.value, f, y, step) for step in (1e-4, 5e-5))
    away_from_kinks = np.abs(wide - narrow) < 1e-6
    assert away_from_kinks.mean() > 0.8
    numerical = naive.numerical_gradient(loss.value, f, y)
    np.testing.assert_allclose(loss.gradient(f, y)[away_from_kinks], numerical[away_from_kinks], atol=1e-7, rtol=1e-7)


@pytest.mark.one_in(4)
@each_loss
@laws
@given(seed=seeds)
def test_value_lies_below_its_chords_and_above_its_tangents(loss: Loss, seed: int) -> None:
    f, h, y = _sample(loss, seed)
    middle = loss.value((f + h) / 2, y)
    assert (middle <= (loss.value(f, y) + loss.value(h, y)) / 2 + 1e-12).all()
    tangent = loss.value(f, y) + (loss.gradient(f, y) * (h - f)).sum(axis=1)
    assert (tangent <= loss.value(h, y) + 1e-10).all()


@pytest.mark.one_in(4, 2)
@each_loss
@laws
@given(seed=seeds, scale=st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_gradient_changes_by_at_most_the_smoothness_times_the_distance(loss: Loss, seed: int, scale: float) -> None:
    f, h, y = _sample(loss, seed)
    h = f + scale * h
    gap = np.linalg.norm(loss.gradient(f, y) - loss.gradient(h, y), axis=1)
    distance = np.linalg.norm(f - h, axis=1)
    if isinstance(loss, Smooth):
        assert (gap <= loss.smoothness * distance * (1 + 1e-9)).all()
    else:
        assert loss.name in NOT_SMOOTH


@pytest.mark.parametrize(
    ("loss", "f", "y"),
    [
        (Squared(), [[0.0]], [[0.0]]),
        (SquaredHinge(), [[0.0]], [[1.0]]),
        (Logistic(), [[0.0]], [[1.0]]),
        (MultinomialLogistic(), [[0.0, 0.0]], [[1.0, 0.0]]),
        (SmoothedHinge(0.2), [[0.9]], [[1.0]]),
        (Huber(0.2), [[0.0]], [[0.1]]),
        (SquaredEpsilonInsensitive(0.2), [[0.5]], [[0.0]]),
    ],
)
def test_smoothness_is_not_larger_than_it_must_be(loss: Smooth, f: list[list[float]], y: list[list[float]]) -> None:
    at, targets = np.array(f), np.array(y)
    step = np.full_like(at, 1e-4) * np.array([1.0, -1.0])[: at.shape[1]]
    change = loss.gradient(at + step, targets) - loss.gradient(at, targets)  # type: ignore[attr-defined]
    assert np.linalg.norm(change) / np.linalg.norm(step) == pytest.approx(loss.smoothness, rel=1e-3)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_scores_neither_overflow_nor_warn(loss: Loss, dtype: str) -> None:
    f = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 1e4], [1e4, 1e4, 1e4]], dtype)
    y = np.eye(3, dtype=dtype) if loss.joint else np.array([[1, 1, -1], [1, -1, 1], [-1, -1, 1]], dtype)
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        value, gradient = loss.value(f, y), loss.gradient(f, y)
        assert value.dtype == gradient.dtype == np.dtype(dtype)
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()
        if isinstance(loss, Probabilistic):
            probabilities = loss.probabilities(f)
            assert np.isfinite(probabilities).all()
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("loss", [Logistic(), MultinomialLogistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("c", [2, 4])
def test_probabilities_are_those_of_the_scores(loss: Probabilistic, c: int) -> None:
    f = np.random.default_rng(0).standard_normal((9, c))
    p = loss.probabilities(f)
    weights = np.exp(f) if isinstance(loss, MultinomialLogistic) else 1 / (1 + np.exp(-f))
    np.testing.assert_allclose(p, weights / weights.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(p.argmax(axis=1), decode(f))


def test_probabilities_of_one_score_are_a_sigmoid_and_its_complement() -> None:
    f = np.linspace(-3, 3, 7)[:, None]
    sigmoid = 1 / (1 + np.exp(-f[:, 0]))
    np.testing.assert_allclose(Logistic().probabilities(f), np.stack([1 - sigmoid, sigmoid], axis=1), rtol=1e-12)


def test_scores_that_exclude_every_class_are_undecided() -> None:
    np.testing.assert_array_equal(Logistic().probabilities(np.full((1, 4), -1e4, np.float32)), [[0.25] * 4])


@each_for_classes
@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_codes_survive_their_encoding(loss: Loss, n_classes: int, dtype: str) -> None:
    codes = np.random.default_rng(0).integers(0, n_classes, 40)
    y = encode(loss, codes, n_classes, dtype)
    assert y.shape == (40, n_outputs(loss, n_classes))
    assert y.shape[1] == (1 if n_classes == 2 and not loss.joint else n_classes)
    assert y.dtype == np.dtype(dtype)
    assert set(np.unique(y)) == ({0.0, 1.0} if loss.joint else {-1.0, 1.0})
    np.testing.assert_array_equal(decode(y), codes)


@each_for_classes
def test_right_scores_cost_less_than_wrong_ones(loss: Loss) -> None:
    codes = np.arange(6) % 3
    y = encode(loss, codes, 3, "float64")
    assert (loss.value(y, y) < loss.value(encode(loss, (codes + 1) % 3, 3, "float64"), y)).all()


@each_loss
def test_losses_are_found_by_name_and_are_values(loss: Loss) -> None:
    again = parse_loss(loss.spec())
    assert again == loss
    assert again is not loss
    assert parse_loss(loss) is loss
    assert hash(again) == hash(loss)
    assert repr(again) == repr(loss)
    assert eval(repr(loss), {type(loss).__name__: type(loss)}) == loss
    assert [other for other in EVERY if other == loss] == [loss]
    assert parse_loss(loss.name) == type(loss)()


def test_an_unknown_loss_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        SpecError, match=r"loss 'sqared' is unknown; did you mean 'squared'\? Known losses: auto, squared,"
    ):
        parse_loss("sqared")
    with pytest.raises(SpecError, match="loss 3 is unknown"):
        parse_loss(3)  # type: ignore[arg-type]
    for typed in ("Auto", "atuo"):  # of the default, which the callers understand
        with pytest.raises(SpecError, match=f"loss '{typed}' is unknown; did you mean 'auto'"):
            parse_loss(typed)
    with pytest.raises(SpecError, match=r"loss 'auto' is unknown\. Known losses: squared,"):
        parse_loss("auto")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("huber:wide", r"got loss 'huber:wide'; write it as 'huber:1.0', with a number"),
        ("huber:", "write it as 'huber:1.0'"),
        ("huber:1:2", "got loss 'huber:1:2'; the huber loss takes delta"),
        ("squared:1", "got loss 'squared:1'; the squared loss has no parameter"),
        ("huber:-1", r"got delta=-1.0 for the huber loss; give a positive number"),
        ("huber:nan", "got delta=nan for the huber loss; give a positive number"),
        ("smoothed_hinge:0", "got gamma=0.0 for the smoothed_hinge loss; give a positive number"),
        ("quantile:1", "got q=1.0 for the quantile loss; give a number between 0 and 1"),
        ("epsilon_insensitive:inf", "got epsilon=inf for the epsilon_insensitive loss; give a positive number"),
        ("multiclass_hinge:costs.csv", r"got costs 'costs.csv' .* from a CSV file .*paste -sd/ costs.csv"),
        ("multiclass_hinge:1", r"got costs of shape \(1, 1\) for the multiclass_hinge loss; give a square table"),
        ("multiclass_hinge:0,1/1,0/1,1", r"got costs of shape \(3, 2\) for the multiclass_hinge loss"),
        ("multiclass_hinge:0,1/1", r"got costs .* for the multiclass_hinge loss; give a square table"),
        ("multiclass_hinge:0,-1/1,0", "got a cost of -1 for the multiclass_hinge loss; give numbers from 0 to 1e"),
        ("multiclass_hinge:0,nan/1,0", "got a cost of nan for the multiclass_hinge loss"),
        ("multiclass_hinge:0,1/1,2", "got the cost 2 of predicting class number 1 for its own rows"),
        ("multiclass_hinge:0,0/0,0", "got costs that are all 0 for the multiclass_hinge loss"),
    ],
)
def test_parameters_without_a_meaning_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_loss(text)
