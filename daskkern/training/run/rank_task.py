"""The payload of a rank, the same for all ranks of a fit, and its replacement after a loss of workers."""

from dataclasses import dataclass, replace

from distributed import Client

from daskkern.backend.shares import Shares
from daskkern.errors import SpecError
from daskkern.training.feeding.remote_values import RemoteValue, wait_for
from daskkern.training.planning.cluster_planner import ClusterPlanner
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.rank_plans import RankPlans, with_blocks_of_all
from daskkern.training.planning.sizes_of_fits import PreparedSummary
from daskkern.training.planning.worker_resources import check_reach, resources_of
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared


@dataclass(frozen=True, eq=False)
class RankTask:
    """The payload of a rank.

    Attributes
    ----------
    job : FitJob
        With the sources that this rank can open, scaled as the fit learned.
    prepared : Prepared, or where on the cluster one is
    memory : MemoryPlan
        Of the rank.
    threads : int
    features : str or None
        Where the stored eigenfeatures of Nystrom-SGD are.
    summary : PreparedSummary or None
        What plans for other ranks are made from.
    gang : int
        The number of the gang, which rises from gang to gang of a driver; 0 without a cluster.
    ranks : RankPlans or None
        The plans of all ranks, and their shares of the columns or rows; None where there is one rank.
    """

    job: FitJob
    prepared: Prepared | RemoteValue
    memory: MemoryPlan
    threads: int
    features: str | None = None
    summary: PreparedSummary | None = None
    gang: int = 0
    ranks: RankPlans | None = None

    @property
    def settings(self) -> FitSettings:
        """The settings of the job."""
        return self.job.settings

    @property
    def shares(self) -> Shares:
        """The shares of the ranks in the columns, or in the rows where these are distributed; () for equal ones."""
        return () if self.ranks is None else self.ranks.shares

    @property
    def row_shares(self) -> Shares:
        """The shares of the ranks in the rows of every batch, where they are different and rows are distributed."""
        by_rows = self.settings.solver.parallelism == "rows" and self.settings.virtual_shards is None
        return self.shares if by_rows else ()

    @property
    def groups(self) -> int:
        """How many groups of ranks divide the batches, as planned."""
        return 1 if self.ranks is None else self.ranks.groups

    def of_rank(self, rank: int) -> "RankTask":
        """Return the task with the memory plan of a rank."""
        return self if self.ranks is None else replace(self, memory=self.ranks.of(rank))

    def divided(self, prepared: Prepared) -> Prepared:
        """Return the set-up with columns that are divided by the shares of the ranks; virtual ranks' are equal."""
        by_columns = self.settings.solver.parallelism == "columns"
        if not self.shares or self.settings.virtual_shards is not None or not by_columns:
            return prepared
        return replace(prepared, basis=replace(prepared.basis, shares=self.shares))


def reform(client: Client, workers: tuple[str, ...], task: RankTask, share_memory: int | None = None) -> RankTask:
    """Return the task for other workers: columns are divided again, and tiles and cached blocks are planned again.

    With as many workers as before, of the same kinds, the plan stays if it fits: the same plan gives the same bits.

    Raises
    ------
    MemoryBudgetError
        When a worker has too little memory.
    ClusterError
        When a worker cannot open the data.
    """
    assert task.summary is not None
    if len(workers) > task.settings.shards(len(workers)):
        raise SpecError(f"got {len(workers)} ranks with {task.settings.virtual_shards} virtual shards; each needs one")
    if isinstance(task.prepared, RemoteValue):
        wait_for(client, task.prepared.key)
    check_reach(client, task.job.sources, task.settings, workers)
    resources = resources_of(client, task.settings, workers, share_memory)
    planner = ClusterPlanner(client, task.job.source, task.settings, workers, resources)
    if task.ranks is not None and planner.still_fit(task.ranks):
        return task
    plans = planner.plans(task.summary, None if task.ranks is None else task.ranks.step_rates)
    plans = with_blocks_of_all(plans, task.settings, planner.disks(plans), None)
    plans.check()
    return replace(task, memory=plans.tightest, ranks=plans)
