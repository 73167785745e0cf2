"""EigenPro, for every loss: with all rows as centres, with p centres and projections, and over explicit features.

All rows: the gradient of a batch lies in the span of its own columns, and a step changes the coefficients of the
batch and of the subsample S. p centres: the gradient must be projected onto the centres. A *window* collects T
batches as temporary centres and projects once; T = 1 is EigenPro 3, T > 1 is EigenPro 4. Explicit features, linear
ones among them, are preconditioned by their covariance; see :mod:`daskkern.solvers.eigenpro.feature_steps`.

References
----------
Ma and Belkin, "Diving into the shallows", NeurIPS 2017 (algorithm 1); Abedsoltan, Belkin and Pandit, "Toward large
kernel models", ICML 2023 (algorithm 2); Abedsoltan et al., "Fast training of large kernel models with delayed
projections", NeurIPS 2025 (algorithm 1). Momentum: Liu and Belkin, "Accelerating SGD with momentum for
over-parameterized learning", ICLR 2020 (MaSS); over the preconditioned kernel it is the AxlePro of Gao, Abedsoltan,
Pandit and Belkin.

Where we differ: any loss enters through its gradient (as Nystrom-SGD does); S is drawn from the centres, so that the
preconditioner maps their span into itself and K_BS is a slice of K_BZ; the ridge penalty is preconditioned too; the
returned model is the mean of the last iterates.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.events import SpectrumFound
from daskkern.linalg import EIGEN_METHODS
from daskkern.losses import Loss
from daskkern.preconditioners import CovarianceState, EigenProState, SpectrumSettings, StableSteps
from daskkern.solvers.base import Solver, decay, is_whole, smoothness_of
from daskkern.solvers.eigenpro.feature_steps import FeatureSetup, feature_direction
from daskkern.solvers.eigenpro.setup import eigenpro_setup, feature_setup
from daskkern.solvers.eigenpro.spectrum import (
    covariance_rows,
    found,
    most_directions,
    subsample_rows,
    window_batches,
)
from daskkern.solvers.eigenpro.state import EigenProRun, EigenProSetup, MomentumIterate, Projected
from daskkern.solvers.eigenpro.steps import project, push, step_all_rows, step_window
from daskkern.solvers.eigenpro.temporary_centres import Temporary
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.stored_settings import SINCE_LATER
from daskkern.solvers.tail_average import TailAverage


@dataclass(frozen=True)
class EigenPro(Solver[EigenProRun]):
    """EigenPro.

    ``EigenPro(rho=0.5)`` over all rows is the preconditioned SGD for any convex loss of Pfahler and Morik (ECML PKDD
    2018, section 4.2, equation 20), whose preconditioner is P with that exponent.

    Parameters
    ----------
    subsample : int or "auto"
        Rows s of the preconditioner's subsample S; "auto" is 2,000 or 4 in 5 of the centres, whichever is less, and
        for explicit features 4,800 or 4 in 5 of the rows.
    n_directions : int or "auto"
        Damped directions q; "auto" is at most 1,000, and 160 for explicit features.
    rho : float
        Damping exponent; see :class:`daskkern.preconditioners.SpectrumSettings`.
    tau : float or "tail_mean"
        Damping factor; see :class:`daskkern.preconditioners.SpectrumSettings`. With ``rho=0.5``, "tail_mean" is the
        conditioner of Gonen and Shalev-Shwartz (Pfahler and Morik, equations 9 and 10).
    projection : {"auto", "exact", "eigenpro"}
        How K_ZZ is solved for p centres: a Cholesky factor, or conjugate gradient with the directions of EigenPro for
        a preconditioner. "auto" is exact as far as the factor fits the memory of a rank. Explicit features have none.
    projection_tol : float
        The residual, relative to the right side and for every output, at which conjugate gradient ends; it ends after
        100 iterations, too.
    window : int or "auto"
        Batches T between projections; "auto" balances the two costs: of p rows where projections are iterated, or as
        many as memory allows, and of fewer with a factor. Explicit features have none.
    averaging : float
        Share of the run, at its end, whose iterates are averaged; 0 returns the last one.
    step_scale : float
        Multiplies the step, below 2: at twice the step ``m / (L (beta + (m - 1) l_P))`` the mean square of the iterates
        stops contracting (Ma, Bassily and Belkin, ICML 2018). ``solver="auto"`` takes 1.5, which reaches the same
        error in about two thirds of the epochs; averaging removes the noise that it adds.
    momentum : float
        gamma of MaSS, from 0 (none) to below 1. Gradients are taken at u: ``w' = u - eta P grad(u)`` and
        ``u' = (1 + gamma) w' - gamma w + eta_2 P grad(u)`` with ``eta_2 = eta (1 + gamma) / 2 (1 - 1 / kappa)``,
        ``kappa = 1 + (n - 1) / m``. The best gamma is
        ``(t - 1) / (t + 1)`` with ``t = (kappa (beta/m + l_P) / mu)^(1/2)``, mu the least eigenvalue that matters; one
        below ``(kappa - 1) / (kappa + 1)`` is slower than none. For small batches and many epochs: 0.95 and more. p
        centres need ``window=1`` for it.
    eigen_method : {"auto", "dense", "krylov", "rsvd"}
        How the directions are found, see :func:`daskkern.linalg.top_eigenpairs`. "rsvd" is the randomized SVD of the
        2017 paper, whose eigenvalues err by some percent; "auto" takes a dense or a block Krylov method.
    """

    name: ClassVar[str] = "eigenpro"
    divides_batches: ClassVar[bool] = True
    preparation: ClassVar[str] = "spectrum"
    suits_smooth_kernels: ClassVar[bool] = True
    bases: ClassVar[tuple[str, ...]] = (
        "all rows",
        "landmarks",
        "random features",
        "nystrom features",
        "linear",
        "locally linear",
    )

    subsample: int | str = "auto"
    n_directions: int | str = "auto"
    rho: float = 0.95
    tau: float | str = 1.0
    projection: str = "auto"
    window: int | str = "auto"
    averaging: float = 1 / 3
    step_scale: float = 1.0
    momentum: float = 0.0
    projection_tol: float = 0.1
    eigen_method: str = field(default="auto", metadata=SINCE_LATER)

    def __post_init__(self) -> None:
        for name in ("subsample", "n_directions", "window"):
            value = getattr(self, name)
            if value != "auto" and not is_whole(value, least=0 if name == "n_directions" else 1):
                raise SpecError(f"got {name}={value!r} for EigenPro; expected a positive whole number or 'auto'")
        if self.projection not in ("auto", "exact", "eigenpro"):
            raise SpecError(f"got projection={self.projection!r}; expected 'auto', 'exact' or 'eigenpro'")
        if self.eigen_method not in EIGEN_METHODS:
            known = ", ".join(EIGEN_METHODS)
            raise SpecError(f"got eigen_method={self.eigen_method!r} for EigenPro; choose one of {known}")
        SpectrumSettings(rho=self.rho, tau=self.tau)  # refuses them now, not when the fit has begun
        if not 0 < self.projection_tol < 1:
            raise SpecError(f"got projection_tol={self.projection_tol!r}; expected a number above 0 and below 1")
        if not 0 < self.step_scale < 2:
            raise SpecError(f"got step_scale={self.step_scale!r}; expected a number above 0 and below 2")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"got averaging={self.averaging!r}; expected a share between 0 and 1")
        if not 0 <= self.momentum < 1:
            raise SpecError(f"got momentum={self.momentum!r} for EigenPro; expected a number from 0 to below 1")

    @property
    def projection_factor(self) -> str:
        return {"exact": "always", "eigenpro": "never"}.get(self.projection, "auto")

    def check_explicit(self, space: str) -> None:
        if self.window != "auto" or self.projection != "auto":
            raise SpecError(
                f"got window={self.window!r} and projection={self.projection!r} over "
                f"{space}, which needs no projections; leave both 'auto'"
            )

    def spectrum(self, p: int, n: int, explicit: bool) -> SpectrumRequest:
        s = covariance_rows(self.subsample, n) if explicit else subsample_rows(self.subsample, p)
        directions = None if self.n_directions == "auto" else int(self.n_directions)
        most = most_directions(self.n_directions, p, s, explicit)
        return SpectrumRequest(s, most, directions, self.rho, self.tau, self.eigen_method)

    def spectrum_found(
        self, state: StableSteps, n: int, explicit: bool, batch: int, loss: Loss, alpha: float
    ) -> SpectrumFound | None:
        assert isinstance(state, EigenProState | CovarianceState)
        s = state.vectors.shape[0] if isinstance(state, EigenProState) else covariance_rows(self.subsample, n)
        step = self.step_scale * state.step_size(batch, smoothness_of(loss), alpha)
        return found(state, s, batch, step)

    def projection_window(self, p: int, d: int, batch_size: int, *, factor_fits: bool = True) -> int:
        if self.window != "auto":
            return int(self.window)
        return window_batches(p, d, batch_size, exact=self._is_exact(factor_fits))

    def projection_span(self, p: int, d: int, batch_size: int, *, factor_fits: bool = True) -> int:
        if self.window != "auto":
            return (int(self.window) - 1) * batch_size
        return window_batches(p, d, 1, exact=self._is_exact(factor_fits))

    @property
    def chooses_window(self) -> bool:
        return self.window == "auto"

    def projections_in_words(self, window: int, factor_fits: bool) -> str:
        exact = self._is_exact(factor_fits)
        how = "with a factor" if exact else f"iterated to a residual of {self.projection_tol:g}"
        return f", projections every {window} batches, {how}"

    def _is_exact(self, factor_fits: bool) -> bool:
        return factor_fits if self.projection == "auto" else self.projection == "exact"

    def rank_setup(self, inputs: RankInputs) -> EigenProSetup | FeatureSetup:
        if isinstance(inputs.state, CovarianceState):
            return feature_setup(inputs, inputs.state)
        assert isinstance(inputs.state, EigenProState)
        exact = self._is_exact(inputs.factor_fits)
        return eigenpro_setup(inputs, inputs.state, exact=exact, tol=self.projection_tol)

    def init(self, problem: Problem[EigenProSetup | FeatureSetup], comm: Communicator) -> EigenProRun:
        del comm
        setup: EigenProSetup | FeatureSetup = problem.extra
        xp = namespace_of(setup.part.vectors)
        p, c = problem.part.columns.ids.size, problem.n_outputs
        zero = xp.zeros((p, c), problem.dtype)
        at_S = xp.zeros((problem.part.columns.n_head, c), problem.dtype)
        start = problem.averaging_start(self.averaging)
        if self.momentum and isinstance(setup, EigenProSetup) and setup.window > 1:
            raise SpecError(
                f"got momentum={self.momentum} for EigenPro and projections every {setup.window} batches; "
                "momentum over landmarks needs window=1"
            )
        slow = MomentumIterate(zero, at_S) if self.momentum else None
        return EigenProRun(zero, 1.0, zero, zero, at_S, Temporary(), 0, 0, TailAverage(max(start, 1)), slow)

    def step(
        self, problem: Problem[EigenProSetup | FeatureSetup], state: EigenProRun, batch: Batch, comm: Communicator
    ) -> tuple[EigenProRun, float | Array]:
        setup: EigenProSetup | FeatureSetup = problem.extra
        eta = setup.state.step_size(batch.size, smoothness_of(problem.loss), problem.alpha, batch.excess)
        eta *= self.step_scale * decay(problem.loss, state.step, problem.batches_per_epoch)
        after, loss = self._plain_step(problem, state, batch, eta, comm)
        if after.in_window:
            return after, loss
        if self.momentum:
            n = batch.size * problem.batches_per_epoch
            after = push(after, state, self.momentum, (n - 1) / (n + batch.size - 1))  # 1 - 1 / kappa
        model = after.working if after.slow is None else after.slow.a
        return replace(after, average=after.average.add(after.step, model)), loss

    def _plain_step(
        self,
        problem: Problem[EigenProSetup | FeatureSetup],
        state: EigenProRun,
        batch: Batch,
        eta: float,
        comm: Communicator,
    ) -> tuple[EigenProRun, float | Array]:
        setup: EigenProSetup | FeatureSetup = problem.extra
        if isinstance(setup, FeatureSetup):
            direction, loss = feature_direction(problem, setup, state.working, batch, comm)
            return replace(state, working=state.working - eta * direction, step=state.step + 1), loss
        if setup.projector is None:
            return step_all_rows(problem, setup, state, batch, eta, comm)
        if state.step % problem.batches_per_epoch == 0:
            state = replace(state, projected=Projected())
        made = None if setup.recorded is None else setup.recorded.step(problem, setup, state, batch, eta)
        if made is not None:
            return made
        state, loss = step_window(problem, setup, state, batch, eta, comm)
        if batch.last or state.in_window >= setup.window:
            state = project(setup.projector, state, comm)
        return state, loss

    def finish(self, problem: Problem[EigenProSetup | FeatureSetup], state: EigenProRun, comm: Communicator) -> Array:
        del comm
        # Within a window `working` lacks the temporary centres: an interrupted run falls back on the last projection.
        setup: EigenProSetup | FeatureSetup = problem.extra
        whole = state.working if isinstance(setup, FeatureSetup) or setup.projector is None else state.a
        return state.average.value(whole if state.slow is None else state.slow.a)

    def certificate(self, problem: Problem[EigenProSetup | FeatureSetup], state: EigenProRun) -> Certificate | None:
        del problem
        projected = state.projected
        if not projected.iterations:
            return None
        note = f"asked for {self.projection_tol:g}, {projected.iterations} iterations in {projected.count} projections"
        if projected.residual > self.projection_tol:
            note += ", some of which ended without it; take fewer landmarks or a shorter length scale"
        return Certificate("projection residual", projected.residual, 0.0, note)

    def done(self, problem: Problem[EigenProSetup | FeatureSetup], state: EigenProRun) -> bool:
        del problem, state
        return False  # the residual of projections says nothing of the model's distance from the optimum

    def snapshot(self, problem: Problem[EigenProSetup | FeatureSetup], state: EigenProRun) -> Snapshot | None:
        if state.in_window:
            return None
        ids = problem.part.columns.ids
        head = ids[: problem.part.columns.n_head]
        shards = {"working": Shard(ids, state.working), "at_S": Shard(head, state.at_S), **state.average.shards(ids)}
        if state.slow is not None:
            shards |= {"slow": Shard(ids, state.slow.a), "slow_at_S": Shard(head, state.slow.at_S)}
        return Snapshot(
            shards, numbers={"step": state.step, "averaged": state.average.count, "averaged_from": state.average.start}
        )

    def restore(self, problem: Problem[EigenProSetup | FeatureSetup], saved: Snapshot) -> EigenProRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.working), problem.part.columns.ids
        head = ids[: problem.part.columns.n_head]
        working, at_S = (xp.asarray(saved.rows(name, own)) for name, own in (("working", ids), ("at_S", head)))
        slow = fresh.slow
        if slow is not None:
            slow = MomentumIterate(xp.asarray(saved.rows("slow", ids)), xp.asarray(saved.rows("slow_at_S", head)))
        average = fresh.average.restored(saved, ids, xp)
        return replace(
            fresh, a=working, working=working, at_S=at_S, step=int(saved.numbers["step"]), average=average, slow=slow
        )
