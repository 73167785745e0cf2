"""Temperature scaling, against a plain minimiser, and what must hold for any scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.metrics import log_loss as reference_log_loss

from daskkern.calibration import ScoreScaling, calibration_error, fit_scaling, log_loss
from daskkern.calibration.scaling import softmax

RNG = np.random.default_rng(0)


def _rows(m: int, k: int, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (m, k) that are log odds times `temperature`, and classes drawn by them."""
    logits = 2 * RNG.standard_normal((m, k))
    p = softmax(logits)
    codes = np.array([RNG.choice(k, p=row) for row in p])
    return logits * temperature, codes


@pytest.mark.parametrize("k", [2, 3, 8])
def test_the_temperature_of_drawn_classes_is_found(k: int) -> None:
    scores, codes = _rows(4000, k, 0.25)
    found = fit_scaling(scores, codes, np.ones(4000))
    assert found.offset == ()
    assert 1 / found.scale == pytest.approx(0.25, rel=0.1)
    single = scores[:, 1:] - scores[:, :1]
    if k == 2:
        assert fit_scaling(single, codes, np.ones(4000)).scale == pytest.approx(found.scale, rel=1e-6)


def test_scale_and_offset_minimise_the_likelihood() -> None:
    scores, codes = _rows(500, 3, 3.0)
    weight, classes = RNG.uniform(0, 2, 500), np.array([1.0, 4.0, 0.5])

    def loss(x: np.ndarray) -> float:
        p = softmax(x[0] * scores - x[1] * np.log(classes))
        even = np.full((500, 3), 1 / 501 / 3)
        even[np.arange(500), codes] += 500 / 501
        return float(-(weight[:, None] * even * np.log(p)).sum() / weight.sum())

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    found = fit_scaling(scores, codes, weight, classes)
    assert found.scale == pytest.approx(best.x[0], rel=1e-4)
    moved = -best.x[1] * np.log(classes)
    np.testing.assert_allclose(found.offset, moved - moved.mean(), atol=1e-4)


def test_offsets_take_the_weights_of_classes_out_again() -> None:
    logits = 2 * RNG.standard_normal(20_000) - 2
    codes = (RNG.uniform(size=20_000) < 1 / (1 + np.exp(-logits))).astype(int)
    weights = np.array([1.0, 10.0])  # by which a fit would move the log odds
    found = fit_scaling((logits + np.log(10))[:, None], codes, np.ones(20_000), weights)
    p = found.probabilities((logits + np.log(10))[:, None])[:, 1]
    assert p.mean() == pytest.approx(codes.mean(), abs=0.01)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-logits)), atol=0.03)


@pytest.mark.parametrize("least", [1e-30, 1e-9, 1e-3, 1e9])
def test_weights_of_classes_that_differ_by_orders_of_magnitude_are_taken_out(least: float) -> None:
    """The scores are those of a fit that such a weight has hardly moved, as a fit of some epochs is."""
    scores, codes = _rows(2000, 3, 1.0)
    found = fit_scaling(scores - [0, 0, 1.0], codes, np.ones(2000), np.array([1.0, 1.0, least]))
    p = found.probabilities(scores - [0, 0, 1.0])
    np.testing.assert_allclose(p.mean(axis=0), np.bincount(codes) / 2000, atol=0.02)
    np.testing.assert_allclose(p, softmax(scores), atol=0.05)


def test_a_class_of_weight_zero_has_next_to_no_probability() -> None:
    scores, codes = _rows(2000, 3, 1.0)
    kept = codes < 2
    found = fit_scaling(scores[kept], codes[kept], np.ones(kept.sum()), np.array([1.0, 1.0, 0.0]))
    p = found.probabilities(scores[kept])
    assert p[:, 2].max() < 0.1
    assert log_loss(p, codes[kept], np.ones(kept.sum())) < 0.8


@pytest.mark.parametrize("m", [2, 20, 500])
def test_scores_that_separate_all_rows_leave_doubt(m: int) -> None:
    codes = np.arange(m) % 2
    found = fit_scaling((2.0 * codes - 1)[:, None], codes, np.ones(m))
    top = found.probabilities(np.array([[1.0]]))[0, 1]
    assert top == pytest.approx(1 - 1 / (m + 1) / 2, abs=1e-3)


def test_scores_that_say_nothing_give_even_probabilities() -> None:
    found = fit_scaling(np.zeros((30, 3)), np.arange(30) % 3, np.ones(30))
    np.testing.assert_allclose(found.probabilities(np.zeros((2, 3))), 1 / 3)
    backwards = fit_scaling(np.where(np.arange(30)[:, None] % 2 == 0, 1.0, -1.0), np.arange(30) % 2, np.ones(30))
    np.testing.assert_allclose(backwards.probabilities(np.array([[1.0]])), 0.5, atol=1e-3)


@given(
    arrays(
        np.float32, st.tuples(st.integers(1, 20), st.sampled_from([1, 2, 5])), elements=st.floats(-1e6, 1e6, width=32)
    ),
    st.floats(1e-6, 1e6),
)
def test_rows_sum_to_one_and_the_largest_score_stays_the_largest(scores: np.ndarray, scale: float) -> None:
    p = ScoreScaling(scale).probabilities(scores)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    assert (p[np.arange(len(p)), best] == p.max(axis=1)).all()


def test_log_loss_and_calibration_error_are_those_of_their_definitions() -> None:
    scores, codes = _rows(300, 4, 1.0)
    p, weight = softmax(scores), RNG.uniform(size=300)
    assert log_loss(p, codes, weight) == pytest.approx(reference_log_loss(codes, p, sample_weight=weight))
    error = 0.0
    for k in range(15):
        inside = (p.max(axis=1) >= k / 15) & (p.max(axis=1) < (k + 1) / 15)
        error += abs((weight * (p.max(axis=1) - (p.argmax(axis=1) == codes)))[inside].sum())
    assert calibration_error(p, codes, weight) == pytest.approx(error / weight.sum())
