"""The sharded, partly inverted Cholesky factor against SciPy's, on one rank and on several."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.kernels import Gaussian, Laplacian
from daskkern.linalg import (
    BlockCyclicFactor,
    NotPositiveDefiniteError,
    block_width,
    column_blocks,
    distributed_factor,
)
from daskkern.linalg.blas import subtract_product
from daskkern.linalg.joined_factor import joined_factor
from tests.support.threads import run_threads

each_size = pytest.mark.parametrize("size", [1, 2, 3])


@pytest.fixture(params=[1, 2])
def groups(request: pytest.FixtureRequest) -> int:
    """How many groups there are, of few columns as of many."""
    return int(request.param)


def _factor(K: HostArray, jitter: float, comm: Communicator, groups: int = 1) -> BlockCyclicFactor:
    layout = replace(column_blocks(len(K), comm.rank, comm.size), n_groups=groups)
    panels = [K[layout.blocks[k].start :, layout.blocks[k]].copy() for k in layout.own]
    return distributed_factor(panels, layout, jitter, comm)


def _solve(K: HostArray, h: HostArray, jitter: float, size: int, groups: int = 1) -> HostArray:
    """Return the solution put together from what each rank solved for its own columns."""

    def work(comm: Communicator) -> tuple[HostArray, HostArray]:
        factor = _factor(K, jitter, comm, groups)
        columns = factor.layout.columns()
        return columns, factor.solve(h[columns], comm)

    t = np.full_like(h, np.nan)
    for columns, part in run_threads(size, work):
        t[columns] = part
    return t


def _gram(p: int, dtype: str = "float64") -> HostArray:
    X = np.random.default_rng(0).standard_normal((p, 4)).astype(dtype)
    return Laplacian(2.0).block(X, X)


@settings(max_examples=60, deadline=None)
@given(p=st.integers(1, 30_000), size=st.integers(1, 9))
def test_column_blocks_partition_the_columns(p: int, size: int) -> None:
    layouts = [column_blocks(p, rank, size) for rank in range(size)]
    columns = np.concatenate([layout.columns() for layout in layouts])
    np.testing.assert_array_equal(np.sort(columns), np.arange(p))
    for layout in layouts:
        assert layout.columns().dtype == np.int64
        assert (np.diff(layout.columns()) > 0).all()
        assert max(block.stop - block.start for block in layout.blocks) <= 1024
    held = [layout.columns().size for layout in layouts]
    widest = max(block.stop - block.start for block in layouts[0].blocks)
    uneven = 32 * (len(layouts[0].blocks) // size + 1)  # blocks differ by a panel
    assert max(held) - min(held) <= widest + uneven
    assert min(held) > 0 or p < size * widest


@pytest.mark.parametrize("p", [1, 40, 97, 1000])
def test_the_blocks_do_not_depend_on_the_number_of_ranks(p: int) -> None:
    n_head = p // 3
    blocks = column_blocks(p, 0, 1, n_head).blocks
    assert all(column_blocks(p, 0, size, n_head).blocks == blocks for size in range(2, 25))
    assert not any(block.start < n_head < block.stop for block in blocks)


def test_blocks_are_many_but_not_narrow() -> None:
    assert [block_width(p, 3) for p in (8, 100, 512, 1000, 1536, 2400, 60_000)] == [1, 13, 64, 64, 64, 100, 1024]
    assert [block_width(p, 100) for p in (512, 6400, 60_000)] == [64, 64, 600], "one for each rank, if not narrow"


@each_size
@pytest.mark.parametrize("p", [1, 2, 5, 63, 200])
def test_solve_equals_a_cholesky_solve(size: int, p: int, groups: int) -> None:
    K = _gram(p)
    h = np.random.default_rng(1).standard_normal((p, 3))
    jitter = 1e-6
    expected = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K + jitter * np.eye(p)), h)
    np.testing.assert_allclose(_solve(K, h, jitter, size, groups), expected, rtol=1e-10, atol=1e-10)


@each_size
def test_solve_in_single_precision_leaves_a_small_residual(size: int, groups: int) -> None:
    K = _gram(150, "float32")
    h = np.random.default_rng(1).standard_normal((150, 2)).astype(np.float32)
    t = _solve(K, h, 1e-4, size, groups)
    assert t.dtype == np.float32
    assert np.linalg.norm(K @ t + 1e-4 * t - h) < 1e-3 * np.linalg.norm(h)


def test_any_number_of_ranks_gives_the_same_solution(groups: int) -> None:
    K, h = _gram(97), np.random.default_rng(1).standard_normal((97, 2))
    alone = _solve(K, h, 1e-8, 1, groups)
    for size in (2, 3):
        np.testing.assert_allclose(_solve(K, h, 1e-8, size, groups), alone, rtol=1e-11, atol=1e-11)


@each_size
@pytest.mark.parametrize("p", [3, 120])
def test_a_rank_holds_its_columns_of_the_factor_with_the_groups_diagonal_blocks_inverted(
    size: int, p: int, groups: int
) -> None:
    K = _gram(p)
    L = np.linalg.cholesky(K + 1e-8 * np.eye(p))
    for factor in run_threads(size, lambda comm: _factor(K, 1e-8, comm, groups)):
        blocks, parts = factor.layout.blocks, factor.layout.groups
        assert len(parts) == groups
        ends = {k: blocks[part.stop - 1].stop for part in parts for k in range(part.start, part.stop)}
        starts = {k: blocks[part.start].start for part in parts for k in range(part.start, part.stop)}
        for panel, k in zip(factor.panels, factor.layout.own, strict=True):
            block, rows = blocks[k], slice(starts[k], ends[k])
            inverse = np.linalg.inv(L[rows, rows])[block.start - rows.start :, _from(block, rows)]
            np.testing.assert_allclose(panel, np.concatenate([inverse, L[rows.stop :, block]]), atol=1e-9)


def _from(block: slice, rows: slice) -> slice:
    return slice(block.start - rows.start, block.stop - rows.start)


def test_a_rank_without_columns_takes_part() -> None:
    K, h = _gram(2), np.ones((2, 1))
    assert column_blocks(2, 2, 3).columns().size == 0
    np.testing.assert_allclose(_solve(K, h, 0.0, 3), np.linalg.solve(K, h), rtol=1e-12)


@each_size
@pytest.mark.parametrize("column", [0, 60, 118])
def test_a_matrix_that_is_not_positive_definite_is_refused_on_every_rank_alike(size: int, column: int) -> None:
    K = _gram(120)
    K[column + 1], K[:, column + 1] = K[column], K[:, column]  # two equal centres,
    K[column + 1, column + 1] = K[column, column] - 1e-3  # and worse

    def work(comm: Communicator) -> str:
        with pytest.raises(NotPositiveDefiniteError) as refusal:
            _factor(K, 0.0, comm)
        return str(refusal.value)

    sentences = set(run_threads(size, work, timeout_s=20))
    assert len(sentences) == 1
    assert "the matrix with a jitter of 0.0e+00 is not positive definite at column" in sentences.pop()


def test_jitter_makes_equal_centres_solvable() -> None:
    X = np.repeat(np.random.default_rng(0).standard_normal((20, 3)), 2, axis=0)
    K = Gaussian(1.0).block(X, X)
    h = np.repeat(np.random.default_rng(1).standard_normal((20, 1)), 2, axis=0)
    t = _solve(K, h, 1e-8, 2)
    np.testing.assert_allclose(K @ t, h, atol=1e-3)
    np.testing.assert_allclose(t[::2], t[1::2], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["row-major right", "transposed right", "strided out"])
def test_the_in_place_product_is_the_plain_one(dtype: str, layout: str) -> None:
    rng = np.random.default_rng(0)
    out, left = rng.standard_normal((30, 7)).astype(dtype), rng.standard_normal((30, 5)).astype(dtype)
    right = (
        rng.standard_normal((7, 5)).astype(dtype).T
        if "transposed" in layout
        else rng.standard_normal((5, 7)).astype(dtype)
    )
    expected = out - left @ right
    if layout == "strided out":
        wide = np.zeros((30, 20), dtype)
        wide[:, 3:10] = out
        out = wide[:, 3:10]
    subtract_product(out, left, right)
    np.testing.assert_allclose(out, expected, rtol=0, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("p", "n_groups"), [(1, 1), (40, 1), (90, 2), (300, 3)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_joined_groups_solve_the_same_with_the_same_messages(p: int, n_groups: int, size: int) -> None:
    K, h = _gram(p), np.random.default_rng(1).standard_normal((p, 3))

    def work(comm: Communicator, joins: bool) -> tuple[HostArray, HostArray]:
        factor = _factor(K, 1e-8, comm, n_groups)
        joined = joined_factor(factor, np, "float64")
        assert len(joined.groups) == len(factor.layout.groups)
        columns = factor.layout.columns()
        return columns, (joined if joins else factor).solve(h[columns], comm)

    expected, found, mixed = (np.full_like(h, np.nan) for _ in range(3))
    for t, joins in ((expected, [False] * size), (found, [True] * size), (mixed, [k % 2 == 0 for k in range(size)])):
        for columns, part in run_threads(size, lambda comm, joins=joins: work(comm, joins[comm.rank])):
            t[columns] = part
    for t in (found, mixed):  # ranks with panels, on CPUs, and ranks with joined ones may solve together
        np.testing.assert_allclose(t, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(K @ found + 1e-8 * found, h, rtol=0, atol=1e-7)
