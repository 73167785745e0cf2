"""Rows drawn by systematic sampling: how often each, in which order, whatever is read at a time."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.resampled import ResampledRows, chunk_masses
from daskkern.data.rows.rows import RowBlock, Rows
from daskkern.errors import DataError


def mass(block: RowBlock) -> FloatArray:
    assert block.weight is not None
    return block.weight


def drawn(rows: Rows, offset: float) -> ResampledRows:
    return ResampledRows(rows, chunk_masses(rows, mass), mass, offset)


def table(weight: HostArray, chunk_rows: int) -> ArrayRows:
    X = np.arange(2.0 * len(weight)).reshape(-1, 2)
    return ArrayRows(X, np.arange(len(weight), dtype=float), weight=weight, chunk_rows=chunk_rows)


@given(
    weight=st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 50.0]), min_size=1, max_size=60).filter(any),
    chunk_rows=st.integers(1, 20),
    offset=st.floats(0, 1, exclude_max=True),
    step=st.integers(1, 70),
)
@settings(deadline=None, max_examples=60)
def test_every_row_is_drawn_its_share_of_times(weight: list[float], chunk_rows: int, offset: float, step: int) -> None:
    w = np.array(weight)
    n, rows = len(w), table(w, chunk_rows)
    found = drawn(rows, offset)
    draws = found.originals(np.arange(n))
    assert (np.diff(draws) >= 0).all()
    share = n * w / w.sum()
    counts = np.bincount(draws, minlength=n)
    assert (counts >= np.floor(share - 1e-9)).all()
    assert (counts <= np.ceil(share + 1e-9)).all()
    parts = [found.read(start, min(start + step, n)) for start in range(0, n, step)]
    np.testing.assert_array_equal(np.concatenate([part.y[:, 0] for part in parts]), draws)
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), rows.read(0, n).X[draws])
    np.testing.assert_array_equal(np.concatenate([part.weight for part in parts]), w[draws])


def test_sparse_rows_are_drawn(rng: np.random.Generator) -> None:
    X = scipy.sparse.random_array((50, 9), density=0.3, rng=rng, dtype=np.float32).tocsr()
    rows = ArrayRows(X, np.arange(50.0), weight=rng.uniform(size=50), chunk_rows=7)
    found = drawn(rows, 0.3)
    draws = found.originals(np.arange(10, 40))
    np.testing.assert_array_equal(found.read(10, 40).X.toarray(), X.toarray()[draws])


def test_weights_that_are_all_zero_are_refused() -> None:
    rows = table(np.array([1.0, 2.0]), 2)
    with pytest.raises(DataError, match="weights that are all 0"):
        ResampledRows(rows, np.zeros(1), mass, 0.5)
