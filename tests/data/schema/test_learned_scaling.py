"""The scaling that a fit learns multiplies with the unit of every feature, whatever its values are like."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.column_statistics import ColumnStatistics, Moments
from daskkern.data.schema.learned_scaling import IGNORED, learned_scaling
from daskkern.errors import SpecError

RNG = np.random.default_rng


def _statistics(X: object) -> ColumnStatistics:
    moments = Moments(X.shape[1])  # type: ignore[attr-defined]
    with np.errstate(over="ignore", invalid="ignore"):
        assert moments.update(X)  # type: ignore[arg-type]
    return moments.result()


def _learned(X: object, kind: str = "auto", centre: bool = True, bend: bool = True) -> Scaling:
    return learned_scaling(kind, _statistics(X), X, centre=centre, bend=bend)  # type: ignore[arg-type]


def _table(m: int = 1000, seed: int = 0) -> np.ndarray:
    rng = RNG(seed)
    return np.column_stack(
        [
            rng.normal(5, 2, m),
            rng.random(m) < 0.3,
            np.where(rng.random(m) < 0.03, rng.integers(1, 9, m), 0),
            rng.standard_cauchy(m) ** 3,
            np.full(m, 7.0),
            rng.exponential(size=m),
        ]
    )


def test_unbent_features_are_standardised_two_values_keep_their_distance_and_one_value_never_counts() -> None:
    X = _table()
    scaling = _learned(X, bend=False)
    assert scaling.bend == ()
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
    assert scaled[:, 2].std() < 0.8  # divided by the standard deviation, rare values lie some 10 to 20 away
    assert np.ptp(scaled[:, 2]) < 7


def test_small_values_among_rare_ones_are_no_bulk() -> None:
    rng = RNG(0)
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
    scaled = _learned(X, bend=False).apply(X, np.float64)[:, 3]
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
    assert not sparse.shifts
    assert np.flatnonzero(sparse.bend).tolist() == [2]  # the one feature of many values whose common value is 0
    assert sparse.bend[2] == pytest.approx(_learned(X).bend[2])
    assert sparse.scale[2] == pytest.approx(_learned(X).scale[2])
    unbent = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(np.array(sparse.scale)[unbent], np.array(_learned(X, bend=False).scale)[unbent])
    scaled = sparse.apply(rows, np.float64)
    assert scaled.nnz == rows.nnz
    expected = X / np.array(sparse.scale)
    expected[:, 2] = sparse.bend[2] * np.arcsinh(expected[:, 2] / sparse.bend[2])
    np.testing.assert_allclose(scaled.toarray(), expected, rtol=1e-12)


def test_features_of_many_values_are_bent_to_the_spread_of_others_and_no_others_are() -> None:
    X = _table()
    scaling = _learned(X)
    assert np.flatnonzero(scaling.bend).tolist() == [0, 2, 3, 5]
    scaled = scaling.apply(X, np.float64)
    assert scaled[:, [0, 3, 5]].std(axis=0) == pytest.approx(np.ones(3))
    assert np.abs(scaled[:, 3]).max() < 10  # of values up to 1e8 widths away
    assert scaling.shift[2] == 0
    assert scaled[X[:, 2] == 0, 2].tolist() == [0.0] * int((X[:, 2] == 0).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bend_keeps_order_and_is_linear_near_the_centre(dtype: type) -> None:
    x = np.linspace(-50, 50, 1001, dtype=dtype)[:, None] + 3
    bent = Scaling("auto", (3.0,), (0.5,), (2.0,)).apply(x, dtype)
    assert (np.diff(bent[:, 0]) > 0).all()
    near = np.abs(x[:, 0] - 3) < 0.2
    np.testing.assert_allclose(bent[near], (x[near] - 3) / 0.5, rtol=0.01, atol=1e-5)
    assert bent.max() == pytest.approx(2 * np.arcsinh(50), rel=1e-5)
    assert bent.dtype == dtype


def test_some_columns_are_bent_and_given_rows_stay_as_they_are() -> None:
    X = RNG(0).standard_normal((20, 3))
    before, scaling = X.copy(), Scaling("auto", (0.0, 1.0, 0.0), (1.0, 2.0, 1.0), (0.0, 0.5, 0.0))
    scaled = scaling.apply(X, np.float64)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(scaled[:, 1], 0.5 * np.arcsinh((X[:, 1] - 1) / 2 / 0.5))
    np.testing.assert_array_equal(scaled[:, [0, 2]], X[:, [0, 2]])
    np.testing.assert_array_equal(scaling.apply(X.copy(), np.float64, overwrite=True), scaled)


@pytest.mark.parametrize("bend", [(1.0,), (1.0, -1.0), (1.0, np.inf), (1.0, np.nan)])
def test_a_bend_that_is_none_is_refused(bend: tuple[float, ...]) -> None:
    with pytest.raises(SpecError, match="bends that are not finite numbers"):
        Scaling("auto", (0.0, 0.0), (1.0, 1.0), bend)


@settings(max_examples=60, deadline=None)
@given(
    units=st.lists(st.floats(1e-6, 1e6), min_size=6, max_size=6),
    seed=st.integers(0, 50),
    kind=st.sampled_from(["auto", "robust"]),
)
def test_rescaled_features_become_the_same_numbers(units: list[float], seed: int, kind: str) -> None:
    X = _table(400, seed)
    changed = X * np.array(units)
    plain = _learned(X, kind).apply(X, np.float64)
    np.testing.assert_allclose(_learned(changed, kind).apply(changed, np.float64), plain, rtol=1e-7, atol=1e-9)
