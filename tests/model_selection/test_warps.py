"""Warps stretch features where a function changes, find thresholds, and know nothing of held-out rows."""

import numpy as np
import pytest

from daskkern.arrays import FloatArray
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.rank_tables import RankTable
from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.candidates import KernelCandidate, warped
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.fits import fits_with
from daskkern.model_selection.ridge_trials import learned_kernel, try_kernel
from daskkern.model_selection.samples import SearchSample, draw_sample
from daskkern.model_selection.warped_features import Warp, knots_of, warp_of
from tests.support.searches import usual


def _rows(n: int = 400, d: int = 3) -> FloatArray:
    return np.random.default_rng(0).uniform(-1, 1, (n, d))


def _base(d: int) -> Scaling:
    return Scaling("standard", (0.0,) * d, (1.0,) * d)


def _warp(squares: FloatArray, X: FloatArray, base: Scaling | None = None, **parameters: object) -> Warp:
    base = base or _base(X.shape[1])
    return warp_of(squares, X, None, knots_of(X), base, base, **parameters)  # type: ignore[arg-type]


def _parity(n: int = 400, d: int = 5) -> SearchSample:
    X = np.random.default_rng(1).standard_normal((n, d))
    y = (X[:, :2].prod(axis=1) > 0).astype(np.int64)
    source = array_source(X, y, None, np.arange(2))
    return draw_sample(source, usual(source), n, ("affine",))


def test_a_function_that_changes_as_much_everywhere_has_the_weights_of_its_features() -> None:
    X = _rows()
    found = _warp(np.ones_like(X) * [4.0, 1.0, 1.0], X)
    Z = found.scaling.apply(X, np.float64)
    slopes = [np.ptp(Z[:, j]) / np.ptp(X[:, j]) for j in range(3)]
    np.testing.assert_allclose(slopes, np.sqrt(np.array([4, 1, 1]) / 2), rtol=1e-6)
    for j in range(3):
        assert np.corrcoef(X[:, j], Z[:, j])[0, 1] > 1 - 1e-9
    np.testing.assert_array_equal(found.weights, 1)


def test_a_feature_is_stretched_where_the_function_changes() -> None:
    X = _rows()
    squares = np.ones_like(X)
    squares[:, 0] = np.where(np.abs(X[:, 0] - 0.5) < 0.1, 100.0, 0.1)
    found = _warp(squares, X).scaling

    def slope(x: float) -> float:
        ends = np.array([[x - 0.05, 0, 0], [x + 0.05, 0, 0]])
        return float(np.diff(found.apply(ends, np.float64)[:, 0])[0])

    assert slope(0.5) > 5 * slope(-0.5) > 0


def test_a_second_warp_is_of_the_first_coordinates_of_its_rows() -> None:
    X = _rows()
    base = _base(3)
    once = _warp(np.ones_like(X) * [4.0, 1.0, 1.0], X).scaling
    # The same function has half the derivative by a feature that is stretched twice.
    scaled = np.ones_like(X) * [4.0 / 2, 1.0 / 0.5, 1.0 / 0.5]
    twice = warp_of(scaled, X, None, knots_of(X), base, once).scaling
    np.testing.assert_allclose(twice.apply(X, np.float64), once.apply(X, np.float64), rtol=1e-6, atol=1e-9)


def test_codes_and_constant_features_have_no_warp() -> None:
    X = np.column_stack([_rows(d=2), np.arange(400) % 3, np.full(400, 7.0)])
    base = Scaling("standard", (0.0,) * 4, (1.0, 1.0, 1.0, 1e30))
    found = _warp(np.ones((400, 4)), X, base, codes=(2,))
    assert [table.column for table in found.scaling.ranks] == [0, 1]
    np.testing.assert_array_equal(found.scaling.apply(X, np.float64)[:, 2], X[:, 2])
    assert found.weights[2] == pytest.approx(1.0)


def test_values_that_repeat_are_knots_and_count_for_the_cells_on_both_sides() -> None:
    x = np.repeat([0.0, 1.0, 2.0], 100)
    X = np.column_stack([x, _rows(300, 1)])
    squares = np.column_stack([np.where(x == 2, 9.0, 0.0), np.ones(300)])
    (table, _) = _warp(squares, X).scaling.ranks
    assert table.values == (0.0, 1.0, 2.0)
    first, second = np.diff(table.ranks)
    assert second > 2 * first > 0


@pytest.mark.parametrize("value", [0.0, np.inf])
def test_a_function_without_finite_derivatives_leaves_the_scaling(value: float) -> None:
    X = _rows()
    found = _warp(np.full_like(X, value), X)
    assert found.scaling == _base(3)
    np.testing.assert_array_equal(found.weights, 1)


def test_rows_that_were_never_scaled_are_warped_too() -> None:
    X = _rows()
    found = _warp(np.ones_like(X), X, Scaling())
    assert found.scaling.kind == "warped"
    assert len(found.scaling.ranks) == len(found.scaling.scale) == 3


def test_other_tables_and_bends_of_the_base_are_kept_for_features_without_a_warp() -> None:
    X = _rows()
    ranks = (RankTable(1, (-1.0, 1.0), (0.0, 5.0)),)
    base = Scaling("ranks", (0.0,) * 3, (1.0,) * 3, (0.0, 0.0, 0.5), ranks)
    found = _warp(np.ones_like(X), X, base, codes=(1, 2)).scaling
    np.testing.assert_allclose(found.apply(X, np.float64)[:, 1:], base.apply(X, np.float64)[:, 1:])


@pytest.mark.parametrize("kernel", ["laplacian_l1", "gaussian"])
def test_warps_find_the_parity_of_signs(kernel: str) -> None:
    sample = _parity()
    folds = [sample.folds(3, 0.25)]
    weighted, by_warps = (
        try_kernel(KernelCandidate(kernel, 1.0, "affine", metric), sample, folds) for metric in ("diagonal", "warped")
    )
    assert by_warps.held.mean < 0.6 * weighted.held.mean
    assert by_warps.held.error < weighted.held.error


def test_a_fit_has_the_warp_and_the_loss_of_the_trial_of_its_kernel() -> None:
    sample = _parity(200)
    folds = sample.folds(3, 0.25)
    candidate = KernelCandidate("laplacian_l1", 1.0, "affine", "warped")
    outcome = try_kernel(candidate, sample, [folds])
    known = len(sample.recent)
    kernel = learned_kernel(candidate, sample, outcome)
    source = array_source(sample.X, sample.raw_y.ravel(), None, np.arange(2))
    (exact,), _ = fits_with([(candidate, outcome, kernel)], usual(source), 200, 133, "auto", 200)
    assert isinstance(exact.settings.scale, Scaling)
    assert exact.settings.scale.kind == "warped"
    of_all = len(sample.recent) - known
    found = try_fit(exact, sample, folds)
    np.testing.assert_allclose(found.held.mean, outcome.held.mean, rtol=0.05)
    assert len(sample.recent) - known == of_all  # those of the folds were learned in the trial of the kernel


def test_warps_are_for_dense_rows_and_kernels_with_cheap_gradients() -> None:
    plain = KernelCandidate("gaussian", 1.0, "affine")
    assert [one.metric for one in warped(plain, _rows())] == ["warped"]
    assert "warped" in warped(plain, _rows())[0].name
    assert warped(KernelCandidate("additive_laplacian", 1.0, "affine"), _rows()) == []
