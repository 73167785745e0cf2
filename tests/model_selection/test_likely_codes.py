"""Columns of few whole numbers may be codes of categories, and a search compares kernels with them as categories."""

from dataclasses import replace

import numpy as np

from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.candidates import first_candidates, likely_codes
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.fits import fits_with
from daskkern.model_selection.ridge_trials import learned_kernel, try_kernel
from daskkern.model_selection.samples import SearchSample, draw_sample
from tests.support.searches import usual


def _coded(n: int = 400) -> SearchSample:
    """Return rows whose classes depend on two codes, and not on their order."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 12, (n, 2))
    effects = rng.standard_normal((2, 12))
    y = (effects[0, codes[:, 0]] + effects[1, codes[:, 1]] > 0).astype(np.int64)
    source = array_source(np.column_stack([codes.astype(float), rng.standard_normal(n)]), y, None, np.arange(2))
    return draw_sample(source, usual(source), n, ("affine",))


def test_few_whole_numbers_that_repeat_are_likely_codes() -> None:
    n = 200
    columns = {
        "codes": np.arange(n) % 7,
        "negative": -(np.arange(n) % 3),
        "two values": np.arange(n) % 2,
        "halves": (np.arange(n) % 7) / 2,
        "numbers of rows": np.arange(n),
        "large": 2.0**25 + np.arange(n) % 7,
    }
    found = likely_codes(np.column_stack(list(columns.values())).astype(float))
    assert [list(columns)[column] for column in found] == ["codes", "negative"]


def test_candidates_with_categories_follow_the_others_of_the_first_scaling() -> None:
    sample = _coded()
    found = first_candidates(("arcsinh", "affine"), sample.X)
    coded = [one for one in found if one.categories]
    assert [(one.kernel, one.scale, one.categories) for one in coded] == [
        (name, "arcsinh", (0, 1)) for name in ("laplacian_l1", "additive_laplacian")
    ]
    assert found[-2:] == coded
    assert "2 categorical" in coded[0].name
    for scales, X in (((None,), sample.X), (("affine",), sample.X[:, 2:])):
        assert not any(one.categories for one in first_candidates(scales, X))


def test_categories_tell_classes_apart_that_do_not_follow_their_order() -> None:
    sample = _coded()
    folds = sample.folds(3, 0.25)
    candidates = first_candidates(("affine",), sample.X)
    coded = next(one for one in candidates if one.categories)
    plain, ours = (try_kernel(one, sample, [folds]) for one in (replace(coded, categories=()), coded))
    assert ours.held.mean < 0.7 * plain.held.mean
    source = array_source(sample.X, sample.raw_y.ravel(), None, np.arange(2))
    kernels = [(coded, ours, learned_kernel(coded, sample, ours))]
    (exact,), _ = fits_with(kernels, usual(source), 400, 266, "auto", 400)
    assert exact.settings.kernel.categories == (0, 1)
    np.testing.assert_allclose(try_fit(exact, sample, folds).held.mean, ours.held.mean, rtol=0.05)


def test_warps_leave_codes_alone() -> None:
    sample = _coded()
    coded = next(one for one in first_candidates(("affine",), sample.X) if one.categories)
    candidate = replace(coded, metric="warped")
    outcome = try_kernel(candidate, sample, [sample.folds(3, 0.25)])
    kernel = learned_kernel(candidate, sample, replace(outcome, alphas=outcome.alphas[:1]))
    assert not isinstance(kernel.scale, str | None)
    assert [table.column for table in kernel.scale.ranks] == [2]
