"""The compiled sums of quotients: the same bits as their plain twin, for any numbers of rows, columns and features."""

import numpy as np
import pytest

from daskkern.kernels.engines import quotient_sums
from daskkern.kernels.engines.dispatch import plain_products
from daskkern.kernels.engines.quotient_sums import TERMS, sum_compiled, sum_plainly


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "p", "d"), [(1, 1, 1), (3, 17, 5), (4, 16, 9), (9, 70, 33)])
def test_both_twins_give_the_same_bits(term: str, dtype: str, m: int, p: int, d: int) -> None:
    rng = np.random.default_rng(m)
    X, Z = ((rng.random((n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype) for n in (m, p))
    X[0, 0], Z[0, 0] = np.finfo(dtype).max / 4, np.finfo(dtype).tiny / 8  # subnormal, and huge
    with np.errstate(over="ignore"):
        plain = sum_plainly(X, Z, term)
    found = sum_compiled(np.asfortranarray(X), Z, term)
    np.testing.assert_array_equal(found, plain)
    assert found.dtype == plain.dtype == dtype


def test_values_that_are_not_finite_are_found() -> None:
    X, Z = np.full((2, 3), np.nan), np.ones((5, 3))
    assert np.isnan(sum_compiled(X, Z, "chi_squared")).all()


def test_the_plain_twin_is_taken_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    X = np.ones((3, 2))
    monkeypatch.setattr(quotient_sums, "sum_compiled", refuse)
    with plain_products():
        np.testing.assert_array_equal(quotient_sums.quotient_sums(X, X, "harmonic"), np.full((3, 3), 2.0))
    with pytest.raises(AssertionError):
        quotient_sums.quotient_sums(X, X, "harmonic")
