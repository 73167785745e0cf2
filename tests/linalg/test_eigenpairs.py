"""Leading eigenpairs, and the lazy matrices that they are taken of."""

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Laplacian
from daskkern.linalg import eigen, lazy_gram_sum, lazy_kernel_matrix, top_eigenpairs


class Computes(Callback):
    """Counts how often dask computes anything in this process."""

    count = 0

    def _start(self, dsk: object) -> None:
        del dsk
        self.count += 1


def _rows(n: int, d: int = 6, seed: int = 0, dtype: str = "float64") -> HostArray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def _lazy(matrix: HostArray, chunk: int = 100) -> da.Array:
    return da.from_array(matrix, chunks=chunk)


@pytest.fixture(scope="module")
def decaying() -> HostArray:
    X = _rows(600)
    return Gaussian(3.0).block(X, X) / 600


def test_dense_pairs_are_those_of_numpy(decaying: HostArray) -> None:
    pairs = top_eigenpairs(_lazy(decaying), 40, method="dense")
    values, vectors = np.linalg.eigh(decaying)
    np.testing.assert_allclose(pairs.values, values[::-1][:40], rtol=1e-10)
    overlap = np.abs((pairs.vectors * vectors[:, ::-1][:, :40]).sum(axis=0))
    np.testing.assert_allclose(overlap[:20], 1, atol=1e-8)


def test_auto_is_dense_for_small_matrices(decaying: HostArray) -> None:
    auto, dense = (top_eigenpairs(_lazy(decaying), 5, method=method) for method in ("auto", "dense"))
    np.testing.assert_array_equal(auto.values, dense.values)
    np.testing.assert_array_equal(auto.vectors, dense.vectors)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("method", "accuracy"), [("krylov", 1e-3), ("rsvd", 0.3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_randomized_pairs_are_near_the_dense_ones(
    decaying: HostArray, method: str, accuracy: float, dtype: str
) -> None:
    exact = top_eigenpairs(_lazy(decaying), 40, method="dense")
    pairs = top_eigenpairs(_lazy(decaying.astype(dtype)), 40, method=method)
    np.testing.assert_allclose(pairs.values, exact.values, rtol=accuracy)
    assert (np.diff(pairs.values) <= 0).all()
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(40), atol=1e-10)
    residual = np.linalg.norm(decaying @ pairs.vectors - pairs.vectors * pairs.values, axis=0)
    assert residual[0] < 1e-3 * exact.values[0]


@pytest.mark.repeated
def test_krylov_is_more_accurate_than_the_plain_randomized_svd(decaying: HostArray) -> None:
    exact = top_eigenpairs(_lazy(decaying), 40, method="dense").values
    krylov, rsvd = (
        np.abs(top_eigenpairs(_lazy(decaying), 40, method=m).values / exact - 1).max() for m in ("krylov", "rsvd")
    )
    assert krylov < rsvd / 10


@pytest.mark.parametrize("method", ["krylov", "rsvd"])
def test_a_seed_gives_the_same_pairs_again_and_another_seed_the_same_values(decaying: HostArray, method: str) -> None:
    first, again, other = (top_eigenpairs(_lazy(decaying), 10, method=method, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.vectors, again.vectors)
    assert not np.array_equal(first.vectors, other.vectors)
    np.testing.assert_allclose(first.values, other.values, rtol=1e-4 if method == "krylov" else 0.1)


@pytest.mark.parametrize("method", ["dense", "krylov", "rsvd"])
@pytest.mark.parametrize("rank", [1, 4])
def test_a_matrix_of_low_rank_has_zeros_after_its_rank(method: str, rank: int) -> None:
    F = _rows(120, rank)
    matrix = F @ F.T
    pairs = top_eigenpairs(_lazy(matrix), 9, method=method)
    top = np.linalg.norm(matrix, 2)
    np.testing.assert_allclose(pairs.values, np.linalg.eigvalsh(matrix)[::-1][:9], atol=1e-10 * top)
    assert (pairs.values >= 0).all()
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(9), atol=1e-8)


@pytest.mark.parametrize("method", ["dense", "krylov", "rsvd"])
@settings(max_examples=6, deadline=None)
@given(s=st.integers(1, 60), share=st.floats(0, 1), chunk=st.integers(1, 70), seed=st.integers(0, 99))
def test_any_number_of_pairs_of_any_small_matrix_comes_back(
    method: str, s: int, share: float, chunk: int, seed: int
) -> None:
    q = max(1, round(share * s))
    X = _rows(s, 3, seed)
    matrix = Laplacian(2.0).block(X, X)
    pairs = top_eigenpairs(_lazy(matrix, chunk), q, method=method)
    assert (pairs.values.shape, pairs.vectors.shape) == ((q,), (s, q))
    if method != "rsvd" or s <= q + 10:  # the whole space was searched, or nearly so
        np.testing.assert_allclose(pairs.values, np.linalg.eigvalsh(matrix)[::-1][:q], rtol=1e-6, atol=1e-9)


def test_chunks_do_not_change_the_values(decaying: HostArray) -> None:
    whole, cut = (top_eigenpairs(_lazy(decaying, chunk), 15, method="krylov") for chunk in (600, 77))
    np.testing.assert_allclose(whole.values, cut.values, rtol=1e-9)


def test_impossible_pairs_are_refused(decaying: HostArray) -> None:
    for q in (0, 601):
        with pytest.raises(SpecError, match=f"got q={q} eigenpairs of a matrix of 600 rows"):
            top_eigenpairs(_lazy(decaying), q)
    with pytest.raises(SpecError, match="got eigen method 'lanczos'; expected 'auto', 'dense', 'krylov' or 'rsvd'"):
        top_eigenpairs(_lazy(decaying), 3, method="lanczos")


@pytest.mark.parametrize("chunk", [1000, 13])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_lazy_kernel_matrix_is_the_block(chunk: int, dtype: str) -> None:
    X, Z = _rows(40, dtype=dtype), _rows(29, seed=1, dtype=dtype)
    lazy = lazy_kernel_matrix(Laplacian(2.0), X, Z, chunk)
    assert (lazy.shape, lazy.dtype) == ((40, 29), np.dtype(dtype))
    np.testing.assert_allclose(lazy.compute(), Laplacian(2.0).block(X, Z), rtol=10 * np.finfo(dtype).eps)


def test_chunks_of_a_lazy_kernel_matrix_share_one_shift() -> None:
    X = (_rows(60) + 3000).astype(np.float32)
    expected = Gaussian(2.0).block(X.astype(np.float64), X.astype(np.float64))
    np.testing.assert_allclose(lazy_kernel_matrix(Gaussian(2.0), X, X, chunk=7).compute(), expected, atol=2e-5)


def test_nothing_is_computed_until_it_is_asked() -> None:
    X = _rows(50)
    with Computes() as computes:
        lazy = lazy_kernel_matrix(Gaussian(), X, X, chunk=20)
        scaled = lazy * np.ones(50)[:, None] / 50
        gram = lazy_gram_sum([lambda T: T / 0], np.array([[1]], dtype=object))
        assert computes.count == 0
        scaled.compute()
        assert computes.count == 1
        with pytest.raises(ZeroDivisionError):
            gram.compute()


@pytest.mark.parametrize(("method", "computes"), [("dense", 1), ("krylov", 7), ("rsvd", 3)])
def test_the_matrix_is_computed_as_often_as_promised_and_no_more(
    decaying: HostArray, method: str, computes: int
) -> None:
    with Computes() as seen:
        top_eigenpairs(_lazy(decaying), 40, method=method)
    assert seen.count == computes


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_gram_sums_equal_the_direct_formula(tasks: int) -> None:
    phi = _rows(97, 4)
    parts = [lambda T, rows=rows: (rows @ T).T @ (rows @ T) for rows in np.array_split(phi, tasks)]
    lazy = lazy_gram_sum(parts, np.eye(4))
    assert lazy.shape == (4, 4)
    with dask.config.set(scheduler="threads"):
        np.testing.assert_allclose(lazy.compute(), phi.T @ phi, rtol=1e-12)


@pytest.mark.parametrize(
    ("s", "q", "is_lazy", "method"),
    [
        (1200, 8, False, "krylov"),
        (1200, 8, True, "dense"),
        (1200, 100, False, "dense"),
        (999, 1, False, "dense"),
        (5000, 1000, True, "dense"),
        (5001, 5000, False, "krylov"),
    ],
)
def test_a_few_pairs_of_a_large_array_in_memory_take_no_whole_decomposition(
    s: int, q: int, is_lazy: bool, method: str
) -> None:
    assert eigen.eigen_method(s, q, is_lazy=is_lazy) == method


def test_a_few_pairs_are_the_first_of_many() -> None:
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((1200, 40)) * 0.8 ** np.arange(40)
    matrix = factor @ factor.T
    few, many = top_eigenpairs(matrix, 8), top_eigenpairs(matrix, 100)
    np.testing.assert_allclose(few.values, many.values[:8], rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(few.vectors * many.vectors[:, :8], axis=0)), 1, atol=1e-9)
