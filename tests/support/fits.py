"""Fits of a small problem whose ranks are threads of this process, in one run or in several."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.shares import Shares
from daskkern.basis import BasisSpec
from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.data.ingest import ingest
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.schema import Scaling
from daskkern.events import BatchFinished, Event, silent
from daskkern.kernels import Laplacian
from daskkern.losses import Logistic, Loss
from daskkern.solvers import Solver
from daskkern.solvers.sampling import draws_rows
from daskkern.training.checkpoints.checkpoint import begin_checkpoint
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import Prepared, prepare
from tests.support.threads import run_threads

N, D = 130, 4
EVERY_BATCH = CheckpointPolicy(commit_s=0.0, commit_share=1.0, signal_batches=1, checkpoint_s=0.0)
IN_MEMORY = replace(EVERY_BATCH, in_memory=True)


def _never() -> bool:
    return False


def toy_source(*, weighted: bool = False, regression: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    values = X[:, 0] + np.sin(2 * X[:, 1])
    y = values[:, None] if regression else np.digitize(values, [-0.7, 0.7])
    classes = None if regression else ("low", "middle", "high")
    task = "regression" if regression else "classification"
    weight = rng.uniform(0.2, 2.0, N) if weighted else None
    return ArraySource(X, y, weight, SourceInfo(N, D, task, classes, Scaling(), None, 1, True))


def toy_store(folder: Path) -> StoreSource:
    """Write the same rows to a store in `folder`."""
    rows = toy_source()
    np.savez(folder / "toy.npz", X=rows.X, y=rows.y)
    ingest([str(folder / "toy.npz")], folder / "toy.zarr", task="classification", chunk_rows=50)
    return StoreSource.at(str(folder / "toy.zarr"))


def toy_settings(
    basis: BasisSpec, solver: Solver[object], loss: Loss | None = None, dtype: str = "float64"
) -> FitSettings:
    return FitSettings(
        Laplacian(3.0), loss or Logistic(), basis, solver, 1e-3, max_epochs=3, batch_size=32, dtype=dtype, device="cpu"
    )


@dataclass
class Fit:
    """One prepared fit that can be run on any number of ranks."""

    source: ArraySource | StoreSource
    settings: FitSettings
    prepared: Prepared
    features: str | None = None

    @classmethod
    def of(cls, source: ArraySource | StoreSource, settings: FitSettings) -> "Fit":
        return cls(source, settings, prepare(source, settings, settings.early_stopping is not None))

    def results(
        self,
        ranks: int,
        kept: int = 0,
        keeps_rows: bool = False,
        listen: Callable[[Event], None] = silent,
        stop: Callable[[], bool] = _never,
        shares: Shares = (),
        groups: int = 1,
    ) -> list[FitRankResult]:
        memory = MemoryPlan(items=(), kept=kept, kept_wanted=kept, keeps_rows=keeps_rows, budget=1 << 40)

        def work(comm: Communicator) -> FitRankResult:
            job, plans = FitJob(self.source, self.settings), RankPlans(memory, shares, groups=groups)
            task = RankTask(job, self.prepared, memory, 1, self.features, ranks=plans)
            result = run_rank(comm, task, RankContext(listen if comm.rank == 0 else silent, stop))
            assert isinstance(result, FitRankResult)
            return result

        return run_threads(ranks, work, channels=self.settings.reading == "once")

    def scores(self, results: list[FitRankResult]) -> HostArray:
        """Return the values at all rows of the model that the ranks made together."""
        ids = np.concatenate([result.ids for result in results])
        assert sorted(ids) == list(range(self.prepared.basis.n_columns))
        X = self.source.open(self.settings.dtype).read(0, self.source.info.n_rows, Fields.X).X
        kernel = self.prepared.basis.kernel
        return sum(kernel.block(X, result.points) @ result.coef for result in results)


@dataclass
class Runs:
    """A fit whose gang is formed again as often as requested, with the commits that its ranks keep."""

    fit: Fit
    policy: CheckpointPolicy = IN_MEMORY
    commit_caches: dict[int, CommitCache] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def run(
        self,
        ranks: int,
        until: int | None = None,
        lost: tuple[int, ...] = (),
        shares: Shares = (),
        groups: int = 1,
    ) -> list[FitRankResult | Regroup]:
        """Run on `ranks` ranks, to the end or until batch number `until` has been seen. `lost` vaults are empty."""
        for rank in lost:
            self.commit_caches.pop(rank, None)
        policy = self.policy
        if policy.checkpoint is not None:
            policy = replace(policy, claim=begin_checkpoint(policy.checkpoint, policy.run))
        seen: list[int] = []

        def listen(event: Event) -> None:
            self.events.append(event)
            if isinstance(event, BatchFinished):
                seen.append(1)

        def work(comm: Communicator) -> FitRankResult | Regroup:
            keeps_rows = comm.rank == 1 and not draws_rows(self.fit.settings.sampling)  # as the planner decides
            memory = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=keeps_rows, budget=1 << 40)
            commit_cache = self.commit_caches.setdefault(comm.rank, CommitCache())
            context = RankContext(
                listen if comm.rank == 0 else silent,
                should_regroup=lambda: until is not None and len(seen) >= until,
                commit_cache=commit_cache,
            )
            fit = self.fit
            job = FitJob(fit.source, fit.settings, policy=policy)
            task = RankTask(job, fit.prepared, memory, 1, fit.features)
            if shares or groups > 1:
                task = replace(task, ranks=RankPlans(memory, shares, groups=groups))
            return run_rank(comm, task, context)

        return run_threads(ranks, work, channels=self.fit.settings.reading == "once")

    def scores(self, ranks: int, **how: object) -> HostArray:
        """Return the values at all rows of the model after the last of the runs."""
        return self.fit.scores(self.run(ranks, **how))
