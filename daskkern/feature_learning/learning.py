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
_TIMES = (0.5, 2.0)
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
    folds, rank = _Folds.of(sample, seed), settings.rank or MOST_RANK
    found: dict[tuple[int, int], _Outcome] = {}
    for number, candidate in enumerate(candidates):
        for fitted, held in folds.pairs:
            trial = Trial(candidate, fitted, settings.n_landmarks, rank, seed)
            for at, done in enumerate(_rounds(trial, held, settings.n_iter)):
                found.setdefault((number, at), _Outcome()).add(done, held)
    zero = found[0, 0]
    number, at = min(found, key=lambda key: folds.mean(found[key]))
    chosen, candidate = found[number, at], candidates[number]
    if chosen is zero or not folds.is_better(chosen, zero):
        return LearnedKernel(candidates[0].kernel, None, 0, folds.mean(zero), folds.mean(zero))
    times = candidate.times
    if at and candidate.tunes_length_scale:
        times, chosen = _best_times(candidate, chosen, folds, settings, rank, seed)
    penalties = [SHARES[folds.best_share(found[number, before])] for before in range(at)]
    final = chosen.last
    assert final is not None
    kernel, factor = final.kernel, final.factor
    if at and len(folds.pairs) > 1:
        whole = Trial(candidate, sample, settings.n_landmarks, rank, seed)
        done = whole.first()
        for share in penalties:
            done = whole.after(done, float(share))
        assert done.factor is not None
        kernel, factor = whole.kernel_of(done.factor, times), done.factor
    return LearnedKernel(kernel, factor, at, folds.mean(zero), folds.mean(chosen))


def _rounds(trial: Trial, held: TrainingSample, n_iter: int) -> Iterator[Round]:
    """Yield rounds 0 to `n_iter`; each metric is that of the solution that predicts `held` best."""
    done = trial.first()
    yield done
    for _ in range(n_iter):
        errors = done.path.squared_errors(held.X, held.y) @ to_host(held.shares)
        done = trial.after(done, float(SHARES[int(np.argmin(errors))]))
        yield done


def _best_times(
    candidate: Candidate, chosen: _Outcome, folds: _Folds, settings: FeatureLearning, rank: int, seed: int
) -> tuple[float, _Outcome]:
    """Return the multiple of the median distance that predicts held-out rows best, and its errors."""
    best, times = chosen, candidate.times
    for step in _TIMES:
        while True:
            here, other = times * step, _Outcome()
            for (fitted, held), factor in zip(folds.pairs, chosen.factors, strict=True):
                assert factor is not None
                other.add(Trial(candidate, fitted, settings.n_landmarks, rank, seed).weighted(factor, here), held)
            if not folds.is_better(other, best):
                break
            best, times = other, here
        if times != candidate.times:
            break
    return times, best
