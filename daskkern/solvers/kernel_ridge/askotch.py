"""ASkotch: accelerated sketch-and-project for kernel ridge regression with all rows as centres.

With A as in :mod:`daskkern.solvers.kernel_ridge.blocks`, for the rows B of a batch and the point z,

    K_BB ~ U S U^T           (randomized Nystrom approximation of rank r)
    P = U (S + rho) U^T + rho (I - U U^T) ,      rho = n alpha + S_r
    d = P^-1 (A z - W^(1/2) y)_B ,      eta = 1 / lambda_max(P^(-1/2) A_BB P^(-1/2))
    w <- z - eta I_B d ,      v <- beta v + (1 - beta) z - eta gamma I_B d ,      z <- theta v + (1 - theta) w

with ``beta = 1 - (mu / nu)^(1/2)``, ``gamma = (mu nu)^(-1/2)``, ``theta = 1 / (1 + gamma nu)``. A step needs the kernel
rows of its block and m r further numbers: blocks may be larger than those that are solved exactly.

Distributed by columns: one allreduce of (m, 2 c + m) numbers a step; every rank computes the small decompositions.

References
----------
Rathore, Frangella, Yang, Derezinski and Udell, "Have ASkotch: a neat solution for large-scale kernel ridge
regression", arXiv 2407.10070, 2024; Frangella, Tropp and Udell, "Randomized Nystrom preconditioning", SIMAX 2023.

Where we differ: blocks are the batches of an epoch, so that every row is visited once in each; ``mu`` is bounded by
``1 / nu``, above which the method has no guarantee.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import decomposition_threads, library_threads
from daskkern.backend.random import generator
from daskkern.errors import DataError, SpecError
from daskkern.losses import Squared
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.kernel_ridge.blocks import CoordinateBlock, add_block, block_at, check_ridge
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot

_STREAM = 72
_POWERS = 10
_SAFETY = 1.05  # of a largest eigenvalue, which power iterations approach from below


@dataclass(frozen=True)
class ASkotchRun:
    """The state of a run: the rank's rows (n_r, c) of w and v, and the steps so far. The model is w."""

    w: Array
    v: Array
    step: int


@dataclass(frozen=True)
class ASkotch(Solver[ASkotchRun]):
    """ASkotch for the squared loss; the batch is the block, and alpha must be positive.

    Parameters
    ----------
    rank : int
        r of the Nystrom approximations; at most the rows of a batch.
    accelerated : bool
        False takes plain steps of the same kind (Skotch).
    """

    name: ClassVar[str] = "askotch"
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")
    auto_batch: ClassVar[int | None] = 2048
    needs_rows: ClassVar[bool] = True
    row_products: ClassVar[bool] = True

    rank: int = 100
    accelerated: bool = True

    def __post_init__(self) -> None:
        if not is_whole(self.rank, least=1):
            raise SpecError(f"got rank={self.rank!r} for ASkotch; give a positive whole number")

    def init(self, problem: ColumnProblem, comm: Communicator) -> ASkotchRun:
        del comm
        check_ridge(problem, "ASkotch")
        zero = problem.part.namespace.zeros((problem.part.columns.ids.size, problem.n_outputs), problem.dtype)
        return ASkotchRun(zero, zero, 0)

    def step(
        self, problem: ColumnProblem, state: ASkotchRun, batch: Batch, comm: Communicator
    ) -> tuple[ASkotchRun, float]:
        setup: ColumnSetup = problem.extra
        beta, gamma, theta = self._weights(batch.size / setup.n_rows, setup.n_rows * problem.alpha)
        z = state.w if not self.accelerated else theta * state.v + (1 - theta) * state.w
        block = block_at(problem, batch, z, comm)
        with library_threads(decomposition_threads(batch.size)):
            change = projected_step(block, self.rank, setup.seed, state.step)
        w = add_block(problem, batch, block, z, change)
        if not self.accelerated:
            return ASkotchRun(w, w, state.step + 1), block.loss
        v = add_block(problem, batch, block, beta * state.v + (1 - beta) * z, gamma * change)
        return ASkotchRun(w, v, state.step + 1), block.loss

    def _weights(self, share: float, shift: float) -> tuple[float, float, float]:
        """Return beta, gamma and theta for blocks of `share` of the rows."""
        nu = 1 / share
        mu = min(shift, share)
        beta, gamma = 1 - (mu / nu) ** 0.5, (mu * nu) ** -0.5
        return beta, gamma, 1 / (1 + gamma * nu)

    def finish(self, problem: ColumnProblem, state: ASkotchRun, comm: Communicator) -> Array:
        del problem, comm
        return state.w

    def snapshot(self, problem: ColumnProblem, state: ASkotchRun) -> Snapshot:
        ids = problem.part.columns.ids
        return Snapshot({"w": Shard(ids, state.w), "v": Shard(ids, state.v)}, numbers={"step": state.step})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> ASkotchRun:
        check_ridge(problem, "ASkotch")
        xp, ids = problem.part.namespace, problem.part.columns.ids
        w, v = (xp.asarray(saved.rows(name, ids)) for name in ("w", "v"))
        return ASkotchRun(w, v, int(saved.numbers["step"]))


def projected_step(block: CoordinateBlock, rank: int, seed: int, step: int) -> FloatArray:
    """Return ``eta P^-1 residual`` (m, c) for a block."""
    rng, m = generator(seed, _STREAM, step), len(block.gram)
    U, S = nystrom_approximation(block.gram, min(rank, m), rng)
    rho = block.shift + float(S[-1])

    def apply(X: FloatArray, power: float) -> FloatArray:
        inner = U.T @ X
        result: FloatArray = rho**power * X + U @ (((S + rho) ** power - rho**power)[:, None] * inner)
        return result

    probe: FloatArray = rng.standard_normal((m, 1))
    size = 1.0
    for _ in range(_POWERS):
        half = apply(probe / np.linalg.norm(probe), -0.5)
        probe = apply(block.gram @ half + block.shift * half, -0.5)
        size = float(np.linalg.norm(probe))
    return apply(block.residual, -1.0) / (_SAFETY * size)


def nystrom_approximation(K: FloatArray, rank: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return U (m, r), orthonormal, and S (r,), descending, of a randomized Nystrom approximation ``U S U^T`` of K."""
    omega = scipy.linalg.qr(rng.standard_normal((len(K), rank)), mode="economic", check_finite=False)[0]
    Y = K @ omega
    core = omega.T @ Y
    C, nu = _shifted_cholesky(0.5 * (core + core.T), max(float(np.trace(K)), float(np.finfo(np.float64).tiny)))
    B = scipy.linalg.solve_triangular(C, (Y + nu * omega).T, lower=True, check_finite=False).T
    U, sigma, _ = scipy.linalg.svd(B, full_matrices=False, check_finite=False)
    return U, np.maximum(sigma**2 - nu, 0.0)


def _shifted_cholesky(core: FloatArray, size: float) -> tuple[FloatArray, float]:
    """Return the factor of ``core + nu I`` and nu, the smallest that is tried: kernel values are rounded to float32."""
    for power in range(-16, 1, 2):
        nu = 10.0**power * size
        try:
            return scipy.linalg.cholesky(core + nu * np.eye(len(core)), lower=True, check_finite=False), nu
        except scipy.linalg.LinAlgError:
            continue
    raise DataError("the kernel of a block of rows is not positive semi-definite; choose another kernel")
