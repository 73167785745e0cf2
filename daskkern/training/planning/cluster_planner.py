"""The plans of all ranks on the workers of a cluster, with measurements where they are worth their time."""

from collections.abc import Sequence
from dataclasses import dataclass

from distributed import Client

from daskkern.backend.task_names import task_name
from daskkern.cluster.collectives.probe import MessageTimes, message_times
from daskkern.cluster.scheduler.task_results import resubmitting, results_of
from daskkern.training.feeding.block_cache_policy import needs_rates
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.balanced_division import relative_speeds
from daskkern.training.planning.columns_of_workers import Divider, n_hosts
from daskkern.training.planning.grids import StepRates
from daskkern.training.planning.measured_rates import Rates, calibrate_workers, product_rate, worst
from daskkern.training.planning.rank_plans import RankPlans, with_blocks_of_all
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.planning.sizes_of_fits import PreparedSummary
from daskkern.training.planning.worker_resources import checked_plans
from daskkern.training.run.settings import FitSettings

MEASURE_FROM_VALUES = 3e9
"""Kernel values of a fit from which the speed of different workers is measured: they take some ten seconds."""


@dataclass(frozen=True, eq=False)
class ClusterPlanner:
    """Plans a fit on workers of a cluster, one rank each, whose `resources` are known in the order of `workers`."""

    client: Client
    source: RowSource
    settings: FitSettings
    workers: Sequence[str]
    resources: Sequence[WorkerResources]

    def plans(self, summary: PreparedSummary, step_rates: StepRates | None = None) -> RankPlans:
        """Return the plans of all ranks: columns or rows are divided by memory and measured speed where workers differ.

        Blocks are not decided yet. `step_rates` were measured before, for the choice of groups. Raises
        MemoryBudgetError.
        """
        return checked_plans(self.divider(summary, step_rates))

    def divider(self, summary: PreparedSummary, step_rates: StepRates | None = None) -> Divider:
        """Return what divides the columns between the workers.

        Speeds of workers are measured where they differ; kernel values and messages, unless `step_rates` have them,
        where what is usual says that groups of ranks are faster.
        """
        speeds = self.speeds(summary)
        divider = Divider(summary, self.source, self.settings, self.resources, speeds, step_rates)
        expected = divider.grid()
        known = step_rates is not None or self._work(summary) < MEASURE_FROM_VALUES
        if known or not expected.chosen or expected.groups == 1:
            return divider
        rates = worst(self.rates(divider.plans()))
        values, products = 1e-9 * rates.block_ns, 1e-9 * rates.product_ns
        measured = StepRates(values, products, self._messages(), n_hosts(self.resources)).rounded()
        return Divider(summary, self.source, self.settings, self.resources, speeds, measured)

    def with_blocks(self, summary: PreparedSummary) -> RankPlans:
        """Return the plans of all ranks, and with them the place of kernel blocks. Raises MemoryBudgetError."""
        plans = self.plans(summary)
        disks, rates = self.disks(plans), None
        if any(needs_rates(plan, self.settings, disk) for plan, disk in zip(plans.different, disks, strict=True)):
            rates = worst(self.rates(plans))
        decided = with_blocks_of_all(plans, self.settings, disks, rates)
        decided.check()
        return decided

    def rates(self, plans: RankPlans) -> list[Rates]:
        """Measure on all workers at once what their ranks reach, in rank order."""
        planned = [plans.of(rank) for rank in range(len(self.workers))]
        sizes = [plan.sizes for plan in planned if plan.sizes is not None]
        with_disk, each = not plans.tightest.kept, self._ranks_each(plans)
        return calibrate_workers(self.client, self.workers, self.source, self.settings, sizes, with_disk, each)

    def disks(self, plans: RankPlans) -> list[int]:
        """Return the bytes of disk of each rank, or of each of its virtual ranks: with equal shares, the least."""
        each = self._ranks_each(plans)
        disks = [room.disk // count for room, count in zip(self.resources, each, strict=True)]
        return disks if plans.shares else [min(disks)]

    def still_fit(self, plans: RankPlans) -> bool:
        """Return whether plans are for workers of these kinds, and within what these may plan with, without a GPU."""
        kinds = tuple(resource.kind for resource in self.resources)
        if kinds != plans.kinds or any(resource.device_budget is not None for resource in self.resources):
            return False
        each = self._ranks_each(plans)
        shared = [resource.shared_by(count) for resource, count in zip(self.resources, each, strict=True)]
        planned = [plans.of(rank) for rank in range(len(shared))]
        return all(
            resource.budget >= plan.total + plan.kept and resource.disk >= plan.disk
            for resource, plan in zip(shared, planned, strict=True)
        )

    def speeds(self, summary: PreparedSummary) -> tuple[float, ...]:
        """Return how fast the workers are, the slowest 1: measured at once on all, where they are of several kinds.

        All are 1 for a fit of fewer kernel values than the measurement is worth.
        """
        kinds = [resource.kind for resource in self.resources]
        alone = self.settings.solver.parallelism == "nothing"
        if len(set(kinds)) == 1 or self._work(summary) < MEASURE_FROM_VALUES or alone:
            return (1.0,) * len(self.resources)

        def measured() -> list[float]:
            calls = {
                worker: self.client.submit(
                    product_rate,
                    self.source,
                    self.settings,
                    summary.n_outputs,
                    resource.threads,
                    key=task_name("measure_speed"),
                    workers=[worker],
                    pure=False,
                    retries=0,
                    priority=10,
                )
                for worker, resource in zip(self.workers, self.resources, strict=True)
            }
            return results_of(self.client, calls)

        return relative_speeds(kinds, resubmitting(measured))

    def _messages(self) -> MessageTimes:
        """Measure messages between the first worker and the last: ranks of a host follow each other."""
        at, peer = self.workers[0], self.workers[-1]

        def measured() -> list[MessageTimes]:
            name = task_name("measure_messages")
            call = self.client.submit(message_times, peer, key=name, workers=[at], pure=False, retries=0, priority=10)
            return results_of(self.client, {at: call})

        (times,) = resubmitting(measured)
        return times

    def _ranks_each(self, plans: RankPlans) -> list[int]:
        """Return how many ranks each worker has: more than one where they are virtual."""
        if plans.shares and self.settings.virtual_shards is not None:
            return list(plans.shares)
        return [self.settings.shards_each(len(self.workers))] * len(self.workers)

    def _work(self, summary: PreparedSummary) -> float:
        return float(summary.n) * summary.p * self.settings.passes
