"""The memory plan of a rank: its bytes, what is cached between epochs, and the error with remedies."""

from dataclasses import dataclass, replace

import psutil

from daskkern.backend.current import memory_of_worker
from daskkern.backend.namespace import free_on_device, namespace_for
from daskkern.display import html_table
from daskkern.errors import MemoryBudgetError
from daskkern.monitor.formatting import format_bytes
from daskkern.solvers.costs.sizes import FitSizes, Items
from daskkern.training.planning.memory_items import items_of
from daskkern.training.planning.suggestions import remedies, total

__all__ = ["FitSizes", "MemoryPlan", "available_memory", "device_memory", "device_size", "plan_memory"]

KEEP_SHARE = 0.5
"""Share of the budget that kept rows and kernel blocks may take together."""
ROWS_SHARE = 0.5
"""Share of the budget that kept rows may take where they would be read again in every epoch."""
KEEP_LIMIT = 3_000_000_000
"""Most bytes of kernel blocks that a rank keeps in host memory: a fit does not take all of it because it is there.
A GPU belongs to its rank, which keeps there what KEEP_SHARE allows."""
LIMIT_SHARE = 0.8
"""Share of a worker's memory limit that is planned with: Dask pauses a worker there."""
IN_TRANSIT = 3
"""Blocks in memory besides the one in use while blocks are kept on disk: being written, or read ahead."""

ALL_ROWS = "all rows"
"""Name of the item of kept rows."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one rank: each item, what blocks kept between epochs may take on top, and the budget.

    Attributes
    ----------
    items : tuple of (name, bytes)
        In host memory.
    kept, kept_wanted : int
        Bytes of kernel blocks that are kept in memory (on the device, with one); bytes of all blocks of the rank.
    keeps_rows : bool
        All rows stay in memory after the first epoch, and nothing is read again.
    rows_on_host : bool
        Kept rows stay in host memory, and each batch is copied to the device when it is used.
    direct : bool
        The device has room for blocks that go between it and the disk by themselves.
    budget : int
    device_items, device_budget
        The same for the memory of the device; none on a CPU.
    disk : int
        Bytes of kernel blocks that are kept in a scratch file.
    note : str
        Where the blocks are and why, for the user.
    keep : "auto", "memory", "disk" or "never"
        What was asked.
    sizes : FitSizes or None
        What the bytes follow from.
    """

    items: Items
    kept: int
    kept_wanted: int
    keeps_rows: bool
    budget: int
    device_items: Items = ()
    device_budget: int = 0
    disk: int = 0
    note: str = ""
    keep: str = "auto"
    sizes: FitSizes | None = None
    rows_on_host: bool = False
    direct: bool = False

    def __repr__(self) -> str:
        return f"<MemoryPlan: {format_bytes(self.total)} of {format_bytes(self.budget)} a rank>"

    def _repr_html_(self) -> str:
        rows = [(name, format_bytes(size)) for name, size in (*self.items, ("total", self.total))]
        rows += [(f"device: {name}", format_bytes(size)) for name, size in self.device_items]
        return html_table(
            f"Memory of one rank, at most; its budget is {format_bytes(self.budget)}",
            ("item", "memory"),
            rows,
            self.note,
        )

    @property
    def total(self) -> int:
        """Bytes in host memory, without kept blocks."""
        return total(self.items)

    @property
    def device_total(self) -> int:
        """Bytes on the device, without kept blocks."""
        return total(self.device_items)

    def on_disk(self) -> "MemoryPlan":
        """Return the plan with all blocks kept in a scratch file, and room for those on their way."""
        assert self.sizes is not None
        way = ("blocks to and from disk", IN_TRANSIT * self.sizes.batch_block_bytes)
        moved = replace(self, items=(*self.items, way), kept=0, disk=self.kept_wanted)
        if self.device_items and self.device_total + way[1] <= self.device_budget:
            moved = replace(moved, device_items=(*self.device_items, way), direct=True)
        return moved if moved.total <= moved.budget else moved.without_rows()

    def with_rows(self) -> "MemoryPlan":
        """Return the plan with all rows kept in host memory, if later epochs would read them and they fit.

        Where kept blocks take the place of rows they are not needed: rows of temporary centres are.
        """
        if self.keeps_rows or self.sizes is None or (self.kept and self.sizes.window == 1):
            return self
        every_row = row_bytes(self.sizes)
        used = self.total + (0 if self.device_items else self.kept)
        if every_row > ROWS_SHARE * self.budget or used + every_row > self.budget:
            return self
        items = (*self.items, (ALL_ROWS, every_row))
        return replace(self, items=items, keeps_rows=True, rows_on_host=bool(self.device_items))

    def without_rows(self) -> "MemoryPlan":
        """Return the plan without rows that are kept in host memory."""
        items = tuple(item for item in self.items if item[0] != ALL_ROWS)
        dropped = len(items) < len(self.items)
        return replace(self, items=items, keeps_rows=self.keeps_rows and not dropped, rows_on_host=False)

    def without_any_rows(self) -> "MemoryPlan":
        """Return the plan without rows that are kept anywhere."""
        device_items = tuple(item for item in self.device_items if item[0] != ALL_ROWS)
        return replace(self.without_rows(), device_items=device_items, keeps_rows=False)

    @property
    def in_budget(self) -> bool:
        """Whether the plan stays within its budgets, kept blocks included."""
        host, device = (0, self.kept) if self.device_items else (self.kept, 0)
        return self.total + host <= self.budget and self.device_total + device <= self.device_budget

    def check(self) -> None:
        """Raise MemoryBudgetError when the plan exceeds the budget: numbers, and three remedies with figures."""
        for where, items, budget in (
            ("", self.items, self.budget),
            (" on its device", self.device_items, self.device_budget),
        ):
            if total(items) > budget:
                raise MemoryBudgetError(
                    f"one rank would need {format_bytes(total(items))}{where}, but its budget is "
                    f"{format_bytes(budget)}{_largest(items)}; {self._remedies(total(items), where)}"
                )
        if self.keep == "memory" and not self.kept and self.kept_wanted:
            raise MemoryBudgetError(
                f"got keep_blocks='memory', but the kernel blocks of one rank take "
                f"{format_bytes(self.kept_wanted)} beside {format_bytes(self.total)} of a budget of "
                f"{format_bytes(self.budget)}; keep them on 'disk', choose 'auto', or take fewer landmarks"
            )

    def _remedies(self, needed: int, where: str) -> str:
        device_budget = self.device_budget if self.device_items else 0
        found = () if self.sizes is None else remedies(self.sizes, self.budget, device_budget)
        more = "a device with" if where else "a memory limit of"
        ways = [*found, f"{more} {format_bytes_up(needed)} for each rank"]
        which = "any of these" if len(ways) > 1 else "this"
        return f"{which} would do: {'; '.join(f'({i}) {way}' for i, way in enumerate(ways[:3], 1))}"


def plan_memory(
    sizes: FitSizes,
    budget: int,
    device_budget: int = 0,
    keep: str = "auto",
    *,
    same_batches: bool = True,
    epochs: int = 1,
) -> MemoryPlan:
    """Return the plan for one rank. `device_budget` counts with ``sizes.device`` "gpu" only.

    Without `same_batches` rows are drawn for every epoch, so that nothing is kept. Where they are reshuffled, blocks
    are not kept, and rows are for several `epochs`: dense ones of a single group on its device where they fit, others
    in host memory. With several `epochs`, rows may take more memory where kernel blocks leave it.
    """
    items, device_items = items_of(sizes)
    pool, used = (device_budget, total(device_items)) if device_items else (budget, total(items))
    room = max(0, min(int(KEEP_SHARE * pool), pool - used))
    every_row = row_bytes(sizes)
    gathers = sizes.reshuffle and bool(device_items) and not sizes.entries and sizes.groups == 1 and epochs > 1
    keeps_rows = same_batches and (gathers or not sizes.reshuffle) and every_row <= room // 2
    if keeps_rows:  # the windows that were read ahead are what is kept
        kept_rows = ((ALL_ROWS, every_row),)
        items, device_items = (items, device_items + kept_rows) if device_items else (items + kept_rows, ())
        room -= every_row
    limit = room if sizes.device == "gpu" else KEEP_LIMIT
    most = min(room, limit) if keep == "auto" else pool - used - every_row * keeps_rows
    # All or nothing: a part of the blocks saves that part of the kernel work, but costs as much memory as is there.
    wanted = sizes.blocks_bytes if same_batches and not sizes.reshuffle else 0
    kept = wanted if wanted <= most and keep in ("auto", "memory") else 0
    plan = MemoryPlan(
        items, kept, wanted, keeps_rows, budget, device_items, device_budget if device_items else 0, 0, "", keep, sizes
    )
    return plan.with_rows() if same_batches and epochs > 1 else plan


def row_bytes(sizes: FitSizes) -> int:
    """Return the bytes of all rows, or of a rank's own, as they are kept: features, targets, weight and position.

    Reshuffled rows are kept with targets in float64, and sparse ones are put in order once more.
    """
    if sizes.reshuffle:
        return sizes.n * (sizes.d * (2 if sizes.entries else 1) * sizes.itemsize + 8 * (sizes.c + 2))
    return (sizes.own_rows if sizes.costs.by_rows else sizes.n) * (sizes.d + sizes.c + 4) * sizes.itemsize


def available_memory(ranks_here: int = 1) -> int:
    """Return the bytes that one of `ranks_here` ranks in this machine may plan with: its share of what is free."""
    return int(psutil.virtual_memory().available * 0.8) // max(1, ranks_here)


def memory_here() -> int:
    """Return the bytes that a fit in this process may plan with: in a task at most a share of its worker's limit."""
    limit, free = memory_of_worker(), available_memory()
    return free if limit is None else min(free, int(LIMIT_SHARE * limit))


def host_memory() -> int:
    """Return the bytes that ranks may plan with on this machine together when no other program uses any."""
    return int(psutil.virtual_memory().total * 0.8)


def device_memory(device: str) -> int | None:
    """Return the bytes of the device that this process may plan with, or None where ``device`` means the CPU."""
    xp = namespace_for(device)
    if not hasattr(xp, "cuda"):
        return None
    return int(LIMIT_SHARE * free_on_device(xp))


def device_size(device: str) -> int:
    """Return the bytes of memory that the device has in all, or 0 where ``device`` means the CPU."""
    xp = namespace_for(device)
    return int(xp.cuda.runtime.memGetInfo()[1]) if hasattr(xp, "cuda") else 0


def _largest(items: Items) -> str:
    names = sorted(items, key=lambda item: -item[1])[:3]
    return f" (largest: {', '.join(f'{name} {format_bytes(size)}' for name, size in names)})"


def format_bytes_up(n: float) -> str:
    """Return the bytes, rounded up to three digits: what is enough stays enough."""
    step = 10.0 ** max(0, len(str(int(n))) - 3)
    return format_bytes(-(-n // step) * step)
