"""Function spaces: all rows, landmarks, and explicit features (random, Nystrom, growing, and the rows' own)."""

from daskkern.basis.kernel_basis import Columns, KernelBasis, KernelPart
from daskkern.basis.spec import (
    AllRows,
    BasisSpec,
    DoublyStochastic,
    Landmarks,
    Linear,
    NystromFeatures,
    RandomFeatures,
    uses_kernel,
)

__all__ = [
    "AllRows",
    "BasisSpec",
    "Columns",
    "DoublyStochastic",
    "KernelBasis",
    "KernelPart",
    "Landmarks",
    "Linear",
    "NystromFeatures",
    "RandomFeatures",
    "uses_kernel",
]
