"""Samples of searches are nested, their folds stratified, and their rows those of the source."""

import pickle

import numpy as np
import pytest

from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.candidates import FitCandidate
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.samples import RecentResults, draw_sample
from daskkern.model_selection.screening import n_folds_of, n_repeats_of
from tests.support.searches import class_source, classes_by_one_feature, number_source, usual


def test_a_sample_is_the_beginning_of_a_larger_one() -> None:
    source = class_source(300)
    small, large = (draw_sample(source, usual(source), m, ("affine",)) for m in (100, 250))
    rows = {tuple(row) for row in large.X}
    assert all(tuple(row) in rows for row in small.X)
    assert small.n_rows == 100
    assert small.scalings == large.scalings  # of all rows, not of the sample


def test_every_row_is_held_out_once_and_classes_are_in_every_fold() -> None:
    source = class_source(200)
    sample = draw_sample(source, usual(source), 200, ("affine",))
    folds = sample.folds(5, 0.25)
    assert np.array_equal(np.sort(np.concatenate([fold.held for fold in folds])), np.arange(200))
    assert sample.labels is not None
    shares = [np.bincount(sample.labels[fold.held], minlength=3) for fold in folds]
    assert np.ptp(shares, axis=0).max() <= 1
    for fold in folds:
        assert np.array_equal(np.sort([*fold.fitted, *fold.held]), np.arange(200))
    [single] = sample.folds(1, 0.25)
    assert len(single.held) == 50
    assert any(not np.array_equal(a.held, b.held) for a, b in zip(folds, sample.folds(5, 0.25, 1), strict=True))


def test_weights_of_classes_are_those_of_the_rows() -> None:
    X, y = classes_by_one_feature(200)
    y = (y == 0).astype(np.int64)
    y[:180] = 0
    weight = np.linspace(0.5, 2, 200)
    source = array_source(X, y, weight, np.arange(2))
    sample = draw_sample(source, usual(source, class_weight="balanced"), 200, ("affine",))
    assert sample.weight is not None
    by_class = [sample.weight[sample.raw_y == code].sum() for code in (0, 1)]
    assert by_class[0] / by_class[1] == pytest.approx(1.0, rel=1e-5)
    part = sample.source(np.arange(0, 200, 2))
    assert part.info.n_rows == 100
    assert part.weight is not None
    np.testing.assert_array_equal(part.weight, sample.weight[::2])


def test_targets_of_regression_have_their_units() -> None:
    source = number_source(100)
    sample = draw_sample(source, usual(source), 100, ("affine",))
    assert sample.units is not None
    shift, scale = sample.units
    np.testing.assert_allclose(sample.y * scale + shift, sample.raw_y, rtol=1e-5)
    assert sample.y.mean() == pytest.approx(0, abs=1e-5)
    assert sample.labels is None


def test_rows_of_a_class_that_most_rows_have_tell_little() -> None:
    X, _ = classes_by_one_feature(1000)
    for rare, informative in ((500, 1000), (100, 200), (2, 4)):
        codes = (np.arange(1000) < rare).astype(np.int64)
        source = array_source(X, codes, None, np.arange(2))
        sample = draw_sample(source, usual(source), 1000, ("affine",))
        assert (sample.informative(1000), sample.informative(3000)) == (informative, 3 * informative)
    numbers = number_source(100)
    assert draw_sample(numbers, usual(numbers), 100, ("affine",)).informative(700) == 700


def test_few_informative_rows_are_divided_into_more_folds() -> None:
    source = class_source(100)
    even = draw_sample(source, usual(source), 100, ("affine",))
    X, _ = classes_by_one_feature(100)
    rare = array_source(X, (np.arange(100) < 5).astype(np.int64), None, np.arange(2))
    uneven = draw_sample(rare, usual(rare), 100, ("affine",))
    assert [n_folds_of(even, m) for m in (400, 2000, 4000)] == [5, 3, 1]
    assert [n_folds_of(uneven, m) for m in (400, 4000, 100_000)] == [5, 5, 1]
    assert [n_repeats_of(m) for m in (100, 400, 1000)] == [2, 2, 1]


def test_losses_of_fits_are_averaged_over_the_repetitions_of_folds() -> None:
    source = number_source(60)
    settings = usual(source, max_epochs=1)
    sample = draw_sample(source, settings, 60, ("affine",))
    parts = [sample.folds(2, 0.25, repeat) for repeat in (0, 1)]
    one = FitCandidate("defaults", settings, settings)
    both = try_fit(one, sample, [*parts[0], *parts[1]]).held
    each = [try_fit(one, sample, folds).held for folds in parts]
    assert len(both.losses) == 60
    assert both.mean == pytest.approx((each[0].mean + each[1].mean) / 2)


def test_only_the_last_results_are_kept_and_copies_have_none() -> None:
    recent = RecentResults(2)
    for number in range(3):
        recent.put(("kernel", number), number)
    assert [recent.get(("kernel", number)) for number in range(3)] == [None, 1, 2]
    copy = pickle.loads(pickle.dumps(recent))
    assert (len(copy), copy.most) == (0, 2)
