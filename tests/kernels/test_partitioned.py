"""A partitioned kernel is its kernel times the indicator of equal leaves, in all products, and is read as untrusted."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.basis.partition import partition_tree
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian, L1Laplacian, Laplacian, LinearKernel, Partitioned, PartitionTree, from_spec

KERNELS = {
    "gaussian": Gaussian(2.0),
    "laplacian": Laplacian(3.0),
    "l1": L1Laplacian(4.0),
    "linear": LinearKernel(),
    "a metric": Laplacian(1.0).weighted(np.random.default_rng(1).standard_normal((5, 3)), 2.0),
}


def _rows(m: int = 90, seed: int = 0, dtype: str = "float64") -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, 5)).astype(dtype)


def _partitioned(kernel: Any, leaf_rows: float = 12) -> Partitioned:
    return Partitioned(kernel, partition_tree(kernel.transform(_rows()), leaf_rows, 0))


def _reference(kernel: Partitioned, X: HostArray, Z: HostArray) -> HostArray:
    same = kernel.leaves(X)[:, None] == kernel.leaves(Z)[None, :]
    return kernel.kernel.block(X, Z) * same


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_those_of_the_masked_block(name: str) -> None:
    kernel = _partitioned(KERNELS[name])
    X, Z, rng = _rows(70, 2), _rows(90), np.random.default_rng(3)
    wanted = _reference(kernel, X, Z)
    assert 0 < np.count_nonzero(wanted) < wanted.size / 4
    A, G = rng.standard_normal((90, 2)), rng.standard_normal((70, 3))
    points = kernel.points(Z, kernel.placement_for(Z))
    head = np.empty((70, 7))
    np.testing.assert_allclose(kernel.block(X, points), wanted, atol=1e-12)
    np.testing.assert_allclose(kernel.matvec(X, points, A, head), wanted @ A, atol=1e-12)
    np.testing.assert_allclose(head, wanted[:, :7], atol=1e-12)
    np.testing.assert_allclose(kernel.rmatvec(X, points, G), wanted.T @ G, atol=1e-12)
    np.testing.assert_allclose(kernel.double_product(X, points, A), wanted.T @ (wanted @ A), atol=1e-11)
    np.testing.assert_allclose(kernel.diagonal(X), kernel.kernel.diagonal(X))
    np.testing.assert_array_equal(np.diagonal(kernel.block(X, X)), kernel.diagonal(X))


@pytest.mark.parametrize("name", ["gaussian", "l1"])
def test_sparse_rows_have_the_values_of_dense_ones(name: str) -> None:
    X = _rows(60, dtype="float32")
    X[np.abs(X) < 0.8] = 0
    kernel = _partitioned(KERNELS[name])
    sparse = scipy.sparse.csr_matrix(X)
    np.testing.assert_array_equal(kernel.leaves(sparse), kernel.leaves(X))
    np.testing.assert_allclose(kernel.block(sparse, sparse), kernel.block(X, X), atol=1e-6)


def test_gradients_are_those_within_leaves() -> None:
    kernel, Z = _partitioned(Gaussian(2.0)), _rows(90)
    X, A, step = _rows(30, 2), np.random.default_rng(3).standard_normal((90, 2)), 1e-6
    found = kernel.gradient_matvec(X, Z, A)
    for k in range(5):
        there, here = X.copy(), X.copy()
        there[:, k] += step
        here[:, k] -= step
        wanted = (kernel.matvec(there, Z, A) - kernel.matvec(here, Z, A)) / (2 * step)
        np.testing.assert_allclose(found[:, :, k], wanted, atol=1e-6)


def test_it_is_positive_definite() -> None:
    kernel, X = _partitioned(Laplacian(2.0)), _rows()
    assert np.linalg.eigvalsh(kernel.block(X, X)).min() > 0


@given(m=st.integers(1, 200), leaf_rows=st.integers(1, 60), d=st.integers(1, 4), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_leaves_are_small_where_rows_differ(m: int, leaf_rows: int, d: int, seed: int) -> None:
    X = np.random.default_rng(seed).standard_normal((m, d))
    tree = partition_tree(X, leaf_rows, seed)
    sizes = np.bincount(tree.leaves(X), minlength=tree.n_leaves)
    assert sizes.sum() == m
    assert sizes.max() <= max(leaf_rows, 1)
    assert sizes.min() >= 1
    if m > leaf_rows:
        assert sizes.min() >= leaf_rows // 4  # halves of halves


def test_a_row_has_its_leaf_in_any_company() -> None:
    X = _rows(300, dtype="float32")
    tree = partition_tree(X, 10, 0)
    whole = tree.leaves(X)
    np.testing.assert_array_equal(np.concatenate([tree.leaves(X[k : k + 1]) for k in range(300)]), whole)
    np.testing.assert_array_equal(tree.leaves(X[::-1]), whole[::-1])


def test_repeated_rows_stay_together() -> None:
    X = np.repeat(_rows(3), 40, axis=0)
    tree = partition_tree(X, 10, 0)
    assert tree.n_leaves == 3
    assert partition_tree(np.ones((50, 4)), 10, 0).n_leaves == 1


def test_a_feature_of_few_values_is_cut_between_them() -> None:
    X = np.repeat(np.arange(4.0), 25)[:, None]
    tree = partition_tree(X, 25, 0)
    assert tree.n_leaves == 4
    assert sorted((np.abs(tree.thresholds) % 1).tolist()) == [0.5, 0.5, 0.5]


def test_a_spec_makes_the_same_kernel() -> None:
    kernel = _partitioned(Laplacian(1.0).weighted(np.array([1.0, 2.0, 0.5, 1.0, 3.0]), 2.0))
    again = from_spec(json.loads(json.dumps(kernel.spec())))
    assert isinstance(again, Partitioned)
    X = _rows(200, 7, "float32")
    np.testing.assert_array_equal(again.leaves(X), kernel.leaves(X))
    np.testing.assert_array_equal(again.block(X, X), kernel.block(X, X))


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {"directions": [[1.0]]},
        {"directions": [[1.0]], "thresholds": [0.0], "children": [[-1, -1]]},
        {"directions": [[1.0]], "thresholds": [0.0], "children": [[0, -2]]},
        {"directions": [[1.0]], "thresholds": [0.0], "children": [[-1, -3]]},
        {"directions": [[1.0], [1.0, 2.0]], "thresholds": [0.0, 0.0], "children": [[1, -1], [-2, -3]]},
        {"directions": [[1.0]], "thresholds": ["x"], "children": [[-1, -2]]},
        {"directions": [[float("nan")]], "thresholds": [0.0], "children": [[-1, -2]]},
        {"directions": [[1.0]], "thresholds": [float("inf")], "children": [[-1, -2]]},
    ],
)
def test_a_damaged_tree_is_refused(tree: object) -> None:
    with pytest.raises(SpecError, match="tree"):
        from_spec({"name": "partitioned", "kernel": {"name": "laplacian", "length_scale": 1.0}, "tree": tree})


def test_what_cannot_be_combined_is_refused() -> None:
    kernel = _partitioned(Laplacian(2.0))
    with pytest.raises(SpecError, match="partitioned"):
        Partitioned(kernel, kernel.tree)
    with pytest.raises(DataError, match="5 features"):
        kernel.block(np.ones((2, 4)), kernel.points(_rows()))
    with pytest.raises(SpecError, match="not a binary tree"):
        PartitionTree(np.ones((2, 3)), np.zeros(1), np.array([[-1, -2]]))
