"""One pass over all rows, on any number of ranks, against sums in memory."""

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import RowBlock
from daskkern.feature_learning.gradients import FittedFunction, OuterProduct, gradient_outer_product
from daskkern.feature_learning.metric import directions_for
from daskkern.feature_learning.passes import block_rows, mean_outer_product
from daskkern.kernels import Gaussian, L1Laplacian, ScaledDistanceKernel
from tests.support.threads import run_threads

N, D, P, C = 2300, 6, 15, 2
RNG = np.random.default_rng(0)
X, Z, A = RNG.standard_normal((N, D)), RNG.standard_normal((P, D)), RNG.standard_normal((P, C))
WEIGHT = RNG.uniform(0, 2, N)
PRODUCTS = {
    "diagonal": OuterProduct(True),
    "full": OuterProduct(),
    "sketch": OuterProduct(directions=directions_for(D, 2, 0)),
}


def _weights(block: RowBlock) -> HostArray | None:
    return None if block.weight is None else block.weight[:, None]


class Chunks(ArrayRows):
    """Rows of which a block is one chunk, as if they were wide."""

    row_bytes = 32 << 20


def _rows(
    values: Array, dtype: str = "float64", weight: HostArray | None = None, kind: type[Chunks] = Chunks
) -> Chunks:
    return kind(values, np.zeros((N, 1)), weight=weight, dtype=dtype, chunk_rows=100)


def _mean(
    ranks: int, values: Array, product: OuterProduct, dtype: str = "float64", kernel: ScaledDistanceKernel | None = None
) -> list[FloatArray]:
    function = FittedFunction(kernel or Gaussian(1.3), Z, A)

    def work(comm: Communicator) -> FloatArray | None:
        return mean_outer_product(function, product, _rows(values, dtype, WEIGHT), _weights, comm, np)

    found = run_threads(ranks, work)
    assert all(one is not None for one in found)
    return found


@pytest.mark.parametrize("name", PRODUCTS)
def test_it_is_the_mean_over_all_rows(name: str) -> None:
    product = PRODUCTS[name]
    expected = gradient_outer_product(
        Gaussian(1.3), X, Z, A, WEIGHT, diagonal=product.diagonal, directions=product.directions
    )
    for found in _mean(2, X, product):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_any_number_of_ranks_has_the_same_to_rounding_in_float64(name: str, dtype: str) -> None:
    alone = _mean(1, X, PRODUCTS[name], dtype)[0]
    for ranks in (2, 3, 30):  # of which some have no block
        several = _mean(ranks, X, PRODUCTS[name], dtype)
        for one in several:
            np.testing.assert_array_equal(one, several[0])
        np.testing.assert_allclose(several[0], alone, rtol=1e-12, atol=1e-12 * np.abs(alone).max())


@pytest.mark.parametrize("kernel", [Gaussian(1.3), L1Laplacian(2.0)], ids=lambda kernel: kernel.name)
def test_sparse_rows_have_the_diagonal_of_dense_ones(kernel: ScaledDistanceKernel) -> None:
    rows = X * (X > 0.7)
    dense = _mean(1, rows, OuterProduct(True), kernel=kernel)[0]
    found = _mean(2, scipy.sparse.csr_array(rows), OuterProduct(True), kernel=kernel)[0]
    np.testing.assert_allclose(found, dense, rtol=1e-9)


def test_a_rank_that_is_asked_to_stop_stops_all() -> None:
    def work(comm: Communicator) -> FloatArray | None:
        function = FittedFunction(Gaussian(1.3), Z, A)
        stop = comm.rank == 1
        return mean_outer_product(function, OuterProduct(), _rows(X), _weights, comm, np, lambda: stop)

    assert run_threads(2, work) == [None, None]


def test_blocks_are_whole_chunks_and_no_more_than_a_few_are_read_ahead() -> None:
    read: list[slice] = []

    class Watched(Chunks):
        def _read_features(self, start: int, stop: int) -> Array:
            read.append(slice(start, stop))
            return super()._read_features(start, stop)

    rows = _rows(X, kind=Watched)
    assert block_rows(rows) == 100
    mean_outer_product(FittedFunction(Gaussian(1.3), Z, A), OuterProduct(), rows, _weights, SerialCommunicator(), np)
    assert read == [slice(start, min(start + 100, N)) for start in range(0, N, 100)]
