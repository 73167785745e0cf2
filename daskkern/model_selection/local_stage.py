"""The comparison of local models with the best global model, for data with many rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from daskkern.basis import LocalRows
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import AutoKernel, ScaledDistanceKernel
from daskkern.losses import parse_loss
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate, named_fit
from daskkern.model_selection.dense_samples import DenseSample
from daskkern.model_selection.fit_trials import FitOutcome, try_fit
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.ridge_trials import RidgeOutcome, try_in_leaves
from daskkern.model_selection.running import DrawnSample
from daskkern.model_selection.samples import Fold, SearchSample
from daskkern.model_selection.trial_log import TrialLog
from daskkern.solvers import parse_solver
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import begin

LEAF_ROWS = 2000
LEAST_ROWS = 6 * LEAF_ROWS
"""Rows from which models in leaves are tried."""
_TREES = 3  # rows near a cut of one tree have neighbours on both sides in another
_MOST_ROWS = 40_000  # beyond which 10,000 landmarks learn little more
_GOES_ON = 0.5  # of the exponent of a learning curve, with more rows than it was measured with
_MOST_CONFIRMING, _MOST_NUMBERS, _TIMES = 40_000, 20_000_000, 4
_HELD_OUT = 0.1
_LEAST_RATIO = 0.5  # of the loss of all rows to that of the sampled ones


def compare_local(
    log: TrialLog,
    best: FitCandidate,
    kernels: Sequence[tuple[KernelCandidate, ScaledDistanceKernel]],
    base: FitSettings,
    n_rows: int,
    draw: Callable[[], tuple[DenseSample, DrawnSample]],
    leaf_rows: int = LEAF_ROWS,
    *,
    growth: float = 1.0,
) -> tuple[FitCandidate, str] | None:
    """Return the model in leaves that is better than the best one of the whole space, and why; None where none is.

    Leaves of one tree are compared; the fit to all rows averages three.

    The loss of the model of the whole space is that of sampled rows; what it would be with all rows is extrapolated,
    see :func:`ratio_with_all_rows`.

    Parameters
    ----------
    log : TrialLog
    best : FitCandidate
        Of the whole space.
    kernels : sequence of (KernelCandidate, ScaledDistanceKernel)
        The best ones of the search, the best first. The kernel that a fit chooses and learns by default, with the
        scaling of the first, is compared too: its metric may come from more rows than a search has.
    base : FitSettings
    n_rows : int
        All training rows.
    draw : callable
        Returns the rows to compare on.
    leaf_rows : int
    growth : float
        How many times as long as the last fits one to the random rows probably takes.
    """
    dense, drawn = draw()
    found: list[FitOutcome] = []
    for fold, words in ((dense.quarter, "a quarter of the rows"), (dense.spread, "some rows")):
        sampled = _for_rows(best, len(fold.fitted), n_rows)
        whole = replace(best, name=f"{best.name}, {words}", sampled=sampled, metric=None)  # which is of other rows
        found += [outcome for _, outcome in log.run("fit", try_fit, [whole], drawn, [fold], 1, growth=growth)]
        growth = 1.0  # from now on it is known
    if len(found) < 2:
        return None
    ratio = ratio_with_all_rows(found[0].held, found[1].held, len(dense.spread.fitted), n_rows)
    locals_ = _candidates(kernels, base, leaf_rows)
    folds = (dense.spread, *dense.leaves)
    done = log.run("leaves", _try_local, locals_, drawn, folds, len(dense.leaves), together=True)
    expected = replace(found[1].held, losses=ratio * found[1].held.losses, errors=ratio * found[1].held.errors)
    better = [(one, outcome) for one, outcome in done if outcome.held.is_better(expected)]
    if not better:
        return None
    chosen, outcome = min(better, key=lambda pair: pair[1].held.mean)
    reason = f"loss on held-out rows of leaves {expected.mean:.4g} -> {outcome.held.mean:.4g}"
    return chosen, reason


def confirming_rows(n_rows: int, n_features: int) -> int:
    """Return how many rows both kinds of models are fitted to for a last comparison; 0 where they say too little.

    Models in leaves gain by rows nearby: where there are more than four times as many rows, a sample has too few.
    """
    m = min(n_rows, _MOST_CONFIRMING, _MOST_NUMBERS // max(1, n_features))
    return m if n_rows <= _TIMES * m else 0


def is_confirmed(
    log: TrialLog, local: FitCandidate, best: FitCandidate, drawn: DrawnSample, n_rows: int, *, growth: float = 1.0
) -> bool:
    """Return whether a model in leaves is better than `best` after fits of both to nine tenths of a sample of `n_rows`
    rows; True if the time does not suffice for both fits.

    The loss of `best` with all rows was extrapolated before. Where targets are mostly noise, a few thousand rows show
    nothing of what many do.
    """
    fold = drawn.sample.folds(1, _HELD_OUT)
    sampled = _for_rows(best, len(fold[0].fitted), n_rows)
    words = f"{drawn.sample.n_rows:,} rows"
    pair = [
        replace(best, name=f"{best.name}, {words}", sampled=sampled),
        replace(local, name=f"{local.name}, {words}"),
    ]
    done = log.run("fit", try_fit, pair, drawn, fold, 1, growth=growth)
    return len(done) < len(pair) or done[1][1].held.is_better(done[0][1].held)


def _candidates(
    kernels: Sequence[tuple[KernelCandidate, ScaledDistanceKernel]], base: FitSettings, leaf_rows: int
) -> list[FitCandidate]:
    """Return fits in leaves with each of `kernels`, and one that chooses its kernel and learns the metric itself."""
    where = f"in leaves of {leaf_rows:,} rows"
    shared = replace(
        base,
        loss=parse_loss("squared"),
        basis=LocalRows(leaf_rows, n_trees=_TREES),
        solver=parse_solver("auto", "local rows"),
        learn_features=None,
    )
    scale = kernels[0][0].scale
    itself = f"kernel and metric of the fit, {scale or 'as ingested'}, {where}"
    return [
        *(named_fit(kernel, f"{one.name}, {where}", shared, scale=one.scale) for one, kernel in kernels),
        named_fit(AutoKernel(), itself, shared, scale=scale, learn_features=FeatureLearning()),
    ]


def unwarped(
    one: KernelCandidate, kernel: ScaledDistanceKernel, sample: SearchSample
) -> tuple[KernelCandidate, ScaledDistanceKernel]:
    """Return a candidate with its kernel: one with warped features without the warp.

    Leaves are those of the rows as they are scaled.
    """
    warped = one.metric == "warped"
    return (replace(one, metric="none"), one.resolved(sample.scaled(one.scale))) if warped else (one, kernel)


def _for_rows(best: FitCandidate, n_fitted: int, n_rows: int) -> FitSettings:
    """Return the settings of a fit to some rows, where a penalty that is known is larger than that of all rows."""
    alpha = best.settings.alpha
    return replace(best.sampled, alpha=alpha if isinstance(alpha, str) else alpha * n_rows / n_fitted)


def _try_local(one: FitCandidate, sample: SearchSample, folds: Sequence[Fold]) -> RidgeOutcome:
    """Try a candidate in the leaves that follow the random rows in `folds`."""
    spread, *leaves = folds
    begun, kernel, scale = time.perf_counter(), one.settings.kernel, one.settings.scale
    assert scale is None or isinstance(scale, str)
    if one.settings.learn_features is not None:
        known = replace(one.settings, scale=sample.scalings[scale], class_weight=None, calibrate=False)
        kernel = begin(sample.source(spread.fitted), known, False).settings.kernel
    assert isinstance(kernel, ScaledDistanceKernel)
    outcome = try_in_leaves(scale, kernel, sample, leaves)
    return replace(outcome, seconds=time.perf_counter() - begun)


def ratio_with_all_rows(quarter: HeldOut, whole: HeldOut, n_fitted: int, n_rows: int) -> float:
    """Return the ratio of the loss of a model of all rows to that of one of `n_fitted`, between 0.5 and 1.

    The loss falls with the number of rows by a power law, with half the exponent that it had between a quarter of the
    sampled rows and all of them: learning curves flatten, and a tree alone, with three quarters of its rows, predicts
    less well than the trees of the fit.
    """
    if not quarter.mean > 0 or not whole.mean > 0:
        return 1.0
    steps = np.log(max(1.0, min(n_rows, _MOST_ROWS) / n_fitted)) / np.log(4)
    return float(np.clip((whole.mean / quarter.mean) ** (_GOES_ON * steps), _LEAST_RATIO, 1.0))
