"""Nystrom-SGD: mini-batch SGD in the eigenfeatures of the Nystrom kernel, with a diagonal preconditioner.

    w -= eta P ( psi(X_B)^T g / m + alpha w ) ,   psi(x) = M^T k(Z, x) ,   f(x) = psi(x)^T w = k(x, Z) A ,  A = M w

*streamed*: nothing of size n is held; per batch ``u = M^T K_ZB g / m`` is one allreduce of (r, c) and
``A_r -= eta M_r P (u + alpha w)``, because ``M^T K_ZZ M = I``. *stored*: psi is computed once and read back; rank r
holds its columns of psi, and the preconditioner needs no traffic at all.

References
----------
Pfahler and Morik, "Nystrom-SGD", ECML PKDD 2018, section 5, equations 14 and 25 and algorithm 1.

Where we differ: the step follows from batch, loss and the largest ``psi(x)^T P psi(x)`` of a sample of rows. Rows far
from the rest have more, and a step through one of them would throw its score past the target, farther in every epoch:
on QM9 with 500 landmarks the loss grew by seven orders of magnitude in ten epochs. So a step that would raise the loss
of its own batch is shortened to what lowers it most, for one more product with the block and a sum of (m, c) numbers.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import multiply
from daskkern.errors import DataError, SpecError
from daskkern.events import SpectrumFound
from daskkern.losses import Loss
from daskkern.preconditioners import NystromState, StableSteps
from daskkern.solvers.base import Solver, decay, is_whole, smoothness_of
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.eigenpro.spectrum import flattened
from daskkern.solvers.nystrom_sgd.costs import EigenbasisCosts
from daskkern.solvers.nystrom_sgd.setup import NystromSetup, nystrom_setup
from daskkern.solvers.nystrom_sgd.state import NystromRun
from daskkern.solvers.nystrom_sgd.steps import stored_step, streamed_step
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.tail_average import TailAverage

_SAME_BASIS = 1e-3
"""Share by which rounding may move what an eigenbasis is known by."""


@dataclass(frozen=True)
class NystromSGD(Solver[NystromRun]):
    """Nystrom-SGD.

    Parameters
    ----------
    mode : {"auto", "streamed", "stored"}
        "stored" computes psi once, into a scratch store of n r numbers, and reads it back in every epoch: cheaper
        when rows are wide. "auto" is stored when psi fits in a quarter of the free disk space of the scratch
        folder, there are more than two epochs, and all workers are on this machine or `scratch` is given.
    n_directions : int or "auto"
        k: directions above it are not conditioned; "auto" is all, as in the paper's experiments, 0 none. The first
        k are damped to ``l_(k+1)``, as in equation 14; all of them to the last.
    step_rule : {"auto", "paper"}
        "paper" is ``1 / (l_1 l_k)^(1/2)``, ``1 / l_1`` without conditioning, which ignores the batch and the loss: it
        is constant for the hinge, too, whose steps "auto" makes shorter in the course of a run.
    scratch : str or None
        Folder for psi that every worker can write to; None is the system's folder for temporary files.
    averaging : float
        Share of the run, at its end, whose iterates are averaged: constant steps leave noise in the last iterate, which
        the paper returns (0). With 1,000 classes it raised the objective by 9%, and the mean raises it by 1%.
    """

    name: ClassVar[str] = "nystrom_sgd"
    divides_batches: ClassVar[bool] = True
    preparation: ClassVar[str] = "eigenbasis"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)

    mode: str = "auto"
    n_directions: int | str = "auto"
    step_rule: str = "auto"
    scratch: str | None = None
    averaging: float = 1 / 3

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "streamed", "stored"):
            raise SpecError(f"got mode={self.mode!r} for NystromSGD; expected 'auto', 'streamed' or 'stored'")
        if self.step_rule not in ("auto", "paper"):
            raise SpecError(f"got step_rule={self.step_rule!r} for NystromSGD; expected 'auto' or 'paper'")
        if self.n_directions != "auto" and not is_whole(self.n_directions, least=0):
            raise SpecError(f"got n_directions={self.n_directions!r} for NystromSGD; expected 0 or more, or 'auto'")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"got averaging={self.averaging!r}; expected a share between 0 and 1")

    @property
    def storage(self) -> str:
        return {"streamed": "never", "stored": "always"}.get(self.mode, "auto")

    @property
    def storage_folder(self) -> str | None:
        return self.scratch

    def check_sampling(self, sampling: str) -> None:
        if self.mode == "stored" and sampling != "uniform":
            raise SpecError(
                f"got sampling={sampling!r} for solver nystrom_sgd in mode 'stored', whose batches differ "
                "from epoch to epoch; choose mode 'streamed'"
            )
        super().check_sampling(sampling)

    def spectrum(self, p: int, n: int, explicit: bool) -> SpectrumRequest:
        return SpectrumRequest(directions=None if self.n_directions == "auto" else int(self.n_directions))

    def spectrum_found(
        self, state: StableSteps, n: int, explicit: bool, batch: int, loss: Loss, alpha: float
    ) -> SpectrumFound | None:
        assert isinstance(state, NystromState)
        step = state.paper_step if self.step_rule == "paper" else state.step_size(batch, smoothness_of(loss), alpha)
        return flattened(state.eigenvalues, state.preconditioner, n, batch, state.critical_batch, step)

    def as_saved(self, saved: Snapshot) -> Self:
        if self.mode != "auto":
            return self
        return replace(self, mode="stored" if "w" in saved.shards else "streamed")

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return EigenbasisCosts()

    def rank_setup(self, inputs: RankInputs) -> NystromSetup:
        return nystrom_setup(inputs)

    def init(self, problem: Problem[NystromSetup], comm: Communicator) -> NystromRun:
        del comm
        setup: NystromSetup = problem.extra
        xp = namespace_of(setup.part.M)
        p, r = setup.part.M.shape
        width = r if setup.features is None else setup.features.stop - setup.features.start
        w = xp.zeros((width, problem.n_outputs), problem.dtype)
        A = xp.zeros((p, problem.n_outputs), problem.dtype)
        start = problem.averaging_start(self.averaging)
        return NystromRun(w, A, 0, TailAverage(max(start, 1)))

    def step(
        self, problem: Problem[NystromSetup], state: NystromRun, batch: Batch, comm: Communicator
    ) -> tuple[NystromRun, float | Array]:
        setup: NystromSetup = problem.extra
        spectrum, smoothness = setup.state, smoothness_of(problem.loss)
        if self.step_rule == "paper":
            eta = spectrum.paper_step
        else:
            eta = spectrum.step_size(batch.size, smoothness, problem.alpha, batch.excess)
            eta *= decay(problem.loss, state.step, problem.batches_per_epoch)
        take = streamed_step if setup.features is None else stored_step
        w, A, loss = take(problem, setup, state, batch, eta, comm, self.step_rule == "auto")
        step = state.step + 1
        return NystromRun(w, A, step, state.average.add(step, A if setup.features is None else w)), loss

    def finish(self, problem: Problem[NystromSetup], state: NystromRun, comm: Communicator) -> Array:
        setup: NystromSetup = problem.extra
        if setup.features is None:
            return state.average.value(state.A)
        xp = namespace_of(state.w)
        whole = xp.concatenate(list(comm.allgather(state.average.value(state.w))))
        return multiply(setup.part.M, whole, xp)

    def snapshot(self, problem: Problem[NystromSetup], state: NystromRun) -> Snapshot:
        numbers = {"step": state.step, **state.average.numbers()}
        ids = _numbers(problem)
        if problem.extra.features is None:
            return Snapshot({"A": Shard(ids, state.A), **state.average.shards(ids)}, {"w": state.w}, numbers)
        probe = {"probe": problem.extra.state.probe}
        return Snapshot({"w": Shard(ids, state.w), **state.average.shards(ids)}, probe, numbers)

    def restore(self, problem: Problem[NystromSetup], saved: Snapshot) -> NystromRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids, step = namespace_of(fresh.w), _numbers(problem), int(saved.numbers["step"])
        average = fresh.average.restored(saved, ids, xp)
        if problem.extra.features is None:
            if "w" not in saved.whole or saved.whole["w"].shape[1:] != fresh.w.shape[1:]:
                raise DataError("a saved state does not fit this Nystrom-SGD: its weights have another shape")
            w = _in_this_basis(problem.extra.state.M, saved)
            return NystromRun(xp.asarray(w), xp.asarray(saved.rows("A", ids)), step, average)
        _check_basis(problem.extra.state.probe, saved)
        return NystromRun(xp.asarray(saved.rows("w", ids)), fresh.A, step, average)


def _in_this_basis(M: HostArray, saved: Snapshot) -> HostArray:
    """Return the weights w (r, c) of a saved ``A = M w``: as they were saved, unless M was another one then.

    Eigenvectors of close eigenvalues, and all signs, depend on the library and the device that found them. The
    coefficients A do not: ``w = (M^T M)^-1 M^T A`` are their weights in any basis.
    """
    w, A = to_host(saved.whole["w"]), saved.rows("A", np.arange(M.shape[0]))
    if len(w) == M.shape[1] and np.linalg.norm(M @ w - A) <= _SAME_BASIS * np.linalg.norm(A):
        return w
    M64 = M.astype(np.float64)
    found: HostArray = scipy.linalg.solve(M64.T @ M64, M64.T @ A, assume_a="pos").astype(w.dtype)
    return found


def _check_basis(now: HostArray, saved: Snapshot) -> None:
    """Raise DataError where the weights of a stored run belong to other eigenfeatures: A is not known there."""
    before = saved.whole.get("probe")
    if before is None or before.shape != now.shape or np.abs(before - now).max() > _SAME_BASIS * np.abs(now).max():
        raise DataError(
            "the saved weights of this Nystrom-SGD belong to other eigenfeatures than those that were found now: "
            "another device or library finds others. Continue where the run began, start again, or take "
            "mode='streamed', which continues anywhere"
        )


def _numbers(problem: Problem[NystromSetup]) -> IntArray:
    """Return the global numbers of the rows of what this rank iterates on: its columns, or its eigenfeatures."""
    features = problem.extra.features
    return problem.part.columns.ids if features is None else np.arange(features.start, features.stop)
