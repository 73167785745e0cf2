"""Running statistics of written rows, with rejection of bad values: moments, and whether any weight is positive."""

from collections.abc import Mapping

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import CsrRows
from daskkern.data.rows.finite import first_not_finite
from daskkern.data.schema.column_statistics import Moments
from daskkern.data.storage.csr_store import State
from daskkern.errors import DataError


class RowStatistics:
    """Moments of features and targets, and whether any row has a positive weight.

    Parameters
    ----------
    n_features : int
        Columns of the features.
    n_targets : int
        Columns of a regression target; 0 without one.
    """

    def __init__(self, n_features: int, n_targets: int) -> None:
        self.features = Moments(n_features)
        self.targets = Moments(n_targets) if n_targets else None
        self.weighs = False

    def take(self, rows: Mapping[str, HostArray], first_row: int) -> None:
        """Add the values ``X``, ``y`` and ``weight`` of rows, the first of which is row `first_row` of the store.

        Raises
        ------
        DataError
            Naming the first value that is not finite, or the first negative weight.
        """
        for name, moments in (("X", self.features), ("y", self.targets)):
            if moments is not None and name in rows and not moments.update(rows[name]):
                _refuse_value(name, rows[name], first_row)
        if "weight" in rows:
            weight = rows["weight"]
            if not _is_weight(weight).all():
                _refuse_value("weight", weight, first_row)
            self.weighs = self.weighs or bool(weight.any())

    def take_sparse(self, X: CsrRows, first_row: int) -> None:
        """Add CSR rows as stored; row 0 is row `first_row` of the store. Raises DataError likewise."""
        if self.features.update(X):
            return
        bad = first_not_finite(X)
        assert bad is not None
        raise DataError(
            f"X holds an unusable value (NaN, infinite, or beyond the range of {X.dtype}) in row "
            f"{first_row + bad[0]} (counted from 0), column {bad[1]}"
        )

    def state(self) -> State:
        """Return what :meth:`restore` and :meth:`add` need."""
        state = {"moments": self.features.state(), "weighs": np.array(self.weighs)}
        return state if self.targets is None else {**state, "target_moments": self.targets.state()}

    def restore(self, state: State) -> None:
        """Continue from a :meth:`state` of an earlier process."""
        self.features.restore(state["moments"])
        self.weighs = bool(state["weighs"])
        if self.targets is not None:
            self.targets.restore(state["target_moments"])

    def add(self, state: State) -> None:
        """Count the rows that another process observed."""
        self.features.add(state["moments"])
        if self.targets is not None:
            self.targets.add(state["target_moments"])
        self.weighs = self.weighs or bool(state["weighs"])


def _is_weight(weight: HostArray) -> HostArray:
    return np.isfinite(weight) & (weight >= 0)


def _refuse_value(name: str, rows: HostArray, first_row: int) -> None:
    bad = ~_is_weight(rows) if name == "weight" else ~np.isfinite(rows)
    where = np.argwhere(bad)[0]
    raise DataError(
        f"{name} holds an unusable value (NaN, infinite, beyond the range of {rows.dtype}, or a negative weight) "
        f"in row {first_row + int(where[0])} (counted from 0)" + (f", column {int(where[1])}" if rows.ndim == 2 else "")
    )
