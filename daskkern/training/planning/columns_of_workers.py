"""The division of a fit's columns or rows over workers: by groups of ranks, memory and speed."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from distributed.comm.addressing import get_address_host

from daskkern.backend.shares import Shares
from daskkern.errors import MemoryBudgetError
from daskkern.linalg import column_blocks
from daskkern.monitor.formatting import format_bytes
from daskkern.solvers.costs.sizes import FitSizes
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.balanced_division import divide, even_shares, makespan
from daskkern.training.planning.grids import LEAST_RANKS, GridChoice, StepRates, best_grid, divisors
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.planner import plan_for, plan_of
from daskkern.training.planning.rank_plans import RankPlans, in_common, room_of
from daskkern.training.planning.resources import WorkerResources, is_mixed, relative_room, with_most_memory
from daskkern.training.planning.sizes_of_fits import PreparedSummary, sizes_of
from daskkern.training.run.settings import FitSettings

_WORTH = 2.0
"""How much longer a step may take for a factor, or for blocks that are kept: either saves more than half of it."""
_LEAST_UNITS = 24
"""Fewest units of the rows of a batch."""
_TOLERANCE = 1.1
"""How much longer equal shares may take."""
_ABOUT = 0.8
"""Workers with this part of the most memory have about as much."""


@dataclass(frozen=True)
class _Division:
    """A division and the plans that it was made for."""

    shares: Shares
    time: float
    plans: tuple[MemoryPlan, ...]


class Divider:
    """Divides the columns of a fit over workers, or its rows where these are distributed.

    Parameters
    ----------
    summary, source, settings
        Of the fit.
    resources : sequence of WorkerResources
        What each worker may plan with, in rank order.
    speeds : sequence of float
        How fast they are, compared with each other; () where that is not known.
    rates : StepRates or None
        What ranks were measured to reach, for the choice of groups; None takes what is usual.
    """

    def __init__(
        self,
        summary: PreparedSummary,
        source: RowSource,
        settings: FitSettings,
        resources: Sequence[WorkerResources],
        speeds: Sequence[float] = (),
        rates: StepRates | None = None,
    ) -> None:
        self._step_rates = rates
        self._summary, self._source, self._settings, self._resources = summary, source, settings, resources
        self._speeds = speeds or (1.0,) * len(resources)
        self._home = with_most_memory(resources)
        self._known: dict[tuple[int, bool], FitSizes] = {}

    def plans(self) -> RankPlans:
        """Return the plans of all ranks, which may exceed their budgets only where shares are equal."""
        choice = self.grid()
        if choice.groups > 1:
            plans = RankPlans(self._tightest(choice.groups), kinds=self._kinds(), groups=choice.groups)
        else:
            plans = self._in_one_group()
        return replace(plans, grid=choice, step_rates=self._step_rates)

    def grid(self) -> GridChoice:
        """Return the groups to use: as many as requested, divide the ranks and fit, or those of the shortest step."""
        ranks, wanted = len(self._resources), self._settings.groups
        most = 0 if isinstance(wanted, str) else int(wanted)
        if ranks == 1 or not self._settings.solver.divides_batches or self._settings.virtual_shards is not None:
            return GridChoice(wanted=most)
        if self._is_mixed():  # groups would round differently, and their copies of the model drift apart
            return GridChoice(wanted=most)
        if most:
            fitting = (count for count in reversed(divisors(ranks)) if count <= most)
            return GridChoice(next(count for count in fitting if count == 1 or self._fits(count)), wanted=most)
        if ranks < LEAST_RANKS:
            return GridChoice()
        rates = self._step_rates or StepRates.usual(self._grid_sizes(1), n_hosts(self._resources))
        return best_grid(self._grid_sizes, self._fits, ranks, rates)

    def _fits(self, groups: int) -> bool:
        """Return whether memory has room for so many groups, and for the factor that one group has."""
        plan, alone = self._tightest(groups), self._grid_sizes(1)
        assert plan.sizes is not None
        return groups <= self._summary.m and plan.sizes.exact == alone.exact and _passes(plan)

    def _grid_sizes(self, groups: int) -> FitSizes:
        sizes = self._tightest(groups).sizes
        assert sizes is not None
        return sizes

    def _kinds(self) -> tuple[str, ...]:
        return tuple(resource.kind for resource in self._resources)

    def _in_one_group(self) -> RankPlans:
        tightest, kinds = self._tightest(), self._kinds()
        found = None
        if self._may_differ() and (self._is_mixed() or not _passes(tightest)):
            found = self._best()
        if found is None:
            return RankPlans(tightest, kinds=kinds)
        plans = in_common(found.plans)
        return RankPlans(min(plans, key=room_of), found.shares, plans, kinds)

    def refusal(self) -> str:
        """Return how many columns the workers hold together, in a sentence; "" where they are alike."""
        if not self._may_differ() or not self._is_mixed():
            return ""
        total, most = self._units(), self._limits(self._least_exact(), keep=False)
        columns = min(self._summary.p, sum(most) * self._summary.p // total)
        if min(most) < self._least():
            worker = self._resources[min(range(len(most)), key=lambda rank: most[rank])].address
            return f"; worker {worker} has too little memory even for the smallest share"
        if self._settings.solver.parallelism == "rows":  # each worker has all columns: more of them are no remedy
            return ""
        return f"; divided by memory, these workers hold about {columns} of {self._summary.p} columns"

    def too_small(self) -> dict[str, str]:
        """Return a sentence, by address, on each worker without which the others hold the fit; {} where none do."""
        for left_out in self._ways_to_leave_out():
            rest = [rank for rank in range(len(self._resources)) if rank not in left_out]
            if self._of(rest).holds():
                return {self._resources[rank].address: self._too_little(rank) for rank in sorted(left_out)}
        return {}

    def _ways_to_leave_out(self) -> Iterator[set[int]]:
        """Yield sets of ranks to try without: those that not even the smallest share fits on, then all but those with
        about the most memory. To leave out others would only add to the shares of the rest."""
        ways: list[set[int]] = []
        if self._may_differ():
            limits = self._limits(self._least_exact(), keep=self._settings.keep_blocks == "memory")
            ways.append({rank for rank, most in enumerate(limits) if most < self._least()})
        room = relative_room(self._resources)
        ways += [{rank for rank, part in enumerate(room) if part < least} for least in (_ABOUT, 1.0)]
        return (way for number, way in enumerate(ways) if 0 < len(way) < len(room) and way not in ways[:number])

    def _of(self, ranks: Sequence[int]) -> "Divider":
        """Return the divider of some of the workers."""
        resources, speeds = [self._resources[rank] for rank in ranks], [self._speeds[rank] for rank in ranks]
        return Divider(self._summary, self._source, self._settings, resources, speeds, self._step_rates)

    def at_best(self, addresses: Collection[str]) -> "Divider":
        """Return the divider where other programs use no memory on the hosts of these workers."""
        resources = [each.at_best() if each.address in addresses else each for each in self._resources]
        return Divider(self._summary, self._source, self._settings, resources, self._speeds, self._step_rates)

    def holds(self) -> bool:
        """Return whether a division fits."""
        try:
            self.plans().check()
        except MemoryBudgetError:
            return False
        return True

    def _too_little(self, rank: int) -> str:
        room = self._resources[rank]
        device = "" if room.device_budget is None else f" and {format_bytes(room.device_budget)} of its device"
        return (
            f"worker {room.address} has too little memory for its part of the fit: it may use "
            f"{format_bytes(room.budget)}{device}"
        )

    def _tightest(self, groups: int = 1) -> MemoryPlan:
        ranks, shards = self._settings.shards(len(self._resources)), self._settings.shards_each(len(self._resources))
        shared = {resource.shared_by(shards) for resource in self._resources}
        fit = self._summary, self._source, self._settings, ranks
        plans = [plan_for(*fit, each.threads, each.budget, each.device_budget, groups) for each in shared]
        return min(plans, key=lambda plan: (plan.budget, plan.device_budget, plan.kept))

    def _may_differ(self) -> bool:
        solver = self._settings.solver
        return len(self._resources) > 1 and solver.parallelism != "nothing" and not solver.is_serial

    def _is_mixed(self) -> bool:
        return is_mixed(self._resources) or max(self._speeds) > min(self._speeds)

    def _best(self) -> _Division | None:
        """Return the division to prefer; None where there is none, or equal shares are as good."""
        wanted = math.inf if self._settings.keep_blocks == "memory" else _WORTH
        found = [self._division(exact, keep) for exact in self._exact() for keep in (True, False)]
        divisions = [division for division in found if division is not None]
        if not divisions:
            return None
        fastest = min(division.time for division in divisions)
        chosen = next(division for division in divisions if division.time <= wanted * fastest)
        return chosen if chosen.shares else None

    def _exact(self) -> tuple[bool, ...]:
        """Return whether projections may be by a factor, the better way first."""
        if not self._settings.basis.needs_projection or self._settings.solver.projection_factor == "never":
            return (False,)
        return (True,) if self._settings.solver.projection_factor == "always" else (True, False)

    def _least_exact(self) -> bool:
        return self._exact()[-1]

    def _division(self, exact: bool, keep: bool) -> _Division | None:
        """Return the fastest division of which each rank has room for this; with shares () where these are equal."""
        even = self._even_plans(exact)
        total, least = self._units(), self._least()
        usual = even_shares(total, len(self._resources), consecutive=self._settings.virtual_shards is not None)
        shares = divide(total, self._limits(exact, keep), self._speeds, least)
        equal = all(_suits(plan, keep) for plan in even)
        if equal and (shares is None or makespan(usual, self._speeds) <= _TOLERANCE * makespan(shares, self._speeds)):
            return _Division((), makespan(usual, self._speeds), even)
        if shares is None:
            return None
        plans = tuple(self._plan(rank, exact, units) for rank, units in enumerate(shares))
        return _Division(shares, makespan(shares, self._speeds), plans)

    def _limits(self, exact: bool, keep: bool) -> list[int]:
        """Return the most units of each rank; one below the fewest where even these do not fit."""
        known: dict[tuple[WorkerResources, bool], int] = {}
        for rank, resource in enumerate(self._resources):
            if (resource, rank == self._home) not in known:
                suits = partial(self._has_room, rank, exact, keep)
                known[resource, rank == self._home] = _largest(self._least(), self._units(), suits)
        return [known[resource, rank == self._home] for rank, resource in enumerate(self._resources)]

    def _has_room(self, rank: int, exact: bool, keep: bool, units: int) -> bool:
        return _suits(self._plan(rank, exact, units), keep)

    def _least(self) -> int:
        return 0 if self._settings.virtual_shards is None else 1

    def _units(self) -> int:
        """Return into how many units the columns are divided: blocks, or virtual ranks; or the rows of every batch."""
        if self._settings.virtual_shards is not None:
            return int(self._settings.virtual_shards)
        n = len(self._resources)
        if self._settings.solver.parallelism == "rows":
            return max(_LEAST_UNITS, 4 * n)
        return len(column_blocks(self._summary.p, 0, n, min(self._summary.s, self._summary.p), (1,) * n).blocks)

    def _even_plans(self, exact: bool) -> tuple[MemoryPlan, ...]:
        each = self._settings.shards_each(len(self._resources))
        return tuple(self._planned(resource.shared_by(each), exact, None) for resource in self._resources)

    def _plan(self, rank: int, exact: bool, units: int) -> MemoryPlan:
        resource, prepares = self._resources[rank], rank == self._home or not is_mixed(self._resources)
        if self._settings.virtual_shards is not None:
            return self._planned(resource.shared_by(max(1, units)), exact, None, prepares)
        return self._planned(resource, exact, units / self._units(), prepares)

    def _planned(self, room: WorkerResources, exact: bool, share: float | None, prepares: bool = True) -> MemoryPlan:
        on_device = room.device_budget is not None
        sizes = replace(self._sizes(room.threads, on_device), exact=exact, share=share, prepares=prepares)
        return plan_of(sizes, self._settings, room.budget, room.device_budget, stored=self._summary.stored)

    def _sizes(self, threads: int, on_device: bool) -> FitSizes:
        key = threads, on_device
        if key not in self._known:
            ranks = self._settings.shards(len(self._resources))
            self._known[key] = sizes_of(
                self._summary, self._source, self._settings, ranks, threads, on_device=on_device
            )
        return self._known[key]


def n_hosts(resources: Sequence[WorkerResources]) -> int:
    """Return on how many hosts workers run; 0 where their addresses are not known."""
    return len({get_address_host(resource.address) for resource in resources if resource.address})


def _suits(plan: MemoryPlan, keep: bool) -> bool:
    """Return whether a plan stays within its budgets, and keeps its blocks in memory if it is to `keep` them."""
    return plan.in_budget and (not keep or plan.kept == plan.kept_wanted)


def _passes(plan: MemoryPlan) -> bool:
    """Return whether a plan is not refused: it stays within its budgets, with blocks that memory must have."""
    return plan.in_budget and _suits(plan, keep=plan.keep == "memory")


def _largest(least: int, most: int, suits: Callable[[int], bool]) -> int:
    """Return the most units that suit, which fewer do as well; `least` - 1 where not even `least` do."""
    low, high = least - 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if suits(middle) else (low, middle - 1)
    return low
