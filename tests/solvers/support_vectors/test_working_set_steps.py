"""Steps within a working set and sums of kernel rows: the compiled loops and their plain twins give the same bits."""

from copy import deepcopy

import numpy as np
import pytest

from daskkern.kernels import Gaussian
from daskkern.solvers.support_vectors import compiled_block, row_sums
from daskkern.solvers.support_vectors.block_problem import PAD, BlockProblem, solve_plainly

compiled_here = pytest.mark.skipif(not compiled_block.is_compilable(), reason="no code for this processor")


def _problem(edges: list[int], *, coupled: bool) -> BlockProblem:
    q = edges[-1]
    rng = np.random.default_rng(q)
    X = rng.normal(size=(q, 3))
    K = Gaussian(1.5).block(X, X)
    y = np.where(X[:, 0] + rng.normal(size=q) > 0, 1.0, -1.0)
    low, high = np.where(y > 0, 0.0, -2.0), np.where(y > 0, 2.0, 0.0)
    low[edges[1] - 3 : edges[1]] = high[edges[1] - 3 : edges[1]] = 0.0  # as padding is
    K[edges[1] - 1] = K[:, edges[1] - 1] = 0.0
    return BlockProblem(K, K.diagonal().copy(), low, high, np.zeros(q), -y, np.array(edges), coupled)


@compiled_here
@pytest.mark.parametrize(("edges", "coupled"), [([0, 64], True), ([0, 24, 64], True), ([0, 64], False)])
@pytest.mark.parametrize("most", [0, 7, 10_000])
def test_compiled_steps_are_the_plain_ones(edges: list[int], coupled: bool, most: int) -> None:
    assert all(edge % PAD == 0 for edge in edges)
    plain = _problem(edges, coupled=coupled)
    compiled = deepcopy(plain)
    expected = solve_plainly(plain, 1e-6, 1e-4, most)
    assert compiled_block.solve_compiled(compiled, 1e-6, 1e-4, most) == expected
    np.testing.assert_array_equal(compiled.b, plain.b)
    np.testing.assert_array_equal(compiled.g, plain.g)
    assert expected.count == most or expected.last <= 1e-4 * expected.first
    assert (plain.low <= plain.b).all()
    assert (plain.b <= plain.high).all()
    if coupled:
        sums = np.add.reduceat(plain.b, plain.edges[:-1])
        np.testing.assert_allclose(sums, 0, atol=1e-12)
    np.testing.assert_allclose(plain.g, _problem(edges, coupled=coupled).g + plain.K @ plain.b, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [3, 1024, 2501])
def test_sums_of_rows_are_those_of_float64(dtype: str, width: int) -> None:
    rng = np.random.default_rng(width)
    table = rng.normal(size=(9, width)).astype(dtype)
    slots, factors = np.array([7, 2, 2, 0]), rng.normal(size=4)
    found = row_sums.sum_rows(table, slots, factors)
    np.testing.assert_allclose(found, factors @ table[slots].astype(np.float64), rtol=1e-12, atol=1e-12)
    plain = np.zeros(width)
    row_sums.add_plainly(table, slots, factors, slice(0, width), plain)
    np.testing.assert_array_equal(plain, found)
