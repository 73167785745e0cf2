"""CSR rows as users make them: places named twice, columns out of order, and parts that make no rows at all."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import Array, HostArray
from daskkern.errors import DataError
from daskkern.kernels import Gaussian, Laplacian, LinearKernel, Polynomial, plain_products

D = 70
KERNELS = [Gaussian(6.0), Laplacian(6.0), LinearKernel(), Polynomial(2, gamma=0.1), Gaussian(6.0) + LinearKernel()]


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test of this file with both engines."""
    if request.param == "plain":
        with plain_products():
            yield
    else:
        yield


def _messy(m: int, seed: int, dtype: str = "float64", like: type = scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return m rows with columns in any order, many of them several times; some rows are empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 90, m)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = like((rng.standard_normal(indptr[-1]).astype(dtype), rng.integers(0, D, indptr[-1]), indptr), shape=(m, D))
    assert not rows.has_canonical_format
    return rows


def _dense(rows: scipy.sparse.csr_array) -> HostArray:
    """Add up the entries one by one, in float64."""
    dense = np.zeros(rows.shape)
    for i in range(rows.shape[0]):
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            dense[i, rows.indices[at]] += rows.data[at]
    return dense


@pytest.mark.one_in(13)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("sides", ["X", "Z", "XZ"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_entries_of_one_place_are_added(kernel: Gaussian, sides: str, dtype: str) -> None:
    X, Z = _messy(40, 0, dtype), _messy(90, 1, dtype)
    dense_X, dense_Z = _dense(X), _dense(Z)
    left: Array = X if "X" in sides else dense_X.astype(dtype)
    right: Array = Z if "Z" in sides else dense_Z.astype(dtype)
    A, G = np.ones((90, 3), dtype), np.ones((40, 2), dtype)
    K = kernel.block(dense_X, dense_Z)
    close = {"rtol": 0, "atol": float(np.abs(K).max()) * (2e-5 if dtype == "float32" else 1e-12)}
    np.testing.assert_allclose(kernel.block(left, right), K, **close)
    close["atol"] *= 40
    np.testing.assert_allclose(kernel.matvec(left, right, A), K @ A, **close)
    np.testing.assert_allclose(kernel.rmatvec(left, right, G), K.T @ G, **close)


def test_a_product_of_messy_rows_with_themselves_and_its_diagonal() -> None:
    X = _messy(60, 2)
    kernel = Polynomial(2, gamma=0.1)
    K = kernel.block(_dense(X), _dense(X))
    np.testing.assert_allclose(kernel.block(X, X), K, rtol=1e-10)
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(K), rtol=1e-10)
    np.testing.assert_allclose(kernel.matvec(X, X, np.ones((60, 1))), K.sum(axis=1, keepdims=True), rtol=1e-10)


@pytest.mark.parametrize("like", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_the_callers_matrix_stays_as_it_was(like: type) -> None:
    X = _messy(30, 3, like=like)
    parts = (X.data, X.indices, X.indptr)
    copies = [part.copy() for part in parts]
    Gaussian(6.0).block(X, X)
    for now, part, copy in zip((X.data, X.indices, X.indptr), parts, copies, strict=True):
        assert now is part
        np.testing.assert_array_equal(part, copy)
    assert not X.has_canonical_format


def test_a_remembered_flag_that_is_wrong_is_not_believed() -> None:
    X = _messy(30, 4)
    X.has_canonical_format = True
    np.testing.assert_allclose(LinearKernel().block(X, X), _dense(X) @ _dense(X).T, rtol=0, atol=1e-10)


def test_small_integers_are_added_after_they_became_floats() -> None:
    X = scipy.sparse.csr_array((np.array([200, 100], np.uint8), [0, 0], [0, 2]), shape=(1, 1))
    assert LinearKernel().block(X, X)[0, 0] == 90_000


@given(entries=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(-3, 3)), max_size=30))
@settings(max_examples=30, deadline=None)
def test_any_list_of_places_makes_the_rows_of_its_sums(entries: list[tuple[int, int, int]]) -> None:
    entries.sort(key=lambda entry: entry[0])
    rows = np.array([row for row, _, _ in entries], int)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=5))])
    data = np.array([value for _, _, value in entries], float)
    X = scipy.sparse.csr_array((data, np.array([column for _, column, _ in entries], int), indptr), shape=(5, 6))
    np.testing.assert_array_equal(LinearKernel().block(X, X), _dense(X) @ _dense(X).T)


def _sound() -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(4), np.array([0, 2, 1, 4]), np.array([0, 2, 3, 4])), shape=(3, 5))


def _column(X: scipy.sparse.csr_array, column: int) -> None:
    X.indices[1] = column


def _start(X: scipy.sparse.csr_array, starts: list[int]) -> None:
    X.indptr[:] = starts


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda X: _column(X, 5), "column numbers reach from 0 to 5"),
        (lambda X: _column(X, -1), "column numbers reach from -1 to 4"),
        (lambda X: _start(X, [0, 3, 2, 4]), "indptr does not rise from 0 to at most its 4 entries"),
        (lambda X: _start(X, [1, 2, 3, 4]), "indptr does not rise from 0 to at most its 4 entries"),
        (lambda X: _start(X, [0, 2, 3, 9]), "indptr does not rise from 0 to at most its 4 entries"),
    ],
)
def test_parts_that_make_no_rows_are_refused(spoil: Callable[[scipy.sparse.csr_array], None], found: str) -> None:
    X, dense = _sound(), np.eye(2, 5)
    spoil(X)
    for left, right in ((X, dense), (dense, X), (X, X)):
        with pytest.raises(DataError, match=rf"sparse rows of shape \(3, 5\) cannot be read: {found}; construct"):
            Gaussian(2.0).block(left, right)


def test_rows_that_do_not_use_all_of_their_parts_are_read() -> None:
    X = _sound()
    expected = Gaussian(2.0).block(X, X)
    X.data, X.indices = np.append(X.data, np.nan), np.append(X.indices, np.int32(99))
    np.testing.assert_array_equal(Gaussian(2.0).block(X, X), expected)
