"""The scaling that a fit learns multiplies with the unit of every feature, whatever its values are like."""

import numpy as np
import pytest
import scipy.sparse

from daskkern.data.columns import ColumnStatistics, Moments, Scaling
from daskkern.data.learned_scaling import IGNORED, learned_scaling


def _statistics(X: object) -> ColumnStatistics:
    moments = Moments(X.shape[1])  # type: ignore[attr-defined]
    with np.errstate(over="ignore", invalid="ignore"):
        assert moments.update(X)  # type: ignore[arg-type]
    return moments.result()


def _learned(X: object, kind: str = "auto", centre: bool = True) -> Scaling:
    return learned_scaling(kind, _statistics(X), X, centre=centre)  # type: ignore[arg-type]


def _table(m: int = 1000) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.column_stack(
        [
            rng.normal(5, 2, m),
            rng.random(m) < 0.3,
            np.where(rng.random(m) < 0.01, rng.integers(1, 9, m), 0),
            rng.standard_cauchy(m) ** 3,
            np.full(m, 7.0),
            rng.exponential(size=m),
        ]
    )


def test_plain_features_are_standardised_two_values_keep_their_distance_and_one_value_never_counts() -> None:
    X = _table()
    scaling = _learned(X)
    assert scaling.scale[0] == pytest.approx(X[:, 0].std())
    assert scaling.shift[0] == pytest.approx(X[:, 0].mean())
    assert scaling.scale[1] == 0.5
    assert scaling.scale[4] == IGNORED
    assert scaling.scale[5] == pytest.approx(X[:, 5].std())
    scaled = scaling.apply(X, np.float64)
    assert (scaled[:, 4] == 0).all()
    other = scaling.apply(X + np.array([0, 0, 0, 0, 1e6, 0]), np.float64)
    np.testing.assert_allclose(other, scaled, atol=1e-20)


def test_rare_values_do_not_outweigh_all_else() -> None:
    scaled = _learned(_table()).apply(_table(), np.float64)
    assert scaled[:, 2].std() < 0.5  # divided by the standard deviation, rare values lie some 10 to 20 away
    assert np.ptp(scaled[:, 2]) < 6


def test_small_values_among_rare_ones_are_no_bulk() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((2000, 50)) < 0.03, 255 * rng.random((2000, 50)) ** 4, 0)
    for kind in ("auto", "robust"):
        assert np.abs(_learned(X, kind).apply(X, np.float64)).max() < 10


def test_no_pixel_outweighs_the_others_however_faint_its_rare_values_are() -> None:
    rng = np.random.default_rng(0)
    shares = np.concatenate([np.linspace(0.002, 0.12, 60), np.linspace(0.5, 0.7, 20)])
    faint = np.where(np.arange(80) % 3 == 0, 30.0, 2.0)  # exponents: large ones leave a few bright values
    X = np.where(rng.random((2000, 80)) < shares, rng.random((2000, 80)) ** faint, 0)
    X[:, 60:] = np.where(X[:, 60:] > 0, rng.random((2000, 20)), 0)
    for kind in ("auto", "robust"):
        moved = _learned(X, kind).apply(X, np.float64).var(axis=0)  # of the mean squared distance, each pixel's part
        assert moved.max() < 10 * moved.mean()


def test_extreme_tails_leave_the_bulk_its_resolution() -> None:
    X = _table()
    scaled = _learned(X).apply(X, np.float64)[:, 3]
    low, high = np.quantile(scaled, [0.25, 0.75])
    assert high - low == pytest.approx(1.349, rel=0.05)
    assert np.quantile(X[:, 3] / X[:, 3].std(), 0.75) < 0.05


@pytest.mark.parametrize("kind", ["auto", "robust"])
@pytest.mark.parametrize("unit", [1e-200, 1e-9, 3.0, 1e200])
def test_it_multiplies_with_the_unit_of_each_feature(kind: str, unit: float) -> None:
    X = _table()
    units = unit * np.array([1.0, 5.0, 0.2, 1e-3, 1.0, 7.0])
    plain, changed = _learned(X, kind), _learned(X * units, kind)
    expected = np.array(plain.scale) * np.where(np.arange(6) == 4, 1, units)
    # Squares that leave the range of float64 are replaced by the range: the scale is another, but as finite.
    if 1e-100 < unit < 1e100:
        np.testing.assert_allclose(changed.scale, expected, rtol=1e-9)
        shift = 1e3 * X.std(axis=0)
        np.testing.assert_allclose(_learned(X + shift, kind).scale, plain.scale, rtol=1e-6)
    assert np.isfinite(_learned(X * units, kind).apply(X * units, np.float64)).all()


def test_robust_takes_median_and_quartiles() -> None:
    X = _table()
    scaling = _learned(X, "robust")
    low, high = np.quantile(X[:, 0], [0.25, 0.75])
    assert scaling.scale[0] == pytest.approx((high - low) / 1.349, rel=0.02)
    assert scaling.shift[0] == pytest.approx(np.median(X[:, 0]))


def test_sparse_rows_get_the_scales_of_the_dense_table_and_keep_their_zeros() -> None:
    X = _table()
    rows = scipy.sparse.csr_array(X)
    sparse = _learned(rows, centre=False)
    np.testing.assert_allclose(sparse.scale, _learned(X).scale, rtol=1e-9)
    assert not sparse.shifts
    scaled = sparse.apply(rows, np.float64)
    assert scaled.nnz == rows.nnz
    np.testing.assert_allclose(scaled.toarray(), X / np.array(sparse.scale), rtol=1e-12)
