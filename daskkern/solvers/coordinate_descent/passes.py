"""Sums over the rows for coordinate descent: loss, gradient, and curvature of some columns."""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import for_each, slices
from daskkern.basis import Columns, KernelBasis, KernelPart
from daskkern.losses import Curved, Squared
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.rows import gradient_of_rows
from daskkern.solvers.setup import RankInputs, RankSetup

_LEAST = 1e-3
"""Least curvature of a row, as a share of the largest: where a loss is linear, steps would have no bound."""
_JOINT = 2.0
"""``diag(p) - p p^T <= 2 diag(p (1 - p))``: curvatures of each score alone bound those of all together."""
_STRIP = 256


@dataclass(frozen=True, eq=False)
class DescentSetup(RankSetup):
    """The set-up of one rank: all columns, from which points (p, d) they are, and the number of all rows."""

    basis: KernelBasis
    whole: KernelPart
    points: Array
    n_rows: int

    @classmethod
    def of(cls, inputs: RankInputs) -> "DescentSetup":
        """Return the set-up of the rank that `inputs` are of. Every rank must call it."""
        basis, Z = inputs.basis, inputs.every_point()
        whole = inputs.part if inputs.comm.size == 1 else basis.part(basis.split(0, 1), Z)
        return cls(basis, whole, Z, inputs.n_rows)

    @property
    def all_columns(self) -> KernelPart:
        return self.whole

    def some(self, columns: IntArray) -> KernelPart:
        """Return the products with some of the columns."""
        rows = self.points[self.whole.namespace.asarray(columns)]
        return self.basis.part(Columns(columns, 0, (slice(0, len(columns)),)), rows)


@dataclass(frozen=True, eq=False)
class PassSums:
    """The sums of a pass over the rank's rows so far.

    Attributes
    ----------
    gradient : (p + 1, c) array
        Of the loss by the coefficients; the last row is the loss.
    curvature : (k, w, w) array or None
        Of the loss by the coefficients of the working columns, one matrix an output, or one for all. Added to in place.
    part : KernelPart or None
        The working columns; None where they are all columns, or their curvature is known.
    """

    gradient: Array
    curvature: Array | None
    part: KernelPart | None


def begin(problem: Problem[DescentSetup], working: IntArray, *, known: bool) -> PassSums:
    """Return the sums before the first batch; `known`: the curvature is that of the last pass."""
    setup: DescentSetup = problem.extra
    xp, p, k = problem.part.namespace, setup.whole.points.size, len(working)
    shape = (1 if isinstance(problem.loss, Squared) else problem.n_outputs, k, k)
    curvature = None if known else xp.zeros(shape)
    some = not known and 0 < k < p
    return PassSums(xp.zeros((p + 1, problem.n_outputs)), curvature, setup.some(working) if some else None)


def add(problem: Problem[DescentSetup], sums: PassSums, working: IntArray, batch: Batch, w: Array | None) -> PassSums:
    """Add the rank's rows of a batch, at the coefficients `w` (p, c); None for 0."""
    setup: DescentSetup = problem.extra
    pulled, loss, f = gradient_of_rows(problem, setup.whole, batch, w)
    total = namespace_of(pulled).concatenate([sums.gradient[:-1] + pulled, sums.gradient[-1:] + loss])
    if sums.curvature is not None and len(working):
        h = _curvature(problem, batch, f)
        for rows in batch.parts:
            _add_products(sums.curvature, _values(setup, sums.part, working, batch, rows), h[rows])
    return replace(sums, gradient=total)


def whole(
    problem: Problem[DescentSetup], sums: PassSums, comm: Communicator
) -> tuple[FloatArray, float, FloatArray | None]:
    """Return the mean gradient (p, c), the mean loss and the mean curvature (k, w, w) of all rows, in host memory.

    One allreduce.
    """
    xp, n = namespace_of(sums.gradient), problem.extra.n_rows
    parts = [sums.gradient.ravel()] + ([] if sums.curvature is None else [sums.curvature.ravel()])
    total = to_host(comm.allreduce(xp.concatenate(parts))).astype(np.float64) / n
    gradient = total[: sums.gradient.size].reshape(sums.gradient.shape)
    curvature = None if sums.curvature is None else total[sums.gradient.size :].reshape(sums.curvature.shape)
    return gradient[:-1], float(gradient[-1, 0]), curvature


def _curvature(problem: Problem[DescentSetup], batch: Batch, f: Array) -> Array:
    """Return what bends the loss of each row, (m, k), with the sample weights."""
    xp, loss = namespace_of(f), problem.loss
    if isinstance(loss, Squared):
        h = xp.ones((len(f), 1), problem.dtype)
    else:
        assert isinstance(loss, Curved)
        h = xp.maximum(loss.curvature(f, batch.y), _LEAST * smoothness_of(loss))
        h = (h * (_JOINT if problem.loss.joint else 1.0)).astype(problem.dtype)
    return h if batch.weight is None else h * batch.weight


def _values(setup: DescentSetup, part: KernelPart | None, working: IntArray, batch: Batch, rows: slice) -> Array:
    """Return the values (k, w) of the working columns at some rows of a batch."""
    if batch.phi is not None:
        values = batch.phi[rows]
        return values if part is None else values[:, namespace_of(values).asarray(working)]
    assert batch.X is not None
    return (setup.whole if part is None else part).block(batch.X[rows])


def _add_products(total: Array, values: Array, h: Array) -> None:
    """Add ``values^T diag(h_k) values`` to each matrix of `total`, in place."""
    for output in range(total.shape[0]):
        left = (values * h[:, output : output + 1]).T

        def strip(part: slice, output: int = output, left: Array = left) -> None:
            total[output, part] += left[part] @ values

        for_each(slices(total.shape[1], _STRIP), strip, size=float(left.size) * total.shape[1])
