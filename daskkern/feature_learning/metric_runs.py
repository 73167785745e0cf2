"""Runs of a candidate: solves with one metric after the other, on rows that are fitted, judged on others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.random import generator
from daskkern.feature_learning.costs import FEW_ROWS, FOLDS
from daskkern.feature_learning.held_out import row_losses
from daskkern.feature_learning.metric import rank_for
from daskkern.feature_learning.pending import PendingMetric
from daskkern.feature_learning.settings import FeatureLearning
from daskkern.feature_learning.trials import Candidate, Round, TrainingSample, Trial

_HELD_OUT = 0.2
_BETTER, _ROUNDING = 0.03, 1e-6
_STEPS, _MOST_STEPS = (0.5, 2.0), 3  # factors of the length scale, and how often each is applied
_PATIENCE = 2
_START = 1e-3  # penalty, in units of k(x, x), from which the best one of the first solve is looked for
_DRAW = 73
_LEAST_DOUBLINGS = 2  # of the landmarks of trials, from which the trend counts
_KEPT = 0.5  # of it: gains become smaller as landmarks become more, for the rows stay as many


@dataclass(frozen=True, eq=False)
class MetricStep:
    """One solve of a run, with its best penalty, and its losses (k,) on held-out rows.

    Attributes
    ----------
    candidate : Candidate
    times : float
        The length scale as a multiple of the median distance.
    follows : bool
        Whether the metric is that of the gradients of the step before; it is the same as that of the step before
        otherwise.
    round : Round
    alpha : float
    losses : (k,) array
    """

    candidate: Candidate
    times: float
    follows: bool
    round: Round
    alpha: float
    losses: FloatArray


@dataclass(frozen=True, eq=False)
class MetricRun:
    """Steps on one pair of fitted and held-out rows, up to the best one."""

    steps: tuple[MetricStep, ...]

    @property
    def last(self) -> MetricStep:
        return self.steps[-1]

    @property
    def n_metrics(self) -> int:
        """How many metrics were made, one after the other; 0 without one."""
        return sum(step.follows for step in self.steps)

    @property
    def source(self) -> int:
        """The number of the step whose gradients made the metric of the last one."""
        return max(number for number, step in enumerate(self.steps) if step.follows) - 1


@dataclass(frozen=True, eq=False)
class HeldOutPair:
    """Rows that are fitted and rows that are held out, with the weights (k,) of the latter."""

    fitted: TrainingSample
    held: TrainingSample
    weight: FloatArray

    def losses(self, scores: FloatArray) -> FloatArray:
        """Return the losses (k,) of scores of the rows that are held out."""
        return row_losses(scores, to_host(self.held.y), self.held.labels, self.weight)

    def mean(self, losses: FloatArray) -> float:
        """Return the weighted mean of losses (k,)."""
        return float(losses @ self.weight)

    @classmethod
    def of(cls, sample: TrainingSample, seed: int) -> "list[HeldOutPair]":
        """Return one pair, or three folds of few rows."""
        m = sample.y.shape[0]
        order = generator(seed, _DRAW).permutation(m)
        cuts = np.array_split(order, FOLDS) if m <= FEW_ROWS else [order[: round(_HELD_OUT * m)]]
        parts = [(sample.rows(np.setdiff1d(order, cut)), sample.rows(np.sort(cut))) for cut in cuts]
        return [cls(fitted, held, to_host(held.shares)) for fitted, held in parts]


def is_better(losses: FloatArray, others: FloatArray, weight: FloatArray) -> bool:
    """Return whether losses are lower than others on the same rows: by 3%, and by a standard error."""
    gaps = others - losses
    gain = float(gaps @ weight)
    deviation = float(((gaps - gain) ** 2 @ weight**2) ** 0.5)
    return gain > max(_BETTER * float(others @ weight), deviation, _ROUNDING)


@dataclass(frozen=True, eq=False)
class MetricRuns:
    """What makes runs.

    Attributes
    ----------
    settings : FeatureLearning
    seed : int
    n_centres : int
        Centres of the fit, where they may be more than the landmarks of the solves; 0 where they are not.
    """

    settings: FeatureLearning
    seed: int
    n_centres: int = 0

    def trial(self, candidate: Candidate, fitted: TrainingSample) -> Trial:
        rank = rank_for(fitted.X.shape[1], self.settings.rank)
        return Trial(candidate, fitted, self.settings.n_landmarks, rank, self.seed)

    def race(self, candidates: Sequence[Candidate], pair: HeldOutPair) -> tuple[MetricStep, MetricRun | None]:
        """Return round 0 of the first candidate, and the run that is better than it and all simpler ones, or None."""
        best: MetricRun | None = None
        zero: MetricStep | None = None
        for candidate in candidates:
            trial = self.trial(candidate, pair.fitted)
            start = _step(candidate, candidate.times, False, trial.first(), pair, _START)
            zero = zero or start
            run = self._continued(MetricRun((start,)), candidate, pair)
            other = zero if best is None else best.last
            gains = run.n_metrics > 0 and is_better(run.last.losses, other.losses, pair.weight)
            if gains and self._gains_later(run.last, other, pair):
                best = run
        assert zero is not None
        return zero, best

    def with_length_scale(self, run: MetricRun, pair: HeldOutPair) -> MetricRun:
        """Return the run with the multiple of the median distance that predicts held-out rows best."""
        candidate, best = run.last.candidate, run
        trial, factor = self.trial(candidate, pair.fitted), run.last.round.factor
        assert factor is not None
        for factor_of_scale in _STEPS if candidate.tunes_length_scale else ():
            for power in range(1, _MOST_STEPS + 1):
                times, last = run.last.times * factor_of_scale**power, best.last
                found = _step(candidate, times, last.follows, trial.weighted(factor, times), pair, last.alpha)
                if not is_better(found.losses, last.losses, pair.weight):
                    break
                best = MetricRun((*run.steps[:-1], found))
            if best is not run:
                break
        return best

    def with_kernels(self, run: MetricRun, others: Sequence[Candidate], pair: HeldOutPair) -> MetricRun:
        """Return the run that goes on with the kernel of `others` that is best with its metric, or `run` as it is."""
        factor, best = run.last.round.factor, run
        assert factor is not None
        for other in others:
            trial, alpha = self.trial(other, pair.fitted), run.last.alpha
            start = _step(other, other.times, False, trial.weighted(factor, other.times), pair, alpha)
            found = self.with_length_scale(MetricRun((*run.steps, start)), pair)
            if is_better(found.last.losses, best.last.losses, pair.weight):
                best = found
        if best is run:
            return run
        return self._continued(best, replace(best.last.candidate, times=best.last.times), pair)

    def losses_of(self, run: MetricRun, pairs: Sequence[HeldOutPair]) -> FloatArray:
        """Return the losses of a run on the first of `pairs`, then those of its repetitions on the others."""
        others = [_losses(self.repeated(run, pair.fitted)[1], run.last.alpha, pair) for pair in pairs[1:]]
        return np.concatenate([run.last.losses, *others])

    def first_losses(self, candidate: Candidate, alpha: float, pair: HeldOutPair) -> FloatArray:
        """Return the losses (k,) of a candidate without a metric, with the penalty `alpha`."""
        return _losses(self.trial(candidate, pair.fitted).first(), alpha, pair)

    def repeated(self, run: MetricRun, fitted: TrainingSample) -> tuple[Round, Round]:
        """Return the source of the last metric and the last round of a run, repeated on other rows."""
        source = done = self.trial(run.steps[0].candidate, fitted).first().only(run.steps[0].alpha)
        for before, step in zip(run.steps, run.steps[1:], strict=False):
            trial = self.trial(step.candidate, fitted)
            if step.follows:
                source, done = done, trial.after(done, before.alpha, step.times).only(step.alpha)
            else:
                assert done.factor is not None
                done = trial.weighted(done.factor, step.times).only(step.alpha)
        return source, done

    def pending(self, run: MetricRun, source: Round, final: Round, fitted: TrainingSample) -> PendingMetric:
        """Return what makes the metric of `final`, the last round of `run` with the source of its metric."""
        trial = self.trial(run.last.candidate, fitted)
        return trial.pending(source, run.steps[run.source].alpha, final, run.last.times)

    def _gains_later(self, step: MetricStep, other: MetricStep, pair: HeldOutPair) -> bool:
        """Return whether a step that is better than another one is still better with the centres of the fit."""
        m = pair.fitted.y.shape[0]
        doublings = np.log2(max(1, self.n_centres) / min(m, self.settings.n_landmarks))
        if doublings < _LEAST_DOUBLINGS:
            return True
        found, known = (pair.mean(one.losses) * self._trend(one, pair) ** (_KEPT * doublings) for one in (step, other))
        return bool(found < known)

    def _trend(self, step: MetricStep, pair: HeldOutPair) -> float:
        """Return what multiplies the mean loss of a step where its landmarks are twice as many as half of them."""
        m = pair.fitted.y.shape[0]
        half = replace(self.settings, n_landmarks=max(2, min(m, self.settings.n_landmarks) // 2))
        trial, factor = MetricRuns(half, self.seed).trial(step.candidate, pair.fitted), step.round.factor
        done = trial.first() if factor is None else trial.weighted(factor, step.times)
        before = pair.mean(_step(step.candidate, step.times, step.follows, done, pair, step.alpha).losses)
        return min(1.0, pair.mean(step.losses) / before) if before > 0 else 1.0

    def _continued(self, run: MetricRun, candidate: Candidate, pair: HeldOutPair) -> MetricRun:
        """Return the run with further metrics of `candidate` up to the best one; two that are no better end it."""
        trial, steps = self.trial(candidate, pair.fitted), list(run.steps)
        means, best = [pair.mean(run.last.losses)], 0
        for number in range(1, self.settings.n_iter + 1):
            before = steps[-1]
            # Its equations have no name here, which would keep them in memory during the next round.
            steps.append(
                _step(candidate, candidate.times, True, trial.after(before.round, before.alpha), pair, before.alpha)
            )
            means.append(pair.mean(steps[-1].losses))
            best = int(np.argmin(means))
            if number - best >= _PATIENCE:
                break
        return MetricRun(tuple(steps[: len(run.steps) + best]))


def _losses(done: Round, alpha: float, pair: HeldOutPair) -> FloatArray:
    return pair.losses(done.ridge.scores(alpha, pair.held.X) + done.offset)


def _step(
    candidate: Candidate, times: float, follows: bool, done: Round, pair: HeldOutPair, start: float
) -> MetricStep:
    """Return the step of a round with its best penalty, which is looked for from `start`."""
    alpha, losses = done.ridge.best(pair.held.X, lambda scores: pair.losses(scores + done.offset), pair.weight, start)
    return MetricStep(candidate, times, follows, done.only(alpha), alpha, losses)
