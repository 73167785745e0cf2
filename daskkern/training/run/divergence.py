"""Detection of divergence: compares the final model on sampled training rows with f = 0 and with the best epoch.

A method that works lowers the training objective from its start at f = 0, which for regression is the mean of the
targets. A final objective above that means divergence, however each step looked, and the model is refused. A model that
is worse than that of an earlier epoch is replaced by it.
"""

from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.data.rows.rows import Rows
from daskkern.errors import DivergenceError
from daskkern.events import StageFinished
from daskkern.losses import best_of, decode
from daskkern.solvers import AnyProblem
from daskkern.training.checkpoints.commits import Commit
from daskkern.training.run.best_epoch import Ended, with_points
from daskkern.training.run.control_signals import STOPPED
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.objective import ModelPenalty
from daskkern.training.run.settings import FitSettings

_BLOCK = 1024
_MARGIN = 1.05
_DEVIATIONS = 4.0
_ROUNDING = 1e-5
_MOST, _LARGEST = 2.0, 1000.0
"""Most loss in units of that of f = 0: of a classifier, and of a model whose scores may still be far too large."""
_WORSE = 0.001
"""An objective is worse if it is higher by more than 5% of the lower one plus this share of the loss of f = 0."""
_ZERO = "f = 0"


@dataclass(frozen=True)
class Sampled:
    """Measurements on a sample: the mean training loss, and for classes the share of correctly labelled rows.

    Both are weighted. `deviation` is the standard deviation of the mean loss; `losses` (k,) are those of all rows, and
    `scores` (k, c) what the model predicts for them, several for each output where it has several.
    """

    loss: float
    right: float = 0.0
    deviation: float = 0.0
    losses: FloatArray = field(default_factory=lambda: np.zeros(0))
    scores: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))


def _of_zero(sample: HeldSample, problem: AnyProblem) -> Sampled:
    """Return the loss of the model f = 0, and the share of the most frequent class."""
    losses = sample.weight * problem.loss.value(np.zeros((len(sample.y), problem.n_outputs)), sample.y)
    counts = np.bincount(decode(sample.y), sample.weight) if sample.labelled else np.zeros(1)
    return Sampled(float(losses.mean()), float(counts.max()) / len(losses), _deviation(sample, losses))


def _deviation(sample: HeldSample, values: FloatArray) -> float:
    """Return the standard deviation of the mean of values of the sample's rows (k,)."""
    r = sample.n_random
    return float(values[:r].std()) * r**0.5 / len(values) if r else 0.0


@dataclass(frozen=True, eq=False)
class Reference:
    """The loss that a fit must end below: that of f = 0, or of the model that a run on other rows continues from.

    Every rank makes one and calls the same methods, with the same results.
    """

    sample: HeldSample
    problem: AnyProblem
    comm: Communicator
    xp: ModuleType
    at: Sampled
    what: str = _ZERO

    @classmethod
    def zero(cls, sample: HeldSample, problem: AnyProblem, comm: Communicator, xp: ModuleType) -> "Reference":
        """Return the reference of a fit that begins at f = 0."""
        return cls(sample, problem, comm, xp, _of_zero(sample, problem))

    def certain_of(self, rows: Rows, extremes: IntArray) -> "Reference":
        """Return the reference of a fit from f = 0 on a sample that always includes the rows numbered `extremes`."""
        if self.what != _ZERO:
            return self
        return Reference.zero(self.sample.joined(rows, extremes), self.problem, self.comm, self.xp)

    def or_model(self, problem: AnyProblem, coef: Array) -> "Reference":
        """Return the reference of a run that continues from a model: its loss, if above that of f = 0."""
        found = self.measure(problem, coef)
        if not found.loss > self.at.loss:
            return self
        return replace(self, at=replace(found, deviation=self.at.deviation), what="the model that it continues from")

    def measure(self, problem: AnyProblem, coef: Array, offset: FloatArray | None = None) -> Sampled:
        """Return the measurements of the model with these coefficients on the sample. A collective.

        `offset` (c,) is added to the scores.
        """
        right, losses, scores, sample = 0.0, list[FloatArray](), list[FloatArray](), self.sample
        placed = self.xp.asarray(coef)  # a direct solution is on the host
        with np.errstate(all="ignore"):  # infinity and NaN are results here
            for part in slices(len(sample.y), _BLOCK):
                shares = problem.part.scores(to_device(sample.X[part], self.xp), placed)
                f = to_host(self.comm.allreduce(shares)).astype(np.float64)
                f = f if offset is None else f + offset
                scores.append(f)
                f, y, weight = best_of(f, f.shape[1] // problem.n_outputs), sample.y[part], sample.weight[part]
                losses.append(weight * problem.loss.value(f, y))
                right += float(weight @ (decode(sample.targets.scores(f)) == decode(y))) if sample.labelled else 0.0
            every = np.concatenate(losses)
            return Sampled(float(every.mean()), right / len(sample.y), losses=every, scores=np.concatenate(scores))

    def is_worse(self, found: Sampled) -> bool:
        """Return whether a model is significantly worse than the reference."""
        return not found.loss <= _MARGIN * self.at.loss + _DEVIATIONS * self.at.deviation + _ROUNDING  # NaN is

    def is_useless(self, found: Sampled, descends: bool) -> bool:
        """Return whether a model that is worse must not be used.

        A classifier may have good labels although its scores are still too large; the same holds for a method whose
        loss does not fall from the first epoch on.
        """
        labels = found.right > self.at.right + _DEVIATIONS / (2 * len(self.sample.y) ** 0.5)
        most = _LARGEST if labels or not descends else _MOST if self.sample.labelled else 0.0
        return not found.loss <= most * self.at.loss


def reference_of(
    sample: HeldSample | None,
    settings: FitSettings,
    problem: AnyProblem,
    saved: Commit | None,
    comm: Communicator,
    xp: ModuleType,
) -> Reference | None:
    """Return the reference of a fit; None without a sample. A collective where a run continues with other rows."""
    if sample is None:
        return None
    reference = Reference.zero(sample, problem, comm, xp)
    if saved is None or not settings.behind:
        return reference
    state = settings.solver.restore(problem, saved.snapshot)
    moved = with_points(problem, settings.solver.points(problem, state), xp)
    return reference.or_model(moved, settings.solver.finish(problem, state, comm))


@dataclass(frozen=True, eq=False)
class Judged:
    """The model that a fit ends with, a sentence for the user, or "", and the model's scores on the sample."""

    ended: Ended
    note: str = ""
    scores: FloatArray | None = None


def judge(
    reference: Reference | None, ended: Ended, penalty: ModelPenalty, descends: bool, context: RankContext
) -> Judged:
    """Return the model of the best epoch where the last one is worse, and refuse one that is worse than f = 0.

    A collective. Where the fit was stopped early, or the model may still be useful, a model worse than f = 0 is only
    reported.

    Raises
    ------
    DivergenceError
        On every rank.
    """
    if reference is None:
        return Judged(ended)
    found = reference.measure(with_points(reference.problem, ended.points, reference.xp), ended.coef, ended.offset)
    ended, found, note = _best_of(reference, ended, found, penalty)
    if note:
        context.emit(StageFinished("best epoch", 0.0, note))
    if not reference.is_worse(found):
        return Judged(ended, note, found.scores)
    reason = (
        f"the fit ended with a mean training loss of {found.loss:.4g} on {len(reference.sample.y)} training rows, "
        f"where {reference.what} has {reference.at.loss:.4g} and a fit must end below that"
    )
    if ended.reason in STOPPED or not reference.is_useless(found, descends):
        note = f"{reason}; more epochs or a larger alpha lower it"
        context.emit(StageFinished("objective", 0.0, note))
        return Judged(ended, note, found.scores)
    raise DivergenceError(
        f"{reason}: the iteration diverged; take scaled features, weights that differ less or sampling='weighted', "
        "a smaller batch_size, a larger alpha, or another solver, such as 'falkon'"
    )


def _best_of(reference: Reference, ended: Ended, last: Sampled, penalty: ModelPenalty) -> tuple[Ended, Sampled, str]:
    """Return the chosen end of the fit, its measurements on the sample, and a sentence if it is of an earlier epoch.

    The earlier model is measured only if the loss of the last one exceeds the mean loss of the epoch after it.
    """
    best = ended.earlier
    if best is None or best.mark is None or best.best is None or last.loss <= -best.mark[0]:
        return ended, last, ""
    coef, points = best.best
    first = reference.measure(with_points(reference.problem, points, reference.xp), coef)
    if not _is_higher(reference, last.losses - first.losses, first.loss, 0.0):
        return ended, last, ""
    (more, spread), (less, spread_less) = penalty.of(ended.coef, ended.points), penalty.of(coef, points)
    beyond = last.losses + more - first.losses - less
    if not _is_higher(reference, beyond, first.loss + less, float(np.hypot(spread, spread_less))):
        return ended, last, ""
    note = (
        f"the training objective was {first.loss + less:.4g} on {len(beyond)} training rows after epoch "
        f"{best.best_epoch} and {last.loss + more:.4g} at the end: the model of epoch {best.best_epoch} is returned; "
        "take a smaller batch_size, a larger alpha or another solver"
    )
    return replace(ended, coef=coef, points=points, best_epoch=best.best_epoch, bound=np.inf), first, note


def _is_higher(reference: Reference, beyond: FloatArray, best: float, deviation: float) -> bool:
    """Return whether an objective is above the `best` significantly, and by enough to matter.

    `beyond` (k,) are the differences on each row of the sample: as the rows are the same, the difference has far less
    variance than either mean.
    """
    chance = _DEVIATIONS * float(np.hypot(_deviation(reference.sample, beyond), deviation))
    return not float(beyond.mean()) <= chance + (_MARGIN - 1) * best + _WORSE * reference.at.loss  # NaN is
