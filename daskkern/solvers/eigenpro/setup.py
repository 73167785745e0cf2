"""The set-up of EigenPro on one rank: its part of the preconditioner, and the projector on the centres."""

from collections.abc import Sequence

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import to_device
from daskkern.backend.shares import owners_of
from daskkern.errors import DataError
from daskkern.kernels import diagnose
from daskkern.kernels.engines.cuda.recording import GraphRecorder
from daskkern.linalg import BlockCyclicFactor, NotPositiveDefiniteError, distributed_factor
from daskkern.linalg.joined_factor import JOINED_COLUMNS, JoinedFactor, joined_factor
from daskkern.preconditioners import CovarianceState, EigenProState
from daskkern.solvers.eigenpro.cuda_graphs import RecordedWindow
from daskkern.solvers.eigenpro.feature_steps import FeatureSetup
from daskkern.solvers.eigenpro.projectors import IterativeProjector, LeadingDirections
from daskkern.solvers.eigenpro.state import EigenProSetup, Projector
from daskkern.solvers.eigenpro.temporary_centres import Buffer
from daskkern.solvers.setup import RankInputs

_JITTERS = 5
_LEAST_CHUNK = 256


def feature_setup(inputs: RankInputs, state: CovarianceState) -> FeatureSetup:
    """Return what EigenPro over explicit features needs on a rank."""
    return FeatureSetup(state, state.part(inputs.columns.ids, inputs.dtype, inputs.xp))


def eigenpro_setup(inputs: RankInputs, state: EigenProState, *, exact: bool, tol: float) -> EigenProSetup:
    """Return what EigenPro over kernel columns needs on a rank. Every rank must call it.

    `exact` projections are by a factor of K_ZZ, others are iterated to a residual of `tol`.
    """
    basis, columns, comm, xp = inputs.basis, inputs.columns, inputs.comm, inputs.xp
    n_head, dtype, points = columns.n_head, inputs.dtype, inputs.points
    own_S = np.searchsorted(basis.head, columns.ids[:n_head])
    preconditioner = state.part(own_S, dtype, xp)
    directions = xp.asarray((state.vectors * state.damping).astype(dtype))
    subsample = basis.points(to_device(inputs.subsample, xp))
    heads = tuple(columns.head_blocks)

    def times_directions(blocks: Sequence[slice]) -> Array:
        """Return ``K_ZS V D`` of own columns, block by block: BLAS's last bits depend on how many there are."""
        made = xp.empty((blocks[-1].stop if blocks else 0, directions.shape[1]), dtype)
        for block in blocks:
            made[block] = basis.kernel.matvec(to_device(points[block], xp), subsample, directions)
        return made

    if basis.all_rows:
        damped = times_directions(heads)
        order = np.argsort(columns.ids)
        return EigenProSetup(state, preconditioner, damped, None, 1, heads, order, columns.ids[order])
    damped = times_directions(columns.blocks)
    projector: Projector
    if exact:
        projector = _factor(inputs)
    else:
        p, counts = basis.n_columns, tuple(basis.split(rank, comm.size).ids.size for rank in range(comm.size))
        directions = LeadingDirections.of(state, damped, columns.blocks, p, comm)
        chunk = max(_LEAST_CHUNK, inputs.batch_size)
        own = to_device(points, xp)
        projector = IterativeProjector(inputs.part, own, counts, directions, chunk, tol)
    units = owners_of(sum(basis.shares) or comm.size, comm.size, basis.shares)
    recorded = _recorded(inputs) if isinstance(projector, JoinedFactor) else None
    return EigenProSetup(
        state, preconditioner, damped, projector, inputs.window, heads, owners=units, recorded=recorded
    )


def _recorded(inputs: RankInputs) -> RecordedWindow | None:
    """Return what records the steps of the only rank, whose GPU has one formula for all values; else None."""
    points = inputs.part.points
    alone = inputs.comm.size == 1 and inputs.n_groups == 1
    if not alone or not Buffer.takes(points) or points.side is None or points.side.caps is not None:
        return None
    return RecordedWindow(GraphRecorder(inputs.xp), inputs.largest_batch or inputs.batch_size)


def _factor(inputs: RankInputs) -> BlockCyclicFactor | JoinedFactor:
    """Fill and factor K_ZZ, with as little jitter as the dtype lets pass."""
    basis, comm, xp = inputs.basis, inputs.comm, inputs.xp
    Z = inputs.every_point()
    layout = basis.layout(comm.rank, comm.size)
    eps = float(np.finfo(inputs.dtype).eps)
    scale = float(basis.kernel.diagonal(Z).mean())
    if not scale > 0:
        raise DataError(f"the {basis.kernel.name} kernel is 0 on all landmarks; check the data")
    for attempt in range(_JITTERS):
        jitter = eps * basis.n_columns**0.5 * scale * 10.0**attempt
        panels = [basis.panel(Z, layout.blocks[k]) for k in layout.own]
        try:
            factor = distributed_factor(panels, layout, jitter, comm, inputs.dtype, xp)
            joins = xp is not np and 0 < basis.n_columns <= JOINED_COLUMNS
            return joined_factor(factor, xp, inputs.dtype) if joins else factor
        except NotPositiveDefiniteError as error:
            last = error
    why = diagnose(basis.kernel, Z, inputs.dtype, otherwise="take another length scale")
    raise DataError(
        f"the {basis.n_columns} landmarks are too dependent under the {basis.kernel.name} kernel for a factor "
        f"({last}): {why.found}; {why.remedy}, take fewer landmarks, or "
        "EigenPro(projection='eigenpro') (--set solver.projection=eigenpro)"
    )
