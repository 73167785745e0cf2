"""The choice of a kernel whose metric is learned: trials on folds of a sample, compared on rows that were left out.

Each candidate alternates kernel ridge regression and the average gradient outer product of its solution as the next
metric. The round of the least error on held-out rows counts, round 0 of the kernel as it was among them: learned
metrics do harm where every direction matters, or where rows are few (Radhakrishnan et al., Science 2024; Beaglehole et
al., "xRFM", 2025). Another round than that is taken where its error is lower by more than one standard error of the
difference of both on the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.random import generator
from daskkern.feature_learning.metric import MOST_RANK
from daskkern.feature_learning.ridge import SHARES
from daskkern.feature_learning.settings import FeatureLearning
from daskkern.feature_learning.trials import Candidate, Round, TrainingSample, Trial
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel

_FOLDS, _FEW_ROWS = 3, 2500
_HELD_OUT = 0.2
_STEPS, _MOST_STEPS = (0.5, 2.0), 3  # factors of the length scale, and how often each is applied
_PATIENCE = 2
_DRAW = 73


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """The kernel of the least error on held-out rows.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
    factor : (d,) weights or (d, k) matrix, or None
        Of the metric; None where the kernel is the first candidate as it was.
    round_number : int
        Round of the metric; 0 without one.
    before, after : float
        Mean squared errors on held-out rows of the first candidate as it was, and of this kernel.
    """

    kernel: ScaledDistanceKernel
    factor: FloatArray | None
    round_number: int
    before: float
    after: float


@dataclass(eq=False)
class _Outcome:
    """Squared errors (number of penalties, k) of one kernel of every fold, and the factors of its metrics."""

    errors: list[FloatArray] = field(default_factory=list)
    factors: list[FloatArray | None] = field(default_factory=list)
    last: Round | None = None

    def add(self, done: Round, held: TrainingSample) -> FloatArray:
        found = done.path.squared_errors(held.X, held.y)
        self.errors.append(found)
        self.factors.append(done.factor)
        self.last = done
        return found


@dataclass(frozen=True, eq=False)
class _Folds:
    """Pairs of rows that are fitted and held out, and the weights of the latter in one mean over all folds."""

    pairs: tuple[tuple[TrainingSample, TrainingSample], ...]
    weight: FloatArray

    @classmethod
    def of(cls, sample: TrainingSample, seed: int) -> "_Folds":
        m = sample.y.shape[0]
        order = generator(seed, _DRAW).permutation(m)
        cuts = np.array_split(order, _FOLDS) if m <= _FEW_ROWS else [order[: round(_HELD_OUT * m)]]
        held = [np.sort(cut) for cut in cuts]
        pairs = tuple((sample.rows(np.setdiff1d(order, cut)), sample.rows(cut)) for cut in held)
        counts = np.concatenate([to_host(part.shares) * part.y.shape[0] for _, part in pairs])
        return cls(pairs, counts / counts.sum())

    def best_share(self, outcome: _Outcome) -> int:
        """Return the number of the penalty of the least mean error over all folds."""
        return int(np.argmin(np.concatenate(outcome.errors, axis=1) @ self.weight))

    def losses(self, outcome: _Outcome) -> FloatArray:
        """Return the squared errors (k,) of all held-out rows with the best penalty."""
        found: FloatArray = np.concatenate(outcome.errors, axis=1)[self.best_share(outcome)]
        return found

    def mean(self, outcome: _Outcome) -> float:
        return float(self.losses(outcome) @ self.weight)

    def is_better(self, one: _Outcome, other: _Outcome) -> bool:
        """Return whether the errors of `one` are lower than those of `other` by more than a standard error."""
        gaps = self.losses(other) - self.losses(one)
        gain = float(gaps @ self.weight)
        return gain > float(((gaps - gain) ** 2 @ self.weight**2) ** 0.5)


def learn_kernel(
    candidates: Sequence[Candidate], sample: TrainingSample, settings: FeatureLearning, seed: int
) -> LearnedKernel:
    """Return the kernel with the metric that predicts held-out rows best.

    Parameters
    ----------
    candidates : sequence of Candidate
        The kernel of the first is also what no metric is better than.
    sample : TrainingSample
    settings : FeatureLearning
    seed : int

    Raises
    ------
    DataError
        When all rows are equal.
    """
    folds, tries = _Folds.of(sample, seed), _Tries(sample, settings, seed)
    number, limit = _leader(candidates, folds, tries)
    zero, found = _Outcome(), [_Outcome() for _ in range(limit + 1)]
    for fitted, held in folds.pairs:
        zero.add(tries.of(candidates[0], fitted).first(), held)
        for outcome, done in zip(found, _rounds(tries.of(candidates[number], fitted), held, limit), strict=True):
            outcome.add(done, held)
    at = min(range(limit + 1), key=lambda at: folds.mean(found[at]))
    before = folds.mean(zero)
    if (not at and not number) or not folds.is_better(found[at], zero):
        return LearnedKernel(candidates[0].kernel, None, 0, before, before)
    times, chosen = _best_times(candidates[number], found[at], folds, tries) if at else (1.0, found[at])
    final = _on_all_rows(candidates[number], chosen, found[:at], times, folds, tries)
    return LearnedKernel(final.kernel, final.factor, at, before, folds.mean(chosen))


@dataclass(frozen=True, eq=False)
class _Tries:
    """What all trials share."""

    sample: TrainingSample
    settings: FeatureLearning
    seed: int

    def of(self, candidate: Candidate, fitted: TrainingSample) -> Trial:
        """Return the trial of a candidate on some rows."""
        return Trial(candidate, fitted, self.settings.n_landmarks, self.settings.rank or MOST_RANK, self.seed)


def _leader(candidates: Sequence[Candidate], folds: _Folds, tries: _Tries) -> tuple[int, int]:
    """Return the candidate with the least error on the first fold, and how many rounds it is worth."""
    fitted, held = folds.pairs[0]
    best = (np.inf, 0, 0)
    for number, candidate in enumerate(candidates):
        least = (np.inf, 0)
        for at, done in enumerate(_rounds(tries.of(candidate, fitted), held, tries.settings.n_iter)):
            least = min(least, (_held_out_error(done, held), at))
            if at - least[1] >= _PATIENCE:
                break
        best = min(best, (least[0], number, least[1]))
    return best[1], min(best[2] + 1, tries.settings.n_iter)


def _rounds(trial: Trial, held: TrainingSample, n_iter: int) -> Iterator[Round]:
    """Yield rounds 0 to `n_iter`; each metric is that of the solution that predicts `held` best."""
    done = trial.first()
    yield done
    for _ in range(n_iter):
        errors = done.path.squared_errors(held.X, held.y) @ to_host(held.shares)
        done = trial.after(done, float(SHARES[int(np.argmin(errors))]))
        yield done


def _held_out_error(done: Round, held: TrainingSample) -> float:
    return float((done.path.squared_errors(held.X, held.y) @ to_host(held.shares)).min())


def _best_times(candidate: Candidate, chosen: _Outcome, folds: _Folds, tries: _Tries) -> tuple[float, _Outcome]:
    """Return the multiple of the median distance that predicts held-out rows best, and its errors."""
    times, best = candidate.times, chosen
    for step in _STEPS if candidate.tunes_length_scale else ():
        for power in range(1, _MOST_STEPS + 1):
            other, here = _Outcome(), candidate.times * step**power
            for (fitted, held), factor in zip(folds.pairs, chosen.factors, strict=True):
                assert factor is not None
                other.add(tries.of(candidate, fitted).weighted(factor, here), held)
            if not folds.is_better(other, best):
                break
            times, best = here, other
        if best is not chosen:
            break
    return times, best


def _on_all_rows(
    candidate: Candidate, chosen: _Outcome, before: Sequence[_Outcome], times: float, folds: _Folds, tries: _Tries
) -> Round:
    """Return the chosen round: that of the only fold, or the same rounds repeated on all rows of the sample."""
    assert chosen.last is not None
    if len(folds.pairs) == 1:
        return chosen.last
    trial = tries.of(candidate, tries.sample)
    done = trial.first()
    for outcome in before:
        done = trial.after(done, float(SHARES[folds.best_share(outcome)]))
    return done if done.factor is None else trial.weighted(done.factor, times)
