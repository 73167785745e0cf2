"""Rows of a kernel matrix in little memory: values, the memory itself, and how few values a solution computes."""

import tracemalloc

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.losses import Hinge
from daskkern.solvers.support_vectors import decomposition
from daskkern.solvers.support_vectors.box_problem import BoxProblem, BoxSolution
from daskkern.solvers.support_vectors.decomposition import solve_boxes
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.working_sets import expanded

N = 600


def _points(n: int = N, dtype: str = "float64") -> HostArray:
    return np.random.default_rng(0).normal(size=(n, 4)).astype(dtype)


def _kernel_rows(X: HostArray, most_rows: int, kernel: Kernel | None = None) -> KernelRows:
    kernel = kernel or Gaussian(2.0)
    placement, most = kernel.placement_for(X), most_rows * X.nbytes // X.shape[1]
    return KernelRows(kernel, X, lambda Z: kernel.points(Z, placement), X.dtype.name, most, 64)


def test_rows_keep_their_values_as_columns_are_left_out() -> None:
    X = _points()
    K, rows, chosen = Gaussian(2.0).block(X, X), _kernel_rows(X, 80), np.arange(40, 104)
    factors = np.random.default_rng(1).normal(size=64)
    rows.load(np.arange(30))
    rows.load(chosen)
    columns = np.arange(0, N)
    for step in (2, 3):
        columns = columns[::step]
        rows.take_columns(columns)
        computed = rows.computed
        rows.load(chosen)
        assert rows.computed == computed
        np.testing.assert_allclose(rows.combine(chosen, factors), factors @ K[np.ix_(chosen, columns)], atol=1e-12)
    rows.load(np.arange(200, 260))
    found = rows.combine(np.arange(200, 260), factors[:60])
    np.testing.assert_allclose(found, factors[:60] @ K[200:260][:, columns], atol=1e-12)
    rows.take_columns(None)
    rows.load(chosen)
    np.testing.assert_allclose(rows.combine(chosen, factors), factors @ K[chosen], atol=1e-12)


def test_columns_are_left_out_without_a_second_table() -> None:
    n, most = 3000, 1000
    rows = _kernel_rows(_points(n), most)
    tracemalloc.start()
    try:
        for part in range(0, most, 100):
            rows.load(np.arange(part, part + 100))
        before = tracemalloc.get_traced_memory()[1]
        rows.take_columns(np.arange(0, n, 2))
        assert tracemalloc.get_traced_memory()[1] - before < most * n * 8 / 20
    finally:
        tracemalloc.stop()


def test_scores_at_columns_are_sums_of_their_kernels() -> None:
    X = _points()
    rows, columns, chosen = _kernel_rows(X, 80), np.arange(1, N, 7), np.arange(0, N, 2)
    factors = np.random.default_rng(1).normal(size=chosen.size)
    expected = factors @ Gaussian(2.0).block(X, X)[np.ix_(chosen, columns)]
    np.testing.assert_allclose(rows.scores_at(columns, chosen, factors), expected, atol=1e-11)
    np.testing.assert_array_equal(rows.scores_at(columns, chosen[:0], factors[:0]), 0)


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian(3.0)])
def test_squares_are_symmetric_and_keep_values_of_the_last_one(kernel: Kernel) -> None:
    X = _points(dtype="float32")
    rows, K = _kernel_rows(X, 80, kernel), kernel.block(X, X)
    for chosen in (np.arange(0, 60, 2), np.arange(0, 60, 3), np.arange(0, 60, 3), np.arange(100, 130)):
        found, places = rows.square(chosen)
        found = found[np.ix_(places, places)]
        np.testing.assert_allclose(found, K[np.ix_(chosen, chosen)], rtol=1e-5)
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_array_equal(found.diagonal(), 1)


def test_a_square_of_all_rows_is_that_of_the_rows_in_memory() -> None:
    """A small problem is one working set: its kernel values are computed once."""
    X = _points(70, dtype="float32")
    kernel, everything = Laplacian(3.0), np.arange(70)
    rows, K = _kernel_rows(X, 70, kernel), kernel.block(X, X)
    rows.load(everything)
    found, places = rows.square(everything)
    assert rows.computed == 70**2
    np.testing.assert_array_equal(places, everything)
    np.testing.assert_array_equal(found, np.triu(K) + np.triu(K, 1).T)
    found[...] = 0  # it is a copy
    np.testing.assert_allclose(rows.combine(everything, np.ones(70)), K.sum(axis=0), rtol=1e-5)


def test_expanded_values_stand_between_zeros_for_padding() -> None:
    rng = np.random.default_rng(0)
    values, places, known = rng.random((90, 90), dtype=np.float32), rng.permutation(90), np.ones(104, bool)
    known[[0, 5, 50, 51, *range(94, 104)]] = False
    found = expanded(values, places, known)
    at = np.flatnonzero(known)
    expected = np.zeros((104, 104))
    expected[np.ix_(at, at)] = values[np.ix_(places, places)]
    np.testing.assert_array_equal(found, expected)


def _solved(
    dtype: str, C: float, monkeypatch: pytest.MonkeyPatch, noise: float = 1.0
) -> tuple[BoxSolution, HostArray, HostArray]:
    """Return the solution for noisy labels in working sets of 64 with memory for 80 rows, the signs, and the kernel."""
    monkeypatch.setattr(decomposition, "WORKING_SET", 64)
    X = _points(dtype=dtype)
    signs = np.where(X[:, 0] + noise * np.random.default_rng(1).normal(size=N) > 0, 1.0, -1.0)
    (box,) = Hinge().dual_boxes(signs[:, None])
    problem = BoxProblem(
        np.arange(N), -signs, C * box.low[:, 0], C * box.high[:, 0], np.zeros(N), np.zeros(N, np.int64)
    )
    return solve_boxes(problem, _kernel_rows(X, 80), 1e-3, 100_000), signs, Gaussian(2.0).block(X, X)


@pytest.mark.parametrize(("dtype", "C"), [("float64", 1.0), ("float32", 1.0), ("float32", 1e3)])
def test_scores_are_those_of_the_coefficients(dtype: str, C: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the changes of large coefficients have so much rounding that all scores are computed anew."""
    found, signs, K = _solved(dtype, C, monkeypatch)
    f = K.astype(np.float64) @ found.b
    rounding = np.finfo(dtype).eps * np.linalg.norm(found.b)
    np.testing.assert_allclose(found.f, f, atol=4 * rounding + 1e-10)
    assert found.violation <= 1e-3
    g = f - signs
    up, down = found.b < np.maximum(C * signs, 0), found.b > np.minimum(C * signs, 0)
    assert (-g[up]).max() - (-g[down]).min() <= 1e-3 + 8 * rounding


def test_the_end_of_a_solution_computes_the_changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel rows of all support vectors, at all columns, were computed once more at each check before."""
    rows_before = 0
    original = KernelRows.take_columns

    def noting(rows: KernelRows, columns: HostArray | None) -> None:
        nonlocal rows_before
        original(rows, columns)
        if columns is None:
            rows_before = rows.computed

    monkeypatch.setattr(KernelRows, "take_columns", noting)
    found = _solved("float64", 1.0, monkeypatch, noise=0.3)[0]
    support = np.count_nonzero(found.b)
    assert rows_before > 0
    assert found.n_values - rows_before < 0.5 * support * N


def test_scores_after_large_changes_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """From coefficients of 3333.3 to nearly 0: the rounding of the changes is much more than the scores at the end."""
    monkeypatch.setattr(decomposition, "WORKING_SET", 64)
    X, none, most = _points(dtype="float32"), np.zeros(N), np.full(N, 1e4 / 3)
    problem = BoxProblem(np.arange(N), none, none, most, most, np.zeros(N, np.int64), coupled=False)
    found = solve_boxes(problem, _kernel_rows(X, N), 1e-3, 1000)
    assert found.b.max() < 1e-6
    np.testing.assert_allclose(found.f, Gaussian(2.0).block(X, X).astype(np.float64) @ found.b, rtol=1e-9)
