"""Tables of a plan: the memory of a rank, the shares of all, and the time of the fit."""

from daskkern.cli.console import say, table
from daskkern.monitor.formatting import format_bytes
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.planning.timing import Stage, TimePlan
from daskkern.training.run.settings import FitSettings


def show_memory(ranks: str, plan: MemoryPlan) -> None:
    """Show the memory items of a rank; `ranks` names it."""
    rows: list[tuple[str, ...]] = [(name, format_bytes(size)) for name, size in plan.items if size]
    rows += [("total", format_bytes(plan.total)), ("budget per rank", format_bytes(plan.budget))]
    if plan.device_items:
        rows += [(f"device: {name}", format_bytes(size)) for name, size in plan.device_items]
        rows += [("device: total", format_bytes(plan.device_total))]
        rows += [("device: budget", format_bytes(plan.device_budget))]
    table(f"peak memory of {ranks}", ("item", "bytes"), rows)
    if plan.note:
        say(f"kernel blocks: {plan.note}")


def show_shares(plans: RankPlans | None, settings: FitSettings) -> None:
    """Show what each rank has, where their workers differ."""
    if plans is None or not plans.shares:
        return
    by_rows = settings.solver.parallelism == "rows"
    unit = "virtual ranks" if settings.virtual_shards is not None else f"{'rows' if by_rows else 'columns'}, about"
    rows: list[tuple[str, ...]] = []
    for rank, (plan, share) in enumerate(zip(plans.plans, plans.shares, strict=True)):
        assert plan.sizes is not None
        whole = plan.sizes.n if by_rows else plan.sizes.p
        count = share if settings.virtual_shards is not None else round(whole * share / sum(plans.shares))
        needed, budget = plan.total + plan.kept * (not plan.device_items), plan.budget
        rows.append((str(rank), plans.kinds[rank], f"{count:,}", format_bytes(needed), format_bytes(budget)))
    each = "" if settings.virtual_shards is None else " of each virtual rank"
    names = ("rank", "worker", unit, f"memory{each}, cached blocks included", "budget")
    table("ranks, by memory and speed", names, rows)


def show_time(time: TimePlan, epochs: int) -> None:
    """Show how long a fit of `epochs` epochs takes, stage by stage."""
    stages = time.stages if epochs > 1 else time.stages[:-1]  # the last one is that of later epochs
    rows: list[tuple[str, ...]] = [(stage.name, _seconds(stage.seconds), _main_parts(stage)) for stage in stages]
    rows.append((f"total, {epochs} epoch{'s' * (epochs != 1)}", _seconds(time.total), ""))
    table("estimated time", ("stage", "seconds", "main parts"), rows)


def _main_parts(stage: Stage) -> str:
    """Return the parts of a stage that take over 2% of it, the longest first."""
    parts = sorted(stage.parts, key=lambda part: -part[1])
    return ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in parts if seconds > 0.02 * stage.seconds)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"
