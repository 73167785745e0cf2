"""Independent draws: their law, their order, and the same rows whatever is read at a time."""

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.row_samplers import IndependentRows


def _rows(n: int, chunk_rows: int) -> ArrayRows:
    X = np.arange(2.0 * n).reshape(-1, 2)
    return ArrayRows(X, np.arange(n, dtype=float), weight=np.arange(1.0, n + 1), chunk_rows=chunk_rows)


def test_counts_of_rows_are_those_of_independent_draws() -> None:
    n, epochs = 40, 500
    rows = _rows(n, 7)
    counts = np.array(
        [np.bincount(IndependentRows(rows, 3, epoch).originals(np.arange(n)), minlength=n) for epoch in range(epochs)]
    )
    assert (counts.sum(axis=1) == n).all()
    # A row is drawn Binomial(n, 1/n) times an epoch, a stretch of 7 rows Binomial(n, 7/n) times.
    assert scipy.stats.chisquare(counts.sum(axis=0)).pvalue > 1e-3
    assert counts.var() == pytest.approx(1 - 1 / n, rel=0.05)
    assert counts[:, :7].sum(axis=1).var() == pytest.approx(7 * (1 - 7 / n), rel=0.2)
    assert len({tuple(row) for row in counts.tolist()}) == epochs


@pytest.mark.parametrize("step", [1, 9, 50])
def test_any_reads_give_the_same_ascending_draws(step: int) -> None:
    n, rows = 50, _rows(50, 12)
    found = IndependentRows(rows, 0, 1)
    draws = found.originals(np.arange(n))
    assert (np.diff(draws) >= 0).all()
    parts = [found.read(start, min(start + step, n)) for start in range(0, n, step)]
    np.testing.assert_array_equal(np.concatenate([part.y[:, 0] for part in parts]), draws)
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), rows.read(0, n).X[draws])
    np.testing.assert_array_equal(np.concatenate([part.weight for part in parts]), draws + 1.0)


def test_sparse_rows_are_drawn_and_decoded(rng: np.random.Generator) -> None:
    X = scipy.sparse.random_array((50, 9), density=0.3, rng=rng, dtype=np.float32).tocsr()
    found = IndependentRows(ArrayRows(X, np.arange(50.0), chunk_rows=7), 0, 0)
    draws = found.originals(np.arange(10, 40))
    block = found.encoded().read(10, 40)
    np.testing.assert_array_equal(found.decoded(block.X).toarray(), X.toarray()[draws])
