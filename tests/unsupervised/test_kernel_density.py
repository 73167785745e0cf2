"""Densities are scikit-learn's, and integrate to 1 where it has none."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
from scipy.special import gammaln, logsumexp
from sklearn.neighbors import KernelDensity as SklearnKernelDensity

import daskkern
from daskkern import KernelDensity, Landmarks
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Kernel, L1Laplacian, Laplacian, Matern, PowerLaplacian, RationalQuadratic
from daskkern.kernels.functions.cauchy import Cauchy
from daskkern.unsupervised import density_norms

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
NEW = RNG.standard_normal((80, 3)) * 2


@pytest.mark.parametrize(("ours", "theirs"), [("gaussian", "gaussian"), ("laplacian", "exponential")])
@pytest.mark.parametrize("weighted", [False, True])
def test_logarithms_are_scikit_learns(ours: str, theirs: str, weighted: bool) -> None:
    weight = RNG.uniform(0, 2, 300) if weighted else None
    expected = SklearnKernelDensity(bandwidth=0.4, kernel=theirs).fit(X, sample_weight=weight)
    fitted = KernelDensity(0.4, ours).fit(X, sample_weight=weight)
    np.testing.assert_allclose(fitted.score_samples(NEW), expected.score_samples(NEW), atol=0.01)
    assert fitted.score(NEW) == pytest.approx(expected.score(NEW), rel=1e-5)
    # In the tails scikit-learn's bounds lose digits, which the definition has.
    r = np.linalg.norm(NEW[:, None] - X[None], axis=2) / 0.4
    logs = logsumexp(-(r**2) / 2 if ours == "gaussian" else -r, axis=1, b=1.0 if weight is None else weight)
    norm = 1.5 * np.log(2 * np.pi) if ours == "gaussian" else np.log(8 * np.pi)
    total = 300 if weight is None else weight.sum()
    np.testing.assert_allclose(fitted.score_samples(NEW), logs - np.log(total) - norm - 3 * np.log(0.4), atol=1e-6)


def test_rows_far_from_all_others_have_finite_logarithms() -> None:
    far = np.array([[1e3, 0, 0], [0, -40, 0], [0.1, 0, 0]])
    expected = SklearnKernelDensity(bandwidth=0.1).fit(X).score_samples(far)
    assert expected[0] < -1e6
    for dtype in ("float64", "float32"):
        np.testing.assert_allclose(KernelDensity(0.1, dtype=dtype).fit(X).score_samples(far), expected, rtol=1e-4)


def test_rules_are_scikit_learns_on_rows_of_unit_spread() -> None:
    unit = X / X.std(axis=0)
    for rule in ("scott", "silverman"):
        expected = SklearnKernelDensity(bandwidth=rule).fit(unit)
        fitted = KernelDensity(rule, scale="standard").fit(X)
        assert fitted.bandwidth_ == pytest.approx(expected.bandwidth_)
        jacobian = np.log(X.std(axis=0)).sum()
        np.testing.assert_allclose(
            fitted.score_samples(NEW), expected.score_samples(NEW / X.std(axis=0)) - jacobian, atol=0.01
        )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(0.7), Laplacian(0.7), L1Laplacian(0.7), PowerLaplacian(0.7, p=1.5, q=1.2), Matern(0.7, nu=1.5),
        Matern(0.7, nu=2.5), RationalQuadratic(0.7, alpha=3.0), Gaussian([0.7, 0.3]),
        Gaussian([[0.7, 0.2], [0.0, 0.3]]),
    ],
    ids=repr,
)  # fmt: skip
def test_integrals_over_the_plane_are_those_of_quadrature(kernel: Kernel) -> None:
    axis = np.sinh(np.linspace(-5, 5, 801)) / 2  # fine at 0, where some kernels have a peak
    table = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    values = kernel.block(table, np.zeros((1, 2))).reshape(801, 801)
    whole = scipy.integrate.trapezoid(scipy.integrate.trapezoid(values, axis), axis)
    assert np.log(whole) == pytest.approx(density_norms.log_integral(kernel, np.ones(2, bool)), abs=3e-3)


def test_the_cauchy_density_is_known_on_the_line_only() -> None:
    assert density_norms.log_integral(Cauchy(2.0), np.ones(1, bool)) == pytest.approx(np.log(2 * np.pi))
    with pytest.raises(SpecError, match="integral is infinite"):
        density_norms.log_integral(Cauchy(2.0), np.ones(2, bool))


def test_constant_features_do_not_count() -> None:
    constant = np.column_stack([X, np.full(300, 7.0)])
    plain, other = KernelDensity().fit(X), KernelDensity().fit(constant)
    new = np.column_stack([NEW, np.full(80, 7.0)])
    np.testing.assert_allclose(other.score_samples(new), plain.score_samples(NEW), rtol=1e-9)
    drawn = other.sample(50)
    assert (drawn[:, 3] == 7).all()


def test_few_landmarks_stand_for_all_rows() -> None:
    many = RNG.standard_normal((3000, 2))
    exact = KernelDensity("scott").fit(many)
    few = KernelDensity("scott", basis=Landmarks(100)).fit(many)
    drawn = KernelDensity(exact.bandwidth_, scale=None).fit(many[RNG.choice(3000, 100)])
    p, q, r = (np.exp(each.score_samples(many)) for each in (exact, few, drawn))
    assert np.abs(q - p).mean() < 0.7 * np.abs(r - p).mean()  # than as many rows with equal weights
    assert few._points.weight.min() >= 0
    assert few._points.weight.sum() == pytest.approx(1)
    grid = np.stack(np.meshgrid(*[np.linspace(-8, 8, 161)] * 2), axis=-1).reshape(-1, 2)
    assert np.exp(few.score_samples(grid)).sum() * 0.1**2 == pytest.approx(1, abs=1e-3)


def test_a_store_of_points_is_streamed_for_each_block_of_rows(tmp_path: Path) -> None:
    many = np.tile(X, (30, 1))  # more points than are held at a time
    np.savez(tmp_path / "rows.npz", X=many * [1, 10, 100], y=np.arange(9000.0))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", scale="standard", shuffle=False)
    expected = KernelDensity(scale="standard").fit(many * [1, 10, 100]).score_samples(NEW * [1, 10, 100])
    fitted = KernelDensity().fit(str(tmp_path / "rows.zarr"))
    np.testing.assert_allclose(fitted.score_samples(NEW * [1, 10, 100]), expected, atol=1e-3)
    lazy = fitted.score_samples(da.from_array(NEW * [1, 10, 100], chunks=(33, 3)))
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-3)


def test_drawn_rows_have_the_moments_of_the_density() -> None:
    fitted = KernelDensity(0.5).fit(X * [1, 5, 1] + [0, 3, 0])
    drawn = fitted.sample(4000, random_state=1)
    np.testing.assert_allclose(drawn.mean(axis=0), (X * [1, 5, 1] + [0, 3, 0]).mean(axis=0), atol=0.3)
    np.testing.assert_allclose(drawn.var(axis=0), (X * [1, 5, 1]).var(axis=0) + 0.25, rtol=0.15)
    np.testing.assert_array_equal(fitted.sample(5, random_state=1), fitted.sample(5, random_state=1))
    with pytest.raises(SpecError, match="kernel='gaussian'"):
        KernelDensity(0.5, "laplacian").fit(X).sample()


def test_categories_have_no_densities() -> None:
    X = pd.DataFrame({"c": pd.Series(list("abcb") * 10).astype("category"), "x": np.linspace(0, 1, 40)})
    for kernel in ("gaussian", "laplacian_l1"):
        with pytest.raises(SpecError, match="column 'c' holds categories, and KernelDensity has densities of numbers"):
            KernelDensity(kernel=kernel).fit(X)
    with pytest.raises(SpecError, match="column 0 holds categories"):
        KernelDensity(kernel=L1Laplacian(1.0, categories=(0,))).fit(np.ones((5, 2)))


@pytest.mark.parametrize("kernel", [Gaussian(50.0), "gaussian:50"])
def test_a_length_scale_that_a_rule_would_replace_is_refused(kernel: Any) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(SpecError, match=r"length_scale=50.0\) with bandwidth='scott', which replaces its length scale"):
        KernelDensity(kernel=kernel).fit(X)
    assert KernelDensity(kernel=kernel, bandwidth=None).fit(X).bandwidth_ == 50.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_densities_of_far_rows_fall_with_the_distance(kernel: str, dtype: str) -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    far = np.array([[3.0, 0, 0], [30, 0, 0], [100, 0, 0], [1000, 0, 0]])
    found = KernelDensity(0.5, kernel=kernel, scale=None, dtype=dtype).fit(X).score_samples(far)
    nu, d = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[kernel], 3
    t = np.sqrt(2 * nu) * np.linalg.norm(far[:, None] - X, axis=2) / 0.5
    logs = np.log({0.5: np.ones_like(t), 1.5: 1 + t, 2.5: 1 + t + t**2 / 3}[nu]) - t
    norm = d * np.log(2) + d / 2 * np.log(np.pi / (2 * nu)) + gammaln(nu + d / 2) - gammaln(nu) + d * np.log(0.5)
    np.testing.assert_allclose(found, logsumexp(logs, axis=1) - np.log(200) - norm, rtol=1e-4)


@pytest.mark.parametrize("scale", ["always", "robust"])
def test_the_bandwidth_of_a_constant_feature_does_not_count(scale: str) -> None:
    X = np.random.default_rng(0).standard_normal((200, 2))
    wide = np.column_stack([X, np.full(200, 3.0)])
    expected = KernelDensity((0.5, 0.7), scale=scale).fit(X).score_samples(X[:5])
    found = KernelDensity((0.5, 0.7, 5.0), scale=scale).fit(wide).score_samples(wide[:5])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
