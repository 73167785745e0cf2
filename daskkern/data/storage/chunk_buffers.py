"""The format of the rows that a writer accepts, and the buffers for one chunk of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.machine_code.row_copies import copy_rows
from daskkern.data.rows.csr import FeatureRows, is_sparse
from daskkern.data.schema.layout import is_by_column, stored_dtype
from daskkern.data.schema.schema import Task
from daskkern.errors import DataError


@dataclass(frozen=True)
class Incoming:
    """Rows of `n_features` features, stored as `dtype`; `n_targets` is 0 without a task."""

    n_features: int
    dtype: np.dtype[np.generic]
    task: Task | None
    n_targets: int
    has_weight: bool
    sparse: bool

    def buffers(self, rows: int) -> dict[str, HostArray]:
        """Return buffers for a chunk of rows: ``X`` unless rows are sparse, ``y`` and ``weight`` where present."""
        buffers: dict[str, HostArray] = {}
        if not self.sparse:
            buffers["X"] = np.empty((rows, self.n_features), self.dtype)
        if self.task == "classification":
            buffers["y"] = np.empty(rows, np.int64)
        elif self.task == "regression":
            buffers["y"] = np.empty((rows, self.n_targets), np.float64)
        if self.has_weight:
            buffers["weight"] = np.empty(rows, np.float64)
        return buffers

    def fill(
        self,
        buffers: Mapping[str, HostArray],
        blocks: Mapping[str, HostArray],
        rows: slice,
        new: slice,
        *,
        by_blocks: bool,
    ) -> None:
        """Set `rows` of the buffers to the rows `new` of blocks. Values beyond the range of a buffer become infinite.

        `by_blocks` is worth its compilation for many rows of which the columns are contiguous.
        """
        for name, block in blocks.items():
            if name not in buffers:
                continue
            with np.errstate(over="ignore"):
                if by_blocks and block.ndim == 2:
                    copy_rows(buffers[name][rows], block[new])
                else:
                    buffers[name][rows] = block[new]

    def stored(
        self,
        buffers: Mapping[str, HostArray],
        blocks: Mapping[str, HostArray],
        rows: slice,
        new: slice,
        *,
        without_X: bool,
    ) -> dict[str, HostArray]:
        """Return `rows` of the buffers, which are the rows `new` of blocks; X of a block whose columns are contiguous.

        Such a block is passed over faster than the buffer, whose rows are.
        """
        found = {name: buffer[rows] for name, buffer in buffers.items() if not (without_X and name == "X")}
        X = blocks.get("X")
        if X is not None and "X" in found and is_by_column(X) and X.dtype == self.dtype:
            found["X"] = X[new]
        return found

    def check_format(self, X: FeatureRows) -> None:
        """Raise DataError unless rows are sparse, or dense, as the store is."""
        if is_sparse(X) != self.sparse:
            raise DataError(
                f"{'sparse' if is_sparse(X) else 'dense'} rows were appended to a store of "
                f"{'sparse' if self.sparse else 'dense'} rows; convert them first"
            )

    def check(self, X: FeatureRows, y: HostArray | None, weight: HostArray | None) -> dict[str, HostArray]:
        """Return the blocks by name, targets as they are stored. Raises DataError for a wrong shape or dtype."""
        wanted = {"X": True, "y": self.task is not None, "weight": self.has_weight}
        blocks: dict[str, HostArray] = {}
        for name, block in {"X": X, "y": y, "weight": weight}.items():
            if (block is not None) != wanted[name]:
                raise DataError(f"{name} was {'not ' if block is None else ''}given, unlike the settings of the store")
            if block is not None:
                blocks[name] = block
        if self.task == "regression" and blocks["y"].ndim == 1:
            blocks["y"] = blocks["y"][:, None]  # (m, 1)
        widths = {"X": (self.n_features,), "y": (self.n_targets,) if self.task == "regression" else (), "weight": ()}
        for name, block in blocks.items():
            expected = (X.shape[0], *widths[name])
            if block.shape != expected:
                raise DataError(f"got {name} of shape {block.shape}; expected {expected}")
        if self.task == "classification" and blocks["y"].dtype.kind not in "iu":
            raise DataError(f"got class codes of dtype {blocks['y'].dtype}; expected integers from 0")
        if stored_dtype(X.dtype) != self.dtype and not np.can_cast(X.dtype, self.dtype):
            raise DataError(f"rows of {X.dtype} were appended to a store of {self.dtype}")
        return blocks
