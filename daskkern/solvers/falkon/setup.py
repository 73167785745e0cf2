"""What a rank needs for the methods that pass over the rows with a factor of ``K_ZZ``."""

from dataclasses import dataclass

from daskkern.basis import KernelPart
from daskkern.linalg import LowerFactor
from daskkern.preconditioners import FalkonPart


@dataclass(frozen=True)
class FalkonSetup:
    """What a rank needs: all columns, the rows of all ranks together, and the preconditioner.

    `inner` is A^T for the squared loss, whose curvature is known beforehand; None for other losses. `note` is what
    there is to say about the landmarks, or "".
    """

    whole: KernelPart
    n_rows: int
    part: FalkonPart
    inner: LowerFactor | None
    note: str = ""
