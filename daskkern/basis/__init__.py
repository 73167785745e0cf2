"""Function spaces: all rows, or landmarks."""

from daskkern.basis.kernel_basis import Columns, KernelBasis, KernelPart
from daskkern.basis.spec import AllRows, BasisSpec, Landmarks

__all__ = ["AllRows", "BasisSpec", "Columns", "KernelBasis", "KernelPart", "Landmarks"]
