"""Function spaces: all rows, landmarks, random features, Nystrom features, or the features themselves."""

from daskkern.basis.kernel_basis import Columns, KernelBasis, KernelPart
from daskkern.basis.spec import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures

__all__ = [
    "AllRows",
    "BasisSpec",
    "Columns",
    "KernelBasis",
    "KernelPart",
    "Landmarks",
    "Linear",
    "NystromFeatures",
    "RandomFeatures",
]
