"""Conformal quantiles: ranks, coverage, and too few rows."""

import numpy as np
import pytest

from daskkern.calibration import absolute_errors, conformal_quantile, label_scores
from daskkern.errors import DataError, SpecError


def test_the_rank_is_that_of_one_row_more() -> None:
    scores = np.arange(1, 20.0)[:, None]  # 19 rows
    assert conformal_quantile(scores, 0.9) == [18]
    assert conformal_quantile(scores, 0.95) == [19]
    assert conformal_quantile(scores, 0.5) == [10]
    with pytest.raises(DataError, match=r"a confidence of 0.96 needs at least 24 calibration rows, but .* has 19"):
        conformal_quantile(scores, 0.96)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, -0.1, True, "0.9", float("nan")])
def test_a_confidence_is_a_number_between_0_and_1(confidence: object) -> None:
    with pytest.raises(SpecError, match="between 0 and 1"):
        conformal_quantile(np.ones((50, 1)), confidence)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9])
def test_coverage_over_draws_is_at_least_the_confidence_and_hardly_more(confidence: float) -> None:
    rng, n = np.random.default_rng(1), 29
    drawn = np.sort(rng.exponential(size=(20_000, n)), axis=1)
    new = rng.exponential(size=20_000)
    covered = np.mean([new[i] <= conformal_quantile(drawn[i][:, None], confidence)[0] for i in range(20_000)])
    assert confidence - 0.01 < covered < confidence + 1 / (n + 1) + 0.01


def test_scores_ascend() -> None:
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], np.float32)
    np.testing.assert_allclose(label_scores(p, np.array([0, 0, 1])), [[0.1], [0.5], [0.6]], rtol=1e-6)
    np.testing.assert_array_equal(absolute_errors(np.array([[-3.0, 1], [2, -4]])), [[2, 1], [3, 4]])
