"""What solvers that deal rows need on a rank: all columns, and their preconditioner."""

from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device
from daskkern.basis import KernelPart
from daskkern.data.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.linalg import LowerFactor, NotPositiveDefiniteError, cholesky, column_blocks
from daskkern.losses import Squared
from daskkern.preconditioners import FalkonPart
from daskkern.solvers.falkon import FalkonSetup
from daskkern.training.columns import kernel_panel, own_rows
from daskkern.training.prepare import Prepared

_JITTERS = 5


def falkon_setup(
    task: Any, prepared: Prepared, rows: Rows, part: KernelPart, comm: Communicator, xp: ModuleType
) -> FalkonSetup:
    """Return what Falkon needs on this rank, whose own columns are `part`. Every rank must call it."""
    basis, dtype, p = prepared.basis, task.settings.dtype, prepared.basis.n_columns
    every = basis.split(0, 1)
    Z = to_device(own_rows(rows, prepared, every), xp)
    whole = part if comm.size == 1 else basis.part(every, Z)
    lower = _lower(prepared, Z, comm, dtype, xp)
    weights, targets = _at_landmarks(prepared, rows)
    scale = np.ones((p, 1), dtype) if weights is None else weights
    factors = FalkonPart(
        lower,
        column_blocks(p, comm.rank, comm.size),
        xp.asarray(scale),
        None if targets is None else xp.asarray(targets),
    )
    # The squared loss bends the same everywhere: one factor serves all iterations.
    inner = factors.inner(1.0, task.settings.alpha, comm) if isinstance(task.settings.loss, Squared) else None
    return FalkonSetup(whole, prepared.plan.n_rows, factors, inner)


def _lower(prepared: Prepared, Z: Array, comm: Communicator, dtype: str, xp: ModuleType) -> LowerFactor:
    """Factor K_ZZ, with as little jitter as the dtype lets pass."""
    basis = prepared.basis
    p = basis.n_columns
    deal = column_blocks(p, comm.rank, comm.size)
    scale = float(basis.kernel.diagonal(Z).mean())
    if not scale > 0:
        raise DataError(f"the {basis.kernel.name} kernel is 0 on all landmarks; look at the data")
    for attempt in range(_JITTERS):
        jitter = float(np.finfo(dtype).eps) * p**0.5 * scale * 10.0**attempt
        panels = [kernel_panel(prepared, Z, deal.blocks[k]) for k in deal.own]
        try:
            return cholesky(panels, deal, jitter, comm, dtype, xp)
        except NotPositiveDefiniteError as error:
            last = error
    raise DataError(
        f"the {p} landmarks are too dependent under the {basis.kernel.name} kernel for a factor ({last}); take fewer "
        "landmarks, another length scale, or dtype float64"
    )


def _at_landmarks(prepared: Prepared, rows: Rows) -> tuple[HostArray | None, HostArray | None]:
    """Return sample weights (p, 1) and encoded targets (p, c) of the landmarks, as far as they have them."""
    if prepared.indices is None:
        return None, None
    block = take(rows, prepared.indices, Fields.y | Fields.weight)
    assert block.y is not None
    return prepared.targets.weight(block), prepared.targets.encode(block.y)
