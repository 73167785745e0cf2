"""The choice of a kernel with a learned metric: trials on a sample, compared on held-out rows.

Each candidate alternates kernel ridge regression and the average gradient outer product of its solution as the next
metric. The round of the least loss on held-out rows counts, round 0 of the kernel as it was among them: learned
metrics do harm where every direction matters, or where rows are few (Radhakrishnan et al., Science 2024; Beaglehole et
al., "xRFM", 2025). Few landmarks favour metrics of few directions, and smooth kernels, more than the many of a fit do.
Candidates are therefore in order of simplicity, and a later one is taken where its loss is lower by 3% and by a
standard error of the difference on the same rows.
"""

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
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel

_HELD_OUT = 0.2
_BETTER, _ROUNDING = 0.03, 1e-6
_STEPS, _MOST_STEPS = (0.5, 2.0), 3  # factors of the length scale, and how often each is applied
_PATIENCE = 2
_START = 1e-3  # penalty, in units of k(x, x), from which the best one of the first solve is looked for
_DRAW = 73


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """The kernel of the least loss on held-out rows.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
    factor : (d,) weights or (d, k) matrix, or None
        Of the metric; None where the kernel is the first candidate as it was.
    round_number : int
        Round of the metric; 0 without one.
    before, after : float
        Mean losses on held-out rows of the first candidate as it was, and of this kernel.
    pending : PendingMetric or None
        What makes the same metric of gradients at all rows.
    """

    kernel: ScaledDistanceKernel
    factor: FloatArray | None
    round_number: int
    before: float
    after: float
    pending: PendingMetric | None = None


@dataclass(frozen=True, eq=False)
class _Solved:
    """A round with its best penalty, and its losses (k,) on held-out rows."""

    round: Round
    alpha: float
    losses: FloatArray


@dataclass(frozen=True, eq=False)
class _Run:
    """The rounds of a candidate on one pair of fitted and held-out rows, up to the best one."""

    candidate: Candidate
    times: float
    rounds: tuple[_Solved, ...]

    @property
    def last(self) -> _Solved:
        return self.rounds[-1]


@dataclass(frozen=True, eq=False)
class _Pair:
    """Rows that are fitted and rows that are held out, with the weights (k,) of the latter."""

    fitted: TrainingSample
    held: TrainingSample
    weight: FloatArray

    def losses(self, scores: FloatArray) -> FloatArray:
        """Return the losses (k,) of scores of the rows that are held out."""
        return row_losses(scores, to_host(self.held.y), self.held.labels, self.weight)

    @classmethod
    def of(cls, sample: TrainingSample, seed: int) -> "list[_Pair]":
        """Return one pair, or three folds of few rows."""
        m = sample.y.shape[0]
        order = generator(seed, _DRAW).permutation(m)
        cuts = np.array_split(order, FOLDS) if m <= FEW_ROWS else [order[: round(_HELD_OUT * m)]]
        parts = [(sample.rows(np.setdiff1d(order, cut)), sample.rows(np.sort(cut))) for cut in cuts]
        return [cls(fitted, held, to_host(held.shares)) for fitted, held in parts]


def learn_kernel(
    candidates: Sequence[Candidate], sample: TrainingSample, settings: FeatureLearning, seed: int
) -> LearnedKernel:
    """Return the kernel with the metric that predicts held-out rows best.

    Parameters
    ----------
    candidates : sequence of Candidate
        In order of simplicity. The kernel of the first is also what no metric is better than.
    sample : TrainingSample
    settings : FeatureLearning
    seed : int

    Raises
    ------
    DataError
        When all rows are equal.
    """
    pairs, tries = _Pair.of(sample, seed), _Tries(settings, seed)
    first = pairs[0]
    zero, leader = tries.race(candidates, first)
    before = float(zero.losses @ first.weight)
    if leader is None:
        return LearnedKernel(candidates[0].kernel, None, 0, before, before)
    leader = tries.with_length_scale(leader, first)
    losses, others = [leader.last.losses], [zero.losses]
    for pair in pairs[1:]:
        losses.append(_losses(tries.repeated(leader, pair.fitted)[1], pair, leader.last.alpha))
        others.append(_losses(tries.trial(candidates[0], pair.fitted).first(), pair, zero.alpha))
    weight = np.concatenate([pair.weight for pair in pairs]) / len(pairs)
    before, after = (float(np.concatenate(found) @ weight) for found in (others, losses))
    if not _is_better(np.concatenate(losses), np.concatenate(others), weight):
        return LearnedKernel(candidates[0].kernel, None, 0, before, before)
    fitted = first.fitted if len(pairs) == 1 else sample
    source, final = (leader.rounds[-2].round, leader.last.round) if len(pairs) == 1 else tries.repeated(leader, sample)
    trial = tries.trial(leader.candidate, fitted)
    pending = trial.pending(source, leader.rounds[-2].alpha, final, leader.times)
    return LearnedKernel(final.kernel, final.factor, len(leader.rounds) - 1, before, after, pending)


def _is_better(losses: FloatArray, others: FloatArray, weight: FloatArray) -> bool:
    """Return whether losses are lower than others on the same rows: by 3%, and by a standard error."""
    gaps = others - losses
    gain = float(gaps @ weight)
    deviation = float(((gaps - gain) ** 2 @ weight**2) ** 0.5)
    return gain > max(_BETTER * float(others @ weight), deviation, _ROUNDING)


@dataclass(frozen=True, eq=False)
class _Tries:
    """What all trials share."""

    settings: FeatureLearning
    seed: int

    def trial(self, candidate: Candidate, fitted: TrainingSample) -> Trial:
        rank = rank_for(fitted.X.shape[1], self.settings.rank)
        return Trial(candidate, fitted, self.settings.n_landmarks, rank, self.seed)

    def race(self, candidates: Sequence[Candidate], pair: _Pair) -> tuple[_Solved, _Run | None]:
        """Return round 0 of the first candidate, and the run that is better than it and all simpler ones, or None."""
        best: _Run | None = None
        zero: _Solved | None = None
        for candidate in candidates:
            run, at_first = self._run(candidate, pair)
            zero = at_first if zero is None else zero
            other = zero if best is None else best.last
            if len(run.rounds) > 1 and _is_better(run.last.losses, other.losses, pair.weight):
                best = run
        assert zero is not None
        return zero, best

    def _run(self, candidate: Candidate, pair: _Pair) -> tuple[_Run, _Solved]:
        """Return the rounds of a candidate up to the best one; two that are no better end it. And its round 0."""
        trial = self.trial(candidate, pair.fitted)
        rounds = [_solved(trial.first(), pair, _START)]
        means, best = [float(rounds[0].losses @ pair.weight)], 0
        for number in range(1, self.settings.n_iter + 1):
            before = rounds[-1]
            rounds.append(_solved(trial.after(before.round, before.alpha), pair, before.alpha))
            means.append(float(rounds[-1].losses @ pair.weight))
            best = int(np.argmin(means))
            if number - best >= _PATIENCE:
                break
        return _Run(candidate, candidate.times, tuple(rounds[: best + 1])), rounds[0]

    def with_length_scale(self, run: _Run, pair: _Pair) -> _Run:
        """Return the run with the multiple of the median distance that predicts held-out rows best."""
        trial, factor = self.trial(run.candidate, pair.fitted), run.last.round.factor
        assert factor is not None
        best = run
        for step in _STEPS if run.candidate.tunes_length_scale else ():
            for power in range(1, _MOST_STEPS + 1):
                times = run.times * step**power
                found = _solved(trial.weighted(factor, times), pair, best.last.alpha)
                if not _is_better(found.losses, best.last.losses, pair.weight):
                    break
                best = _Run(run.candidate, times, (*run.rounds[:-1], found))
            if best is not run:
                break
        return best

    def repeated(self, run: _Run, fitted: TrainingSample) -> tuple[Round, Round]:
        """Return the last two rounds of a run, repeated on other rows with the same penalties."""
        trial = self.trial(run.candidate, fitted)
        source = done = trial.first()
        for solved in run.rounds[:-1]:
            source, done = done, trial.after(done, solved.alpha)
        if done.factor is None or run.times == run.candidate.times:
            return source, done
        return source, trial.weighted(done.factor, run.times)


def _solved(done: Round, pair: _Pair, start: float) -> _Solved:
    alpha, losses = done.ridge.best(pair.held.X, lambda scores: pair.losses(scores + done.offset), pair.weight, start)
    return _Solved(replace(done, ridge=done.ridge.only(alpha)), alpha, losses)


def _losses(done: Round, pair: _Pair, alpha: float) -> FloatArray:
    return pair.losses(done.ridge.scores(alpha, pair.held.X) + done.offset)
