"""What solvers that deal rows need on a rank: all columns, and their preconditioner."""

from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import Columns, KernelBasis, KernelPart
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.features import FourierFeatures
from daskkern.kernels import Kernel, diagnose
from daskkern.linalg import LowerFactor, NotPositiveDefiniteError, cholesky, column_blocks
from daskkern.losses import Squared
from daskkern.preconditioners import FalkonPart, Unconditioned, low_rank_part, nystrom_factor
from daskkern.solvers import PCG, Falkon
from daskkern.solvers.falkon import FalkonSetup
from daskkern.solvers.kernel_ridge.direct import DirectSetup
from daskkern.solvers.kernel_ridge.pcg import PCGSetup
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.rank_columns import every_point, kernel_panel

_JITTERS = 5
_SKETCH = 62
_STRIP = 4096


def falkon_setup(
    task: Any,
    prepared: Prepared,
    rows: Rows,
    part: KernelPart,
    points: HostArray,
    comm: Communicator,
    xp: ModuleType,
) -> FalkonSetup:
    """Return what Falkon and NYTRO need on a rank; its own columns are `part`, at `points`. Every rank must call it."""
    basis, dtype, p = prepared.basis, task.settings.dtype, prepared.basis.n_columns
    Z = every_point(points, prepared, comm, xp)
    whole = part if comm.size == 1 else basis.part(basis.split(0, 1), Z)
    _check_range(basis.kernel, Z.astype(np.float64), dtype)
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
    once = isinstance(task.settings.solver, Falkon) and isinstance(task.settings.loss, Squared)
    inner = factors.inner(1.0, task.settings.ridge, comm) if once else None
    note = (
        _left_out(lower, task.settings.ridge, dtype, basis.kernel.name)
        if isinstance(task.settings.solver, Falkon)
        else ""
    )
    return FalkonSetup(whole, prepared.plan.n_rows, factors, inner, note)


def direct_setup(task: Any, prepared: Prepared, part: KernelPart, points: Array) -> DirectSetup:
    """Return what Direct needs on its only rank, which has all columns."""
    centres = None if prepared.basis.all_rows else points
    explicit = bool(task.settings.basis.is_explicit)
    return DirectSetup(part, centres, prepared.plan.n_rows, task.threads, explicit)


def pcg_setup(
    task: Any, prepared: Prepared, rows: Rows, columns: Columns, points: HostArray, comm: Communicator, xp: ModuleType
) -> PCGSetup:
    """Return what PCG needs on this rank, whose own columns have the points `points` (n_r, d)."""
    settings, basis = task.settings, prepared.basis
    solver: PCG = settings.solver
    n, own = basis.n_columns, take(rows, columns.ids, Fields.y | Fields.weight)
    assert own.y is not None
    weight = prepared.targets.weight(own)
    root = np.ones((columns.ids.size, 1)) if weight is None else np.sqrt(weight.astype(np.float64))
    X, s = to_device(points, xp), solver.size(n)
    y = xp.asarray(prepared.targets.encode(own.y).astype(np.float64))
    ids = tuple(basis.split(rank, comm.size).ids for rank in range(comm.size))
    if solver.preconditioner == "none":
        return PCGSetup(Unconditioned(), y, xp.asarray(root), ids)
    if solver.preconditioner == "random_features":
        features = FourierFeatures(basis.kernel, s, settings.seed)(X)
    else:
        chosen = np.sort(generator(settings.seed, _SKETCH).choice(n, size=s, replace=False))
        S = take(rows, chosen, Fields.X).X
        assert S is not None
        features = _nystrom_features(basis, X, to_device(S, xp), xp)
    features = (features * xp.asarray(root)).astype(settings.dtype)
    part = low_rank_part(features, n * settings.ridge, comm)
    return PCGSetup(part, y, xp.asarray(root), ids)


def _nystrom_features(basis: KernelBasis, X: Array, S: Array, xp: ModuleType) -> Array:
    """Return ``K_XS L^-T`` (n_r, s), in float64: rounding of K is divided by the small singular values of L."""
    S = S.astype(np.float64)
    inverse = xp.asarray(nystrom_factor(to_host(basis.kernel.block(S, S))))
    points = basis.kernel.points(S, basis.placement.on(xp))
    parts = slices(X.shape[0], _STRIP) or [slice(0, 0)]
    return xp.concatenate([basis.kernel.matvec(X[part].astype(np.float64), points, inverse) for part in parts])


def _lower(prepared: Prepared, Z: Array, comm: Communicator, dtype: str, xp: ModuleType) -> LowerFactor:
    """Factor ``K_ZZ + eps p`` in `dtype`, or with more jitter where that is not enough; the factor is float64.

    A factor that differs from T by rounding is as good: with it a model has other coordinates u, but the same values,
    as long as all products with it use the same numbers in float64. Only the penalty ``|u|^2`` differs from
    ``a^T K_ZZ a``, by at most ``p eps`` times the largest ``k(z, z)`` for each entry (Higham, "Accuracy and stability
    of numerical algorithms", 2002, theorem 10.3), which is what the jitter adds to the diagonal. Less jitter would
    pass, but rounding of the products with K_XZ, which are taken in `dtype`, is divided by the root of the smallest
    eigenvalue of T.
    """
    basis = prepared.basis
    p = basis.n_columns
    deal = column_blocks(p, comm.rank, comm.size)
    scale = float(basis.kernel.diagonal(Z).mean())
    if not scale > 0:
        raise DataError(f"the {basis.kernel.name} kernel is 0 on all landmarks; look at the data")
    for attempt in range(_JITTERS):
        jitter = float(np.finfo(dtype).eps) * p * scale * 10.0**attempt
        panels = [kernel_panel(prepared, Z, deal.blocks[k]) for k in deal.own]
        try:
            return cholesky(panels, deal, jitter, comm, dtype, xp).astype("float64")
        except NotPositiveDefiniteError as error:
            last = error
    why = diagnose(basis.kernel, Z, dtype, otherwise="take another length scale")
    raise DataError(
        f"the {p} landmarks are too dependent under the {basis.kernel.name} kernel for a factor ({last}): {why.found}; "
        f"{why.remedy}, take fewer landmarks, or dtype float64"
    )


def _check_range(kernel: Kernel, Z: Array, dtype: str) -> None:
    """Raise DataError where products ``K^T K`` of landmarks `Z`, taken in `dtype`, are beyond its largest number."""
    values = to_host(kernel.diagonal(Z))
    largest, most = float(np.abs(values).max(initial=0)), float(np.finfo(dtype).max)
    if largest**2 * len(values) > most:
        wider = ", or take dtype float64" if dtype == "float32" else ""
        raise DataError(
            f"the {kernel.name} kernel is {largest:.2g} on one of the landmarks, and sums of products of such values "
            f"go beyond {dtype}, which ends at {most:.2g}; drop rows far from all others, scale the features{wider}"
        )


def _left_out(lower: LowerFactor, alpha: float, dtype: str, kernel: str) -> str:
    """Return what the arithmetic leaves out of a model, in a sentence; "" where the penalty leaves out as much.

    A landmark of which the ones before it leave no more than the jitter adds a direction whose eigenvalue of
    ``K_ZZ / p`` is below jitter / p: a penalty above that would hide it, too.
    """
    p = lower.blocks[-1].stop
    apart = int((lower.diagonal() ** 2 > 2 * lower.jitter).sum())
    least = lower.jitter / p
    if apart == p or 2 * alpha >= least:
        return ""
    return (
        f"{dtype} tells {apart} of the {p} landmarks apart under the {kernel} kernel, and what is finer is not fitted, "
        f"as with an alpha of about {least:.1e} in place of {alpha:.1e}; set alpha, take a shorter length scale, or "
        "dtype float64"
    )


def _at_landmarks(prepared: Prepared, rows: Rows) -> tuple[HostArray | None, HostArray | None]:
    """Return weights (p, 1) and encoded targets (p, c) of the landmarks, as far as they have them.

    Weights are those of the samples, times those with which the landmarks stand for all rows.
    """
    if prepared.indices is None:
        return None, None
    block = take(rows, prepared.indices, Fields.y | Fields.weight)
    assert block.y is not None
    weight, importance = prepared.targets.weight(block), prepared.importance
    if importance is not None:
        weight = importance[:, None].astype(rows.dtype) * (1 if weight is None else weight)
    return weight, prepared.targets.encode(block.y)
