"""What every selector promises, and what each promises besides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.landmarks import (
    SELECTORS,
    KMeans,
    LandmarkSelector,
    Stratified,
    Uniform,
    first_occurrences,
    parse_selector,
)

KERNEL = Gaussian()
WEIGHTED = {"ridge_leverage"}
each_selector = pytest.mark.parametrize(
    "selector", [kind() for name, kind in SELECTORS.items() if name != "k_means"], ids=lambda s: s.name
)
laws = settings(max_examples=25, deadline=None)


def _rows(counts: list[int], d: int = 3, chunk_rows: int = 7) -> ArrayRows:
    """Rows of as many classes as there are counts, shuffled."""
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    X = np.random.default_rng(1).standard_normal((len(codes), d))
    return ArrayRows(X, codes, classes=tuple(range(len(counts))), dtype=np.float64, chunk_rows=chunk_rows)


def _features(rows: ArrayRows) -> HostArray:
    X = rows.read(0, rows.n_rows).X
    assert X is not None
    return X


def _codes(rows: ArrayRows) -> HostArray:
    y = rows.read(0, rows.n_rows).y
    assert y is not None
    return y


@pytest.mark.one_in(3)
@each_selector
@laws
@given(counts=st.lists(st.integers(1, 40), min_size=2, max_size=4), n=st.integers(4, 200), seed=st.integers(0, 1 << 40))
def test_landmarks_are_distinct_rows_at_their_indices(
    selector: LandmarkSelector, counts: list[int], n: int, seed: int
) -> None:
    rows = _rows(counts)
    chosen = selector.select(rows, KERNEL, n, seed)
    assert chosen.indices is not None
    assert chosen.indices.dtype == np.int64
    assert (chosen.weights is not None) == (selector.name in WEIGHTED)
    assert len(set(chosen.indices.tolist())) == chosen.indices.size == min(n, rows.n_rows)
    np.testing.assert_array_equal(chosen.points, _features(rows)[chosen.indices])


@each_selector
def test_a_seed_chooses_the_same_landmarks_whatever_the_chunks(selector: LandmarkSelector) -> None:
    choices = [selector.select(_rows([50, 30], chunk_rows=chunk), KERNEL, 20, 5).indices for chunk in (3, 80)]
    np.testing.assert_array_equal(*choices)
    assert not np.array_equal(choices[0], selector.select(_rows([50, 30]), KERNEL, 20, 6).indices)


@pytest.mark.parametrize("selector", [Uniform(), Stratified()], ids=lambda s: s.name)
def test_every_prefix_is_a_fair_sample(selector: LandmarkSelector) -> None:
    rows, draws = _rows([6, 4]), 2000
    seen = np.zeros(10)
    for seed in range(draws):
        indices = selector.select(rows, KERNEL, 5, seed).indices
        assert indices is not None
        seen[indices[:2]] += 1
    share = seen / draws  # each row is one of the first two of ten with probability 1/5
    np.testing.assert_allclose(share, 0.2, atol=5 * (0.2 * 0.8 / draws) ** 0.5)


@each_selector
def test_rows_that_are_equal_become_one_landmark(selector: LandmarkSelector) -> None:
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 3.0], [2.0, 3.0], [4.0, 5.0], [0.0, 1.0]])
    rows = ArrayRows(X, np.array([0, 1, 0, 1, 0, 1]), classes=(0, 1), dtype=np.float64)
    chosen = selector.select(rows, KERNEL, 6, 0)
    assert chosen.indices is not None
    assert sorted(chosen.points.tolist()) == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert chosen.weights is None or chosen.weights.shape == (3,)
    np.testing.assert_array_equal(chosen.points, X[chosen.indices])


@laws
@given(
    points=st.lists(
        st.tuples(st.sampled_from([-1.0, -0.0, 0.0, 2.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12
    ),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_first_occurrences_are_the_rows_that_equal_no_earlier_one(
    points: list[tuple[float, float]], dtype: str
) -> None:
    expected = [i for i, point in enumerate(points) if point not in points[:i]]  # -0.0 == 0.0
    assert first_occurrences(np.array(points, dtype)).tolist() == expected


@laws
@given(
    counts=st.lists(st.integers(1, 60), min_size=2, max_size=5),
    share=st.floats(0.05, 1),
    seed=st.integers(0, 99),
)
def test_strata_have_the_shares_of_their_classes(counts: list[int], share: float, seed: int) -> None:
    rows = _rows(counts)
    n = max(len(counts), round(share * rows.n_rows))
    chosen = Stratified().select(rows, KERNEL, n, seed)
    assert chosen.indices is not None
    quotas = np.bincount(_codes(rows)[chosen.indices], minlength=len(counts))
    exact = np.array(counts) * n / rows.n_rows
    assert quotas.sum() == n
    assert (quotas >= 1).all()
    assert (quotas <= counts).all()
    raised = int((exact < 1).sum())  # every class that was lifted to 1 takes at most one from others
    assert (np.abs(quotas - exact) < 1 + raised).all()


def test_a_class_without_rows_gets_no_landmark() -> None:
    rows = ArrayRows(np.arange(20.0)[:, None], np.repeat([0, 2], 10), classes=("a", "b", "c"), dtype=np.float64)
    chosen = Stratified().select(rows, KERNEL, 8, 0)
    assert chosen.indices is not None
    assert np.bincount(_codes(rows)[chosen.indices]).tolist() == [4, 0, 4]


def test_stratified_landmarks_need_classes() -> None:
    for rows in (ArrayRows(np.ones((4, 2)), np.ones(4)), ArrayRows(np.ones((4, 2)))):
        with pytest.raises(SpecError, match="got selector 'stratified' for rows without classes"):
            Stratified().select(rows, KERNEL, 2, 0)


def test_uniform_landmarks_need_no_targets() -> None:
    chosen = Uniform().select(ArrayRows(np.arange(9.0)[:, None], dtype=np.float64), KERNEL, 4, 0)
    assert chosen.points.shape == (4, 1)


def test_selectors_are_found_by_name() -> None:
    assert parse_selector("uniform") == Uniform()
    assert parse_selector(selector := Stratified()) is selector
    known = r"did you mean 'k_means'\? Known landmark selectors: uniform, stratified"
    with pytest.raises(SpecError, match=rf"landmark selector 'kmeans' is unknown; {known}"):
        parse_selector("kmeans")


def test_k_means_finds_clusters_whatever_the_chunks() -> None:
    rng = np.random.default_rng(0)
    centres = 10 * rng.standard_normal((5, 3))
    X = centres[rng.integers(0, 5, 400)] + 0.1 * rng.standard_normal((400, 3))
    chosen = [
        KMeans().select(ArrayRows(X, None, dtype=np.float64, chunk_rows=chunk), KERNEL, 5, 3) for chunk in (11, 400)
    ]
    np.testing.assert_allclose(chosen[0].points, chosen[1].points, rtol=1e-9)
    assert chosen[0].indices is None
    distance = np.linalg.norm(chosen[0].points[:, None] - centres, axis=2)
    assert sorted(distance.argmin(axis=1)) == [0, 1, 2, 3, 4]
    assert distance.min(axis=1).max() < 0.1
    everything = KMeans().select(ArrayRows(X[:7], None, dtype=np.float64), KERNEL, 50, 3)
    assert everything.points.shape == (7, 3)
    with pytest.raises(SpecError, match="rows_each=0"):
        KMeans(rows_each=0)
