"""A mean over trees is that of partitioned kernels, point by point and in all products, and is read as untrusted."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray, IntArray
from daskkern.basis.partition import partition_tree
from daskkern.data.rows.csr import append_column
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian, Laplacian, TreeAverage, from_spec

T = 3


def _rows(m: int = 90, seed: int = 0, dtype: str = "float64") -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, 5)).astype(dtype)


def _average(kernel: Any = None) -> TreeAverage:
    trees = tuple(partition_tree(_rows(), 12, 0, number) for number in range(T))
    return TreeAverage(kernel or Gaussian(2.0), trees, 5)


def _points(m: int = 100) -> tuple[HostArray, IntArray, HostArray]:
    Z, trees = _rows(m, 4), np.random.default_rng(5).integers(0, T, m)
    return Z, trees, append_column(Z, trees)


def _reference(kernel: TreeAverage, X: HostArray, Z: HostArray, trees: IntArray | None) -> HostArray:
    blocks = np.stack([member.block(X, Z) for member in kernel.members]) / T
    wanted: HostArray = blocks.sum(axis=0) if trees is None else blocks[trees, :, np.arange(len(Z))].T
    return wanted


def test_trees_differ() -> None:
    leaves = _average().leaves(_rows())
    assert leaves.shape == (90, T)
    together = [column[:, None] == column[None, :] for column in leaves.T]
    for a in range(T):
        for b in range(a):
            assert (together[a] & together[b]).sum() < 0.6 * together[a].sum()
    assert set(leaves[:, 0].tolist()).isdisjoint(leaves[:, 1].tolist())


@pytest.mark.parametrize("numbered", [True, False])
def test_products_are_those_of_the_block(numbered: bool) -> None:
    kernel, X, rng = _average(), _rows(70, 2), np.random.default_rng(3)
    Z, trees, points = _points()
    wanted = _reference(kernel, X, Z, trees if numbered else None)
    prepared = kernel.points(points if numbered else Z, kernel.placement_for(points))
    A, G, head = rng.standard_normal((100, 2)), rng.standard_normal((70, 3)), np.empty((70, 7))
    np.testing.assert_allclose(kernel.block(X, prepared), wanted, atol=1e-12)
    np.testing.assert_allclose(kernel.matvec(X, prepared, A, head), wanted @ A, atol=1e-12)
    np.testing.assert_allclose(head, wanted[:, :7], atol=1e-12)
    np.testing.assert_allclose(kernel.rmatvec(X, prepared, G), wanted.T @ G, atol=1e-12)
    np.testing.assert_allclose(kernel.double_product(X, prepared, A), wanted.T @ (wanted @ A), atol=1e-11)
    np.testing.assert_allclose(kernel.block(append_column(X, np.zeros(70, np.int64)), prepared), wanted, atol=1e-12)
    assert kernel.features_of(points) == 5


def test_the_mean_is_positive_definite_with_the_diagonal_of_the_kernel() -> None:
    kernel, X = _average(Laplacian(2.0)), _rows()
    K = kernel.block(X, X)
    np.testing.assert_array_equal(np.diagonal(K), kernel.diagonal(X))
    np.testing.assert_allclose(kernel.diagonal(X), 1)
    assert np.linalg.eigvalsh(K).min() > 0


def test_sparse_rows_have_the_values_of_dense_ones() -> None:
    kernel, X = _average(), _rows(60, 1, "float32")
    X[np.abs(X) < 0.8] = 0
    trees = np.arange(60) % T
    dense, sparse = append_column(X, trees), append_column(scipy.sparse.csr_array(X), trees)
    np.testing.assert_array_equal(sparse.toarray(), dense)
    np.testing.assert_array_equal(kernel.leaves(sparse), kernel.leaves(X))
    found = kernel.block(scipy.sparse.csr_array(X), kernel.points(sparse))
    np.testing.assert_allclose(found, kernel.block(X, kernel.points(dense)), atol=1e-6)


def test_gradients_are_those_within_leaves() -> None:
    kernel, (_, _, points) = _average(), _points()
    X, A, step = _rows(30, 2), np.random.default_rng(3).standard_normal((100, 2)), 1e-6
    found = kernel.gradient_matvec(X, points, A)
    weights = np.random.default_rng(6).uniform(0, 1, (30, 100))
    weighted = kernel.gradient_matvec(X, points, A, weights)
    by_hand = [kernel.gradient_matvec(X[k : k + 1], points, weights[k][:, None] * A)[0] for k in range(30)]
    np.testing.assert_allclose(weighted, np.array(by_hand), atol=1e-12)
    for k in range(5):
        there, here = X.copy(), X.copy()
        there[:, k] += step
        here[:, k] -= step
        wanted = (kernel.matvec(there, points, A) - kernel.matvec(here, points, A)) / (2 * step)
        np.testing.assert_allclose(found[:, :, k], wanted, atol=1e-6)


def test_centres_are_the_points_of_the_first_tree() -> None:
    kernel, (Z, trees, points) = _average(), _points()
    np.testing.assert_array_equal(kernel.centres(points), Z[trees == 0])
    np.testing.assert_array_equal(kernel.centres(Z), Z)


def test_a_spec_and_a_pickle_make_the_same_kernel() -> None:
    kernel, X, (_, _, points) = _average(), _rows(50, 7), _points()
    wanted = kernel.block(X, points)
    for again in (from_spec(json.loads(json.dumps(kernel.spec()))), pickle.loads(pickle.dumps(kernel))):
        assert isinstance(again, TreeAverage)
        np.testing.assert_array_equal(again.block(X, points), wanted)


@pytest.mark.parametrize(
    "changes", [{"trees": []}, {"trees": 3}, {"trees": [{}]}, {"n_features": 0}, {"n_features": "5"}, {"more": 1}]
)
def test_what_is_no_mean_over_trees_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        from_spec({**_average().spec(), **changes})


@pytest.mark.parametrize("number", [-1, T, 0.5, np.nan])
def test_points_of_no_tree_are_refused(number: float) -> None:
    points = np.column_stack([_rows(), np.full(90, number)])
    with pytest.raises(DataError, match="3 trees"):
        _average().points(points)
