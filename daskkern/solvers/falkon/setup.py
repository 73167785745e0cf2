"""The set-up of one rank for the methods that pass over the rows with a factor of ``K_ZZ``."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_host
from daskkern.basis import KernelBasis, KernelPart
from daskkern.errors import DataError
from daskkern.kernels import Kernel, diagnose
from daskkern.linalg import LowerFactor, NotPositiveDefiniteError, cholesky, column_blocks
from daskkern.preconditioners import FalkonPart
from daskkern.solvers.setup import RankInputs, RankSetup

_JITTERS = 5


@dataclass(frozen=True)
class FalkonSetup(RankSetup):
    """The set-up of one rank: all columns, the number of rows of all ranks together, and the preconditioner.

    `inner` is A^T for the squared loss, whose curvature is known beforehand; None for other losses. `note` is a
    remark on the landmarks, or "".
    """

    whole: KernelPart
    n_rows: int
    part: FalkonPart
    inner: LowerFactor | None
    note: str = ""

    @property
    def remark(self) -> str:
        return self.note

    @property
    def all_columns(self) -> KernelPart:
        return self.whole


def factor_setup(inputs: RankInputs, *, once: bool = False, says_what_is_left_out: bool = False) -> FalkonSetup:
    """Return the factor of K_ZZ and all columns. Every rank must call it.

    Parameters
    ----------
    once : bool
        The loss bends the same everywhere: one inner factor serves all iterations.
    says_what_is_left_out : bool
        Remark on landmarks that the arithmetic cannot tell apart.
    """
    basis, comm, dtype, xp = inputs.basis, inputs.comm, inputs.dtype, inputs.xp
    p = basis.n_columns
    Z = inputs.every_point()
    whole = inputs.part if comm.size == 1 else basis.part(basis.split(0, 1), Z)
    _check_range(basis.kernel, Z.astype(np.float64), dtype)
    lower = _lower(basis, Z, comm, dtype, xp)
    weights, targets = _at_landmarks(inputs)
    scale = np.ones((p, 1), dtype) if weights is None else weights
    factors = FalkonPart(
        lower,
        column_blocks(p, comm.rank, comm.size),
        xp.asarray(scale),
        None if targets is None else xp.asarray(targets),
    )
    inner = factors.inner(1.0, inputs.alpha, comm) if once else None
    note = _left_out(lower, inputs.alpha, dtype, basis.kernel.name) if says_what_is_left_out else ""
    return FalkonSetup(whole, inputs.n_rows, factors, inner, note)


def _lower(basis: KernelBasis, Z: Array, comm: Communicator, dtype: str, xp: ModuleType) -> LowerFactor:
    """Factor ``K_ZZ + eps p`` in `dtype`, or with more jitter where that is not enough; the factor is float64.

    A factor that differs from T by rounding is as good: with it a model has other coordinates u, but the same values,
    as long as all products with it use the same numbers in float64. Only the penalty ``|u|^2`` differs from
    ``a^T K_ZZ a``, by at most ``p eps`` times the largest ``k(z, z)`` for each entry (Higham, "Accuracy and stability
    of numerical algorithms", 2002, theorem 10.3), which is what the jitter adds to the diagonal. Less jitter would
    pass, but rounding of the products with K_XZ, which are taken in `dtype`, is divided by the root of the smallest
    eigenvalue of T.
    """
    p = basis.n_columns
    layout = column_blocks(p, comm.rank, comm.size)
    scale = float(basis.kernel.diagonal(Z).mean())
    if not scale > 0:
        raise DataError(f"the {basis.kernel.name} kernel is 0 on all landmarks; check the data")
    for attempt in range(_JITTERS):
        jitter = float(np.finfo(dtype).eps) * p * scale * 10.0**attempt
        panels = [basis.panel(Z, layout.blocks[k]) for k in layout.own]
        try:
            return cholesky(panels, layout, jitter, comm, dtype, xp).astype("float64")
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
    apart = int((to_host(lower.diagonal()) ** 2 > 2 * lower.jitter).sum())
    least = lower.jitter / p
    if apart == p or 2 * alpha >= least:
        return ""
    return (
        f"{dtype} tells {apart} of the {p} landmarks apart under the {kernel} kernel, and what is finer is not fitted, "
        f"as with an alpha of about {least:.1e} in place of {alpha:.1e}; set alpha, take a shorter length scale, or "
        "dtype float64"
    )


def _at_landmarks(inputs: RankInputs) -> tuple[HostArray | None, HostArray | None]:
    """Return weights (p, 1) and encoded targets (p, c) of the landmarks, as far as they have them.

    Weights are those of the samples, times those with which the landmarks stand for all rows.
    """
    if inputs.indices is None:
        return None, None
    targets, weight = inputs.rows.labels(inputs.indices)
    if inputs.importance is not None:
        weight = inputs.importance[:, None].astype(inputs.dtype) * (1 if weight is None else weight)
    return weight, targets
