"""Whether a fit has ended with a better model than none: its training loss on sampled rows beside that of f = 0.

A method that works lowers the training objective from where it began, at f = 0, which for regression is the mean of the
targets. A model that ends above that has diverged, whatever each of its steps looked like, and is no answer.
"""

from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.cluster.desk import Desk
from daskkern.data.rows import Rows
from daskkern.errors import DivergenceError
from daskkern.events import StageFinished
from daskkern.losses import best_of, decode
from daskkern.solvers import Problem
from daskkern.training.commits import Commit
from daskkern.training.epochs import STOPPED, Ended, with_points
from daskkern.training.held_sample import HeldSample
from daskkern.training.settings import FitSettings

_BLOCK = 1024
_MARGIN = 1.05
_DEVIATIONS = 4.0
_ROUNDING = 1e-5
_MOST, _LARGEST = 2.0, 1000.0
"""How many times the loss of f = 0 a classifier may have, and a model whose scores may still be far too large."""
_ZERO = "f = 0"


@dataclass(frozen=True)
class Sampled:
    """What is measured on a sample: the mean training loss, and for classes the share of rows labelled rightly.

    Both are weighted. `deviation` is the standard deviation of the mean loss.
    """

    loss: float
    right: float = 0.0
    deviation: float = 0.0


def _of_zero(sample: HeldSample, problem: Problem) -> Sampled:
    """Return the loss of the model f = 0, and the share of the most frequent class."""
    losses = sample.weight * problem.loss.value(np.zeros((len(sample.y), problem.n_outputs)), sample.y)
    counts = np.bincount(decode(sample.y), sample.weight) if sample.labelled else np.zeros(1)
    r = sample.n_random
    spread = float(losses[:r].std()) * r**0.5 / len(losses) if r else 0.0
    return Sampled(float(losses.mean()), float(counts.max()) / len(losses), spread)


@dataclass(frozen=True, eq=False)
class Reference:
    """What a fit must end below: the loss of f = 0, or of the model that a run on other rows goes on from.

    Every rank makes one, and calls the same methods; all find the same.
    """

    sample: HeldSample
    problem: Problem
    comm: Communicator
    xp: ModuleType
    at: Sampled
    what: str = _ZERO

    @classmethod
    def zero(cls, sample: HeldSample, problem: Problem, comm: Communicator, xp: ModuleType) -> "Reference":
        """Return the reference of a fit that begins at f = 0."""
        return cls(sample, problem, comm, xp, _of_zero(sample, problem))

    def certain_of(self, rows: Rows, extremes: IntArray) -> "Reference":
        """Return the reference of a fit from f = 0 on a sample that has the rows numbered `extremes` for certain."""
        if self.what != _ZERO:
            return self
        return Reference.zero(self.sample.joined(rows, extremes), self.problem, self.comm, self.xp)

    def or_model(self, problem: Problem, coef: Array) -> "Reference":
        """Return the reference of a run that goes on from a model; its loss, where it is more than that of f = 0."""
        found = self.measure(problem, coef)
        if not found.loss > self.at.loss:
            return self
        return replace(self, at=replace(found, deviation=self.at.deviation), what="the model that it went on from")

    def measure(self, problem: Problem, coef: Array) -> Sampled:
        """Return how the model with these coefficients does on the sample. A collective."""
        loss, right, sample = 0.0, 0.0, self.sample
        placed = self.xp.asarray(coef)  # a direct solution is on the host
        with np.errstate(all="ignore"):  # infinity and NaN are what is looked for
            for part in slices(len(sample.y), _BLOCK):
                shares = problem.part.scores(to_device(sample.X[part], self.xp), placed)
                f = to_host(self.comm.allreduce(shares)).astype(np.float64)
                f, y, weight = best_of(f, f.shape[1] // problem.n_outputs), sample.y[part], sample.weight[part]
                loss += float(weight @ problem.loss.value(f, y))
                right += float(weight @ (decode(sample.targets.scores(f)) == decode(y))) if sample.labelled else 0.0
        return Sampled(loss / len(sample.y), right / len(sample.y))

    def is_worse(self, found: Sampled) -> bool:
        """Return whether a model is worse than the reference by more than chance."""
        return not found.loss <= _MARGIN * self.at.loss + _DEVIATIONS * self.at.deviation + _ROUNDING  # NaN is

    def is_useless(self, found: Sampled, descends: bool) -> bool:
        """Return whether a model that is worse must not be used.

        The scores of a classifier may still be too large, and its labels good; so may those of a method whose loss does
        not fall from the first epoch on.
        """
        labels = found.right > self.at.right + _DEVIATIONS / (2 * len(self.sample.y) ** 0.5)
        most = _LARGEST if labels or not descends else _MOST if self.sample.labelled else 0.0
        return not found.loss <= most * self.at.loss


def reference_of(
    sample: HeldSample | None,
    settings: FitSettings,
    problem: Problem,
    saved: Commit | None,
    comm: Communicator,
    xp: ModuleType,
) -> Reference | None:
    """Return what the fit must end below; None without a sample. A collective where it goes on with other rows."""
    if sample is None:
        return None
    reference = Reference.zero(sample, problem, comm, xp)
    if saved is None or not settings.behind:
        return reference
    state = settings.solver.restore(problem, saved.snapshot)
    moved = with_points(problem, settings.solver.points(problem, state), xp)
    return reference.or_model(moved, settings.solver.finish(problem, state, comm))


def compare(reference: Reference | None, ended: Ended, descends: bool, desk: Desk) -> str:
    """Refuse a model that is worse than none. A collective.

    Where the fit was ended before its time, or the model may still be of use, that is only told: returned is one
    sentence for the user, or "" for a model that is better than none.

    Raises
    ------
    DivergenceError
        On every rank.
    """
    if reference is None:
        return ""
    found = reference.measure(with_points(reference.problem, ended.points, reference.xp), ended.coef)
    if not reference.is_worse(found):
        return ""
    reason = (
        f"the fit ended with a mean training loss of {found.loss:.4g} on {len(reference.sample.y)} training rows, "
        f"where {reference.what} has {reference.at.loss:.4g} and a fit must end below that"
    )
    if ended.reason in STOPPED or not reference.is_useless(found, descends):
        note = f"{reason}; more epochs or a larger alpha lower it"
        desk.emit(StageFinished("objective", 0.0, note))
        return note
    raise DivergenceError(
        f"{reason}: the iteration diverged; take scaled features, weights that differ less or sampling='weighted', "
        "a smaller batch_size, a larger alpha, or another solver, such as 'falkon'"
    )
