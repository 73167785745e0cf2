"""The optimality of a fit: the possible decrease of the training objective, measured on sampled rows.

Among functions near the model f, f plus kernels at m of its own centres, the objective on the held rows is minimised in
float64 (:mod:`daskkern.solvers.local_decrease`); inner products with f follow from its values, ``<f, k(., z)> = f(z)``.
The decrease of the objective is what the fit has missed, whatever the solver and the reason: too few epochs, steps
whose noise does not settle, or kernel values that the working dtype cannot represent.

Where the held rows are all rows, and the m centres all centres, the decrease is exact. Otherwise a function that is
fitted to some rows overfits them: it is fitted to one half and measured on the other, and the decrease less two
standard deviations counts. The same holds without a penalty, where the global minimum is not the goal.
"""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.kernels import Drawn, Kernel, Mapped
from daskkern.losses import best_of
from daskkern.solvers import AnyProblem
from daskkern.solvers.local_decrease import Local, Nearby
from daskkern.training.run.best_epoch import Ended, with_points
from daskkern.training.run.divergence import Reference
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared

_SIZES = (512, 384, 256, 128, 64)
_ANY_FIT, _SHARE = 1e9, 0.02  # multiply-adds: a number negligible for any fit, and a share of those of the epochs
_EIGEN, _ENTRY, _PASSES = 25.0, 20.0, 24.0
_MOST_BYTES = 1 << 26
_BLOCK = 1024
_DAMPED = 1e-3  # of k(x, x): directions of smaller eigenvalues do not help a fit to one half
_STEPS = (1.0, 0.5, 0.25, 0.125)
_HALVES = 66
_DEVIATIONS = 2.0
_HUNDREDTH = 100
_SUMS = 4.0  # times the rounding of one term, in a sum of many


@dataclass(frozen=True)
class Optimality:
    """The possible decrease of the objective on held rows from a model.

    Attributes
    ----------
    zero, loss, bulk : float
        The mean loss of f = 0, of the model, and of the model without the 1% of the rows with the largest losses.
    fall : float
        Decrease of the objective on the fitted rows.
    sure : float
        Lower bound of the decrease, from rows other than those fitted.
    moved : float
        Root mean square change of the scores, as a share of the scores.
    is_exact : bool
        Whether `fall` is exact: all rows and centres were used, and a penalty makes the minimum the goal.
    n_rows : int
        Number of held rows.
    several : bool
        Whether the model has several scores for each class: `loss` is then the objective, and `fall` its excess over
        that of a model with one score.
    """

    zero: float
    loss: float
    bulk: float
    fall: float
    sure: float
    moved: float
    is_exact: bool
    n_rows: int
    several: bool = False


def measure_optimality(
    reference: Reference,
    ended: Ended,
    prepared: Prepared,
    rows: Rows,
    settings: FitSettings,
    f: FloatArray,
) -> Optimality | None:
    """Return the possible decrease of the objective from the final model of a fit; None where it is not measured.

    It is not measured with too many features for a tile of memory, nor with kernel values that are not finite. Features
    that are drawn again at each use stand for their kernel, of which functions are added. Nor is it with a penalty on
    absolute coefficients, whose kinks the functions nearby do not have. A collective; the same on every rank.
    `f` (k, c) are the model's scores of the held rows, several for each output where it has several.
    """
    if settings.solver.l1_penalty:
        return None
    sample, comm, xp = reference.sample, reference.comm, reference.xp
    problem = with_points(reference.problem, ended.points, xp)
    p = _columns(problem, ended, prepared)
    m = _size(sample, p, problem.n_outputs, settings)
    if not settings.basis.is_explicit or isinstance(problem.part.kernel, Mapped | Drawn):
        kernel, centres = _centres(problem, ended, prepared, rows, sample.X, m)
        at = _scores(problem, centres, ended.coef, comm, xp)
        values, gram = (_block(kernel, X, centres, prepared) for X in (sample.X, centres))
        everything = centres.shape[0] == p and not isinstance(problem.part.kernel, Drawn)
    else:
        if m * p * np.dtype(problem.dtype).itemsize > _MOST_BYTES:
            return None
        chosen = _spread(len(sample.y), m)
        values = _of_features(problem, sample, chosen, comm, xp)
        at, gram = f[chosen], values[chosen]
        everything = len(chosen) >= min(p, len(f))
    if not (np.isfinite(f).all() and np.isfinite(at).all() and np.isfinite(values).all() and np.isfinite(gram).all()):
        return None
    near = Nearby.of_kernels(values, at, gram)
    each = f.shape[1] // problem.n_outputs
    weight = sample.weight / sample.weight.sum()
    local = Local(problem.loss, problem.alpha, near, best_of(f, each), sample.y, weight)
    if each > 1:
        return _of_several(local, ended.coef, comm, xp)
    is_exact = everything and len(f) == sample.n_rows and problem.alpha > 0
    return _of_one(local, sample, settings.seed, is_exact)


def bounded_optimality(reference: Reference, ended: Ended, dtype: str, f: FloatArray) -> Optimality | None:
    """Return what :func:`measure_optimality` finds at most, from the bound that the solver knows; None without one.

    It takes no kernel values. The rounding of scores is that of a sum over the coefficients. A collective.
    """
    if not np.isfinite(ended.bound):
        return None
    sample, problem = reference.sample, reference.problem
    squares = reference.comm.allreduce(
        reference.xp.asarray([[float((to_host(ended.coef).astype(np.float64) ** 2).sum())]])
    )
    rounding = _SUMS * float(np.finfo(dtype).eps) * float(squares[0, 0]) ** 0.5
    weight, fall = sample.weight / sample.weight.sum(), ended.bound + rounding
    losses = np.sort(weight * problem.loss.value(f, sample.y))
    zero = float(weight @ problem.loss.value(np.zeros_like(f), sample.y))
    return Optimality(zero, float(losses.sum()), _bulk(losses), fall, fall, np.inf, True, len(f))


def _bulk(losses: FloatArray) -> float:
    """Return the sum of losses, ascending, without the largest hundredth."""
    return float(losses[: len(losses) - -(-len(losses) // _HUNDREDTH)].sum())


def _size(sample: HeldSample, p: int, c: int, settings: FitSettings) -> int:
    """Return the most centres m whose work is small compared to that of the fit."""
    k, d = sample.X.shape
    work = _ANY_FIT + _SHARE * settings.max_epochs * float(sample.n_rows) * p * (d + _ENTRY + 2.0 * c)
    for m in (min(p, size) for size in _SIZES):
        if _EIGEN * m**3 + k * m * (d + _ENTRY + 3.0 * m + 3 * _PASSES * c) <= work:
            return m
    return min(p, _SIZES[-1])


def _spread(of: int, m: int) -> IntArray:
    """Return m numbers below `of`, spread evenly."""
    return np.unique(np.linspace(0, of - 1, min(of, m)).astype(np.int64))


def _columns(problem: AnyProblem, ended: Ended, prepared: Prepared) -> int:
    """Return the number of kernels or other columns of a model."""
    kernel = problem.part.kernel
    if isinstance(kernel, Mapped):
        return int(kernel.centres.shape[0])
    return prepared.basis.n_columns if ended.points is None else int(ended.points.shape[0])


def _centres(
    problem: AnyProblem, ended: Ended, prepared: Prepared, rows: Rows, held: HostArray, m: int
) -> tuple[Kernel, HostArray]:
    """Return the kernel of the columns of a model, and m of their points; of drawn features m of the rows `held`."""
    kernel = problem.part.kernel
    if isinstance(kernel, Drawn):
        return kernel.kernel, held[_spread(held.shape[0], m)]
    points = prepared.points if ended.points is None else ended.points
    if isinstance(kernel, Mapped):
        points, kernel = kernel.centres, kernel.kernel  # on the host
    if points is not None:
        return kernel, points[_spread(points.shape[0], m)]
    assert prepared.indices is not None
    X = take(rows, prepared.indices[_spread(len(prepared.indices), m)], Fields.X).X
    assert X is not None
    return kernel, X


def _block(kernel: Kernel, X: HostArray, Z: HostArray, prepared: Prepared) -> FloatArray:
    """Return the kernel (k, m) in float64; its diagonal is exact where X is Z."""
    left, right = X.astype(np.float64), Z.astype(np.float64)
    of_rows = not isinstance(prepared.basis.kernel, Drawn)  # or it is the placement of column numbers
    placement = prepared.basis.placement.on(np) if of_rows else kernel.placement_for(right)
    values: FloatArray = kernel.block(left, kernel.points(right, placement))
    if X is Z:
        index = np.arange(len(values))
        values[index, index] = kernel.diagonal(left)
    return values


def _of_features(
    problem: AnyProblem, sample: HeldSample, chosen: IntArray, comm: Communicator, xp: ModuleType
) -> FloatArray:
    """Return the inner products (k, m) of held rows' explicit features with those of the `chosen`. A collective."""

    def features(X: HostArray) -> FloatArray:
        return to_host(problem.part.block(to_device(X, xp))).astype(np.float64)

    some = features(sample.X[chosen])
    parts = [features(sample.X[part]) @ some.T for part in slices(len(sample.y), _BLOCK)]
    values: FloatArray = to_host(comm.allreduce(xp.asarray(np.concatenate(parts))))
    return values


def _scores(problem: AnyProblem, X: HostArray, coef: Array, comm: Communicator, xp: ModuleType) -> FloatArray:
    """Return the scores that the model predicts, (k, c) or several for each output. A collective."""
    placed, parts = xp.asarray(coef), slices(X.shape[0], _BLOCK)
    shares = [comm.allreduce(problem.part.scores(to_device(X[part], xp), placed)) for part in parts]
    return np.concatenate([to_host(share).astype(np.float64) for share in shares])


def _of_several(local: Local, coef: Array, comm: Communicator, xp: ModuleType) -> Optimality:
    """Return the comparison of a model with several scores for each class with one that has a single score."""
    norm = comm.allreduce(xp.asarray([[float((to_host(coef).astype(np.float64) ** 2).sum())]]))
    nothing = np.zeros_like(local.f)
    inner = np.zeros((local.near.values.shape[1], local.f.shape[1]))
    one = Local(local.loss, local.alpha, Nearby(local.near.values, inner), nothing, local.y, local.weight)
    b = one.minimise()
    best = float(one.losses(one.near.values @ b).sum()) + one.penalty(b)
    found = float(local.losses(nothing).sum()) + local.alpha / 2 * float(norm[0, 0])
    zero = float(one.losses(nothing).sum())
    return Optimality(zero, found, found, found - best, 0.0, 0.0, False, len(nothing), several=True)


def _of_one(local: Local, sample: HeldSample, seed: int, is_exact: bool) -> Optimality:
    nothing = np.zeros_like(local.f)
    losses = np.sort(local.losses(nothing))
    zero = float(local.losses(-local.f).sum())
    b = local.minimise()
    move = local.near.values @ b
    fall = float(losses.sum() - local.losses(move).sum()) - local.penalty(b)
    size = float(local.weight @ ((local.f + move) ** 2).sum(axis=1))
    moved = float(local.weight @ (move**2).sum(axis=1))
    bulk = _bulk(losses)
    share = (moved / size) ** 0.5 if size > 0 else 0.0
    return Optimality(
        zero, float(losses.sum()), bulk, fall, _sure(local, sample, seed), share, is_exact, len(losses)
    )  # fmt: skip


def _sure(local: Local, sample: HeldSample, seed: int) -> float:
    """Return the decrease of the objective on rows other than those fitted, less two standard deviations.

    It is the mean of both halves. Rows that are included for certain are in both.
    """
    k = len(local.f)
    random = sample.n_random or k
    first = generator(seed, _HALVES).permutation(k) % 2 == 0
    scale = float(np.median((local.near.values**2).sum(axis=1)))  # k(x, x), as far as the centres represent it
    before = local.loss.value(local.f, local.y)
    falls, squares = np.zeros(len(_STEPS)), np.zeros(len(_STEPS))
    for half in (first, ~first):
        fitted, other = (_half(local.weight, kept, random) for kept in (half, ~half))
        part = Local(
            local.loss, local.alpha, local.near, local.f, local.y, fitted, max(0.0, _DAMPED * scale - local.alpha)
        )
        b = part.minimise()
        move = local.near.values @ b
        for number, step in enumerate(_STEPS):
            gains = other * (before - local.loss.value(local.f + step * move, local.y))
            falls[number] += (gains.sum() - local.penalty(step * b)) / 2
            squares[number] += (gains**2).sum() / 4
    return float((falls - _DEVIATIONS * squares**0.5).max())


def _half(weight: FloatArray, kept: HostArray, random: int) -> FloatArray:
    """Return the weights of half of the first `random` rows, doubled, and of all later rows, with the sum 1."""
    found = weight.copy()
    found[:random] *= 2.0 * kept[:random]
    total = found.sum()
    return found / total if total > 0 else found
