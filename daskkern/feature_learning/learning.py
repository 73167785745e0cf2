"""The choice of a kernel with a learned metric: trials on a sample, compared on held-out rows.

Each candidate alternates kernel ridge regression and the average gradient outer product of its solution as the next
metric. The round of the least loss on held-out rows counts, round 0 of the kernel as it was among them: learned
metrics do harm where every direction matters, or where rows are few (Radhakrishnan et al., Science 2024; Beaglehole et
al., "xRFM", 2025). Few landmarks favour metrics of few directions, and smooth kernels, more than the many of a fit do.
Candidates are therefore in order of simplicity, and a later one is taken where its loss is lower by 3% and by a
standard error of the difference on the same rows. Where a fit is solved exactly, few landmarks favour nothing: smooth
kernels are tried again with the metric of the best candidate, and continue from there. A kernel that is good without a
metric decides otherwise which one has it (noise-free functions of a few of many features are the plainest case).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.feature_learning.metric_runs import HeldOutPair, MetricRuns, is_better
from daskkern.feature_learning.pending import PendingMetric
from daskkern.feature_learning.settings import FeatureLearning
from daskkern.feature_learning.trials import Candidate, TrainingSample
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel


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


def learn_kernel(
    candidates: Sequence[Candidate],
    sample: TrainingSample,
    settings: FeatureLearning,
    seed: int,
    others: Sequence[Candidate] = (),
    n_centres: int = 0,
) -> LearnedKernel:
    """Return the kernel with the metric that predicts held-out rows best.

    Parameters
    ----------
    candidates : sequence of Candidate
        In order of simplicity. The kernel of the first is also what no metric is better than.
    sample : TrainingSample
    settings : FeatureLearning
    seed : int
    others : sequence of Candidate
        Kernels that are tried with the metric of the best candidate only; their kinds of metric do not count.
    n_centres : int, optional
        Centres of the fit. Where they are at least four times as many as the landmarks of the trials, a candidate must
        also be better than the simpler ones if what half the landmarks have gained goes on at half its rate.

    Raises
    ------
    DataError
        When all rows are equal.
    """
    pairs, runs = HeldOutPair.of(sample, seed), MetricRuns(settings, seed, n_centres)
    first = pairs[0]
    zero, leader = runs.race(candidates, first)
    before = first.mean(zero.losses)
    if leader is None:
        return LearnedKernel(candidates[0].kernel, None, 0, before, before)
    leader = runs.with_length_scale(leader, first)
    kind = leader.last.candidate
    smooth = runs.with_kernels(leader, [replace(other, diagonal=kind.diagonal) for other in others], first)
    weight = np.concatenate([pair.weight for pair in pairs]) / len(pairs)
    without = np.concatenate([zero.losses, *(runs.first_losses(candidates[0], zero.alpha, pair) for pair in pairs[1:])])
    losses = runs.losses_of(leader, pairs)
    if smooth is not leader and is_better(found := runs.losses_of(smooth, pairs), losses, weight):
        leader, losses = smooth, found
    before, after = float(without @ weight), float(losses @ weight)
    if not is_better(losses, without, weight):
        return LearnedKernel(candidates[0].kernel, None, 0, before, before)
    fitted, source, final = first.fitted, leader.steps[leader.source].round, leader.last.round
    if len(pairs) > 1:
        fitted, (source, final) = sample, runs.repeated(leader, sample)
    pending = runs.pending(leader, source, final, fitted)
    return LearnedKernel(final.kernel, final.factor, leader.n_metrics, before, after, pending)
