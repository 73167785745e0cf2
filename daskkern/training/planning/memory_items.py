"""The memory items of a rank, for a fit distributed by columns or by rows."""

from daskkern.solvers.costs.sizes import FitSizes, Items
from daskkern.training.planning.memory_by_columns import rank_items
from daskkern.training.planning.memory_by_rows import row_items


def items_of(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    host, device = row_items(z) if z.costs.by_rows else rank_items(z)
    return (*host, *_sent_rows(z), *_afterwards(z, host)), device


def _afterwards(z: FitSizes, host: Items) -> Items:
    """Return the libraries of estimators, and what calibration takes when the fit is over and its arrays are gone."""
    libraries = (("libraries of estimators", z.libraries),) if z.libraries else ()
    model = z.own * (z.d + z.c) * z.itemsize
    beyond = z.calibration + model - (sum(size for _, size in host) - dict(host)["interpreter and libraries"])
    return (*libraries, *((("calibration peak above training peak", beyond),) if z.calibration and beyond > 0 else ()))


def _sent_rows(z: FitSizes) -> Items:
    """Return the rows that Dask holds on the worker of a rank, which keeps its own copy of those that it needs."""
    total = z.rows_on_workers
    if not total:
        return ()
    block = total * min(z.chunk_rows, z.n) // max(1, z.n)  # of which a worker has one more than others
    return (("rows sent to the worker", min(total, -(-total // z.all_ranks) + block)),)
