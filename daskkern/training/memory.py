"""Memory as arithmetic: the bytes of one rank, item by item, before the run."""

from dataclasses import dataclass

import psutil

from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS
from daskkern.errors import MemoryBudgetError

KEEP_SHARE = 0.3
"""Share of the budget that kept rows and kernel blocks may take together."""
KEEP_LIMIT = 3_000_000_000
"""Most bytes of kernel blocks that a rank keeps: a fit does not take all memory because it is there."""
LIMIT_SHARE = 0.8
"""Share of a worker's memory limit that is planned with: Dask pauses a worker there."""
_INTERPRETER = 250 << 20


@dataclass(frozen=True)
class Sizes:
    """What the bytes follow from.

    Attributes
    ----------
    n, d, c, p, s, q, m, window : int
        Rows, features, outputs, columns, subsample, directions, batch, batches between projections.
    ranks, threads, itemsize : int
    all_rows, exact, nystrom : bool
        All rows are centres; projections by a factor; streamed Nystrom-SGD.
    window_rows : int
        Rows of a window of the batch plan.
    validation : int
        Rows held for validation.
    """

    n: int
    d: int
    c: int
    p: int
    s: int
    q: int
    m: int
    window: int
    ranks: int
    threads: int
    itemsize: int
    all_rows: bool
    exact: bool
    nystrom: bool
    window_rows: int
    validation: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one rank: each item, what blocks kept between epochs may take on top, and the budget.

    With `keeps_rows` all rows stay in memory after the first epoch, and nothing is read again.
    """

    items: tuple[tuple[str, int], ...]
    kept: int
    kept_wanted: int
    keeps_rows: bool
    budget: int

    @property
    def total(self) -> int:
        """Bytes without kept blocks."""
        return sum(size for _, size in self.items)

    def check(self) -> None:
        """Raise MemoryBudgetError when the plan exceeds the budget."""
        if self.total <= self.budget:
            return
        largest = sorted(self.items, key=lambda item: -item[1])[:3]
        raise MemoryBudgetError(
            f"one rank would need {format_bytes(self.total)}, but its budget is {format_bytes(self.budget)} "
            f"(largest: {', '.join(f'{name} {format_bytes(size)}' for name, size in largest)}); take fewer "
            "landmarks, a smaller batch_size, or more workers with more memory each"
        )


def plan_memory(sizes: Sizes, budget: int) -> MemoryPlan:
    """Return the plan for one rank."""
    z = sizes
    b = z.itemsize
    own = -(-z.p // z.ranks)
    own_s = -(-z.s // z.ranks)
    tile = 4 * z.threads * TILE_ROWS * TILE_COLUMNS * b
    items = {
        "interpreter and libraries": _INTERPRETER,
        "own columns": 2 * own * (z.d + 2) * b,
        "rows read ahead": 3 * min(z.window_rows, z.n) * (max(z.d, z.p) if z.nystrom else z.d) * b,
        "one batch": z.m * (z.d + 4 * z.c) * b * 2 + (z.m * own_s if z.all_rows else z.m * own) * b,
        "tiles": tile,
        "coefficients": 8 * own * z.c * b,
        "preconditioner": (own_s * z.q + z.s * z.q * 2 + z.s * z.d) * b + z.s * z.q * 8,
        "validation rows": z.validation * z.d * b,
    }
    if not z.all_rows and not z.nystrom:
        items["damped directions"] = own * z.q * b
        items["temporary centres"] = z.window * z.m * (z.d + 2) * b // z.ranks if z.window > 1 else 0
    if z.exact:
        # Half of p^2 / W as panels, plus the panel in transit and all centres while the factor is filled.
        items["projection factor"] = z.p * (own + 512) * b // 2 + 3 * z.p * min(512, z.p) * b + z.p * z.d * b
    if z.nystrom:
        items["eigenfeatures M"] = own * z.p * b + z.p * z.p * b
    room = max(0, min(int(KEEP_SHARE * budget), budget - sum(items.values())))
    every_row = z.n * (z.d + z.c + 4) * b
    keeps_rows = every_row <= room // 2
    if keeps_rows:  # the windows that were read ahead are what is kept
        items["all rows"] = every_row
        room -= every_row
    kept_wanted = z.n * own * b
    # All or nothing: a part of the blocks saves that part of the kernel work, but costs as much memory as is there.
    kept = kept_wanted if kept_wanted <= min(room, KEEP_LIMIT) else 0
    return MemoryPlan(tuple(items.items()), kept, kept_wanted, keeps_rows, budget)


def available_memory(ranks_here: int = 1) -> int:
    """Return the bytes that one of `ranks_here` ranks in this machine may plan with: its share of what is free."""
    return int(psutil.virtual_memory().available * 0.8) // max(1, ranks_here)


def format_bytes(n: float) -> str:
    """Return ``"1.5 GB"`` and the like, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"
