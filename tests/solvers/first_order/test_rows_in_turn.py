"""Steps on the rows of a batch, whose common factor is kept apart, are those on the arrays themselves."""

import numpy as np
import pytest

from daskkern.arrays import FloatArray
from daskkern.losses import Hinge
from daskkern.solvers.first_order.budget import least_term
from daskkern.solvers.first_order.row_by_row import Sequence

M, C = 12, 5


def _rows(rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    phi = rng.standard_normal((M, 7))
    return rng.standard_normal((M, C)), phi @ phi.T, np.sign(rng.standard_normal((M, C)))


@pytest.mark.parametrize("factors", [[1.0] * M, [0.0] + [0.9] * (M - 1), [0.5, 0.0] * (M // 2), [1e-30] * M])
@pytest.mark.parametrize("outputs", [None, [3, 1]])
def test_a_factor_kept_apart_changes_nothing(factors: list[float], outputs: list[int] | None) -> None:
    rng = np.random.default_rng(0)
    scores, gram, y = _rows(rng)
    rows, change, shrunk = Sequence(scores, gram, y, None), np.zeros((M, C)), 1.0
    for i, factor in enumerate(factors):
        row = slice(i, i + 1)
        np.testing.assert_allclose(rows.scores(row), scores[row], rtol=1e-12, atol=1e-300)
        delta = np.zeros((1, C))
        delta[:, outputs or slice(None)] = rng.standard_normal((1, len(outputs or range(C))))
        rows.step(row, factor, delta[:, outputs or slice(None)], outputs or slice(None))
        scores, change, shrunk = factor * scores + gram[:, row] @ delta, factor * change, factor * shrunk
        change[row] += delta
    np.testing.assert_allclose(rows.change, change, rtol=1e-12, atol=1e-300)
    assert rows.shrunk == pytest.approx(shrunk, abs=1e-300)
    rows.move(np.ones((1, C)), M - 1)
    np.testing.assert_allclose(rows.scores(slice(M - 1, M)), scores[M - 1 :] + 1, rtol=1e-12)


def test_of_equal_terms_the_oldest_is_the_least() -> None:
    terms = np.array([4.0, 2.0, 2.0 * (1 + 1e-13), 3.0, 2.0])
    assert [least_term(terms, newest) for newest in range(5)] == [1, 2, 4, 4, 1]


def test_the_gradient_is_that_of_the_shrunk_scores() -> None:
    scores, gram, y = _rows(np.random.default_rng(1))
    rows = Sequence(scores, gram, y, np.full((M, 1), 2.0))
    rows.step(slice(0, 1), 0.25, np.zeros((1, C)))
    later = slice(4, 9)
    np.testing.assert_allclose(rows.gradient(Hinge(), later), 2.0 * Hinge().gradient(scores[later] / 4, y[later]))
