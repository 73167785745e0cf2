"""One pass over all rows for the average gradient outer product, distributed over the ranks of a communicator.

The rows are cut into blocks of whole chunks, which do not depend on the number of ranks; in each round every rank reads
and sums one block, the next one being read meanwhile. The sums of the ranks are added once, at the end, in float64 and
in rank order: another number of ranks gives the same matrix up to rounding in float64.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import ModuleType

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields, RowBlock, Rows
from daskkern.feature_learning.gradients import FittedFunction, OuterProduct, add_outer_products

BLOCK_BYTES = 32 << 20
"""Bytes of the rows of a block, unless a chunk has more."""
BLOCKS_HELD = 2
"""Blocks that a rank holds: the one in use, and the one that is read ahead."""


def block_rows(rows: Rows) -> int:
    """Return the rows of a block: whole chunks of about 32 MB."""
    return rows.chunk_rows * max(1, BLOCK_BYTES // (rows.row_bytes * rows.chunk_rows))


def mean_outer_product(
    function: FittedFunction,
    product: OuterProduct,
    rows: Rows,
    weights: Callable[[RowBlock], HostArray | None],
    comm: Communicator,
    xp: ModuleType,
    should_stop: Callable[[], bool] = lambda: False,
) -> FloatArray | None:
    """Return the weighted mean of the gradient outer products of all rows, the same on every rank.

    A collective: every rank calls it.

    Parameters
    ----------
    function : FittedFunction
        Arrays on the host; they are used in the dtype of the rows.
    product : OuterProduct
        What is summed. Its directions are on the host.
    rows : Rows
    weights : callable
        Returns the weights (m, 1) of a block of rows, or None where all count the same.
    comm : Communicator
    xp : module
        NumPy or CuPy: where gradients are computed.
    should_stop : callable
        Whether to end early. The ranks agree on it after each round.

    Returns
    -------
    float64 NumPy array or None
        As :class:`OuterProduct` has it, divided by the sum of the weights. None where it was asked to stop.
    """
    here = function.on(xp, rows.dtype.name)
    product = OuterProduct(product.diagonal, None if product.directions is None else xp.asarray(product.directions))
    total, counted = product.zeros(rows.n_features, xp), np.zeros(1)
    blocks = slices(rows.n_rows, block_rows(rows))
    own = blocks[comm.rank :: comm.size]
    with ThreadPoolExecutor(1, "daskkern-read") as reader:
        reading = reader.submit(copy_context().run, _read, rows, own[0]) if own else None
        for number in range(-(-len(blocks) // comm.size)):
            if reading is not None:
                block = reading.result()
                later = number + 1
                reading = reader.submit(copy_context().run, _read, rows, own[later]) if later < len(own) else None
                weight = weights(block)
                counts = None if weight is None else xp.asarray(weight[:, 0], np.float64)
                assert block.X is not None
                add_outer_products(total, here, to_device(block.X, xp), counts, product)
                counted += block.X.shape[0] if weight is None else weight[:, 0].sum(dtype=np.float64)
            # Ranks wait for each other here, so that none waits longer than a collective may in the end.
            if comm.allreduce(np.array([float(should_stop())]))[0]:
                return None
    found: FloatArray = comm.allreduce(to_host(total)) / float(comm.allreduce(counted)[0])
    return found


def _read(rows: Rows, part: slice) -> RowBlock:
    return rows.read(part.start, part.stop, Fields.X | Fields.y | Fields.weight)
