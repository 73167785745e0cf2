"""The direct solver's factorization against SciPy's, over several blocks, and where it must add to the diagonal."""

import numpy as np
import pytest
import scipy.linalg

from daskkern.linalg import DenseSolution, NotPositiveDefiniteError, dense, solve_positive_definite


def _matrix(p: int, seed: int = 0) -> np.ndarray:
    B = np.random.default_rng(seed).standard_normal((p, p + 3))
    return B @ B.T / p


@pytest.mark.one_in(5)
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("p", [1, 2, 70, 1023, 1024, 1025, 1536, 1537, 2060])
def test_solutions_equal_scipys_in_one_block_and_in_several(p: int, c: int) -> None:
    A, b = _matrix(p), np.random.default_rng(1).standard_normal((p, c))
    expected = scipy.linalg.solve(A + 0.5 * np.eye(p), b, assume_a="pos")
    x, used = solve_positive_definite(A.copy(), b, 0.5, threads=1)
    assert used == 0.5
    np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_upper_half_survives_a_factorization() -> None:
    A = _matrix(1300)
    before = A.copy()
    assert dense.factor_lower(A)
    upper = np.triu_indices(1300, 1)
    np.testing.assert_array_equal(A[upper], before[upper])
    L = np.tril(A)
    np.testing.assert_allclose(L @ L.T, before, atol=1e-12)


def test_a_singular_matrix_gets_a_jitter_and_is_restored_before() -> None:
    v = np.random.default_rng(3).standard_normal((1200, 5))
    A, b = v @ v.T, v @ np.ones((5, 1))
    x, used = solve_positive_definite(A.copy(), b, 0.0, threads=2)
    assert 0 < used < 1e-8
    np.testing.assert_allclose(A @ x, b, rtol=0, atol=1e-5 * np.abs(b).max())


def test_an_indefinite_matrix_is_refused() -> None:
    A = np.diag([1.0, -1.0, 1.0])
    with pytest.raises(NotPositiveDefiniteError, match="not positive definite"):
        solve_positive_definite(A, np.ones((3, 1)), 0.0, threads=1)


def test_a_shift_that_nearly_cancels_what_rounding_made_negative_is_raised() -> None:
    rng = np.random.default_rng(0)
    U, _ = np.linalg.qr(rng.normal(size=(200, 200)))
    shift, b = 1e-4, rng.normal(size=(200, 1))
    A = (U * np.r_[np.linspace(1, 100, 198), -0.5 * shift, -0.9999 * shift]) @ U.T
    A = (A + A.T) / 2
    x, used = solve_positive_definite(A.copy(), b, shift, threads=1, most=1e-2)
    assert used > 1.5 * shift
    assert np.abs(x).max() < 1e5
    np.testing.assert_allclose((A + used * np.eye(200)) @ x, b, atol=1e-6)
    x, used = solve_positive_definite(A.copy(), b, shift, threads=1)
    assert used == pytest.approx(shift, rel=1e-2), "the largest jitter is not enough, and the factor exists"


@pytest.mark.parametrize("p", [1100, 2500])
def test_a_solution_that_is_begun_has_that_of_the_first_equations(p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "PIECE", 1e7)
    A, b = _matrix(p), np.random.default_rng(1).standard_normal((p, 2))
    solution = DenseSolution(A.copy(), b, 0.5, threads=1)
    assert not solution.begun
    sizes = set()
    while solution.advance():
        x, used = solution.leading()
        k = len(x)
        sizes.add(k)
        expected = scipy.linalg.solve(A[:k, :k] + 0.5 * np.eye(k), b[:k], assume_a="pos")
        np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-9)
        assert used == 0.5
    assert max(sizes) >= p - 1024 > 0
    x, used = solve_positive_definite(A.copy(), b, 0.5, threads=1)
    np.testing.assert_array_equal(solution.found()[0], x)
