"""The linear map of rows that length scales per feature, matrices and metrics define."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.csr import with_entries
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError


@dataclass(frozen=True, eq=False)
class Coordinates:
    """``y = x / s`` with scales s, or ``y = x F``; a radial kernel is a function of the distances of y.

    Attributes
    ----------
    owner : str
        Name of the kernel, for errors.
    values : () or (d,) array, or (d, k) array
        Scales to divide by, or the factor F to multiply with; float64.
    """

    owner: str
    values: FloatArray

    def forward(self, rows: Array) -> Array:
        """Return y (m, k) for `rows` (m, d) in their dtype. CSR rows stay sparse under scales; a factor fills them."""
        xp = namespace_of(rows.data if is_sparse(rows) else rows)
        if self.values.ndim and rows.shape[1] != self.values.shape[0]:
            raise DataError(
                f"the {self.owner} kernel has length scales for {self.values.shape[0]} features, but rows have "
                f"{rows.shape[1]}; give one for each feature"
            )
        values = self._on(xp, rows.dtype)
        with np.errstate(all="ignore"):  # overflow raises an error later, with the row's norm
            if self.values.ndim == 2:
                return rows @ values
            if not is_sparse(rows):
                return rows / values
            data = rows.data / (values[rows.indices] if self.values.ndim else values)
            return with_entries(rows, data)

    def backward(self, gradients: Array) -> Array:
        """Return gradients by x (m, d), given those by y (m, k)."""
        values = self._on(namespace_of(gradients), gradients.dtype)
        return gradients @ values.T if self.values.ndim == 2 else gradients / values

    def _on(self, xp: ModuleType, dtype: object) -> Array:
        with np.errstate(all="ignore"):
            return xp.asarray(self.values.astype(dtype))  # type: ignore[call-overload]
