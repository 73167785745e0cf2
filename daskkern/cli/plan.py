"""``daskkern plan``: memory, time and cost of a fit, estimated before it runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click
from distributed import Client

from daskkern.backend.concurrency import cpu_count
from daskkern.cli.console import say
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.cli.options.fit_options import fit_options
from daskkern.cli.options.fit_request import FitRequest
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.row_options import open_rows, row_options
from daskkern.cli.output.plan_tables import show_memory, show_shares, show_time
from daskkern.cluster.connect.membership import check_any, live_workers
from daskkern.errors import MemoryBudgetError
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.direct.ingest_gain import ingest_gain
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.block_cache_policy import disk_room, with_blocks
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.cluster_planner import ClusterPlanner
from daskkern.training.planning.columns_of_workers import Divider
from daskkern.training.planning.device_choices import with_batches_of_devices
from daskkern.training.planning.fit_cost import FitCost
from daskkern.training.planning.kernel_precision import expected_arithmetic
from daskkern.training.planning.measured_rates import Rates, calibrate, worst
from daskkern.training.planning.memory_by_columns import budget_of_shard
from daskkern.training.planning.memory_plan import MemoryPlan, available_memory, device_memory, device_size
from daskkern.training.planning.planner import check_before, expected_setup, plan_for
from daskkern.training.planning.rank_plans import RankPlans, with_blocks_of_all
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.planning.suggestions import fits, largest_batch
from daskkern.training.planning.timing import TimePlan, choice_seconds, estimate
from daskkern.training.planning.worker_resources import check_resources, resources_of
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.kernel_choice import with_categories
from daskkern.training.setup.learned_metric import candidate_count, learning_costs
from daskkern.training.setup.scaling import learn_scaling, with_scaling
from daskkern.training.setup.shared import fewer_columns


@dataclass(frozen=True)
class _Expectation:
    """Memory plan and speeds of a fit, per virtual rank where `virtual_shards` is set, and the number of workers."""

    workers: int
    ranks: str
    plan: MemoryPlan
    rates: Rates | None
    measured: str
    plans: RankPlans | None = None
    """Those of all ranks, on a cluster."""
    of_ranks: Sequence[Rates] = ()
    """What each rank of a cluster reaches."""
    batch: int | None = None
    """The batch of the fit, where its set-up was made."""

    def slowest(self, timed: Callable[[MemoryPlan, Rates], TimePlan]) -> TimePlan:
        """Return the time of the rank that takes the longest."""
        assert self.rates is not None
        if self.plans is None or not self.plans.plans:
            return timed(self.plan, self.rates)
        return max(map(timed, self.plans.plans, self.of_ranks), key=lambda time: time.total)


@click.command("plan")
@click.argument("store")
@row_options
@json_option
@fit_options
@cluster_options
def plan_command(store: str, roles: RowRoles, request: FitRequest, where: ClusterRequest) -> dict[str, object]:
    """Show how much memory one rank of a fit would need, how long the fit would take, and its cost in worker-hours."""
    request.check()
    source: RowSource = open_rows(store, roles)
    info = source.info
    settings = request.settings(info.task, info.n_rows, None, info.n_features, len(info.classes or ()))
    settings = with_categories(settings, info.categories)
    source = with_scaling(source, learn_scaling(source, settings))
    wide, notes = expected_arithmetic(source, settings)
    if where.named or where.gpus is not None:
        with where.client() as client:
            assert client is not None
            found = _on_cluster(client, source, settings, wide)
    else:
        found = _here(where.workers, source, settings, wide)
    sizes = found.plan.sizes
    few = "" if sizes is None else fewer_columns(settings.basis, sizes.n, sizes.p)
    if sizes is not None and few:
        say(f"landmarks: {sizes.p}{few}")
    for line in notes:
        say(line)
    show_memory(found.ranks, found.plan)
    show_shares(found.plans, settings)
    groups = "" if found.plans is None else found.plans.grid.in_words(found.workers)
    if groups:
        say(f"ranks: {groups}")
    batch = _sure_batch(found.plan)
    if batch:
        say(
            f"An automatic batch may be too large: batches of up to {batch} rows fit. The fit is refused if its set-up "
            f"chooses a larger one; --batch-size {batch} is sure to fit."
        )
    else:
        found.plan.check()
    limit_s = math.inf if settings.max_seconds is None else settings.max_seconds
    workers = 1 if settings.solver.is_serial else found.workers
    if found.rates is None:
        say("no time estimate: the fit runs on a GPU, which is not measured")
        cost = FitCost(workers, math.inf, on_gpus=True, limit_s=limit_s)
        say(cost.in_words())
        return _record(found, batch, None, cost)
    time = _expected_time(found, source, settings)
    show_time(time, settings.max_epochs)
    cost = FitCost(workers, time.total, limit_s=limit_s)
    say(cost.in_words())
    say(
        f"Estimated from a calibration of {found.measured} ({found.rates.seconds:.1f} s): "
        f"{found.rates.block_ns:.2g} ns per kernel entry, batches of {_rows(found.batch, time.batch)}."
    )
    if isinstance(source, GroupSource):
        say(ingest_gain(source, settings).in_words(settings.max_epochs))
    return _record(found, batch, time, cost)


def _expected_time(found: _Expectation, source: RowSource, settings: FitSettings) -> TimePlan:
    """Return the time of the slowest rank, which is that of the fit."""
    sweeps = (settings.solver.sweeps(1, settings.loss), settings.solver.sweeps(2, settings.loss))
    sizes = found.plan.sizes
    assert sizes is not None
    learning = learning_costs(settings, source.info, sizes.n, sizes.d, sizes.c)
    stored = not found.plan.kept_wanted
    count = candidate_count(settings)

    def timed(plan: MemoryPlan, rates: Rates) -> TimePlan:
        assert plan.sizes is not None
        choices = choice_seconds(source, settings, plan.sizes, rates)
        return estimate(plan, rates, settings.max_epochs, stored, sweeps, learning, count, choices)

    return found.slowest(timed)


def _record(found: _Expectation, batch: int, time: TimePlan | None, cost: FitCost) -> dict[str, object]:
    """Return what the command shows, as plain values: bytes, seconds, and None where nothing is known."""
    plan = found.plan
    return {
        "rank": found.ranks,
        "workers": cost.workers,
        "groups": 1 if found.plans is None else found.plans.groups,
        "memory": dict(plan.items),
        "memory_total": plan.total,
        "memory_budget": plan.budget,
        "device_memory": dict(plan.device_items),
        "device_memory_total": plan.device_total,
        "device_memory_budget": plan.device_budget,
        "kernel_blocks": plan.note,
        "largest_sure_batch": batch or None,
        "batch": None if time is None else found.batch or time.batch,
        "stages": None if time is None else {stage.name: stage.seconds for stage in time.stages},
        "seconds": None if time is None else time.total,
        "worker_hours": None if math.isinf(cost.hours) else cost.hours,
    }


def _rows(known: int | None, expected: int) -> str:
    batch = known or expected
    return f"{'' if known else 'about '}{batch:,} row{'s' * (batch != 1)}"


def _here(workers: int | None, source: RowSource, settings: FitSettings, wide: bool = False) -> _Expectation:
    """Plan for local workers, or for this process, without starting any."""
    ranks = _used_ranks(settings, max(1, min(cpu_count(), 4) if workers is None else workers))
    shards, each = settings.shards(ranks), settings.shards_each(ranks)
    threads = max(1, cpu_count() // ranks // each)
    budget = budget_of_shard(settings.memory_budget or available_memory(ranks), each)
    device = device_memory(settings.device) if workers is None else None
    if device is not None:
        mine = WorkerResources(threads, budget, device, 0, device_size=device_size(settings.device))
        settings = with_batches_of_devices(settings, source, [mine] * ranks)
    device = None if device is None else device // each
    if device is None:
        check_before(source, settings, settings.early_stopping is not None, shards, threads, budget)
    setup, plans = expected_setup(source, settings, wide=wide, on_gpu=device is not None), None
    settings = setup.settings
    if (
        device is None and each == 1 and (ranks > 1 or settings.groups != "auto")
    ):  # the only choice between workers of a kind is that of groups
        alike = [WorkerResources(threads, budget, None, 0)] * ranks
        plans = Divider(setup.summary, source, settings, alike).plans()
    if plans is not None and plans.groups > 1:
        plan = plans.tightest
    else:
        plan = plan_for(setup.summary, source, settings, shards, threads, budget, device)
    if plan.device_items or (plan.total > plan.budget and not _sure_batch(plan)):
        return _Expectation(ranks, _rank_label(settings, ranks), plan, None, "")
    assert plan.sizes is not None
    room = disk_room(settings, ranks) // each
    rates = calibrate(source, setup.timed, plan.sizes, ranks * each, with_disk=not plan.kept)
    plan = with_blocks(plan, settings, room, rates)
    if plans is not None:
        plans = replace(plans, tightest=plan)
    label = _rank_label(settings, ranks)
    return _Expectation(ranks, label, plan, rates, "this machine", plans, batch=setup.batch)


def _on_cluster(client: Client, source: RowSource, settings: FitSettings, wide: bool = False) -> _Expectation:
    """Plan for the workers of a cluster, and measure on them."""
    known = live_workers(client)
    check_any(client, known)
    names, resources = _with_room(client, source, settings, list(known))
    ranks = len(names)
    settings = with_batches_of_devices(settings, source, resources)
    on_gpu = any(resource.device_budget is not None for resource in resources)
    setup = expected_setup(source, settings, wide=wide, on_gpu=on_gpu)
    settings = setup.settings
    planner = ClusterPlanner(client, source, settings, names, resources)
    plans = planner.divider(setup.summary).plans()
    plan, label = plans.tightest, _rank_label(settings, ranks, plans)
    if plan.device_items or (plan.total > plan.budget and not _sure_batch(plan)):
        return _Expectation(ranks, label, plan, None, "", plans)
    assert plan.sizes is not None
    rates = replace(planner, settings=setup.timed).rates(plans)
    plans = with_blocks_of_all(plans, settings, planner.disks(plans), worst(rates))
    measured = f"{ranks} workers at once"
    return _Expectation(ranks, label, plans.tightest, worst(rates), measured, plans, rates, setup.batch)


def _with_room(
    client: Client, source: RowSource, settings: FitSettings, workers: Sequence[str]
) -> tuple[Sequence[str], list[WorkerResources]]:
    """Return the workers that the fit would use, and what they may plan with; those that it would leave out are named.

    Raises MemoryBudgetError where no part of them holds it.
    """
    used = workers[: _used_ranks(settings, len(workers))]
    resources = resources_of(client, settings, used, None)
    try:
        check_resources(source, settings, settings.early_stopping is not None, resources)
    except MemoryBudgetError as error:
        if not error.too_small:
            raise
        for sentence in error.too_small.values():
            say(f"{sentence}; the fit would go on without it")
        return _with_room(client, source, settings, [each for each in workers if each not in error.too_small])
    return used, resources


def _used_ranks(settings: FitSettings, ranks: int) -> int:
    """Return how many of `ranks` ranks the fit uses: workers beyond the number of virtual shards stay idle."""
    return min(ranks, settings.shards(ranks))


def _rank_label(settings: FitSettings, ranks: int, plans: RankPlans | None = None) -> str:
    """Return the label of the rank that the memory plan describes."""
    if plans is not None and plans.shares:
        virtual = "a virtual rank of " * (settings.virtual_shards is not None)
        return f"{virtual}rank {plans.plans.index(plans.tightest)} of {ranks}, which has the least memory"
    if settings.virtual_shards is None:
        return f"one rank of {ranks}"
    return f"one virtual rank of {settings.virtual_shards}, {settings.shards_each(ranks)} in a worker"


def _sure_batch(plan: MemoryPlan) -> int:
    """Return the largest batch that fits, if the largest automatic batch does not but a smaller one does; else 0."""
    z = plan.sizes
    if z is None or not z.auto_batch or plan.device_items or plan.total <= plan.budget:
        return 0
    return largest_batch(z, lambda changed: fits(changed, plan.budget, 0))
