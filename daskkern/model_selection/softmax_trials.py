"""Trials of kernels for more than two classes, by cross-validated kernel logistic regression.

Ridge regression learns each class against the rest. Where the classes are shells, or stripes, of one function, those
between others need a bump for each, but the scores of a softmax are as simple as that function. With K the kernel of
the fitted rows, ``K = U diag(l) U^T`` and shares s_i that add up to 1, the minimiser of

    sum_i s_i loss(f(x_i), y_i) + alpha / 2 |f|^2

has the scores ``U sqrt(l) W + b`` at these rows, and the norm of W. L-BFGS finds W and b for one penalty after the
other, each from the solution before. Its variables are W in units of ``(h l / n + alpha)^(-1/2)``, with a typical
curvature h of the loss: then the second derivative is about 1 in all directions, and few steps are enough.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.optimize

from daskkern.arrays import FloatArray
from daskkern.losses import MultinomialLogistic
from daskkern.model_selection.candidates import KernelCandidate
from daskkern.model_selection.held_out import HeldOut, held_out_losses
from daskkern.model_selection.ridge_trials import RidgeOutcome, fold_grams, local_minimum
from daskkern.model_selection.samples import Fold, SearchSample

LEAST_CLASSES = 3
ALPHAS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_START = 5  # number of the penalty from which the best one is looked for
_STEPS = 50
_LEAST_VALUE = 1e-12  # of the largest eigenvalue
_CURVATURE = 0.05  # p (1 - p), where most rows have one class that is likely


@dataclass(frozen=True)
class SoftmaxCandidate:
    """A kernel, with the penalties of the rounds in which its metric is learned."""

    kernel: KernelCandidate
    alphas: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kernel.name}, {MultinomialLogistic.name}"


def try_softmax(candidate: SoftmaxCandidate, sample: SearchSample, folds: Sequence[Sequence[Fold]]) -> RidgeOutcome:
    """Return how well kernel logistic regression with a candidate predicts held-out rows.

    Parameters
    ----------
    candidate : SoftmaxCandidate
    sample : SearchSample
        Of classes.
    folds : sequence of sequences of Fold
        One for each repetition; losses of a row are averaged over them.

    Raises
    ------
    DataError
        When all rows are equal.
    """
    begun = time.perf_counter()
    flat = [fold for repeat in folds for fold in repeat]
    grams = fold_grams(candidate.kernel, sample, flat, candidate.alphas)
    fits = [_FoldFit.of(gram, sample, fold) for gram, fold in zip(grams, flat, strict=True)]

    known: dict[int, HeldOut] = {}

    def at(number: int) -> HeldOut:
        if number not in known:
            for fit in fits:
                fit.solve(ALPHAS[number])
            known[number] = held_out_losses(sample, flat, [fit.scores() for fit in fits], len(folds))
        return known[number]

    best = local_minimum(lambda number: at(number).mean, len(ALPHAS), _START)
    seconds = time.perf_counter() - begun
    return RidgeOutcome(at(best), ALPHAS[best], len(flat[0].fitted), candidate.alphas, seconds)


@dataclass(eq=False)
class _FoldFit:
    """The regression of one fold.

    Attributes
    ----------
    factor : (n, r) array
        ``U sqrt(l)``: the fitted rows in the directions of the kernel's eigenvectors.
    held : (k, r) array
        The rows that are held out.
    values : (r,) array
        l, the eigenvalues.
    y : (n, c) array
    shares : (n,) array
    solution : (r + 1, c) array
        W, and the intercepts b in the last row.
    """

    factor: FloatArray
    held: FloatArray
    values: FloatArray
    y: FloatArray
    shares: FloatArray
    solution: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.solution = np.zeros((len(self.values) + 1, self.y.shape[1]))

    @classmethod
    def of(cls, gram: FloatArray, sample: SearchSample, fold: Fold) -> "_FoldFit":
        assert sample.labels is not None
        assert sample.info.classes is not None
        n = len(fold.fitted)
        values, U = scipy.linalg.eigh(gram[:n], check_finite=False)
        kept = values > _LEAST_VALUE * values[-1]
        values, root = values[kept], np.sqrt(values[kept])
        shares = sample.shares[fold.fitted]
        y = np.eye(len(sample.info.classes))[sample.labels[fold.fitted]]
        return cls(U[:, kept] * root, gram[n:] @ U[:, kept] / root, values, y, shares / shares.sum())

    def solve(self, alpha: float) -> None:
        """Move the solution to that of a penalty."""
        loss, shape, shares = MultinomialLogistic(), self.solution.shape, self.shares
        unit = np.append((_CURVATURE * self.values / len(shares) + alpha) ** -0.5, 1.0)[:, None]
        factor = self.factor * unit[:-1, 0]

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            V = flat.reshape(shape)
            f = factor @ V[:-1] + V[-1]
            slope = shares[:, None] * loss.gradient(f, self.y)
            W = unit[:-1] * V[:-1]
            gradient = np.concatenate([factor.T @ slope + alpha * unit[:-1] * W, slope.sum(axis=0)[None]])
            value = float(shares @ loss.value(f, self.y)) + alpha / 2 * float((W**2).sum())
            return value, gradient.ravel()

        start = (self.solution / unit).ravel()
        found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        self.solution = unit * found.x.reshape(shape)

    def scores(self) -> FloatArray:
        """Return the scores (k, c) of the rows that are held out."""
        found: FloatArray = self.held @ self.solution[:-1] + self.solution[-1]
        return found
