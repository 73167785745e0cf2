"""Products of a block in memory with few columns: the compiled ones against NumPy in double precision."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.tiles import slices, tile_pool
from daskkern.kernels import plain_products
from daskkern.kernels.engines import block_products as products
from daskkern.kernels.engines.native import processor
from daskkern.linalg import column_blocks

pytestmark = pytest.mark.skipif(not processor(), reason="no compiled products on this processor")
each_dtype = pytest.mark.parametrize(("dtype", "accuracy"), [("float32", 2e-6), ("float64", 1e-14)])
MORE = 7  # columns of the array beyond the block


def _operands(m: int, p: int, c: int, dtype: str) -> tuple[HostArray, HostArray, HostArray]:
    """Return a block with what is no number around it, and factors for either side."""
    rng = np.random.default_rng(m + p + c)
    around = np.full((m, p + MORE), np.nan, dtype)
    around[:, :p] = rng.random((m, p))
    return around[:, :p], rng.standard_normal((p, c)).astype(dtype), rng.standard_normal((m, c)).astype(dtype)


def _agree(found: HostArray, left: HostArray, right: HostArray, accuracy: float) -> None:
    """Errors count beside the sum of all absolute terms."""
    wide, factor = left.astype(np.float64), right.astype(np.float64)
    scale = np.abs(wide) @ np.abs(factor)
    assert (np.abs(found - wide @ factor) <= accuracy * scale).all()


@each_dtype
@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 31) | st.integers(32, 150), p=st.integers(32, 300), c=st.integers(1, 14))
def test_products_are_those_of_numpy(dtype: str, accuracy: float, m: int, p: int, c: int) -> None:
    K, V, G = _operands(m, p, c, dtype)
    blocks = [slice(0, 32), slice(32, p)] if p >= 64 else [slice(0, p)]
    sums = products.multiply_blocks(K, V, blocks, np)
    assert sums.dtype == np.float64
    _agree(sums, K, V, accuracy)
    for found, left, right in ((products.multiply(K, V, np), K, V), (products.multiply_transposed(K, G, np), K.T, G)):
        assert found.dtype == dtype
        _agree(found, left, right, accuracy)


@each_dtype
def test_blocks_alone_decide_the_sums(dtype: str, accuracy: float) -> None:
    K, V, _ = _operands(60, 200, 10, dtype)
    blocks = [slice(0, 64), slice(64, 130), slice(130, 200)]
    whole = products.multiply_blocks(K, V, blocks, np)
    shares = [products.multiply_blocks(K[:, part], V[part], [slice(0, part.stop - part.start)], np) for part in blocks]
    np.testing.assert_array_equal(whole, sum(shares))
    _agree(whole, K, V, accuracy)


@pytest.mark.parametrize("c", [1, 10, 20])
@pytest.mark.parametrize("n_ranks", [2, 3, 7])
@pytest.mark.parametrize("plain", [False, True])
def test_what_a_rank_holds_does_not_change_a_bit(c: int, n_ranks: int, plain: bool) -> None:
    K, _, G = _operands(138, 720, c, "float32")
    damped, r, _ = _operands(720, 90, c, "float32")

    def both(rank: int, size: int) -> tuple[HostArray, HostArray]:
        layout = column_blocks(720, rank, size)
        mine, blocks = layout.columns(), layout.own_blocks
        pulled = products.multiply_transposed(np.ascontiguousarray(K[:, mine]), G, np, blocks)
        return pulled, products.multiply(damped[mine], r, np, blocks)

    with plain_products() if plain else nullcontext():
        whole = both(0, 1)
        for rank in range(n_ranks):
            mine = column_blocks(720, rank, n_ranks).columns()
            for part, every in zip(both(rank, n_ranks), whole, strict=True):
                np.testing.assert_array_equal(part, every[mine])


@pytest.mark.parametrize("c", [1, 10])
@pytest.mark.parametrize(("p", "n_head"), [(760, 0), (2000, 20), (500, 0)], ids=["31 and 32", "narrow head", "narrow"])
@pytest.mark.parametrize("n_ranks", [2, 3, 7])
def test_a_sum_over_blocks_is_the_same_whoever_has_them(p: int, n_head: int, n_ranks: int, c: int) -> None:
    K, V, _ = _operands(64, p, c, "float32")

    def share(rank: int, size: int) -> HostArray:
        layout = column_blocks(p, rank, size, n_head)
        mine = layout.columns()
        return products.multiply_blocks(np.ascontiguousarray(K[:, mine]), V[mine], layout.own_blocks, np)

    whole = share(0, 1)
    total = sum(share(rank, n_ranks) for rank in range(n_ranks))
    np.testing.assert_allclose(total, whole, rtol=0, atol=1e-14 * float(np.abs(K).sum(axis=1).max()))


def test_a_rank_without_columns_has_empty_products() -> None:
    nothing = np.zeros((40, 0), np.float32)
    assert products.multiply_transposed(nothing, np.zeros((40, 1), np.float32), np, ()).shape == (0, 1)
    assert products.multiply(nothing.T, np.zeros((40, 1), np.float32), np, ()).shape == (0, 1)


def test_a_part_of_a_block_without_columns_pulls_nothing() -> None:
    block = np.ones((64, 10), np.float32)
    for part in (slice(0, 0), slice(10, 10)):
        assert products.multiply_transposed(block[:, part], np.ones((64, 3), np.float32), np).shape == (0, 3)


def test_threads_do_not_change_a_bit() -> None:
    K, V, G = _operands(700, 5000, 10, "float32")
    blocks = [slice(start, start + 500) for start in range(0, 5000, 500)]
    alone = products.multiply_blocks(K, V, blocks, np), products.multiply_transposed(K, G, np)
    with ThreadPoolExecutor(3) as pool, tile_pool(pool, 4):
        together = products.multiply_blocks(K, V, blocks, np), products.multiply_transposed(K, G, np)
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", ["plain", "columns", "types", "gaps"])
def test_what_compiled_code_does_not_take_goes_to_blas(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    K, V, G = _operands(40, 96, 5, "float32")
    monkeypatch.setattr(products.skinny, "times", None)
    monkeypatch.setattr(products.skinny, "pull", None)
    blocks = [slice(0, 48), slice(48, 96)]
    if case == "columns":
        K, V, G = np.asfortranarray(K), V, G
    if case == "types":
        V, G = V.astype(np.float64), G.astype(np.float64)
    if case == "gaps":
        narrow = slices(96, 12)
        _agree(products.multiply_blocks(K, V, narrow, np), K, V, 2e-6)
        return
    if case == "plain":
        with plain_products():
            found = products.multiply_blocks(K, V, blocks, np), products.multiply_transposed(K, G, np)
    else:
        found = products.multiply_blocks(K, V, blocks, np), products.multiply_transposed(K, G, np)
    _agree(found[0], K, V, 2e-6)
    _agree(found[1], K.T, G, 2e-6)
