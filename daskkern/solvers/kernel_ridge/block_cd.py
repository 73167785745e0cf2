"""Block coordinate descent for kernel ridge regression with all rows as centres.

    a_B <- a_B + (K_BB + n alpha W_B^-1)^-1 (y_B - f_B - n alpha W_B^-1 a_B)

for one batch of rows after the other, in random order: each step minimises ``1/2 a^T (K + n alpha W^-1) a - a^T y``
over the coefficients of its rows, so that it falls at every step. One batch of all rows is the direct solution.

Distributed by columns: one allreduce of (m, 2 c + m) numbers a step; every rank solves the (m, m) system.

References
----------
Tu, Roelofs, Venkataraman and Recht, "Large scale kernel learning using block coordinate descent", arXiv 1602.05310,
2016, algorithm 1 (full kernel).
"""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import decomposition_threads
from daskkern.errors import DataError
from daskkern.kernels import diagnose
from daskkern.linalg import NotPositiveDefiniteError, solve_positive_definite
from daskkern.losses import Squared
from daskkern.solvers.base import Solver
from daskkern.solvers.kernel_ridge.blocks import add_block, block_at, check_ridge
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.snapshot import Shard, Snapshot


@dataclass(frozen=True)
class BlockRun:
    """The state of a run: the rank's coefficients (n_r, c)."""

    a: Array


@dataclass(frozen=True)
class BlockCD(Solver[BlockRun]):
    """Block coordinate descent for the squared loss; the batch is the block, and alpha must be positive."""

    name: ClassVar[str] = "block_cd"
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")
    auto_batch: ClassVar[int | None] = 1024
    needs_rows: ClassVar[bool] = True
    row_products: ClassVar[bool] = True

    def init(self, problem: ColumnProblem, comm: Communicator) -> BlockRun:
        del comm
        check_ridge(problem, "BlockCD")
        shape = (problem.part.columns.ids.size, problem.n_outputs)
        return BlockRun(problem.part.namespace.zeros(shape, problem.dtype))

    def step(self, problem: ColumnProblem, state: BlockRun, batch: Batch, comm: Communicator) -> tuple[BlockRun, float]:
        block = block_at(problem, batch, state.a, comm)
        try:
            change, _ = solve_positive_definite(
                block.gram, block.residual, block.shift, decomposition_threads(batch.size)
            )
        except NotPositiveDefiniteError as error:
            why = diagnose(problem.part.kernel, batch.X, problem.dtype, "rows", "take another length scale")
            raise DataError(
                f"a block of {batch.size} rows cannot be solved ({error}): {why.found}; {why.remedy}, take a larger "
                "alpha, or dtype float64"
            ) from None
        return BlockRun(add_block(problem, batch, block, state.a, change)), block.loss

    def finish(self, problem: ColumnProblem, state: BlockRun, comm: Communicator) -> Array:
        del problem, comm
        return state.a

    def snapshot(self, problem: ColumnProblem, state: BlockRun) -> Snapshot:
        return Snapshot({"a": Shard(problem.part.columns.ids, state.a)})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> BlockRun:
        check_ridge(problem, "BlockCD")
        return BlockRun(problem.part.namespace.asarray(saved.rows("a", problem.part.columns.ids)))
