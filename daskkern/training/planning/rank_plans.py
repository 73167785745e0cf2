"""The memory plans of all ranks on unequal workers: columns by memory and speed, other decisions in common.

What the ranks of a fit must do alike - projections by a factor, blocks and rows that are kept - is decided once, for a
division of the columns in which every rank has room for it. Ranks of about the same ability have equal shares, and
follow the plan of the one with the least memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from daskkern.backend.shares import Shares
from daskkern.training.feeding.block_cache_policy import with_blocks
from daskkern.training.planning.grids import GridChoice, StepRates
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.settings import FitSettings


@dataclass(frozen=True)
class RankPlans:
    """The memory plans of the ranks, and their shares of the columns.

    Attributes
    ----------
    tightest : MemoryPlan
        That of the rank with the least memory; of every rank where shares are equal.
    shares : tuple of int
        Blocks of columns, or virtual ranks, of each rank; () where they are equal.
    plans : tuple of MemoryPlan
        One for each rank; () where shares are equal.
    kinds : tuple of str
        The kinds of the ranks' workers.
    groups : int
        How many groups of ranks have all columns each, and divide the rows of every batch.
    grid : GridChoice
        What a step takes by the model, with and without groups, where their number was chosen by it.
    step_rates : StepRates or None
        What was measured for that choice, if anything.
    """

    tightest: MemoryPlan
    shares: Shares = ()
    plans: tuple[MemoryPlan, ...] = ()
    kinds: tuple[str, ...] = ()
    groups: int = 1
    grid: GridChoice = field(default_factory=GridChoice)
    step_rates: StepRates | None = None

    @property
    def different(self) -> tuple[MemoryPlan, ...]:
        """The plan of each rank, or the one that is that of all."""
        return self.plans or (self.tightest,)

    def of(self, rank: int) -> MemoryPlan:
        """Return the plan of a rank."""
        return self.plans[rank] if self.plans else self.tightest

    def check(self) -> None:
        """Raise MemoryBudgetError when the plan of a rank exceeds its budget."""
        for plan in self.different:
            plan.check()


def in_common(plans: Sequence[MemoryPlan]) -> tuple[MemoryPlan, ...]:
    """Return the plans with blocks and rows kept only where every rank that has some keeps them."""
    kept = all(plan.kept == plan.kept_wanted for plan in plans)
    if not kept:
        plans = [replace(plan, kept=0) for plan in plans]
    if not all(plan.keeps_rows for plan in plans):
        plans = [plan.without_any_rows() for plan in plans]
    return tuple(plans)


def with_blocks_of_all(plans: RankPlans, settings: FitSettings, disks: Sequence[int], rates: Rates | None) -> RankPlans:
    """Return the plans with the place of the blocks decided: the same on all ranks, nowhere if they do not agree.

    `disks` are the bytes that each rank may write, and `rates` those of the slowest; see
    :func:`daskkern.training.feeding.block_cache_policy.with_blocks`.
    """
    if not plans.plans:
        return replace(plans, tightest=with_blocks(plans.tightest, settings, min(disks), rates))
    decided = [with_blocks(plan, settings, disk, rates) for plan, disk in zip(plans.plans, disks, strict=True)]
    holders = [plan for plan in decided if plan.kept_wanted]
    if len({(plan.kept > 0, plan.disk > 0) for plan in holders}) > 1:
        note = next((plan.note for plan in holders if not (plan.kept or plan.disk)), "some ranks have no room")
        decided = [replace(plan, kept=0, note=note) for plan in plans.plans]
    common = in_common(decided)
    return replace(plans, tightest=min(common, key=room_of), plans=common)


def room_of(plan: MemoryPlan) -> tuple[int, int]:
    return plan.budget, plan.device_budget
