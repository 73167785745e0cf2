"""The automatic choice of the penalty, by leave-one-out errors of ridge regression on sampled rows.

With K the kernel of s sampled rows, W their weights and ``B = W^(1/2) K W^(1/2) = U diag(l) U^T``, the minimiser of
``(1/s) sum_i w_i (f(x_i) - y_i)^2 / 2 + (alpha/2) |f|^2`` has the leave-one-out residuals

    w_i^(1/2) (y_i - f_without_i(x_i)) = z_i / D_ii ,   D = (B + s alpha)^-1 ,   z = D W^(1/2) y

(Allen, Technometrics 1974; Wahba, Spline Models for Observational Data, 1990): one eigendecomposition serves all
penalties. More rows want a smaller penalty: of the sample's, ``(s/n)^b`` is taken for n rows. The order b depends on
spectrum and targets (Caponnetto and De Vito, Found. Comput. Math. 2007: 1/2 in the worst case), and is measured: by the
best penalty of quarters of the sample, which are few rows: the mean of that and 1 is taken, the order of a Gaussian
process, whose noise ``n alpha`` is the same for any number of rows (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, section 6.2). On magic, Adult, covtype and Fashion-MNIST b is about 1. Where most of the
targets' variance is noise, halves of a larger sample predict each other instead (:mod:`daskkern.linalg.krylov_ridge`),
and the penalty falls faster with n by as much as it did from the small sample to these halves. A loss whose second
derivative is at most L weighs errors near its minimum L times as much as the squared loss, so its penalty is L times
as large.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.namespace import namespace_of, namespace_with, to_device
from daskkern.backend.random import generator
from daskkern.backend.reductions import all_finite
from daskkern.data.rows.rows import Fields, take
from daskkern.data.rows.samples import features_at
from daskkern.errors import DataError
from daskkern.kernels import AutoKernel
from daskkern.linalg.best_penalties import LEAST_ROWS, PER_DECADE, BestPenalty, best_penalty, order_of
from daskkern.linalg.krylov_ridge import halves_errors, krylov_bytes
from daskkern.linalg.leave_one_out import leave_one_out_errors, lowest, weighted_spectrum
from daskkern.losses import Squared, encode
from daskkern.preconditioners import gram_of
from daskkern.solvers.base import smoothness_of
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import MOST_OUTPUTS, ChoiceRows, noisy_rows, sample_rows
from daskkern.training.setup.feature_blocks import blocks_of
from daskkern.training.setup.prepared import Clock, Prepared
from daskkern.training.setup.shared import TARGETS, flat

_LEAST = 1e-11  # share of the largest eigenvalue that the least penalty is, in float64 too
_SAMPLE = 57
_LEAVES, _MOST_LEAF = 3, 4000  # that a penalty is chosen in, and most rows of one
_BEYOND = 2.0  # decades below the penalty of a small sample
_GOES_ON = 0.75  # of what the best penalty falls by from the small sample to halves of the large one
_NOISY = 0.3  # of the variance, that is left unexplained
_MATRICES = 5  # of float64 that are held at once


@dataclass(frozen=True)
class Penalty:
    """A penalty, and how it was found, in a few words."""

    alpha: float
    how: str


def with_penalty(
    prepared: Prepared, source: RowSource, choice: ChoiceRows, settings: FitSettings, clock: Clock
) -> Prepared:
    """Return `prepared` with the penalty of `settings`, which is chosen from `choice` here where it is "auto"."""
    if not settings.chooses_alpha:
        return replace(prepared, alpha=settings.ridge)
    if prepared.basis.leaves is not None:
        found = leaf_penalty(prepared.basis.leaves[: choice.rows.n_rows], choice, settings)  # of the first tree
    else:
        outputs, width = prepared.targets.n_outputs, source.info.row_width
        s = sample_rows(choice.rows.n_rows, prepared.basis.n_columns, width, outputs, settings)
        found = choose_penalty(prepared, choice, width, settings, s)
    alpha = found.alpha / settings.alpha_divisor
    clock.stage("penalty", f"alpha {alpha:.2g} ({found.how})")
    return replace(prepared, alpha=alpha, stages=tuple(clock.stages))


def leaf_penalty(leaves: IntArray, choice: ChoiceRows, settings: FitSettings) -> Penalty:
    """Return the penalty of the least leave-one-out error in a few leaves of a partition, with all of their rows.

    These rows are as close to each other as in the fit: the best shift ``n alpha`` of their kernel matrices is that of
    the fit's. Leaves of one class, or of repeated rows, say nothing of it.
    """
    sizes = np.bincount(leaves)
    usable = np.flatnonzero((sizes >= LEAST_ROWS) & (sizes <= _MOST_LEAF))
    floor = max(float(np.finfo(settings.dtype).eps), _LEAST)
    exponents = np.arange(np.log10(floor), 0.01, 1 / PER_DECADE)
    unit, errors, total, n_leaves = 0.0, np.zeros(len(exponents)), 0, 0
    chosen = generator(settings.seed, _SAMPLE).permutation(usable)[:_LEAVES]
    numbers = np.flatnonzero(np.isin(leaves, chosen))
    block = take(choice.rows, numbers, Fields.X | TARGETS)  # of all leaves in one read
    assert block.X is not None
    assert block.y is not None
    weight = flat(choice.targets.weight(block))
    for leaf in chosen:
        at = np.flatnonzero(leaves[numbers] == leaf)
        y = encoded(choice.targets, block.y[at])
        if not y.any():
            continue
        gram = _kernel_gram(block.X[at], settings)
        values, U, root = weighted_spectrum(gram, None if weight is None else weight[at])
        unit = unit or float(values[-1])
        if not unit > 0:
            continue
        errors += leave_one_out_errors(values, U, root[:, None] * namespace_of(gram).asarray(y), unit * 10.0**exponents)
        total, n_leaves = total + len(gram), n_leaves + 1
    if not total:
        return Penalty(floor, "no leaf says anything of it")
    best = unit * 10.0 ** lowest(exponents, errors) / len(leaves)
    return Penalty(best, f"leave-one-out on {total:,} rows of {n_leaves} leaves")


def penalty_bytes(n: int, p: int, c: int, width: int, info: SourceInfo, settings: FitSettings) -> int:
    """Return the bytes of choosing a penalty, or a kernel on as many rows at most.

    Square matrices in float64, and sampled rows of `width` numbers.
    """
    chooses = settings.chooses_alpha or isinstance(settings.kernel, AutoKernel)
    s = sample_rows(n, p, info.row_width, c, settings) if chooses else 0
    many = noisy_rows(n, p, info.row_width, c, settings) if settings.chooses_alpha else 0
    larger = krylov_bytes(many, min(c, MOST_OUTPUTS)) + 12 * many * width
    return max(8 * s * (_MATRICES * s + 5 * width + 4 * c), larger)


def choose_penalty(prepared: Prepared, choice: ChoiceRows, width: int, settings: FitSettings, s: int) -> Penalty:
    """Return the penalty that leave-one-out errors of `s` sampled rows find best, for the loss and rows of the fit.

    Rows have `width` numbers.

    Raises
    ------
    DataError
        When kernel values of the sample are not finite.
    """
    rows, targets, n = choice.rows, prepared.targets, choice.rows.n_rows
    if not s:
        return Penalty(0.0, "choosing one would take more than a fifth of the fit")
    chosen, block, weight = choice.drawn(s, _SAMPLE)
    assert block.y is not None
    gram = _gram(prepared, features_at(rows, chosen), settings)
    if not all_finite(gram):
        raise DataError(
            "kernel values of sampled rows are not finite; scale the features, or take another length scale"
        )
    floor = max(float(np.finfo(settings.dtype).eps), _LEAST)
    y = encoded(targets, block.y)
    best = best_penalty(gram, y, weight, floor)
    if best is None:
        return Penalty(floor, f"errors on {s:,} row{'s' * (s != 1)} do not decide it")
    found, measured = _of_many_rows(prepared, choice, width, settings, best), s
    if found is None:
        b = 0.0 if s == n else order_of(gram, y, weight, best)
        alpha = max(best.alpha * (s / n) ** b, best.least_tried)
    else:
        alpha, measured = max(found[0], best.least_tried), found[1]
    alpha *= smoothness_of(settings.loss)
    total = y.shape[1] * float(s if weight is None else weight.sum())
    error = math.sqrt(best.error / total) if total > 0 else 0.0
    alpha = max(alpha, settings.loss.least_alpha(error, float(gram.diagonal().mean()), n))
    how = "leave-one-out" if found is None else "cross-validation"
    return Penalty(alpha, f"{how} on {measured:,} rows")


def _of_many_rows(
    prepared: Prepared, choice: ChoiceRows, width: int, settings: FitSettings, best: BestPenalty
) -> tuple[float, int] | None:
    """Return the penalty that halves of a larger sample find best for each other, and its rows; None if not needed.

    Where most of the targets' variance is noise, a small sample shows little but that, and its best penalty is too
    large for more rows: that of 1,000 flights was 30 times as large as that of 30,000 (errors 92.3 and 88.6%). The
    kernel of a larger one is decomposed by Lanczos steps, which find such large penalties soon.
    """
    n = choice.rows.n_rows
    s = noisy_rows(n, prepared.basis.n_columns, width, prepared.targets.n_outputs, settings)
    if not s or best.unexplained < _NOISY:
        return None
    _, block, weight = choice.drawn(s, _SAMPLE, Fields.X | TARGETS)
    assert block.X is not None
    assert block.y is not None
    halves = np.argsort(np.arange(len(block.y)) % 2, kind="stable")  # as those of _gram_blocks
    y, weight = encoded(prepared.targets, block.y)[halves], None if weight is None else weight[halves]
    y = y[:, np.sort(np.argsort(-y.var(axis=0), kind="stable")[:MOST_OUTPUTS])]
    exponents = np.arange(-_BEYOND, 1.01, 1 / PER_DECADE)
    unit = best.alpha * best.n_rows  # the noise of a Gaussian process, the same for any number of rows
    errors = halves_errors(_gram_blocks(block.X, settings), y, weight, unit * 10.0**exponents)
    at = lowest(exponents, errors)
    if not np.isfinite(errors).all() or at in (exponents[0], exponents[-1]):  # so small a penalty needs more steps
        return None
    falls = float(np.clip(-at / np.log10(s / 2 / best.n_rows), 0.0, 1.0))  # with the rows, beyond the order of 1
    return unit * 10.0**at * (s / 2 / n) ** (_GOES_ON * falls) / n, s


def encoded(targets: Targets, y: HostArray) -> FloatArray:
    """Return targets (s, c) of ridge regression: of classes -1 and 1, one class against the rest, whatever the loss.

    They are 0 where all rows are of one class, and say nothing.
    """
    if targets.n_classes:
        signs = np.asarray(encode(Squared(), y, targets.n_classes, "float64"))
        return signs * (y != y[0]).any()
    return targets.encode(y).astype(np.float64)


def _gram(prepared: Prepared, X: HostArray, settings: FitSettings) -> Array:
    """Return the kernel of the rows (s, s): that of the columns' inner products where they are explicit features."""
    X, basis = X.astype(np.float64), settings.basis
    if not basis.is_explicit or basis.drawn_per_step:
        return _kernel_gram(X, settings)
    assert prepared.points is not None
    return gram_of(blocks_of(prepared.basis.kernel, prepared.points, X, settings.device))


def _gram_blocks(X: HostArray, settings: FitSettings) -> tuple[Array, Array, Array]:
    """Return the kernels of the halves of rows X (s, d), and that of the second half and the first one, in float32.

    A half has every other row: rows may be sorted.
    """
    xp = namespace_with(settings.device, krylov_bytes(X.shape[0], 1))
    first, second = (to_device(part.astype(np.float32), xp) for part in (X[::2], X[1::2]))
    kernel = settings.kernel
    points, others = (kernel.points(part, kernel.placement_for(part)) for part in (first, second))
    blocks = kernel.block(first, points), kernel.block(second, others), kernel.block(second, points)
    return tuple(block.astype(np.float32, copy=False) for block in blocks)


def _kernel_gram(X: HostArray, settings: FitSettings) -> Array:
    xp = namespace_with(settings.device, _MATRICES * 8 * X.shape[0] ** 2)
    placed = to_device(X.astype(np.float64), xp)
    kernel = settings.kernel
    return kernel.block(placed, kernel.points(placed, kernel.placement_for(placed))).astype(np.float64)
