"""The comparison of kernels by logistic regression for more than two classes, and the resulting fit."""

from dataclasses import dataclass, replace

from daskkern.basis import Landmarks
from daskkern.losses import MultinomialLogistic
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate, ScaledKernel, metric_of, named_fit
from daskkern.model_selection.ridge_trials import RidgeOutcome, learned_kernel
from daskkern.model_selection.running import DrawnSample
from daskkern.model_selection.screening import Ranked, folds_of, of_each_kernel
from daskkern.model_selection.softmax_trials import LEAST_CLASSES, SoftmaxCandidate, try_softmax
from daskkern.model_selection.trial_log import TrialLog
from daskkern.solvers import Falkon
from daskkern.training.run.settings import FitSettings

MOST_LANDMARKS = 4000
"""Rows up to which all of them are landmarks: each Newton step factorises a matrix of their number."""
_MOST_STEPS = 3
_SMOOTH = ("gaussian", "matern32")
_PATH = 100.0  # times the penalty that Newton's method starts from: its epochs are for the penalty that is wanted


@dataclass(frozen=True, eq=False)
class SoftmaxKernel:
    """The kernel with the least loss of a softmax, as fits use it."""

    candidate: KernelCandidate
    outcome: RidgeOutcome
    kernel: ScaledKernel
    n_learned: int
    """Sampled rows that a metric was learned from."""

    def fit(self, base: FitSettings, n_rows: int, n_fitted: int) -> FitCandidate:
        """Return the fit of `base` with this kernel by Newton's method; the best penalty falls in proportion to rows.

        Parameters
        ----------
        base : FitSettings
        n_rows : int
            All training rows.
        n_fitted : int
            Rows of a fit in a trial.
        """
        at = self.outcome.alpha * self.outcome.n_fitted
        sampled = {"alpha": at / n_fitted, "solver": _newton(at / n_fitted)}
        return named_fit(
            self.kernel.kernel,
            f"{self.candidate.name}, {MultinomialLogistic.name}",
            base,
            sampled,
            loss=MultinomialLogistic(),
            solver=_newton(at / n_rows),
            basis=Landmarks(MOST_LANDMARKS),
            alpha=at / n_rows,
            scale=self.kernel.scale,
            learn_features=None,
            metric=metric_of(self.candidate, self.outcome.alphas, self.n_learned),
        )


def _newton(alpha: float) -> Falkon:
    return Falkon(path_start=_PATH * alpha)


def softmax_kernel(log: TrialLog, ranked: Ranked, drawn: DrawnSample, reserved: float = 0.0) -> SoftmaxKernel | None:
    """Return the kernel with which a softmax has a lower loss than ridge regression with any; None where there is none.

    The best candidate of all and those of smooth kernels are compared, whatever ridge regression says of them: it needs
    a bump for each class that lies between others, the scores of a softmax are smoother.

    Parameters
    ----------
    log : TrialLog
    ranked : list of (KernelCandidate, RidgeOutcome)
        By ridge regression on this sample, the best first.
    drawn : DrawnSample
    reserved : float
        Seconds that must be left.
    """
    classes = drawn.sample.info.classes
    if not ranked or classes is None or len(classes) < LEAST_CLASSES:
        return None
    folds = folds_of(drawn.sample)

    def compared(candidates: list[SoftmaxCandidate]) -> list[tuple[SoftmaxCandidate, RidgeOutcome]]:
        n_folds = sum(map(len, folds))
        return log.run("softmax", try_softmax, candidates, drawn, folds, n_folds, reserved=reserved, together=True)

    leaders = ranked[:1] + [pair for pair in of_each_kernel(ranked) if pair[0].kernel in _SMOOTH]
    distinct = {one: SoftmaxCandidate(one, outcome.alphas) for one, outcome in leaders[: 1 + len(_SMOOTH)]}
    found = sorted(compared(list(distinct.values())), key=lambda pair: pair[1].held.mean)
    if not found:
        return None
    best = found[0]
    for factor in (2.0, 0.5):
        before = best
        for _ in range(_MOST_STEPS):
            scaled = replace(best[0].kernel, times=factor * best[0].kernel.times)
            tried = compared([replace(best[0], kernel=scaled)])
            if not tried or tried[0][1].held.mean >= best[1].held.mean:
                break
            best = tried[0]
        if best is not before:
            break
    one, outcome = best
    if not outcome.held.mean < ranked[0][1].held.mean:
        return None
    kernel = learned_kernel(one.kernel, drawn.sample, outcome)
    return SoftmaxKernel(one.kernel, outcome, kernel, drawn.sample.n_rows)
