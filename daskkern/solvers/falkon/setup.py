"""The set-up of one rank for the methods that pass over the rows with a factor of ``K_ZZ``."""

from dataclasses import dataclass

from daskkern.basis import KernelPart
from daskkern.linalg import LowerFactor
from daskkern.preconditioners import FalkonPart


@dataclass(frozen=True)
class FalkonSetup:
    """The set-up of one rank: all columns, the number of rows of all ranks together, and the preconditioner.

    `inner` is A^T for the squared loss, whose curvature is known beforehand; None for other losses. `note` is a
    remark on the landmarks, or "".
    """

    whole: KernelPart
    n_rows: int
    part: FalkonPart
    inner: LowerFactor | None
    note: str = ""
