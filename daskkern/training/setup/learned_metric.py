"""The learned metric of a fit's kernel, computed on sampled rows before landmarks and preconditioner.

The sample, its folds and its landmarks follow from the seed, and the set-up runs once for all ranks: the metric is the
same for any number of them. Landmarks of the fit are drawn later, and know nothing of those of the sample.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.concurrency import compute_threads, cpu_count, decomposition_threads, library_threads
from daskkern.backend.namespace import free_unused_memory, is_sparse, namespace_for, namespace_with, to_device
from daskkern.basis import uses_kernel
from daskkern.cluster.collectives.virtual import run_virtual
from daskkern.data.rows.rows import Fields
from daskkern.errors import DataError, SpecError
from daskkern.events import StageFinished
from daskkern.feature_learning import (
    Candidate,
    FeatureLearning,
    LearnedKernel,
    PendingMetric,
    TrainingSample,
    learn_kernel,
)
from daskkern.feature_learning.costs import LearningCosts
from daskkern.feature_learning.metric import MOST_SQUARE, median_of
from daskkern.feature_learning.passes import mean_outer_product
from daskkern.kernels import AutoKernel, Kernel, RadialKernel, ScaledDistanceKernel
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows
from daskkern.training.setup.penalty import encoded
from daskkern.training.setup.prepared import Clock, Draft, training_rows
from daskkern.training.setup.scaling import with_scaling
from daskkern.training.setup.shared import TARGETS

_LEAST_ROWS = 20
_DRAW = 68


def check_feature_learning(settings: FitSettings, source: RowSource) -> None:
    """Raise SpecError where the metric of the kernel cannot be learned, before anything is started."""
    learning, kernel, info = settings.learn_features, settings.kernel, source.info
    if learning is None:
        return
    if not uses_kernel(settings.basis):
        raise SpecError(f"got learn_features with the basis {settings.basis.name}, which uses no kernel; leave it out")
    if not isinstance(kernel, ScaledDistanceKernel):
        raise SpecError(
            f"got learn_features with the {kernel.name} kernel; expected one with a length scale, such as 'laplacian' "
            "or 'gaussian', or 'auto'"
        )
    if isinstance(kernel.length_scale, tuple) or (isinstance(kernel, RadialKernel) and kernel.has_metric):
        raise SpecError(
            f"got learn_features with a {kernel.name} kernel that has a metric or length scales per feature; give one "
            "number or 'median'"
        )
    if learning.metric != "full":
        return
    if kernel.categories:
        raise SpecError("got learn_features='full' for codes, which have no directions; choose 'diagonal'")
    if not isinstance(kernel, RadialKernel):
        raise SpecError(
            f"got learn_features='full' with the {kernel.name} kernel, which is a sum over features; choose 'diagonal'"
        )
    if info.n_stored is not None:
        raise SpecError("got learn_features='full' for sparse rows; expected dense rows; choose 'diagonal'")


def with_learned_metric(
    settings: FitSettings, requested: Kernel, choice: ChoiceRows, clock: Clock
) -> tuple[FitSettings, PendingMetric | None]:
    """Return `settings` with the metric that sampled rows find best for its kernel, or as they are.

    And what is still to be made of all rows, where the settings of feature learning say so.

    Parameters
    ----------
    settings : FitSettings
        Its kernel has numbers for parameters.
    requested : Kernel
        The kernel that the user named: its length scale, where it is a number, remains the same multiple of the median
        distance. With "auto", other kernels are tried with a metric as well.
    choice : ChoiceRows
        Training rows, scaled.
    clock : Clock
        Told what was learned.
    """
    learning = settings.learn_features
    if learning is None:
        return settings, None
    sample = _sampled(choice, min(learning.n_sampled, choice.rows.n_rows))
    m = len(sample.y)
    if m < _LEAST_ROWS:
        clock.stage("features", f"no metric: {m} row{'s' * (m != 1)} that count are too few to learn one")
        return settings, None
    try:
        n_centres = min(choice.rows.n_rows, int(getattr(settings.basis, "n", choice.rows.n_rows)))
        found = _learned(settings, requested, learning, sample, n_centres)
    except DataError as error:
        clock.stage("features", f"no metric: {error}")
        return settings, None
    if found is None or found.factor is None:
        clock.stage("features", f"no metric: held-out rows of {m:,} gain nothing by one")
        return settings, None
    clock.stage("features", _described(found, found.factor.shape))
    return replace(settings, kernel=found.kernel), found.pending if learning.of_all_rows else None


@dataclass(frozen=True, eq=False)
class FoundMetric:
    """The factor of a metric, from a pass over `n_rows` rows that took `seconds`."""

    factor: FloatArray
    n_rows: int
    seconds: float


def metric_of_share(
    source: RowSource, draft: Draft, comm: Communicator, should_stop: Callable[[], bool] = lambda: False
) -> FoundMetric | None:
    """Return the metric that gradients at all rows make, the same on every rank of `comm`; None where it was stopped.

    A collective. Each rank reads its share of the blocks of `source`, the training rows, unscaled.
    """
    settings, pending, started = draft.settings, draft.pending, time.perf_counter()
    assert pending is not None
    rows = training_rows(with_scaling(source, draft.scaling).open(settings.dtype), draft.validation)
    xp, product = namespace_for(settings.device), pending.product
    try:
        mean = mean_outer_product(pending.function, product, rows, draft.targets.weight, comm, xp, should_stop)
    finally:
        free_unused_memory(xp)
    if mean is None:
        return None
    with library_threads(decomposition_threads(len(mean))):
        factor = pending.factor(product, mean)
    return FoundMetric(factor, rows.n_rows, time.perf_counter() - started)


def metric_here(source: RowSource, draft: Draft) -> FoundMetric | None:
    """Return :func:`metric_of_share` of this process alone, on all its cores."""
    return metric_on(SerialCommunicator(), source, draft, cpu_count())


def metric_on(
    comm: Communicator,
    source: RowSource,
    draft: Draft,
    threads: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> FoundMetric | None:
    """Return :func:`metric_of_share` of a real rank: of its virtual ranks, where the settings have some."""
    shards = draft.settings.virtual_shards
    if shards is None:
        with compute_threads(threads):
            return metric_of_share(source, draft, comm, should_stop)
    each = draft.settings.shards_each(comm.size)

    def run(virtual: Communicator, place: int) -> FoundMetric | None:
        with compute_threads(max(1, threads // each)):
            return metric_of_share(source, draft, virtual, should_stop)

    return run_virtual(comm, shards, run)[0]


def with_found_metric(draft: Draft, found: FoundMetric, clock: Clock) -> FitSettings:
    """Return the settings of a draft with the metric of all rows: that of the sample where it has no length scale."""
    assert draft.pending is not None
    try:
        kernel = draft.pending.kernel(found.factor)
    except DataError as error:
        clock.stage("gradients", f"the metric of sampled rows is used: {error}")
        return draft.settings
    clock.stages.append(StageFinished("gradients", found.seconds, f"the metric is that of all {found.n_rows:,} rows"))
    return replace(draft.settings, kernel=kernel)


def _sampled(choice: ChoiceRows, m: int) -> TrainingSample:
    """Return m rows on the host, less those of weight 0: folds of nothing else would have no mean."""
    _, block, weight = choice.drawn(m, _DRAW, Fields.X | TARGETS)
    assert block.X is not None
    assert block.y is not None
    labels = block.y.ravel().astype(np.int64) if choice.targets.n_classes else None
    sample = TrainingSample(block.X.astype(np.float64), encoded(choice.targets, block.y), weight, labels)
    return sample if weight is None or weight.all() else sample.rows(np.flatnonzero(weight))


def _learned(
    settings: FitSettings, requested: Kernel, learning: FeatureLearning, sample: TrainingSample, n_centres: int
) -> LearnedKernel | None:
    if not sample.y.any():
        return None
    weight = sample.weight
    (m, d), c = sample.X.shape, sample.y.shape[1]
    costs = LearningCosts(m, d, d, c, learning, full=learning.metric != "diagonal")
    xp = namespace_with(settings.device, costs.sample_bytes(1))
    try:
        X = to_device(sample.X, xp)
        placed = TrainingSample(X, xp.asarray(sample.y), None if weight is None else xp.asarray(weight), sample.labels)
        tried = candidates(settings.kernel, requested, learning, X)
        others = with_found_metrics(settings, requested, X)
        return learn_kernel(tried, placed, learning, settings.seed, others, n_centres)
    finally:
        free_unused_memory(xp)


def candidates(kernel: Kernel, requested: Kernel, learning: FeatureLearning, X: Array) -> list[Candidate]:
    """Return the kernels and the kinds of metric that are tried for rows X, the fit's own kernel first."""
    if isinstance(requested, AutoKernel) and isinstance(getattr(kernel, "length_scale", None), tuple):
        kernel = requested.resolve(X)  # without the weights that were chosen: others are learned
    assert isinstance(kernel, ScaledDistanceKernel)
    kernels = [kernel]
    if isinstance(requested, AutoKernel):
        others = [other for other in requested.with_metric(X) if type(other) is not type(kernel)]
        kernels += [other for other in others if learning.metric != "full" or isinstance(other, RadialKernel)]
    tunes = isinstance(requested, ScaledDistanceKernel) and requested.length_scale == "median"
    found = []
    for one in kernels:
        assert isinstance(one.length_scale, float)
        times = one.length_scale / median_of(one, X)
        found += [Candidate(one, times, diagonal, tunes) for diagonal in _kinds(one, learning, X)]
    return sorted(found, key=lambda one: not one.diagonal)


def with_found_metrics(settings: FitSettings, requested: Kernel, X: Array) -> list[Candidate]:
    """Return the kernels that are tried with the metric of the best candidate: smooth ones, of exact solutions."""
    if not isinstance(requested, AutoKernel) or not settings.solver.solves_exactly:
        return []
    found = []
    for one in requested.smooth(X):
        assert isinstance(one.length_scale, float)
        if type(one) is not type(settings.kernel):  # which was a candidate
            found.append(Candidate(one, one.length_scale / median_of(one, X), diagonal=True))
    return found


def _kinds(kernel: ScaledDistanceKernel, learning: FeatureLearning, X: Array) -> list[bool]:
    """Return whether only the diagonal of the metric is learned: each kind that is tried, the simpler one first."""
    takes_full = isinstance(kernel, RadialKernel) and not is_sparse(X)
    if learning.metric == "auto":
        return [True, False] if takes_full and X.shape[1] <= MOST_SQUARE else [True]
    return [learning.metric == "diagonal" or not takes_full]


def learning_costs(settings: FitSettings, info: SourceInfo, n_rows: int, width: int, c: int) -> LearningCosts | None:
    """Return what the settings' feature learning takes; None without one.

    Parameters
    ----------
    settings : FitSettings
    info : SourceInfo
    n_rows : int
        Training rows.
    width : int
        Numbers that a row takes.
    c : int
        Outputs of the fit.
    """
    learning = settings.learn_features
    if learning is None:
        return None
    dense = info.n_stored is None and isinstance(settings.kernel, RadialKernel)
    full = dense and (learning.metric == "full" or (learning.metric == "auto" and info.n_features <= MOST_SQUARE))
    # A regression has a score for each class, where the loss of the fit may have fewer.
    classes = len(info.classes) if info.classes is not None and len(info.classes) > 2 else 0
    kernel, d = settings.kernel, info.n_features
    costs = LearningCosts(n_rows, d, width, max(1, c, classes), learning, full)
    if isinstance(kernel, ScaledDistanceKernel):
        return replace(costs, median_numbers=kernel.median_numbers(d))
    return costs


def candidate_count(settings: FitSettings) -> int:
    """Return the most kernels and kinds of metric that are tried."""
    learning = settings.learn_features
    if learning is None:
        return 0
    kernels = 2 if isinstance(settings.kernel, AutoKernel) else 1
    smooth = isinstance(settings.kernel, AutoKernel) and settings.solver.solves_exactly
    return kernels + (learning.metric == "auto") + smooth  # one smooth kernel goes on, and others are solved once


def _described(found: LearnedKernel, shape: tuple[int, ...]) -> str:
    what = f"{shape[1]} directions of" if len(shape) == 2 else "weights of"
    return (
        f"{what} {shape[0]:,} features for the {found.kernel.name} kernel, round {found.round_number}: mean loss "
        f"on held-out rows {found.before:.3g} -> {found.after:.3g}"
    )
