"""Spectral clustering and kernel k-means, against scikit-learn and naive references."""

import dask.array as da
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralClustering as SklearnSpectralClustering
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from daskkern import KernelKMeans, Landmarks, RandomFeatures, SpectralClustering
from daskkern.errors import DataError
from daskkern.kernels import Gaussian
from daskkern.unsupervised import lloyd

DIGITS, LABELS = (part[:500] for part in load_digits(return_X_y=True))
DIGITS = DIGITS / 16


@pytest.mark.parametrize("basis", ["auto", Landmarks(150)], ids=["all", "landmarks"])
def test_thin_clusters_are_found_as_scikit_learn_finds_them(basis: object) -> None:
    for make in (make_moons, make_circles):
        settings = {"factor": 0.4} if make is make_circles else {}
        X, y = make(300, noise=0.05, random_state=0, **settings)
        expected = SklearnSpectralClustering(2, gamma=1 / (2 * 0.15**2), random_state=0).fit_predict(X)
        fitted = SpectralClustering(2, "gaussian:0.15", basis=basis).fit(X)
        assert adjusted_rand_score(fitted.labels_, expected) > 0.97
        assert adjusted_rand_score(fitted.labels_, y) > 0.97
        new, y_new = make(200, noise=0.05, random_state=1, **settings)
        assert adjusted_rand_score(fitted.predict(new), y_new) > 0.97


def test_the_graph_has_scikit_learns_eigenvalues_and_labels() -> None:
    K = Gaussian(2.0).block(DIGITS, DIGITS)
    degree = K.sum(axis=1)
    expected = np.linalg.eigvalsh(K / np.sqrt(degree[:, None] * degree))[::-1]
    fitted = SpectralClustering(8, "gaussian:2", scale=None).fit(DIGITS)
    np.testing.assert_allclose(fitted.eigenvalues_, expected[:8], rtol=1e-8)
    theirs = SklearnSpectralClustering(8, gamma=1 / 8, random_state=0).fit_predict(DIGITS)
    assert adjusted_rand_score(fitted.labels_, theirs) > 0.9
    near = SpectralClustering(8, "gaussian:2", basis=Landmarks(300), scale=None).fit(DIGITS)
    np.testing.assert_allclose(near.eigenvalues_, expected[:8], rtol=0.02)
    assert adjusted_rand_score(near.labels_, theirs) > 0.8


@pytest.mark.long
def test_more_eigenvectors_than_clusters_can_be_used() -> None:
    fitted = SpectralClustering(3, "gaussian:2", n_components=6, scale=None).fit(DIGITS)
    assert fitted.eigenvalues_.shape == (6,)
    assert set(fitted.labels_) == {0, 1, 2}


def test_a_row_without_edges_is_an_error() -> None:
    with pytest.raises(DataError, match="no edges"):
        SpectralClustering(2, "linear", scale=None).fit(np.eye(5, 3))


def _lloyd(K: np.ndarray, codes: np.ndarray, k: int, weight: np.ndarray) -> np.ndarray:
    """Kernel k-means by its definition, from starting labels."""
    for _ in range(100):
        distances = np.empty((len(K), k))
        for c in range(k):
            w = weight * (codes == c)
            w = w / w.sum()
            distances[:, c] = K.diagonal() - 2 * K @ w + w @ K @ w
        if (distances.argmin(axis=1) == codes).all():
            break
        codes = distances.argmin(axis=1)
    return codes


def _inertia(K: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    total = float(weight @ K.diagonal())
    for c in np.unique(codes):
        w = weight * (codes == c)
        total -= float(w @ K @ w) / w.sum()
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_the_clusters_are_a_fixed_point_of_the_definition(weighted: bool) -> None:
    X = DIGITS[:300]
    weight = np.random.default_rng(0).uniform(0.2, 2, 300) if weighted else np.ones(300)
    K = Gaussian(2.0).block(X, X)
    fitted = KernelKMeans(6, "gaussian:2", scale=None, tol=0).fit(X, sample_weight=weight if weighted else None)
    np.testing.assert_array_equal(_lloyd(K, fitted.labels_, 6, weight), fitted.labels_)
    assert fitted.inertia_ == pytest.approx(_inertia(K, fitted.labels_, weight), rel=1e-8)
    starts = np.random.default_rng(1).integers(0, 6, (4, 300))
    assert fitted.inertia_ <= min(_inertia(K, _lloyd(K, start, 6, weight), weight) for start in starts) * 1.02
    if not weighted:
        assert fitted.score(X) == pytest.approx(-fitted.inertia_)


@pytest.mark.parametrize("lazy", [False, True])
def test_weights_of_a_score_are_checked_as_those_of_a_fit(lazy: bool) -> None:
    X = DIGITS[:100]
    fitted, rows = KernelKMeans(3, "gaussian:2").fit(X), da.from_array(X, chunks=(40, -1)) if lazy else X
    weight = np.random.default_rng(0).uniform(0, 2, 100)
    expected = -float((fitted.transform(X).min(axis=1) ** 2) @ weight)
    assert fitted.score(rows, sample_weight=weight) == pytest.approx(expected)
    assert fitted.score(rows, sample_weight=weight.tolist()) == pytest.approx(expected)
    if lazy:
        assert fitted.score(rows, sample_weight=da.from_array(weight, chunks=30)) == pytest.approx(expected)
    for wrong in (weight[:, None], -weight, weight * np.nan, weight[:50], np.ma.masked_less(weight, 1)):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            fitted.score(rows, sample_weight=wrong)


def test_distances_are_those_of_the_feature_space() -> None:
    fitted = KernelKMeans(3, "gaussian:2", scale=None).fit(DIGITS[:100])
    K = Gaussian(2.0).block(DIGITS[:150], DIGITS[:100])
    for c in range(3):
        w = (fitted.labels_ == c) / (fitted.labels_ == c).sum()
        expected = 1 - 2 * K @ w + w @ K[:100] @ w
        np.testing.assert_allclose(fitted.transform(DIGITS[:150])[:, c] ** 2, expected, atol=1e-9)


def test_the_linear_kernel_gives_k_means() -> None:
    X, _ = make_blobs(400, centers=4, random_state=0, cluster_std=0.6)
    expected = KMeans(4, n_init=10, random_state=0).fit(X)
    fitted = KernelKMeans(4, "linear", scale=None).fit(X)
    assert adjusted_rand_score(fitted.labels_, expected.labels_) == 1
    assert fitted.inertia_ == pytest.approx(expected.inertia_, rel=1e-6)


@pytest.mark.parametrize("basis", [Landmarks(100), RandomFeatures(100)], ids=["landmarks", "random"])
def test_passes_over_all_rows_lower_the_inertia_of_a_sample(basis: object, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"n_clusters": 6, "kernel": "gaussian:2", "basis": basis, "scale": None}
    whole = KernelKMeans(**settings).fit(DIGITS)
    width = whole.model_.points.shape[0]
    monkeypatch.setattr(lloyd, "SAMPLE_BYTES", 8 * width * 200)  # a sample of 200 rows
    once, often = (KernelKMeans(**settings, max_iter=most).fit(DIGITS) for most in (1, 100))
    assert often.inertia_ < once.inertia_
    assert often.inertia_ < 1.03 * whole.inertia_
    np.testing.assert_array_equal(often.predict(DIGITS), often.labels_)


def test_one_cluster_is_allowed() -> None:
    fitted = KernelKMeans(1).fit(DIGITS[:50])
    assert (fitted.predict(DIGITS) == 0).all()
    assert fitted.transform(DIGITS).shape == (500, 1)


def test_kernels_with_negative_sums_are_refused() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    with pytest.raises(DataError, match="the kernel is negative for many pairs of rows"):
        SpectralClustering(3, kernel="linear", scale=None).fit(X)
