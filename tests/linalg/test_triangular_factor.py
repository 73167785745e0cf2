"""The Cholesky factor that all ranks make together and each has whole, against SciPy's."""

import numpy as np
import pytest
import scipy.linalg

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.kernels import Laplacian
from daskkern.linalg import LowerFactor, NotPositiveDefiniteError, cholesky, column_blocks
from tests.support.threads import run_threads


def _gram(p: int) -> HostArray:
    X = np.random.default_rng(0).standard_normal((p, 4))
    return Laplacian(2.0).block(X, X)


def _factor(K: HostArray, comm: Communicator, jitter: float = 1e-8) -> LowerFactor:
    layout = column_blocks(len(K), comm.rank, comm.size)
    panels = [K[layout.blocks[k].start :, layout.blocks[k]].copy() for k in layout.own]
    return cholesky(panels, layout, jitter, comm, K.dtype.name)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 5, 130])
def test_every_rank_has_the_factor_and_its_solves(p: int, size: int) -> None:
    K, b = _gram(p), np.random.default_rng(1).standard_normal((p, 3))
    L = np.linalg.cholesky(K + 1e-8 * np.eye(p))
    for factor in run_threads(size, lambda comm: _factor(K, comm)):
        np.testing.assert_allclose(factor.times(b), L @ b, atol=1e-12)
        np.testing.assert_allclose(factor.solve(b), scipy.linalg.solve_triangular(L, b, lower=True), rtol=1e-8)
        np.testing.assert_allclose(
            factor.solve_transposed(b), scipy.linalg.solve_triangular(L, b, lower=True, trans=1), rtol=1e-8
        )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_ranks_panels_of_the_gram_matrix_are_those_of_the_formula(size: int) -> None:
    p = 130
    K, scale = _gram(p), np.random.default_rng(2).uniform(0.5, 2, (p, 1))
    L = np.linalg.cholesky(K + 1e-8 * np.eye(p))
    wanted = L.T @ (scale * L)

    def work(comm: Communicator) -> list[tuple[slice, HostArray]]:
        layout = column_blocks(p, comm.rank, comm.size)
        panels = _factor(K, comm).gram_panels(layout, scale)
        return [(layout.blocks[k], panel) for k, panel in zip(layout.own, panels, strict=True)]

    found = [pair for pairs in run_threads(size, work) for pair in pairs]
    assert sum(block.stop - block.start for block, _ in found) == p
    for block, panel in found:
        np.testing.assert_allclose(panel, wanted[block.start :, block], atol=1e-12)


def test_a_matrix_that_is_not_positive_definite_is_told_on_every_rank() -> None:
    K = _gram(60) - 2 * np.eye(60)
    with pytest.raises(NotPositiveDefiniteError, match="jitter"):
        run_threads(2, lambda comm: _factor(K, comm))


def test_one_and_many_ranks_make_the_same_bits() -> None:
    K = _gram(200).astype("float32")
    alone, *others = [f for size in (1, 2, 3) for f in run_threads(size, lambda comm: _factor(K, comm, 1e-5))]
    for other in others:
        for a, b in zip(alone.panels, other.panels, strict=True):
            np.testing.assert_array_equal(np.tril(a), np.tril(b))
