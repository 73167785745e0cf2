"""Blocks of coordinates of kernel ridge regression: a batch of rows and their coefficients.

With sample weights W of mean 1 the optimum solves ``(K + n alpha W^-1) a = y``, or with ``a = W^(1/2) b``

    A b = W^(1/2) y ,      A = W^(1/2) K W^(1/2) + n alpha I ,

which includes rows of weight 0, too. For the rows B of a batch a step needs ``A_BB`` and the residual
``W^(1/2) (y - f)_B - n alpha b_B``.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import SpecError
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.first_order.column_products import partial_gram, partial_scores
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup


@dataclass(frozen=True)
class CoordinateBlock:
    """A batch as a block of coordinates, on the host in float64; the same on all ranks.

    Attributes
    ----------
    gram : (m, m) array
        ``W^(1/2) K_BB W^(1/2)``.
    shift : float
        ``n alpha``.
    residual : (m, c) array
    root : (m, 1) array
        ``W^(1/2)`` of the rows.
    loss : float
        Summed loss of the rows at the coefficients of the residual.
    """

    gram: FloatArray
    shift: float
    residual: FloatArray
    root: FloatArray
    loss: float


def block_at(problem: ColumnProblem, batch: Batch, a: Array, comm: Communicator) -> CoordinateBlock:
    """Return the block of a batch at coefficients `a` (p_r, c). One allreduce of (m, 2 c + m) numbers."""
    setup: ColumnSetup = problem.extra
    xp, c = namespace_of(a), problem.n_outputs
    parts = [partial_scores(problem, batch, a), setup.rows.read(a, batch.positions), partial_gram(problem, batch, comm)]
    sums = to_host(comm.allreduce(xp.concatenate(parts, axis=1))).astype(np.float64)
    scores, own, gram = sums[:, :c], sums[:, c : 2 * c], sums[:, 2 * c :]
    loss, _ = loss_and_gradient(problem, xp.asarray(scores), batch)
    root = np.ones((batch.size, 1)) if batch.weight is None else np.sqrt(to_host(batch.weight).astype(np.float64))
    b = np.divide(own, root, out=np.zeros_like(own), where=root > 0)
    shift = setup.n_rows * problem.alpha
    residual = root * (to_host(batch.y) - scores) - shift * b
    return CoordinateBlock(gram * root * root.T, shift, residual, root, loss)


def add_block(problem: ColumnProblem, batch: Batch, block: CoordinateBlock, a: Array, change: FloatArray) -> Array:
    """Return coefficients (p_r, c) after ``b_B += change`` (m, c)."""
    setup: ColumnSetup = problem.extra
    local, here = setup.rows.find(batch.positions)
    a, xp = a.copy(), namespace_of(a)
    a[xp.asarray(local)] += xp.asarray((block.root * change)[here].astype(problem.dtype))
    return a


def check_ridge(problem: ColumnProblem, name: str) -> None:
    """Raise SpecError for a ridge penalty of 0."""
    if not problem.alpha > 0:
        raise SpecError(f"got alpha=0 for {name}, which leaves its systems singular; give a positive alpha")
