"""Screening of kernels by ridge regression: rungs on nested samples, each keeping the best candidates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from daskkern.data.schema.learned_scaling import IGNORED
from daskkern.model_selection.candidates import KernelCandidate, first_candidates, neighbours, warped, with_metrics
from daskkern.model_selection.ridge_trials import RidgeOutcome, try_kernel
from daskkern.model_selection.running import DrawnSample
from daskkern.model_selection.samples import Fold, SearchSample
from daskkern.model_selection.trial_log import TrialLog

FIRST, SECOND = 1000, 4000
"""Rows of the samples of the two rungs."""
_FOLDS = ((600, 5), (2500, 3))  # for samples of up to so many informative rows
_FEW = 400  # rows up to which the folds are drawn twice
_REFINED, _KEPT, _MOST_KEPT = 2, 3, 5
_MOST_STEPS = 4  # of a length scale
_METRIC_COST = 6.0  # seconds of a trial with a metric to one without
_EACH = 2.5  # power of the rows that the seconds of a trial grow with
_STEEP = "laplacian_l1"
_NONLINEAR = ("arcsinh", "ranks")  # the same as "affine" for features of few values
_ALIKE = 1.1  # ratio of units up to which a common one is the same
HELD_OUT = 0.25
"""Share of the rows that are held out where there is one fold."""

Ranked: TypeAlias = list[tuple[KernelCandidate, RidgeOutcome]]
"""Candidates with their outcomes, the best first."""


def screened(log: TrialLog, drawn: DrawnSample) -> Ranked:
    """Return the kernels that were compared on the sample of the first rung.

    First come the kernels with each scaling, then the best ones with other length scales, then with learned metrics.
    """
    sample = drawn.sample
    found = _compared(log, first_candidates(_scales_of(sample), sample.X, sample.info.categories), drawn)
    leaders = found[:_REFINED]
    refined = [other for leader, _ in leaders for other in neighbours(leader)]
    found = _ranked(found + _compared(log, refined, drawn))
    found = _with_best_scale(log, found, drawn)
    found = _ranked(found + _compared(log, _with_metrics(found, sample), drawn, _METRIC_COST))
    if found and found[0][0].metric != "none":
        found = _with_best_scale(log, found, drawn)
    return found


def screened_again(
    log: TrialLog,
    found: Ranked,
    drawn: DrawnSample,
    n_rows: int,
    draw: Callable[[int], DrawnSample],
    reserved: float = 0.0,
) -> tuple[Ranked, DrawnSample]:
    """Return the best kernels on a larger sample, and that; what is given where there are not enough rows.

    Three go on, or the best one of each kernel where there is time: the errors of kernels fall at different rates, and
    sums over single features need more than a thousand rows. The leader's kernel is then tried with the other scalings,
    and with other length scales.

    Parameters
    ----------
    log : TrialLog
    found : list of (KernelCandidate, RidgeOutcome)
        The kernels of the first rung.
    drawn : DrawnSample
        Its sample.
    n_rows : int
        All training rows.
    draw : callable
        Returns a sample of so many rows.
    reserved : float
        Seconds that the larger sample must leave: comparing whole fits is worth more than it.
    """
    sample, m = drawn.sample, min(n_rows, SECOND)
    if not found or m < 2 * sample.n_rows:
        return found, drawn
    kept = of_each_kernel(found)[:_MOST_KEPT]
    growth = (m / sample.n_rows) ** _EACH / len(_folds(sample, 0))
    seconds = [growth * outcome.seconds for _, outcome in kept]
    while len(kept) > _KEPT and not log.budget.allows(sum(seconds[: len(kept)]) + reserved):
        kept.pop()
    if not log.budget.allows(sum(seconds[: len(kept)]) + reserved):
        return found, drawn
    larger = draw(m)
    log.pace["ridge"] = max(seconds[: len(kept)])  # of these candidates: others took other times
    again = _compared(log, [candidate for candidate, _ in kept], larger)
    return (_refined(log, again, larger, reserved), larger) if again else (found, drawn)


def _refined(log: TrialLog, ranked: Ranked, drawn: DrawnSample, reserved: float) -> Ranked:
    """Return the candidates with the leader's kernel in all scalings and with other length scales.

    All scalings are compared with half and twice the length scale, the best two of them with further ones. A kernel
    with a learned metric stays as it is.
    """
    leader = ranked[0][0]
    if leader.metric != "none":
        return ranked
    scaled = [replace(leader, scale=scale) for scale in _scales_of(drawn.sample) if scale != leader.scale]
    ranked = ranked + _compared(log, scaled, drawn, reserved=reserved)
    alike = [pair for pair in ranked if _without_scales(pair[0]) == _without_scales(leader)]
    edges = [candidate for candidate, _ in alike]
    for _ in range(_MOST_STEPS):
        known = {candidate for candidate, _ in alike}
        further = [other for edge in edges for other in neighbours(edge) if other not in known]
        found = _compared(log, _distinct(further), drawn, reserved=reserved)
        if not found:
            break
        alike += found
        edges = [pairs[0][0] for pairs in _by_scale(alike)[:_REFINED]]
    others = [pair for pair in ranked if _without_scales(pair[0]) != _without_scales(leader)]
    return _ranked(others + [_shortest(pairs) for pairs in _by_scale(alike)])


def _without_scales(candidate: KernelCandidate) -> KernelCandidate:
    return replace(candidate, scale=None, times=1.0)


def _by_scale(found: Ranked) -> list[Ranked]:
    """Return the candidates of each scaling, both in the order of their losses."""
    ranked = _ranked(found)
    scales = dict.fromkeys(candidate.scale for candidate, _ in ranked)
    return [[pair for pair in ranked if pair[0].scale == scale] for scale in scales]


def _shortest(ranked: Ranked) -> tuple[KernelCandidate, RidgeOutcome]:
    """Return the candidate with the shortest length scale of those that may be as good as the best one: with all rows
    shorter ones become better, and their equations are better conditioned."""
    best = ranked[0][1].held
    return min((pair for pair in ranked if pair[1].held.may_equal(best)), key=lambda pair: pair[0].times)


def _scales_of(sample: SearchSample) -> tuple[str | None, ...]:
    """Return the scalings of a sample without those that are the same as "affine"."""
    same = {scale for scale in _NONLINEAR if scale in sample.scalings and sample.scalings[scale].is_affine}
    if "common" in sample.scalings:
        units = [unit for unit in sample.scalings["affine"].scale if unit < IGNORED]
        same |= {"common"} if max(units, default=1.0) <= _ALIKE * min(units, default=1.0) else set()
    return tuple(scale for scale in sample.scalings if scale not in same)


def n_folds_of(sample: SearchSample, m: int) -> int:
    """Return in how many folds m rows like a sample are divided; one fold holds out a quarter of them."""
    return next((k for most, k in _FOLDS if sample.informative(m) <= most), 1)


def n_repeats_of(m: int) -> int:
    """Return how often folds of m rows are drawn."""
    return 2 if m <= _FEW else 1


def finalists(ranked: Ranked) -> Ranked:
    """Return the best candidate, and the best one of another kernel or kind of metric; between them the best one of the
    same kernel with another scaling, where it is better than the latter."""
    first = ranked[0][0]
    kind = first.kernel, first.metric
    others = [pair for pair in ranked if (pair[0].kernel, pair[0].metric) != kind][:1]
    ahead = ranked[1 : ranked.index(others[0])] if others else ranked[1:]
    scaled = [pair for pair in ahead if pair[0].scale != first.scale]
    return [ranked[0], *scaled[:1], *others]


def of_each_kernel(ranked: Ranked) -> Ranked:
    """Return the best candidate of each kernel first, then the others: variants of one kernel are good by the same
    chance of a sample."""
    best = {pair[0].kernel: pair for pair in reversed(ranked)}
    leading = [pair for pair in ranked if best[pair[0].kernel] is pair]
    return leading + [pair for pair in ranked if best[pair[0].kernel] is not pair]


def _with_metrics(ranked: Ranked, sample: SearchSample) -> list[KernelCandidate]:
    """Return the best kernel, and the best one that can have directions, with learned metrics, and with warped features
    the best one and that of single differences, which a threshold of one feature suits."""
    if not ranked:
        return []
    leaders = [ranked[0][0]]
    radial = [
        candidate for candidate, _ in ranked if any(one.metric == "full" for one in with_metrics(candidate, sample.X))
    ]
    leaders += [candidate for candidate in radial[:1] if candidate != leaders[0]]
    warps = _distinct([ranked[0][0], *[one for one, _ in ranked if one.kernel == _STEEP][:1]])
    learned = [other for leader in leaders for other in with_metrics(leader, sample.X)]
    return learned + [other for leader in warps for other in warped(leader, sample.X)]


def _with_best_scale(log: TrialLog, ranked: Ranked, drawn: DrawnSample) -> Ranked:
    """Return the candidates with the best one's length scale halved or doubled, as long as that helps."""
    for _ in range(_MOST_STEPS):
        known = {candidate for candidate, _ in ranked}
        found = _compared(log, [one for one in neighbours(ranked[0][0]) if one not in known], drawn) if ranked else []
        if not found:
            break
        ranked = _ranked(ranked + found)
    return ranked


def _distinct(candidates: Sequence[KernelCandidate]) -> list[KernelCandidate]:
    return list(dict.fromkeys(candidates))


def _compared(
    log: TrialLog,
    candidates: Sequence[KernelCandidate],
    drawn: DrawnSample,
    growth: float = 1.0,
    reserved: float = 0.0,
) -> Ranked:
    """Return the candidates with their outcomes on a sample, the best first; see :meth:`TrialLog.run` for the rest."""
    folds = folds_of(drawn.sample)
    n_folds = sum(map(len, folds))
    outcomes = log.run(
        "ridge", try_kernel, candidates, drawn, folds, n_folds, growth=growth, reserved=reserved, together=True
    )
    return _ranked(outcomes)


def folds_of(sample: SearchSample) -> list[list[Fold]]:
    """Return the folds of a comparison of kernels, drawn twice where rows are few."""
    return [_folds(sample, repeat) for repeat in range(n_repeats_of(sample.n_rows))]


def _folds(sample: SearchSample, repeat: int) -> list[Fold]:
    return sample.folds(n_folds_of(sample, sample.n_rows), HELD_OUT, repeat)


def _ranked(found: Ranked) -> Ranked:
    """Return candidates by their loss; of equal ones those that were tried first go first."""
    return sorted(found, key=lambda pair: pair[1].held.mean)
