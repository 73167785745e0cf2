"""Landmarks by pivoted Cholesky: the distribution of the random rule, the greedy rule, and what both leave."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, LinearKernel, Polynomial
from daskkern.landmarks import IncompleteCholesky, LandmarkSelector, RPCholesky, Uniform
from daskkern.landmarks.pivots import PivotedFactor

KERNEL = Gaussian(1.0)


def _clusters(n: int = 600, seed: int = 0) -> HostArray:
    """Rows of which nine in ten lie close together, and the rest wide apart."""
    rng = np.random.default_rng(seed)
    near, far = 0.2 * rng.standard_normal((n - n // 10, 2)), 4 * rng.standard_normal((n // 10, 2))
    return rng.permutation(np.concatenate([near, far]))


def _residuals(K: HostArray, chosen: list[int]) -> HostArray:
    """Return the diagonal of what the columns `chosen` leave of K."""
    if not chosen:
        return K.diagonal().copy()
    C = K[:, chosen]
    return K.diagonal() - (C * np.linalg.solve(K[np.ix_(chosen, chosen)], C.T).T).sum(axis=1)


def _left(kernel: Gaussian, X: HostArray, Z: HostArray) -> float:
    """Return the share of the trace of K that the landmarks Z leave."""
    K, C, W = kernel.block(X, X), kernel.block(X, Z), kernel.block(Z, Z)
    return float(1 - np.trace(C @ np.linalg.pinv(W, rcond=1e-12) @ C.T) / np.trace(K))


def _select(selector: LandmarkSelector, X: HostArray, n: int, seed: int = 0, kernel: object = KERNEL) -> HostArray:
    chosen = selector.select(ArrayRows(X, dtype=np.float64), kernel, n, seed)  # type: ignore[arg-type]
    assert chosen.indices is not None
    return chosen.indices


@pytest.mark.repeated
@pytest.mark.one_in(3)
@pytest.mark.parametrize("candidates", [1, None])
def test_rows_are_drawn_with_the_probabilities_of_the_paper(candidates: int | None) -> None:
    X = np.array([[0.0], [0.1], [0.5], [1.5], [4.0]])
    K, draws, rows = KERNEL.block(X, X), 4000, ArrayRows(X, dtype=np.float64)
    expected: Counter[frozenset[int]] = Counter()
    for first, second in itertools.permutations(range(5), 2):
        after = _residuals(K, [first])
        expected[frozenset((first, second))] += 0.2 * after[second] / after.sum()  # type: ignore[assignment]
    # All five rows are the sample, and candidates suffice, so that the rest is almost never filled.
    found = Counter(
        frozenset(RPCholesky(10, candidates).select(rows, KERNEL, 2, seed).indices) for seed in range(draws)
    )  # type: ignore[arg-type]
    for pair, odds in expected.items():
        assert abs(found[pair] / draws - odds) < 5 * (odds * (1 - odds) / draws) ** 0.5 + 0.005


def test_a_factor_that_grows_has_the_residuals_of_the_definition() -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    K, factor, chosen = KERNEL.block(X, X), PivotedFactor(KERNEL, X, 12), []
    for numbers in (np.array([3, 5, 17]), np.array([1, 5, 20, 39]), np.arange(40)):
        block = factor.open(numbers)
        np.testing.assert_allclose(block.residuals, np.maximum(_residuals(K, chosen)[numbers], 0), atol=1e-10)
        for place in (0, 2):
            block.accept(place)
            chosen.append(int(numbers[place]))
            np.testing.assert_allclose(block.residuals, np.maximum(_residuals(K, chosen)[numbers], 0), atol=1e-10)
        factor.close(block)
        assert (factor.bounds >= _residuals(K, chosen) - 1e-10).all()
    assert factor.chosen.tolist() == chosen
    assert not factor.is_full


@pytest.mark.parametrize("n", [1, 7, 60])
def test_the_greedy_rule_is_that_of_the_textbook(n: int) -> None:
    X = np.random.default_rng(1).standard_normal((300, 3))
    kernel = Polynomial(3).resolve(X)  # of unequal diagonal: the first row is determined, too
    K, expected = kernel.block(X, X), list[int]()
    for _ in range(min(n, 20)):  # 20 is the rank
        expected.append(int(np.argmax(_residuals(K, expected))))
    found = _select(IncompleteCholesky(300), X, n, kernel=kernel)
    assert found.size == n
    assert set(expected) <= set(found.tolist())


@pytest.mark.parametrize("selector", [RPCholesky(), IncompleteCholesky()], ids=lambda s: s.name)
def test_less_of_the_kernel_matrix_is_left_than_by_uniform_landmarks(selector: LandmarkSelector) -> None:
    X = _clusters()
    ours = np.mean([_left(KERNEL, X, X[_select(selector, X, 40, seed)]) for seed in range(5)])
    uniform = np.mean([_left(KERNEL, X, X[_select(Uniform(), X, 40, seed)]) for seed in range(5)])
    assert ours < uniform * (0.33 if isinstance(selector, RPCholesky) else 0.8)


@pytest.mark.parametrize("selector", [RPCholesky(), IncompleteCholesky()], ids=lambda s: s.name)
def test_a_kernel_without_more_rank_is_filled_up(selector: LandmarkSelector) -> None:
    X = np.random.default_rng(2).standard_normal((100, 3))
    found = _select(selector, X, 30, kernel=LinearKernel())
    assert np.unique(found).size == 30
    assert np.linalg.matrix_rank(X[found]) == 3
    none = _select(selector, np.zeros((50, 2)) + np.arange(50)[:, None] * 1e-300, 5, kernel=LinearKernel())
    assert none.size == 5  # no residual at all


@pytest.mark.parametrize("selector", [RPCholesky(), IncompleteCholesky()], ids=lambda s: s.name)
def test_sparse_and_dense_rows_have_the_same_landmarks(selector: LandmarkSelector) -> None:
    X = scipy.sparse.random(200, 30, 0.2, "csr", np.float64, np.random.default_rng(3))
    sparse = _select(selector, X, 20)
    np.testing.assert_array_equal(sparse, _select(selector, X.toarray(), 20))


def test_the_sample_has_a_size() -> None:
    for kind in (RPCholesky, IncompleteCholesky):
        with pytest.raises(SpecError, match=f"got rows_each=0 for {kind.name} landmarks; give 1 or more"):
            kind(rows_each=0)
