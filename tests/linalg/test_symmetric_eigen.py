"""Eigenpairs of symmetric matrices are SciPy's, and other threads go on meanwhile."""

import threading

import numpy as np
import pytest
import scipy.linalg

from daskkern.linalg import symmetric_eigen


def _symmetric(s: int) -> np.ndarray:
    A = np.random.default_rng(s).standard_normal((s, s))
    return A + A.T


@pytest.mark.parametrize(("s", "first"), [(1, 0), (2, 1), (3, 0), (60, 0), (60, 59), (60, 40), (300, 240)])
def test_the_pairs_are_those_of_scipy(s: int, first: int) -> None:
    A = _symmetric(s)
    values, vectors = symmetric_eigen(A.copy(), first)
    want = scipy.linalg.eigh(A)[0][first:]
    np.testing.assert_allclose(values, want, rtol=0, atol=1e-12 * s)
    assert vectors.shape == (s, s - first)
    np.testing.assert_allclose(A @ vectors, vectors * values, rtol=0, atol=1e-12 * s)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(s - first), rtol=0, atol=1e-12 * s)


@pytest.mark.parametrize("first", [1, 12, 38, 43])
def test_pairs_of_kernels_of_rows_far_apart_are_complete(first: int) -> None:
    """LAPACK's search for some of the pairs misses or refuses many equal eigenvalues, of rows without neighbours."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.choice([0.0, 760.0, 770.0, 500.0], 48), rng.integers(0, 1000, 48)])
        A = (np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)) / 48).astype(np.float32).astype(np.float64)
        values, vectors = symmetric_eigen(A.copy(), first)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[first:], rtol=0, atol=1e-14)
        np.testing.assert_allclose(A @ vectors, vectors * values, rtol=0, atol=1e-14)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(48 - first), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["float32", "strided"])
def test_other_forms_are_taken_and_left_as_they_are(kind: str) -> None:
    A = _symmetric(20)
    given = A.astype(np.float32) if kind == "float32" else np.asfortranarray(np.repeat(A, 2, axis=0))[::2]
    before = given.copy()
    values, _ = symmetric_eigen(given)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(before.astype(np.float64)), rtol=0, atol=1e-12 * 20)
    np.testing.assert_array_equal(given, before)


def test_other_threads_go_on_meanwhile() -> None:
    A, counts, stop = _symmetric(700), [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.001):
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counts[0]
        symmetric_eigen(A)
        during = counts[0] - before
    finally:
        stop.set()
        thread.join()
    assert during >= 10, "the interpreter's lock was held"
