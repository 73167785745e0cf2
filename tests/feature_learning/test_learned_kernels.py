"""Learned metrics: what they find, what they refuse to find, and what they depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import FloatArray
from daskkern.errors import DataError, SpecError
from daskkern.feature_learning import Candidate, FeatureLearning, TrainingSample, learn_kernel, parse_feature_learning
from daskkern.feature_learning.gradients import gradient_outer_product
from daskkern.feature_learning.metric import factor_of, weights_of, with_factor
from daskkern.kernels import Gaussian, L1Laplacian, Laplacian, RadialKernel, ScaledDistanceKernel

FEW = FeatureLearning(n_landmarks=120, n_iter=3)
D = 8


def _rows(m: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, D))
    return X, np.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:3]


@pytest.mark.parametrize(
    ("kernel", "diagonal"),
    [(Laplacian("median"), False), (Gaussian("median"), True), (L1Laplacian("median"), True)],
    ids=["laplacian", "gaussian", "laplacian_l1"],
)
def test_features_that_matter_are_found(kernel: ScaledDistanceKernel, diagonal: bool) -> None:
    X, y = _rows(600)
    found = learn_kernel([Candidate(kernel.resolve(X), 1.0, diagonal)], TrainingSample(X, y, None), FEW, 0)
    assert found.factor is not None
    weights = found.kernel.feature_weights
    assert weights is not None
    assert weights[:3].sum() > 0.8 * weights.sum()
    assert found.after < 0.75 * found.before


def test_directions_that_matter_are_found() -> None:
    X = np.random.default_rng(0).standard_normal((600, D))
    along = np.ones(D) / D**0.5
    found = learn_kernel(
        [Candidate(Laplacian("median").resolve(X), 1.0, False)],
        TrainingSample(X, np.sin(2 * X @ along)[:, None], None), FEW, 0,
    )  # fmt: skip
    assert found.factor is not None
    M = found.factor @ found.factor.T
    assert along @ M @ along > 0.95 * np.trace(M)


def test_noise_has_no_metric() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((400, D)), rng.standard_normal((400, 1))
    known = Laplacian("median").resolve(X)
    found = learn_kernel([Candidate(known, 1.0, False)], TrainingSample(X, y, None), FEW, 0)
    assert found.kernel == known
    assert found.factor is None
    assert found.before == found.after


def test_the_same_seed_learns_the_same_bits_and_weights_count() -> None:
    X, y = _rows(300)
    weight = np.where(np.arange(300) < 150, 1.0, 1e-9)
    candidate = [Candidate(Laplacian("median").resolve(X), 1.0, True)]
    one, again = (learn_kernel(candidate, TrainingSample(X, y, None), FEW, 3).kernel for _ in range(2))
    assert one == again
    assert learn_kernel(candidate, TrainingSample(X, y, weight), FEW, 3).kernel != one


def test_the_better_kernel_is_found_among_candidates() -> None:
    X, y = _rows(600)
    slow, good = Candidate(Gaussian(1e-2), 1e-3, True, False), Candidate(Laplacian("median").resolve(X), 1.0, True)
    found = learn_kernel([slow, good], TrainingSample(X, y, None), FEW, 0)
    assert found.kernel.name == "laplacian"


@pytest.mark.parametrize("m", [600, 2600])  # in folds, and cut once
def test_a_smooth_kernel_goes_on_with_the_metric_that_another_one_found(m: int) -> None:
    X, y = _rows(m)
    rough = L1Laplacian("median").resolve(X)
    smooth = Candidate(Gaussian("median").resolve(X), 1.0, False)
    sample = TrainingSample(X, y, None)
    alone = learn_kernel([Candidate(rough, 1.0, True)], sample, FEW, 0)
    found = learn_kernel([Candidate(rough, 1.0, True)], sample, FEW, 0, [smooth])
    assert alone.kernel.name == "laplacian_l1"
    assert found.kernel.name == "gaussian"
    assert found.after < 0.6 * alone.after
    assert found.round_number >= 1
    assert found.factor is not None
    assert found.factor.shape == (D,)
    assert found.pending is not None
    assert found.pending.kernel(found.factor) == found.kernel
    product = found.pending.product
    function = found.pending.function
    mean = gradient_outer_product(function.kernel, X, function.points, function.coef, None, diagonal=True)
    weights = found.pending.factor(product, mean)
    known = pytest.approx(found.factor / np.linalg.norm(found.factor), abs=1e-6 if m == 600 else 0.01)  # 80% of rows
    assert weights / np.linalg.norm(weights) == known


def test_other_kernels_are_left_where_they_are_no_better() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, D))
    y = np.sign(X[:, :1]) + 0.5 * np.sign(X[:, 1:2] - 0.3)
    first = [Candidate(L1Laplacian("median").resolve(X), 1.0, True)]
    other = Candidate(Gaussian(1e-2), 1e-3, True, tunes_length_scale=False)
    one, both = (learn_kernel(first, TrainingSample(X, y, None), FEW, 0, others) for others in ([], [other]))
    assert one.kernel == both.kernel
    assert one.after == both.after


def test_a_metric_of_few_directions_must_be_better_with_the_centres_of_the_fit_too() -> None:
    """Its loss stays where it is as landmarks become more, while that of weights falls: to a third of it with 2,400."""
    X = np.random.default_rng(0).standard_normal((3000, D))
    y = np.sin(X.sum(axis=1, keepdims=True) / D**0.5) + 0.24 * np.sin(2 * X[:, :1])
    kernel = Laplacian("median").resolve(X)
    few = FeatureLearning(rank=1, n_landmarks=60, n_iter=2)
    tried = [Candidate(kernel, 1.0, True), Candidate(kernel, 1.0, False)]
    at_once, later = (learn_kernel(tried, TrainingSample(X, y, None), few, 0, n_centres=n) for n in (60, 3000))
    assert at_once.factor is not None
    assert at_once.factor.shape == (D, 1)
    assert later.factor is not None
    assert later.factor.shape == (D,)


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_factors_give_the_matrix_that_they_are_made_of(d: int, seed: int) -> None:
    B = np.random.default_rng(seed).standard_normal((d, d + 2))
    M = B @ B.T
    F = factor_of(M, d)
    np.testing.assert_allclose(F @ F.T, M * d / np.trace(M), atol=1e-4)
    assert np.trace(F @ F.T) == pytest.approx(d, rel=1e-4)
    np.testing.assert_allclose((weights_of(np.diag(M)) ** 2).mean(), 1, rtol=1e-3)
    assert factor_of(M, 1).shape == (d, 1)


def test_a_gradient_of_zeros_leaves_all_features_alike() -> None:
    assert (weights_of(np.zeros(4)) == 1).all()
    assert (factor_of(np.zeros((3, 3)), 3) == np.eye(3)).all()


@pytest.mark.parametrize("kernel", [Laplacian(1.0), Gaussian(2.0)], ids=lambda kernel: kernel.name)
def test_a_factor_is_the_metric_of_its_product(kernel: RadialKernel) -> None:
    X, _ = _rows(30)
    F = np.random.default_rng(2).standard_normal((D, 3))
    found = with_factor(kernel, F, X, 0.7)
    assert isinstance(found, RadialKernel)
    same = type(kernel).from_metric(F @ F.T, length_scale=found.length_scale)
    np.testing.assert_allclose(found.block(X, X.copy()), same.block(X, X.copy()), atol=1e-6)
    assert found.length_scale == pytest.approx(0.7 * kernel.median(X @ F))


@pytest.mark.parametrize("value", ["squares", 3, {"rank": 2}])
def test_other_settings_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="got learn_features"):
        parse_feature_learning(value)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 0},
        {"n_iter": 0},
        {"n_rows": 3},
        {"n_rows": "every"},
        {"rank": "all"},
        {"n_landmarks": 1.5},
        {"n_iter": True},
    ],
)
def test_other_numbers_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="expected a whole number of"):
        FeatureLearning(**changes)


def test_a_pass_over_all_rows_has_a_sample_of_the_usual_size() -> None:
    found = FeatureLearning(n_rows="all")
    assert found.of_all_rows
    assert found.n_sampled == FeatureLearning().n_sampled == FeatureLearning().n_rows
    assert not FeatureLearning(n_rows=300).of_all_rows
    assert FeatureLearning(n_rows=300).n_sampled == 300


def test_equal_rows_have_no_length_scale() -> None:
    with pytest.raises(DataError, match="median distance"):
        with_factor(Laplacian(1.0), np.ones(3), np.ones((5, 3)), 1.0)
