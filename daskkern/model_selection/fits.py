"""Candidate fits with the kernels that a search has found, compared with the defaults."""

from collections.abc import Callable, Sequence
from typing import Any

from daskkern.basis import AllRows
from daskkern.kernels import ScaledDistanceKernel
from daskkern.losses import Loss, parse_loss
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate, ScaledKernel, metric_of, named_fit
from daskkern.model_selection.fit_trials import FitOutcome
from daskkern.model_selection.ridge_trials import RidgeOutcome
from daskkern.solvers import parse_solver
from daskkern.training.run.settings import FitSettings

DEFAULT = "defaults"
MOST_DIRECT = 6000
"""Rows up to which equations are solved exactly: n^3 / 3 multiply-adds, and n^2 numbers in float64."""


def fits_with(
    kernels: Sequence[tuple[KernelCandidate, RidgeOutcome, ScaledKernel]],
    base: FitSettings,
    n_rows: int,
    n_fitted: int,
    scoring: str,
    n_learned: int,
) -> tuple[list[FitCandidate], list[list[FitCandidate]]]:
    """Return the exact fits of these kernels, where rows are not too many, and those of the usual solver.

    The latter are a list for each kernel, with one fit for each loss, the default one first.

    Parameters
    ----------
    kernels : sequence of (KernelCandidate, RidgeOutcome, ScaledKernel)
        With the kernels as fits use them.
    base : FitSettings
        What they have in common.
    n_rows : int
        All training rows.
    n_fitted : int
        Rows of a fit in a trial.
    scoring : str
        What they are compared by.
    n_learned : int
        Sampled rows that metrics were learned from.
    """
    exact, others, usual = [], [], parse_solver("auto", base.basis.name)
    for candidate, outcome, found in kernels:
        kernel = found.kernel
        metric = metric_of(candidate, outcome.alphas, n_learned)
        shared: dict[str, Any] = {"scale": found.scale, "learn_features": None, "metric": metric}
        if n_rows <= MOST_DIRECT:
            exact.append(_exact(candidate, outcome, kernel, base, n_rows, n_fitted, shared))
        others.append(
            [
                named_fit(kernel, f"{candidate.name}, {loss.spec()}", base, loss=loss, solver=usual, **shared)
                for loss in _losses(base, scoring)
            ]
        )
    return exact, others


def other_losses(
    done: Sequence[tuple[FitCandidate, FitOutcome]],
    fits: Sequence[Sequence[FitCandidate]],
    loss_of: Callable[[FitOutcome], float],
) -> list[FitCandidate]:
    """Return the fits with other losses of the kernel whose fit with the default loss is the best.

    Parameters
    ----------
    done : sequence of (FitCandidate, FitOutcome)
        Fits with the default loss and their outcomes, maybe others.
    fits : sequence of sequences of FitCandidate
        For each kernel those of all losses, the default one first.
    loss_of : callable
        Returns what fits are compared by; less is better.
    """
    found = {one.name: loss_of(outcome) for one, outcome in done}
    tried = [of_losses for of_losses in fits if of_losses[0].name in found]
    return list(min(tried, key=lambda of_losses: found[of_losses[0].name])[1:]) if tried else []


def _losses(base: FitSettings, scoring: str) -> list[Loss]:
    """Return the losses that are tried with the usual solver, the default first."""
    if "regression" not in base.loss.tasks:
        return [base.loss, parse_loss("logistic")]
    return [base.loss, parse_loss("absolute")] if scoring == "absolute_error" else [base.loss]


def _exact(
    candidate: KernelCandidate,
    outcome: RidgeOutcome,
    kernel: ScaledDistanceKernel,
    base: FitSettings,
    n_rows: int,
    n_fitted: int,
    shared: dict[str, Any],
) -> FitCandidate:
    """Return the exact solution of least squares; the best penalty falls in proportion to the rows."""
    at = outcome.alpha * outcome.n_fitted
    return named_fit(
        kernel,
        f"{candidate.name}, least squares solved exactly",
        base,
        {"alpha": at / n_fitted},
        loss=parse_loss("squared"),
        solver=parse_solver("direct"),
        basis=AllRows(),
        alpha=at / n_rows,
        **shared,
    )
