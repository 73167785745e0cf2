"""The automatic choice of the penalty, by leave-one-out errors of ridge regression on sampled rows.

With K the kernel of s sampled rows, W their weights and ``B = W^(1/2) K W^(1/2) = U diag(l) U^T``, the minimiser of
``(1/s) sum_i w_i (f(x_i) - y_i)^2 / 2 + (alpha/2) |f|^2`` has the leave-one-out residuals

    w_i^(1/2) (y_i - f_without_i(x_i)) = z_i / D_ii ,   D = (B + s alpha)^-1 ,   z = D W^(1/2) y

(Allen, Technometrics 1974; Wahba, Spline Models for Observational Data, 1990): one eigendecomposition serves all
penalties. More rows want a smaller penalty: of the sample's, ``(s/n)^b`` is taken for n rows. The order b depends on
spectrum and targets (Caponnetto and De Vito, Found. Comput. Math. 2007: 1/2 in the worst case), and is measured: by the
best penalty of quarters of the sample, which are few rows: the mean of that and 1 is taken, the order of a Gaussian
process, whose noise ``n alpha`` is the same for any number of rows (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, section 6.2). On magic, Adult, covtype and Fashion-MNIST b is about 1. A loss whose second
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
from daskkern.linalg.leave_one_out import leave_one_out_errors, lowest, weighted_spectrum
from daskkern.losses import Squared, encode
from daskkern.preconditioners import gram_of
from daskkern.solvers.base import smoothness_of
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows
from daskkern.training.setup.feature_blocks import blocks_of
from daskkern.training.setup.prepared import Clock, Prepared
from daskkern.training.setup.shared import TARGETS, flat

SAMPLES, SMALL_SAMPLES = (2000, 1400), (1000, 700, 500, 300, 200)
"""Rows that errors are measured on; never more than there are."""
_EXACT_ROWS = (1400, 700)
_SHARE, _MOST = 0.05, 0.2  # of the work of a fit: for samples, and for small ones
_LEAST_ROWS = 10  # with fewer the errors say nothing
_PARTS, _LEAST_PART = 4, 50
_SLOWEST, _FASTEST, _BEYOND = 0.5, 1.25, 2.0
_EXPECTED = 1.0  # order of the best penalty; what quarters of 1,000 rows say of it varies by 0.2 from draw to draw
_LEAST = 1e-11  # share of the largest eigenvalue that the least penalty is, in float64 too
_PER_DECADE = 3
_SAMPLE = 57
_LEAVES, _MOST_LEAF = 3, 4000  # that a penalty is chosen in, and most rows of one
_MATRICES = 5  # of float64 that are held at once
# Work in multiply-adds of a float32 matrix product, measured on a CPU: an eigendecomposition runs at a lower rate.
_EIGEN, _ENTRY, _ANY_FIT, _MEMORY_BOUND = 12.0, 20.0, 1.2e10, 20.0
_FACTORED = 2000  # columns up to which the set-up of any solver has a decomposition, or a factor, of their kernel


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
        clock.stage("penalty", f"alpha {found.alpha:.2g} ({found.how})")
        return replace(prepared, alpha=found.alpha, stages=tuple(clock.stages))
    outputs = prepared.targets.n_outputs
    s = sample_rows(choice.rows.n_rows, prepared.basis.n_columns, source.info.row_width, outputs, settings)
    found = choose_penalty(prepared, choice, settings, s)
    clock.stage("penalty", f"alpha {found.alpha:.2g} ({found.how})")
    return replace(prepared, alpha=found.alpha, stages=tuple(clock.stages))


def leaf_penalty(leaves: IntArray, choice: ChoiceRows, settings: FitSettings) -> Penalty:
    """Return the penalty of the least leave-one-out error in a few leaves of a partition, with all of their rows.

    These rows are as close to each other as in the fit: the best shift ``n alpha`` of their kernel matrices is that of
    the fit's. Leaves of one class, or of repeated rows, say nothing of it.
    """
    sizes = np.bincount(leaves)
    usable = np.flatnonzero((sizes >= _LEAST_ROWS) & (sizes <= _MOST_LEAF))
    floor = max(float(np.finfo(settings.dtype).eps), _LEAST)
    exponents = np.arange(np.log10(floor), 0.01, 1 / _PER_DECADE)
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


def sample_rows(n: int, p: int, width: int, c: int, settings: FitSettings, n_grams: int = 1) -> int:
    """Return how many of n rows errors are measured on, for p columns, rows of `width` numbers and c outputs; 0: none.

    The largest sample whose work is at most a twentieth of that of the set-up and of one pass over the rows, or one of
    up to 1,000 rows whose work is at most a fifth of it. It depends neither on the machine nor on the epochs: a run
    may go on for longer than it was meant to. `n_grams` kernels are looked at, each with a decomposition of its own.
    Exact solutions follow the penalty down to rounding, and a sample may lack the rows that forbid so small a one:
    their samples are at least of 1,400 rows, and of 700 for several kernels.
    """
    found = _affordable_rows(n, p, width, c, settings, n_grams)
    return max(found, min(n, _EXACT_ROWS[n_grams > 1])) if settings.solver.solves_exactly else found


def _affordable_rows(n: int, p: int, width: int, c: int, settings: FitSettings, n_grams: int) -> int:
    linear = settings.basis.is_linear
    explicit = settings.basis.is_explicit and not settings.basis.drawn_per_step
    entry = 0.0 if linear else width + _ENTRY
    work = _ANY_FIT + float(n) * p * (_MEMORY_BOUND if linear else 1.0) * (entry + 2.0 * c)
    work += 0.0 if linear else _EIGEN * float(min(n, p, _FACTORED)) ** 3
    for s, share in (*((s, _SHARE) for s in SAMPLES), *((s, _MOST) for s in SMALL_SAMPLES)):
        size = float(min(s, n))
        gram = size * (size * (p if explicit and not linear else width + _ENTRY) + p * entry * explicit)
        if n_grams * (_EIGEN * size**3 + gram + 50.0 * c * size**2) <= share * work:
            return min(s, n)
    return 0


def penalty_bytes(n: int, p: int, c: int, width: int, info: SourceInfo, settings: FitSettings) -> int:
    """Return the bytes of choosing a penalty, or a kernel on as many rows at most.

    Square matrices in float64, and sampled rows of `width` numbers.
    """
    chooses = settings.chooses_alpha or isinstance(settings.kernel, AutoKernel)
    s = sample_rows(n, p, info.row_width, c, settings) if chooses else 0
    return 8 * s * (_MATRICES * s + 5 * width + 4 * c)


def choose_penalty(prepared: Prepared, choice: ChoiceRows, settings: FitSettings, s: int) -> Penalty:
    """Return the penalty that leave-one-out errors of `s` sampled rows find best, for the loss and rows of the fit.

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
    b = 0.0 if s == n else order_of(gram, y, weight, best)
    alpha = max(best.alpha * (s / n) ** b, best.least_tried) * smoothness_of(settings.loss)
    total = y.shape[1] * float(s if weight is None else weight.sum())
    error = math.sqrt(best.error / total) if total > 0 else 0.0
    alpha = max(alpha, settings.loss.least_alpha(error, float(gram.diagonal().mean()), n))
    return Penalty(alpha, f"leave-one-out on {s:,} rows")


@dataclass(frozen=True)
class BestPenalty:
    """The penalty of the least leave-one-out error, the least that was tried, and the weighted sum of squares."""

    alpha: float
    least_tried: float
    error: float


def best_penalty(gram: Array, y: FloatArray, weight: FloatArray | None, floor: float) -> BestPenalty | None:
    """Return the penalty of the least weighted sum of squared leave-one-out errors.

    Parameters
    ----------
    gram : (s, s) float64 array
        Kernel of the rows, where the work is to be done.
    y : (s, c) float64 array
    weight : (s,) float64 array or None
    floor : float
        Least penalty that is tried, as a share of the largest eigenvalue of B / s.

    Returns
    -------
    BestPenalty or None
        None where errors say nothing: under ten rows that count, targets or a kernel of zeros only.
    """
    found = _searched(gram, y, weight, floor)
    if found is None:
        return None
    top, exponents, errors = found
    return BestPenalty(top * 10.0 ** lowest(exponents, errors), top * floor, float(errors.min()))


def order_of(gram: Array, y: FloatArray, weight: FloatArray | None, best: BestPenalty) -> float:
    """Return b of ``alpha ~ s^-b``, by which the best penalty of s rows falls with s; between 1/2 and 9/8.

    Parameters
    ----------
    gram, y, weight
        As in :func:`best_penalty`.
    best : BestPenalty
        Of all rows.

    Returns
    -------
    float
        The mean of 1 and of what follows from the penalty of the least mean error of four quarters of the rows; 1/2
        where they are too few, or where a best penalty is the least or the largest that was tried.
    """
    if len(gram) < _PARTS * _LEAST_PART:
        return _SLOWEST
    found = []
    for k in range(_PARTS):
        part = slice(k, None, _PARTS)
        own = None if weight is None else weight[part]
        found.append(_searched(gram[part, part], y[part], own, best.least_tried / best.alpha, best.alpha))
    known = [part for part in found if part is not None]
    if len(known) < _PARTS:
        return _SLOWEST
    errors: FloatArray = np.sum([part[2] for part in known], axis=0)
    if best.alpha <= best.least_tried or int(np.argmin(errors)) in (0, len(errors) - 1):
        return _SLOWEST
    measured = np.clip(lowest(known[0][1], errors) / np.log10(_PARTS), _SLOWEST, _FASTEST)
    return float(measured + _EXPECTED) / 2


def _searched(
    gram: Array, y: FloatArray, weight: FloatArray | None, floor: float, unit: float | None = None
) -> tuple[float, FloatArray, FloatArray] | None:
    """Return a unit, the largest eigenvalue of B / s, the penalties as powers of ten of it, and their errors.

    Penalties are at least `floor` units. With a `unit` given, they reach beyond it.
    """
    s = len(gram)
    counted = s if weight is None else int((weight > 0).sum())
    if counted < _LEAST_ROWS or not y.any():
        return None
    xp = namespace_of(gram)
    values, U, root = weighted_spectrum(gram, weight)
    top = float(values[-1]) / s
    if not top > 0:
        return None
    highest, unit = (0.0, top) if unit is None else (_BEYOND, unit)
    exponents = np.arange(np.log10(floor), highest + 0.01, 1 / _PER_DECADE)
    return unit, exponents, leave_one_out_errors(values, U, root[:, None] * xp.asarray(y), s * unit * 10.0**exponents)


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


def _kernel_gram(X: HostArray, settings: FitSettings) -> Array:
    xp = namespace_with(settings.device, _MATRICES * 8 * X.shape[0] ** 2)
    placed = to_device(X.astype(np.float64), xp)
    kernel = settings.kernel
    return kernel.block(placed, kernel.points(placed, kernel.placement_for(placed))).astype(np.float64)
