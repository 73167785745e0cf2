"""The bytes of a rank, item by item, whichever way its fit is distributed: by columns or by rows."""

from daskkern.solvers.costs.sizes import FitSizes, Items
from daskkern.training.planning.memory_by_columns import rank_items
from daskkern.training.planning.memory_by_rows import row_items


def items_of(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    return row_items(z) if z.costs.by_rows else rank_items(z)
