"""A rank's own columns: their points, the projector on them, and the preconditioner's part."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator, allgather_rows
from daskkern.backend.namespace import is_sparse, namespace_of, to_device
from daskkern.basis import Columns, KernelPart
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.kernels import diagnose
from daskkern.linalg import BlockCyclicFactor, NotPositiveDefiniteError, column_blocks, distributed_factor
from daskkern.preconditioners import CovarianceState, EigenProState, NystromState, StepStatistics
from daskkern.solvers import EigenPro
from daskkern.solvers.eigenpro.feature_steps import FeatureSetup
from daskkern.solvers.eigenpro.projectors import IterativeProjector, LeadingDirections
from daskkern.solvers.eigenpro.steps import EigenProSetup, Projector
from daskkern.solvers.first_order.column_products import ColumnSetup, RowShare
from daskkern.solvers.nystrom_sgd import NystromSetup
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.projections import is_exact

_JITTERS = 5
_LEAST_CHUNK = 256


def own_rows(rows: Rows, prepared: Prepared, columns: Columns) -> HostArray:
    """Return the points (p_r, d) of the rank's columns, in their order."""
    if prepared.points is not None:
        return prepared.points[columns.ids]
    assert prepared.indices is not None
    X = take(rows, prepared.indices[columns.ids], Fields.X).X
    assert X is not None
    return X


def every_point(points: HostArray, prepared: Prepared, comm: Communicator, xp: ModuleType) -> Array:
    """Return the points of all ranks' columns (p, d), in their order, from the rank's own. Every rank must call it.

    They are read from the store once on all ranks together: scattered rows take whole chunks where these are packed.
    """
    basis, d = prepared.basis, points.shape[1]
    if prepared.points is not None:
        return to_device(prepared.points, xp)
    ranks = [basis.split(rank, comm.size) for rank in range(comm.size)]
    if is_sparse(points):
        order = np.argsort(np.concatenate([columns.ids for columns in ranks]))
        return allgather_rows(to_device(points, xp), comm)[xp.asarray(order)]
    whole = xp.empty((basis.n_columns, d), points.dtype)
    for rank, columns in enumerate(ranks):
        for block in columns.blocks:
            like = points[block] if rank == comm.rank else np.empty((block.stop - block.start, d), points.dtype)
            whole[xp.asarray(columns.ids[block])] = comm.broadcast(xp.asarray(like), rank)
    return whole


def feature_columns(r: int, rank: int, size: int) -> tuple[slice, tuple[slice, ...]]:
    """Return a rank's range of r eigenfeatures, and the pieces of it, which are the same for up to 24 ranks."""
    pieces = column_blocks(r, 0, size).blocks
    own = pieces[len(pieces) * rank // size : len(pieces) * (rank + 1) // size]
    start, stop = (own[0].start, own[-1].stop) if own else (0, 0)
    return slice(start, stop), tuple(slice(piece.start - start, piece.stop - start) for piece in own)


def solver_setup(
    task: Any,
    prepared: Prepared,
    rows: Rows,
    columns: Columns,
    part: KernelPart,
    points: HostArray,
    comm: Communicator,
    xp: ModuleType,
) -> EigenProSetup | FeatureSetup | NystromSetup:
    """Return what the solver needs on this rank."""
    dtype = task.settings.dtype
    if isinstance(prepared.state, CovarianceState):
        return FeatureSetup(prepared.state, prepared.state.part(columns.ids, dtype, xp))
    if isinstance(prepared.state, NystromState):
        features: slice | None = None
        blocks: tuple[slice, ...] = ()
        if task.features is not None:
            features, blocks = feature_columns(prepared.state.conditioner.size, comm.rank, comm.size)
        return NystromSetup(prepared.state, prepared.state.part(columns.ids, dtype, xp), features, blocks)
    solver: EigenPro = task.settings.solver
    assert isinstance(prepared.state, EigenProState)
    return _eigenpro_setup(solver, prepared, prepared.state, rows, columns, part, points, comm, xp, task)


def column_setup(
    task: Any, prepared: Prepared, statistics: StepStatistics, columns: Columns, comm: Communicator
) -> ColumnSetup:
    """Return what a first-order method needs on this rank."""
    n = prepared.plan.n_rows
    everything = prepared.basis.all_rows
    share = RowShare.of(columns.ids) if everything else RowShare.equal(n, comm.rank, comm.size)
    return ColumnSetup(n, statistics, share, everything, task.settings.seed)


def _eigenpro_setup(
    solver: EigenPro,
    prepared: Prepared,
    state: EigenProState,
    rows: Rows,
    columns: Columns,
    part: KernelPart,
    points: HostArray,
    comm: Communicator,
    xp: ModuleType,
    task: Any,
) -> EigenProSetup:
    basis, n_head, dtype = prepared.basis, columns.n_head, task.settings.dtype
    own_S = np.searchsorted(basis.head, columns.ids[:n_head])
    preconditioner = state.part(own_S, dtype, xp)
    directions = xp.asarray((state.vectors * state.damping).astype(dtype))
    subsample = basis.points(to_device(prepared.subsample, xp))
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
    if is_exact(solver, task.memory):
        projector = _exact(prepared, points, comm, xp, task)
    else:
        p, counts = basis.n_columns, tuple(basis.split(rank, comm.size).ids.size for rank in range(comm.size))
        directions = LeadingDirections.of(state, damped, columns.blocks, p, comm)
        chunk = max(_LEAST_CHUNK, prepared.plan.batch_size)
        own = to_device(points, xp)
        projector = IterativeProjector(part, own, counts, directions, chunk, solver.projection_tol)
    return EigenProSetup(state, preconditioner, damped, projector, prepared.window, heads)


def _exact(prepared: Prepared, points: HostArray, comm: Communicator, xp: ModuleType, task: Any) -> BlockCyclicFactor:
    """Fill and factor K_ZZ, with as little jitter as the dtype lets pass."""
    basis = prepared.basis
    Z = every_point(points, prepared, comm, xp)
    layout = column_blocks(basis.n_columns, comm.rank, comm.size, basis.head.size)
    eps = float(np.finfo(task.settings.dtype).eps)
    scale = float(basis.kernel.diagonal(Z).mean())
    if not scale > 0:
        raise DataError(f"the {basis.kernel.name} kernel is 0 on all landmarks; look at the data")
    for attempt in range(_JITTERS):
        jitter = eps * basis.n_columns**0.5 * scale * 10.0**attempt
        panels = [kernel_panel(prepared, Z, layout.blocks[k]) for k in layout.own]
        try:
            return distributed_factor(panels, layout, jitter, comm, task.settings.dtype, xp)
        except NotPositiveDefiniteError as error:
            last = error
    why = diagnose(basis.kernel, Z, task.settings.dtype, otherwise="take another length scale")
    raise DataError(
        f"the {basis.n_columns} landmarks are too dependent under the {basis.kernel.name} kernel for a factor "
        f"({last}): {why.found}; {why.remedy}, take fewer landmarks, or "
        "EigenPro(projection='eigenpro') (--set solver.projection=eigenpro)"
    )


def kernel_panel(prepared: Prepared, Z: Array, block: slice) -> Array:
    """Return the columns `block` of K_ZZ from the diagonal down, for the centres `Z` (p, d)."""
    kernel, basis = prepared.basis.kernel, prepared.basis
    corner = Z[block]
    panel = kernel.block(Z[block.start :], basis.points(corner))
    width = corner.shape[0]
    index = namespace_of(panel).arange(width)
    panel[index, index] = kernel.diagonal(corner)
    return panel
