"""The pass over all rows for a kernel's metric: each rank of a cluster sums its share of the rows.

It runs between the two halves of the set-up, as a gang of its own on the workers of the fit. Sums are small, and a pass
takes a small part of a fit: after the loss of a worker it starts again on the others.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from distributed import Client, get_worker

from daskkern.backend.communicator import Communicator
from daskkern.cluster.connect.membership import has_left
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.lease import Lease, renewed
from daskkern.errors import FitCancelledError, SpecError
from daskkern.events import Listener
from daskkern.training.feeding.remote_values import RemoteValue, wait_for
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.worker_resources import check_reach
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.learned_metric import FoundMetric, metric_on


@dataclass(frozen=True, eq=False)
class MetricTask:
    """The payload of a rank.

    Attributes
    ----------
    source : RowSource
        The training rows, as this rank can open them.
    settings : FitSettings
    draft : RemoteValue
        The first half of the set-up.
    """

    source: RowSource
    settings: FitSettings
    draft: RemoteValue


def metric_on_cluster(
    client: Client,
    task: MetricTask,
    listener: Listener,
    gang: GangSettings,
    lease: Lease,
    until: ExitStack,
) -> tuple[Lease, FoundMetric]:
    """Return the metric of all rows, found on the workers of `lease`, and the lease with the workers of now.

    The lease is held until `until` closes.

    Raises
    ------
    FitCancelledError
        When the fit was cancelled meanwhile.
    KeyboardInterrupt
        When it was interrupted: there is no model so far.
    """
    settings = replace(gang, n_ranks=gang.n_ranks or task.settings.virtual_shards, elastic=False, drain_s=0.0)
    name = task.settings.solver.name
    results = run_gang(
        client,
        metric_rank,
        task,
        name=name,
        settings=settings,
        listener=listener,
        reform=reformed,
        lease=lease,
        until=until,
    )
    found = next((result for result in results if result is not None), None)
    if found is None:
        if ask_fits(client, "asked_to_stop", fit=lease.metadata.fit, asker=client.id):
            raise FitCancelledError(f"fit '{name}' ({lease.metadata.fit}) was cancelled; nothing was written")
        raise KeyboardInterrupt
    return renewed(client, lease, gang, listener) if has_left(client, lease.addresses) else lease, found


def metric_rank(comm: Communicator, task: MetricTask, context: RankContext) -> FoundMetric | None:
    """Run one rank. Rank 0 returns the metric; the others have the same, and return None."""
    threads = max(1, get_worker().state.nthreads)
    found = metric_on(comm, task.source, task.draft.fetch(), threads, context.should_stop)
    return found if comm.rank == 0 else None


def reformed(client: Client, workers: tuple[str, ...], task: MetricTask) -> MetricTask:
    """Return the task for other workers than the first ones: they must be able to read the rows."""
    shards = task.settings.virtual_shards
    if shards is not None and len(workers) > shards:
        raise SpecError(f"got {len(workers)} ranks with {shards} virtual shards; each needs one")
    wait_for(client, task.draft.key)
    check_reach(client, [task.source], task.settings, workers)
    return task
