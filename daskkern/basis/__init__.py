"""Function spaces: all rows, landmarks, and explicit features (random, Nystrom, growing, and the rows' own)."""

from daskkern.basis.base import BasisSpec, ColumnRequest, ColumnSet
from daskkern.basis.kernel_basis import Columns, KernelBasis, KernelPart
from daskkern.basis.local import LocalRows
from daskkern.basis.locally_linear import LocallyLinear
from daskkern.basis.spec import (
    AllRows,
    DoublyStochastic,
    Landmarks,
    Linear,
    NystromFeatures,
    RandomFeatures,
    is_basis,
    uses_kernel,
)

__all__ = [
    "AllRows",
    "BasisSpec",
    "ColumnRequest",
    "ColumnSet",
    "Columns",
    "DoublyStochastic",
    "KernelBasis",
    "KernelPart",
    "Landmarks",
    "Linear",
    "LocalRows",
    "LocallyLinear",
    "NystromFeatures",
    "RandomFeatures",
    "is_basis",
    "uses_kernel",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
