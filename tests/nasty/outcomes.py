"""What became of a case: right, a sentence, or a third outcome.

A regressor is right when its root mean square error on the test rows is at most 10% above the reference's, or at most
0.01 standard deviations of the test targets: where the reference's error is next to nothing, as many digits as float32
has after sums over n rows are enough. A classifier is right when it errs on at most 10% more test rows than the
reference, or on so few more as chance allows: 3 standard deviations of the difference between two rules of equal error
that differ on as many rows as these two (McNemar's test). Both rules are one-sided: a smaller error is no fault.

A sentence is an error of daskkern, or a warning that a user sees without asking for it.
"""

import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from daskkern import KernelClassifier, KernelRegressor
from daskkern import kernels as daskkern_kernels
from daskkern.errors import DaskkernError
from tests.nasty.data import DATA_SETS, Problem
from tests.nasty.reference import Kernel, best_alpha, median_distance, solve, standardised
from tests.nasty.ways import METHODS, Case

ALPHA = 1e-3
MARGIN, SPREADS, DEVIATIONS = 0.1, 0.01, 3.0
_MOST_CENTRES = 2000


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    `kind` is "right", "sentence", "wrong", "late", or "error" for an exception that is not daskkern's. `error` and
    `reference` are root mean square errors in standard deviations of the test targets, or shares of test rows;
    `allowed` is the largest error that is right. `said` is the sentence, of an error or of warnings. `losses` are the
    training losses, epoch by epoch.
    """

    key: str
    kind: str
    error: float = float("nan")
    reference: float = float("nan")
    allowed: float = float("nan")
    said: str = ""
    seconds: float = 0.0
    losses: tuple[float, ...] = ()
    stopped: str = ""

    @property
    def ratio(self) -> float:
        """Error over the reference's, as a third outcome is told."""
        return self.error / self.reference if self.reference > 0 else float("inf")

    @property
    def excess(self) -> float:
        """Error over the largest one that is right; infinity for an exception."""
        return self.error / self.allowed if np.isfinite(self.error) and self.allowed > 0 else float("inf")

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for a line of a file."""
        return asdict(self)


def run(case: Case, limit_s: float = 60.0) -> Outcome:
    """Fit, predict and compare."""
    data, begun = DATA_SETS[case.data], perf_counter()
    problem = data.problem(case.task)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = _fitted(case, problem, limit_s)
            predicted = model.predict(problem.X_test)
    except DaskkernError as error:
        return Outcome(case.key, "sentence", said=str(error), seconds=perf_counter() - begun)
    except Exception as error:  # whatever it is: that is the finding
        return Outcome(case.key, "error", said=f"{type(error).__name__}: {error}"[:300], seconds=perf_counter() - begun)
    seconds = perf_counter() - begun
    error, reference, allowed = compare(problem, predicted, _reference(case))
    stray = [one for one in caught if not issubclass(one.category, UserWarning)]
    said = " ".join(dict.fromkeys(str(one.message) for one in stray or caught))
    kind = (
        "right"
        if error <= allowed
        else "sentence"
        if said
        else "late"
        if model.stop_reason_ == "max_seconds"
        else "wrong"
    )
    losses = tuple(float(epoch.loss) for epoch in model.history_)
    return Outcome(
        case.key, "error" if stray else kind, error, reference, allowed, said, seconds, losses, model.stop_reason_
    )  # fmt: skip


def compare(problem: Problem, predicted: Any, expected: Any) -> tuple[float, float, float]:
    """Return the error of `predicted`, that of `expected`, and the largest that is right."""
    if problem.task == "regression":
        spread = np.std(problem.y_test, axis=0)
        spread = np.where(spread > 0, spread, np.maximum(np.abs(problem.y_test).max(axis=0), 1e-300))
        error, reference = (_rms((y - problem.y_test) / spread) for y in (predicted, expected))
        return error, reference, max((1 + MARGIN) * reference, reference + SPREADS)
    share = _shares(problem)
    wrong, wrong_reference = predicted != problem.y_test, expected != problem.y_test
    error, reference = float(share @ wrong), float(share @ wrong_reference)
    chance = DEVIATIONS * float(np.sqrt((share**2) @ (wrong != wrong_reference)))
    return error, reference, max((1 + MARGIN) * reference, reference + chance) + 1e-12


def _rms(gap: Any) -> float:
    """Return the root mean square, infinity where there are NaN."""
    found = float(np.sqrt(np.mean(np.asarray(gap, np.float64) ** 2)))
    return found if np.isfinite(found) else float("inf")


def _shares(problem: Problem) -> Any:
    """Return how much each test row counts: the same, or every class as much as the others."""
    if not problem.balanced:
        return np.full(len(problem.y_test), 1 / len(problem.y_test))
    _, codes, counts = np.unique(problem.y_test, return_inverse=True, return_counts=True)
    return 1 / (len(counts) * counts[codes])


def _fitted(case: Case, problem: Problem, limit_s: float) -> Any:
    estimator = KernelRegressor if problem.task == "regression" else KernelClassifier
    settings: dict[str, Any] = {"max_seconds": limit_s}
    if problem.balanced:
        settings["class_weight"] = "balanced"
    if case.way != "defaults":
        method, kernel = METHODS[case.method], _kernel(case, problem)
        settings |= {
            "kernel": _as_daskkern(kernel),
            "solver": method.solver,
            "basis": method.basis(DATA_SETS[case.data].landmarks),
            "loss": "squared" if problem.task == "regression" else method.loss,
            "alpha": 0.0 if case.way == "alpha 0" else ALPHA,
            "max_epochs": method.epochs,
        }
        if "scale" in estimator().get_params():
            settings["scale"] = None
        if method.loss == "hinge":
            settings["fit_intercept"] = False  # the reference has no offset
    return estimator(**settings).fit(problem.X, problem.y, sample_weight=problem.weight)


def _kernel(case: Case, problem: Problem) -> Kernel:
    name = {"alpha 0": "gaussian", "polynomial": "polynomial"}.get(case.way, "laplacian")
    return Kernel(name, median_distance(problem.X))


def _as_daskkern(kernel: Kernel) -> Any:
    if kernel.name == "polynomial":
        return daskkern_kernels.Polynomial(2, gamma=kernel.length_scale**-2, coef0=1.0)
    kind = daskkern_kernels.Laplacian if kernel.name == "laplacian" else daskkern_kernels.Gaussian
    return kind(kernel.length_scale)


def _reference(case: Case) -> Any:
    loss = "squared" if case.task == "regression" or case.way == "defaults" else METHODS[case.method].loss
    return _solved(case.way, case.data, case.task, loss)


@lru_cache(8)
def _solved(way: str, name: str, task: str, loss: str) -> Any:
    data = DATA_SETS[name]
    problem = data.problem(task)
    if way == "defaults":
        problem = standardised(problem)
    points = problem.X
    if len(points) > _MOST_CENTRES:  # the rare rows and some others; the fits draw their own
        points = points[np.argsort(np.bincount(problem.y)[problem.y], kind="stable")[:_MOST_CENTRES]]
    kernel = _kernel(Case(way, name, task, "auto"), problem)
    alpha = {"defaults": best_alpha(problem, kernel, points) if way == "defaults" else 0.0, "alpha 0": 0.0}.get(
        way, ALPHA
    )
    return solve(problem, kernel, alpha, loss, points)
