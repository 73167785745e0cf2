"""The note on a fit whose final model does not minimise its objective."""

from daskkern.arrays import FloatArray
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel, Mapped, digits_note
from daskkern.monitor.convergence import convergence_note
from daskkern.solvers import AnyProblem
from daskkern.training.run.best_epoch import Ended
from daskkern.training.run.control_signals import STOPPED
from daskkern.training.run.divergence import Reference
from daskkern.training.run.optimality import Optimality, bounded_optimality, measure_optimality
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared

_OF_BULK, _OF_SCORES, _OF_ZERO = 0.15, 0.3, 0.004
"""Limits of a possible decrease: as a share of the loss without its largest hundredth, of the scores, and of the loss
of f = 0. The root mean square error then changes by 7% of itself, and by 6% of the spread of the targets."""
_SURE, _TINY = 0.05, 1e-3
_NEAR, _NEAR_ZERO = 0.05, 1e-3
_OF_SEVERAL = 0.5


_ENDS = ("max_epochs", "max_seconds", "converged")


def closing_note(
    problem: AnyProblem,
    ended: Ended,
    prepared: Prepared,
    rows: Rows,
    reference: Reference | None,
    settings: FitSettings,
    scores: FloatArray | None,
) -> str:
    """Return one sentence for a fit that has not reached its minimum; "" for others.

    The decision uses the losses of the epochs and the objective on held rows, which takes precedence where it is exact.
    A fit with early stopping is not expected to reach the minimum. `scores` (k, c) are the model's on the held rows,
    where they are known. A collective.
    """
    solver = settings.solver
    if solver.own_limit and ended.reason == "max_epochs":
        return f"the fit has not converged to the tolerance of solver {solver.name}; raise solver.{solver.own_limit}"
    note = convergence_note(ended.history, ended.reason, settings.ridge)
    if not solver.takes_alpha:
        return note  # what is minimised is another objective
    if reference is None or scores is None or settings.early_stopping is not None or ended.reason not in _ENDS:
        return note
    labelled, X = reference.sample.labelled, reference.sample.X
    proven = bounded_optimality(reference, ended, settings.dtype, scores)
    if proven is not None and not is_far(proven, labelled) and not _digits(problem.part.kernel, X, settings):
        return ""
    found = measure_optimality(reference, ended, prepared, rows, settings, scores)
    if found is None:
        return note
    if note:
        return "" if is_near(found, labelled) else note
    if not is_far(found, labelled):
        return ""
    no_more = solver.most_epochs(settings.max_epochs + 1) <= ended.epochs and ended.reason not in STOPPED
    digits = _digits(problem.part.kernel, X, settings)
    return optimality_note(found, "converged" if no_more else ended.reason, digits, settings.dtype)


def _digits(kernel: Kernel, X: FeatureRows, settings: FitSettings) -> str:
    """Return why kernel values have too few digits; "" where they have enough, or the columns are not kernels."""
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    if not settings.basis.has_centres or kernel.coordinates is None:
        return ""
    return digits_note(kernel, X, settings.dtype)


def is_far(found: Optimality, labelled: bool = False) -> bool:
    """Return whether a model is so far from the minimum that its errors differ from those of the minimum.

    With `labelled` rows the errors of labels count, which hardly change while the loss falls by a small share of that
    of f = 0.
    """
    if found.several:
        return found.fall > _OF_SEVERAL * found.loss
    if found.sure > _SURE * (found.bulk + _TINY * found.zero):
        return not labelled or found.sure > _OF_ZERO * found.zero
    far = found.fall > _OF_BULK * found.bulk or found.moved > _OF_SCORES
    return found.is_exact and far and found.fall > _OF_ZERO * found.zero


def is_near(found: Optimality, labelled: bool = False) -> bool:
    """Return whether it is certain that a model is as good as the minimum."""
    small = found.fall <= max(_NEAR * found.bulk, _NEAR_ZERO * found.zero)
    return found.is_exact and small and not is_far(found, labelled)


def optimality_note(found: Optimality, reason: str, digits: str, dtype: str) -> str:
    """Return one sentence for a fit that ended for `reason` with a model far from the minimum.

    `digits` is the reason why kernel values in `dtype` have too few digits, or "".
    """
    if found.several:
        return (
            f"the fit has not converged: its objective on {found.n_rows} training rows is {found.loss:.3g}, where a "
            f"model with one score for each class has {found.loss - found.fall:.3g}; raise {_limit(reason)}, or choose "
            "another solver"
        )
    fall = max(found.fall, found.sure) if found.is_exact else found.sure
    if digits:
        wider = ", or take dtype float64" if dtype == "float32" else ""
        return (
            f"the fit is not at its minimum: the objective on {found.n_rows} training rows can still fall by "
            f"{fall:.3g} from a loss of {found.loss:.3g}, because {dtype} holds too few digits: {digits}{wider}"
        )
    if reason == "converged":
        return (
            f"the fit is not at its minimum: the objective on {found.n_rows} training rows can still fall by "
            f"{fall:.3g} from a loss of {found.loss:.3g}, though the solver has converged: the rounding of {dtype} is "
            "in the way; take a larger alpha, scaled features or dtype float64"
        )
    return (
        f"the fit has not converged: the objective on {found.n_rows} training rows can still fall by {fall:.3g} from "
        f"a loss of {found.loss:.3g}; raise {_limit(reason)}, or choose a solver that needs fewer epochs"
    )


def _limit(reason: str) -> str:
    return reason if reason == "max_seconds" else "max_epochs"
