"""Models in leaves are chosen where the function has more detail than a model of the whole space finds."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import LocalRows
from daskkern.estimators.array_inputs import array_source
from daskkern.events import silent
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import AutoKernel, Gaussian, ScaledDistanceKernel
from daskkern.losses import parse_loss
from daskkern.model_selection import Budget, LocalRunner
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate
from daskkern.model_selection.dense_samples import DenseSample, dense_sample
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.local_stage import compare_local, confirming_rows, is_confirmed, ratio_with_all_rows
from daskkern.model_selection.ridge_trials import try_in_leaves
from daskkern.model_selection.running import DrawnSample
from daskkern.model_selection.samples import SearchSample, draw_sample
from daskkern.model_selection.trial_log import TrialLog
from daskkern.solvers import parse_solver
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from tests.support.searches import usual

N, LEAF, RANDOM = 3000, 300, 200
PLAIN = KernelCandidate("laplacian", 1.0, "affine")


def _source(kind: str, seed: int = 0) -> ArraySource:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 8, (N, 2))
    detailed = (np.floor(X).sum(axis=1) % 2).astype(np.int64)
    smooth = (X[:, 0] + 4 * rng.standard_normal(N) > 4).astype(np.int64)
    return array_source(X, detailed if kind == "detailed" else smooth, None, np.arange(2))


def _dense(source: ArraySource) -> tuple[DenseSample, SearchSample, ScaledDistanceKernel]:
    settings = usual(source, max_epochs=5)
    like = draw_sample(source, settings, 400, ("affine",))
    kernel = PLAIN.resolved(like.scaled("affine"))
    return dense_sample(source, settings, like, "affine", kernel, LEAF, RANDOM), like, kernel


def test_a_dense_sample_has_all_rows_of_its_leaves() -> None:
    source = _source("detailed")
    dense, _, _ = _dense(source)
    assert len(dense.leaves) == 4
    assert len(dense.spread.fitted) == RANDOM
    held = np.sort(np.concatenate([leaf.held for leaf in dense.leaves]))
    assert np.array_equal(held, dense.spread.held)
    assert len(dense.quarter.fitted) == RANDOM // 4
    assert not np.isin(dense.spread.fitted, held).any()
    inside = np.concatenate([leaf.fitted for leaf in dense.leaves])
    share = len(inside) / (N - len(held))  # a model of the whole space knows the leaves as well as other places
    assert 0.4 * share < np.isin(dense.spread.fitted, inside).mean() < 2 * share
    X: HostArray = dense.sample.X
    assert len({tuple(row) for row in X}) == len(X)  # none is there twice
    everything = {tuple(row) for row in np.asarray(source.X)}
    for leaf in dense.leaves:
        rows = X[np.concatenate([leaf.fitted, leaf.held])]
        assert LEAF / 3 < len(rows) <= 2 * LEAF
        # The leaf is where its rows are: no other row of the source lies between close ones of it.
        middle = np.median(rows, axis=0)
        near = sorted(everything, key=lambda row: float(np.abs(np.array(row) - middle).sum()))[:5]
        assert {tuple(row) for row in rows} >= set(near)


def test_a_leaf_without_weight_does_not_count() -> None:
    dense, _, kernel = _dense(_source("detailed"))
    weight = np.ones(dense.sample.n_rows)
    weight[np.concatenate([dense.leaves[0].fitted, dense.leaves[0].held])] = 0.0
    sample = replace(dense.sample, weight=weight)
    found = try_in_leaves("affine", kernel, sample, dense.leaves)
    others = try_in_leaves("affine", kernel, sample, dense.leaves[1:])
    assert found.held.mean == pytest.approx(others.held.mean)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["detailed", "smooth"])
def test_leaves_are_chosen_where_rows_nearby_say_more(kind: str) -> None:
    source = _source(kind)
    dense, _, kernel = _dense(source)
    base = usual(source, max_epochs=5)
    log = TrialLog(Budget(1e6), LocalRunner(), silent)
    found = compare_local(
        log,
        FitCandidate("defaults", base, base),
        [(PLAIN, kernel)],
        base,
        N,
        lambda: (dense, DrawnSample(dense.sample, dense.sample)),
        LEAF,
    )
    assert [row.method for row in log.rows] == ["fit", "fit", "leaves", "leaves"]
    assert (found is not None) == (kind == "detailed")
    if found is not None:
        assert found[0].settings.basis == LocalRows(LEAF, n_trees=3)
        settings = found[0].settings
        assert (settings.kernel, settings.learn_features) in [(kernel, None), (AutoKernel(), FeatureLearning())]
        assert settings.scale == "affine"
        fresh = _source(kind, seed=1)
        scores = fit(source, settings).model.scores(np.asarray(fresh.X))[:, 0]
        assert ((scores > 0) != fresh.y).mean() < 0.1


@pytest.mark.parametrize("kind", ["detailed", "smooth"])
def test_the_choice_of_leaves_is_confirmed_by_fits_to_many_rows(kind: str) -> None:
    source = _source(kind)
    base = usual(source, max_epochs=5, kernel=Gaussian("median"), learn_features=None)
    leaves = replace(base, loss=parse_loss("squared"), basis=LocalRows(LEAF), solver=parse_solver("auto", "local rows"))
    pair = [FitCandidate(name, one, one) for name, one in (("leaves", leaves), ("defaults", base))]
    sample = draw_sample(source, base, N, ("affine",))
    log = TrialLog(Budget(1e6), LocalRunner(), silent)
    assert is_confirmed(log, *pair, DrawnSample(sample, sample), N) == (kind == "detailed")
    assert [row.candidate for row in log.rows] == [f"defaults, {N:,} rows", f"leaves, {N:,} rows"]
    late = TrialLog(Budget(1e-9), LocalRunner(), silent)
    late.rows += log.rows
    assert is_confirmed(late, *pair, DrawnSample(sample, sample), N)  # without a trial


def test_the_rows_that_confirm_leaves_fit_into_memory_and_are_a_quarter_at_least() -> None:
    assert confirming_rows(20_000, 10) == 20_000
    assert confirming_rows(160_000, 10) == 40_000
    assert confirming_rows(160_001, 10) == 0
    assert confirming_rows(20_000, 1000) == 20_000
    assert confirming_rows(90_000, 1000) == 0


def test_a_learning_curve_goes_on_at_half_its_rate() -> None:
    def losses(mean: float) -> HeldOut:
        return HeldOut(np.full(10, mean), np.zeros(10), np.full(10, 0.1))

    assert ratio_with_all_rows(losses(0.8), losses(0.4), 1000, 1000) == 1.0
    assert ratio_with_all_rows(losses(0.8), losses(0.4), 1000, 4000) == pytest.approx(0.5**0.5)
    assert ratio_with_all_rows(losses(0.8), losses(0.2), 1000, 16_000) == 0.5  # never less
    assert ratio_with_all_rows(losses(0.4), losses(0.5), 1000, 4000) == 1.0  # nor more
    assert ratio_with_all_rows(losses(0.4), losses(0.0), 1000, 4000) == 1.0
    beyond = ratio_with_all_rows(losses(0.5), losses(0.4), 10_000, 40_000)
    assert ratio_with_all_rows(losses(0.5), losses(0.4), 10_000, 10**8) == beyond
