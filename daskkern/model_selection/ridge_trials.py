"""Trials of kernels by cross-validated ridge regression on sampled rows, with or without a learned metric.

With K the kernel of the n fitted rows and W their weights, which add up to 1, the minimiser of
``sum_i w_i (f(x_i) - y_i)^2 + alpha |f|^2`` is ``f = sum_i k(., x_i) a_i`` with ``a = W^(1/2) z`` and

    (W^(1/2) K W^(1/2) + alpha) z = W^(1/2) (y - mean)

A metric is the average gradient outer product of the function with the best penalty so far
(:mod:`daskkern.feature_learning`); it knows nothing of the rows of the fold that are held out.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.schema.column_scaling import Scaling
from daskkern.errors import DataError
from daskkern.feature_learning.gradients import gradient_outer_product
from daskkern.feature_learning.metric import MOST_RANK, factor_of, weights_of, with_factor
from daskkern.kernels import ScaledDistanceKernel
from daskkern.linalg.leave_one_out import left_out_scores, ridge_coefficients
from daskkern.model_selection.candidates import KernelCandidate, ScaledKernel
from daskkern.model_selection.held_out import HeldOut, held_out_losses
from daskkern.model_selection.relevance import relevance, spread
from daskkern.model_selection.samples import Fold, SearchSample
from daskkern.model_selection.warped_features import knots_of, warp_of

ALPHAS: tuple[float, ...] = tuple(10.0**k for k in np.arange(-6.0, 0.51, 0.5))
"""Penalties that are tried, for k(x, x) = 1; the last ones give nearly constant functions."""
_START = 7  # number of the penalty from which the best one is looked for: 10^-2.5
_ROUNDS, _WARPS = 3, 10
_GRADIENT_ROWS = 1500
_MOST_KEPT = 1 << 13  # numbers of a metric or a warp that is kept for other trials
_DRAW = 83


@dataclass(frozen=True, eq=False)
class RidgeOutcome:
    """The result of a trial of a kernel.

    Attributes
    ----------
    held : HeldOut
        Losses and wrong labels on held-out rows, with the best penalty and number of metrics.
    alpha : float
        The penalty, for a number of rows that is a fold's.
    n_fitted : int
    alphas : tuple of float
        The penalties of the rounds before: with each, the next metric is learned. Empty without a metric.
    seconds : float
    """

    held: HeldOut
    alpha: float
    n_fitted: int
    alphas: tuple[float, ...]
    seconds: float


def try_kernel(candidate: KernelCandidate, sample: SearchSample, folds: Sequence[Sequence[Fold]]) -> RidgeOutcome:
    """Return how well ridge regression with a candidate predicts held-out rows.

    Parameters
    ----------
    candidate : KernelCandidate
    sample : SearchSample
    folds : sequence of sequences of Fold
        One for each repetition; losses of a row are averaged over them.

    Raises
    ------
    DataError
        When all rows are equal.
    """
    begun = time.perf_counter()
    trial = _Trial.of(candidate, sample, [fold for repeat in folds for fold in repeat], len(folds))
    kernels = [trial.start(fold.fitted) for fold in trial.folds]
    best, at = trial.best(kernels, _START)
    alphas: tuple[float, ...] = ()
    if candidate.metric != "none":
        found = [(best, at, alphas)] if candidate.metric == "relevance" else []
        for _ in range(_WARPS if candidate.metric == "warped" else _ROUNDS):
            alphas = (*alphas, ALPHAS[at])
            kernels = [
                trial.learned(kernel, fold.fitted, alphas) for kernel, fold in zip(kernels, trial.folds, strict=True)
            ]
            held, at = trial.best(kernels, at)
            found.append((held, at, alphas))
            if len(found) > 1 and held.mean >= found[-2][0].mean:
                break
        best, at, alphas = min(found, key=lambda one: one[0].mean)
    return RidgeOutcome(best, ALPHAS[at], len(trial.folds[0].fitted), alphas, time.perf_counter() - begun)


def try_in_leaves(
    scale: str | None, kernel: ScaledDistanceKernel, sample: SearchSample, leaves: Sequence[Fold]
) -> RidgeOutcome:
    """Return how well ridge regression of its own in each leaf predicts the rows that are held out there.

    Each of them is predicted from all other rows of its leaf, by the formula for rows that are left out: models of a
    part of the rows would be worse than those of the fit.

    Parameters
    ----------
    scale : str or None
        Of the features.
    kernel : ScaledDistanceKernel
        As fits use it.
    sample : SearchSample
    leaves : sequence of Fold
    """
    begun, X = time.perf_counter(), sample.scaled(scale)
    whole = [Fold(np.concatenate([leaf.held, leaf.fitted]), leaf.held[:0]) for leaf in leaves]
    grams = [_gram(kernel, X, fold) for fold in whole]

    def losses(alpha: float) -> HeldOut:
        scores = []
        for gram, fold, leaf in zip(grams, whole, leaves, strict=True):
            weight, mean, y = _centred(sample, fold)
            scores.append(left_out_scores(gram, weight, y, alpha)[: len(leaf.held)] + mean)
        return held_out_losses(sample, leaves, scores)

    held, at = best_penalty(losses, _START)
    return RidgeOutcome(held, ALPHAS[at], len(whole[0].fitted), (), time.perf_counter() - begun)


def learned_kernel(candidate: KernelCandidate, sample: SearchSample, outcome: RidgeOutcome) -> ScaledKernel:
    """Return the kernel of a candidate for a fit: its length scale, metric, or warp, is that of all sampled rows."""
    return kernel_learned_from(candidate, sample, outcome.alphas, np.arange(sample.n_rows))


def kernel_learned_from(
    candidate: KernelCandidate, sample: SearchSample, alphas: Sequence[float], rows: IntArray
) -> ScaledKernel:
    """Return the kernel of a candidate with the metric learned from sampled rows, in a round for each of `alphas`."""
    return _Trial.of(candidate, sample, [], 1).learned_from(rows, alphas)


def fold_grams(
    candidate: KernelCandidate, sample: SearchSample, folds: Sequence[Fold], alphas: Sequence[float]
) -> list[FloatArray]:
    """Return the kernels of each fold: of the fitted rows, then those held out, and the fitted ones (n + k, n).

    A metric is learned from the fitted rows, in one round for each of `alphas`.
    """
    trial = _Trial.of(candidate, sample, list(folds), 1)
    return [trial.gram(trial.learned_from(fold.fitted, alphas), fold) for fold in folds]


def local_minimum(loss: Callable[[int], float], n: int, start: int) -> int:
    """Return the number, of 0 to n - 1, at which the loss stops falling on the way from `start`: down, or else up."""
    here = start
    for step in (-1, 1):
        while 0 <= here + step < n and loss(here + step) < loss(here):
            here += step
        if here != start:
            break
    return here


def best_penalty(losses: Callable[[float], HeldOut], start: int) -> tuple[HeldOut, int]:
    """Return the losses with the best of the penalties, and its number; from `start` it goes local_minimum."""
    known: dict[int, HeldOut] = {}

    def at(number: int) -> HeldOut:
        if number not in known:
            known[number] = losses(ALPHAS[number])
        return known[number]

    here = local_minimum(lambda number: at(number).mean, len(ALPHAS), start)
    return at(here), here


def _gram(kernel: ScaledDistanceKernel, rows: Array, fold: Fold) -> FloatArray:
    """Return the kernel of the fitted rows, then those held out, and the fitted ones (n + k, n)."""
    Z, X = rows[fold.fitted], rows[np.concatenate([fold.fitted, fold.held])]
    gram: FloatArray = kernel.block(X, kernel.points(Z, kernel.placement_for(Z))).astype(np.float64)
    if not np.isfinite(gram).all():
        raise DataError("kernel values of sampled rows are not finite; scale the features")
    return gram


def _centred(sample: SearchSample, fold: Fold) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the weights (n,) of the fitted rows, the mean of their targets, and these less the mean (n, c).

    Where all of them weigh 0, as in a leaf that counts nothing, their weights are equal.
    """
    shares, y = sample.shares[fold.fitted], sample.y[fold.fitted]
    total = shares.sum()
    weight: FloatArray = shares / total if total > 0 else np.full(len(shares), 1 / len(shares))
    mean: FloatArray = weight @ y
    return weight, mean, y - mean


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate on scaled rows."""

    candidate: KernelCandidate
    kernel: ScaledDistanceKernel
    X: Array
    sample: SearchSample
    folds: list[Fold]
    n_repeats: int

    @classmethod
    def of(cls, candidate: KernelCandidate, sample: SearchSample, folds: list[Fold], n_repeats: int) -> "_Trial":
        X = sample.scaled(candidate.scale, candidate.categories)
        return cls(candidate, candidate.resolved(X), X, sample, folds, n_repeats)

    def best(self, kernels: Sequence[ScaledKernel], start: int) -> tuple[HeldOut, int]:
        """Return the losses with the best penalty, and its number; from `start` it goes local_minimum."""
        grams = [self.gram(kernel, fold) for kernel, fold in zip(kernels, self.folds, strict=True)]
        return best_penalty(lambda alpha: self._losses(grams, alpha), start)

    def rows(self, one: ScaledKernel) -> Array:
        """Return the rows as a kernel is for them."""
        return one.scale.apply(self.sample.X, np.float64) if isinstance(one.scale, Scaling) else self.X

    def gram(self, one: ScaledKernel, fold: Fold) -> FloatArray:
        """Return the kernel of the fitted rows, then those held out, and the fitted ones (n + k, n)."""
        return _gram(one.kernel, self.rows(one), fold)

    def _losses(self, grams: Sequence[FloatArray], alpha: float) -> HeldOut:
        sample = self.sample
        scores = []
        for gram, fold in zip(grams, self.folds, strict=True):
            n = len(fold.fitted)
            mean, a = self._solved(gram[:n], fold, alpha)
            scores.append(gram[n:] @ a + mean)
        return held_out_losses(sample, self.folds, scores, self.n_repeats)

    def _solved(self, gram: FloatArray, fold: Fold, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the mean of the fitted targets, and the coefficients (n, c)."""
        weight, mean, y = _centred(self.sample, fold)
        return mean, ridge_coefficients(gram, weight, y, alpha)

    def start(self, rows: Array) -> ScaledKernel:
        """Return the kernel that the first function is fitted with: maybe with weights by relevance for some rows."""
        if self.candidate.metric != "relevance":
            return ScaledKernel(self.kernel, self.candidate.scale)
        shares = self.sample.shares[rows]
        squared = spread(relevance(self.X[rows], self.sample.y[rows], shares / shares.sum()))
        kernel = with_factor(self.kernel, weights_of(squared), self.X[rows], self.candidate.times)
        return ScaledKernel(kernel, self.candidate.scale)

    def learned_from(self, rows: IntArray, alphas: Sequence[float]) -> ScaledKernel:
        """Return the kernel with the metric learned from some rows, in a round for each of `alphas`."""
        if not alphas:
            return self.start(rows)
        known: ScaledKernel | None = self.sample.recent.get(self._key(rows, alphas))
        return known or self.learned(self.learned_from(rows, alphas[:-1]), rows, alphas)

    def learned(self, before: ScaledKernel, rows: IntArray, alphas: Sequence[float]) -> ScaledKernel:
        """Return the kernel with the metric or the warp of the function that is fitted to some rows with the last of
        `alphas` and the kernel `before`, which the other ones have led to."""
        key = self._key(rows, alphas)
        known: ScaledKernel | None = self.sample.recent.get(key)
        if known is None:
            known = self._once_more(before, rows, alphas[-1])
            if known.n_numbers <= _MOST_KEPT:
                self.sample.recent.put(key, known)
        return known

    def _key(self, rows: IntArray, alphas: Sequence[float]) -> Hashable:
        return self.candidate, tuple(alphas), rows.tobytes()

    def _once_more(self, one: ScaledKernel, rows: IntArray, alpha: float) -> ScaledKernel:
        fold = Fold(rows, rows[:0])
        _, a = self._solved(self.gram(one, fold), fold, alpha)
        some = rows[generator(self.sample.seed, _DRAW).permutation(len(rows))[:_GRADIENT_ROWS]]
        weight = None if self.sample.weight is None else self.sample.weight[some]
        X, kernel, scale = self.rows(one), one.kernel, self.candidate.scale
        if self.candidate.metric == "warped":
            squares = (kernel.gradient_matvec(X[some], X[rows], a) ** 2).sum(axis=1)
            return self._warped(one, squares, some, weight, knots_of(self.sample.X[rows]))
        diagonal = self.candidate.metric != "full"
        M = gradient_outer_product(kernel, X[some], X[rows], a, weight, diagonal=diagonal)
        factor = weights_of(M) if diagonal else factor_of(M, MOST_RANK)
        return ScaledKernel(with_factor(self.kernel, factor, X[some], self.candidate.times), scale)

    def _warped(
        self, one: ScaledKernel, squares: FloatArray, some: IntArray, weight: FloatArray | None, knots: FloatArray
    ) -> ScaledKernel:
        """Return the kernel with the warp that squared derivatives (m, d) at `some` rows give."""
        sample = self.sample
        base = sample.scaling(self.candidate.scale, self.candidate.categories)
        now = one.scale if isinstance(one.scale, Scaling) else base
        found = warp_of(squares, sample.X[some], weight, knots, base, now, self.candidate.categories)
        rows = found.scaling.apply(sample.X[some], np.float64)
        return ScaledKernel(with_factor(self.kernel, found.weights, rows, self.candidate.times), found.scaling)
