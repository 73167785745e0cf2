"""The comparison of local models with the best global model, for data with many rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from daskkern.basis import LocalRows
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import L1Laplacian, RadialKernel, ScaledDistanceKernel
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

LEAF_ROWS = 2000
LEAST_ROWS = 6 * LEAF_ROWS
"""Rows from which models in leaves are tried."""
_TREES = 3  # rows near a cut of one tree have neighbours on both sides in another
_MOST_ROWS = 40_000  # beyond which 10,000 landmarks learn little more
_GOES_ON = 0.5  # of the exponent of a learning curve, with more rows than it was measured with
_LEAST_RATIO = 0.5  # of the loss of all rows to that of the sampled ones


@dataclass(frozen=True, eq=False)
class LocalCandidate:
    """Exact ridge regression in leaves with a kernel; `plain` is the kernel without its learned metric."""

    name: str
    candidate: KernelCandidate
    kernel: ScaledDistanceKernel
    plain: ScaledDistanceKernel


def compare_local(
    log: TrialLog,
    best: FitCandidate,
    kernels: list[tuple[KernelCandidate, ScaledDistanceKernel, ScaledDistanceKernel]],
    base: FitSettings,
    n_rows: int,
    draw: Callable[[], tuple[DenseSample, DrawnSample]],
    leaf_rows: int = LEAF_ROWS,
    *,
    growth: float = 1.0,
) -> tuple[FitCandidate, str] | None:
    """Return the model in leaves that is better than the best one of the whole space, and why; None where none is.

    Leaves of one tree are compared; the fit to all rows averages three, and learns its metric from more rows than a
    search has: models in leaves have rows enough for small gains of it.

    The loss of the model of the whole space is that of sampled rows; what it would be with all rows is extrapolated,
    see :func:`ratio_with_all_rows`.

    Parameters
    ----------
    log : TrialLog
    best : FitCandidate
        Of the whole space.
    kernels : list of (KernelCandidate, ScaledDistanceKernel, ScaledDistanceKernel)
        As fits use them, and without a learned metric.
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
    where = f"in leaves of {leaf_rows:,} rows"
    locals_ = [LocalCandidate(f"{one.name}, {where}", one, kernel, plain) for one, kernel, plain in kernels]
    done = log.run("leaves", _try_local, locals_, drawn, dense.leaves, len(dense.leaves), together=True)
    expected = replace(found[1].held, losses=ratio * found[1].held.losses, errors=ratio * found[1].held.errors)
    better = [(one, outcome) for one, outcome in done if outcome.held.is_better(expected)]
    if not better:
        return None
    chosen, outcome = min(better, key=lambda pair: pair[1].held.mean)
    return _fit(
        chosen, base, leaf_rows
    ), f"loss on held-out rows of leaves {expected.mean:.4g} -> {outcome.held.mean:.4g}"


def unwarped(
    one: KernelCandidate, kernel: ScaledDistanceKernel, sample: SearchSample
) -> tuple[KernelCandidate, ScaledDistanceKernel, ScaledDistanceKernel]:
    """Return a candidate with its kernel, and that without a learned metric, for sampled rows.

    A candidate with warped features is returned without the warp: leaves are those of the rows as they are scaled.
    """
    plain = one.resolved(sample.scaled(one.scale))
    return (replace(one, metric="none"), plain, plain) if one.metric == "warped" else (one, kernel, plain)


def _for_rows(best: FitCandidate, n_fitted: int, n_rows: int) -> FitSettings:
    """Return the settings of a fit to some rows, where a penalty that is known is larger than that of all rows."""
    alpha = best.settings.alpha
    return best.sampled if isinstance(alpha, str) else replace(best.sampled, alpha=alpha * n_rows / n_fitted)


def _try_local(one: LocalCandidate, sample: SearchSample, leaves: tuple[Fold, ...]) -> RidgeOutcome:
    return try_in_leaves(one.candidate, one.kernel, sample, leaves)


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


def _fit(one: LocalCandidate, base: FitSettings, leaf_rows: int) -> FitCandidate:
    learning = None
    if isinstance(one.plain, RadialKernel | L1Laplacian):
        learning = FeatureLearning("full" if one.candidate.metric == "full" else "diagonal")
    return named_fit(
        one.kernel if learning is None else one.plain,
        one.name,
        base,
        loss=parse_loss("squared"),
        basis=LocalRows(leaf_rows, n_trees=_TREES),
        solver=parse_solver("auto", "local rows"),
        scale=one.candidate.scale,
        learn_features=learning,
    )
