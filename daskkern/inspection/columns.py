"""The columns of a table that the features of a model belong to: categories are several features of one column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.errors import SpecError
from daskkern.models import KernelModel

Groups = Mapping[str, Sequence[int]]
"""Features, by number, that are one column under a name of its own."""


@dataclass(frozen=True, eq=False)
class TableColumns:
    """Columns in the order of their first features.

    Attributes
    ----------
    names : tuple of str
    owner : (d,) int64 array
        The number of the column that each feature belongs to.
    """

    names: tuple[str, ...]
    owner: IntArray

    def __len__(self) -> int:
        return len(self.names)

    def features(self, column: int) -> IntArray:
        """Return the numbers of the features of a column."""
        return np.flatnonzero(self.owner == column)

    def sum(self, values: FloatArray) -> FloatArray:
        """Return sums over the features of each column: (k,) of `values` (d,), or (k, k) of (d, d)."""
        if values.ndim == 1:
            sums: FloatArray = np.bincount(self.owner, values, minlength=len(self)).astype(np.float64)
            return sums
        members = np.zeros((len(self), len(self.owner)))
        members[self.owner, np.arange(len(self.owner))] = 1
        return members @ values @ members.T

    def numbers(self, chosen: Sequence[str | int] | None) -> list[int]:
        """Return the numbers of the columns that names or numbers choose; of all for None.

        Raises
        ------
        SpecError
            For a name or a number that no column has.
        """
        if chosen is None:
            return list(range(len(self)))
        found = []
        for each in chosen:
            if isinstance(each, str) and each in self.names:
                found.append(self.names.index(each))
            elif not isinstance(each, str | bool) and 0 <= int(each) < len(self):
                found.append(int(each))
            else:
                some = ", ".join(self.names[:10]) + (" ..." if len(self) > 10 else "")
                raise SpecError(f"got column {each!r}; expected one of {some}, or a number below {len(self)}")
        return found


def columns_of(model: KernelModel, groups: Groups | None = None) -> TableColumns:
    """Return the columns of a model's features.

    Those of the table that it was trained on, where an encoding is recorded: one-hot features are one column. Else each
    feature is a column.

    Parameters
    ----------
    model : KernelModel
        A model, or an estimator after its fit.
    groups : mapping of str to sequence of int, optional
        Features that belong together, under a name: of arrays that were encoded before. Others are columns of their
        own. Takes the place of the recorded encoding.

    Raises
    ------
    SpecError
        For a feature that does not exist, or that is in two groups.
    """
    d = model.n_features
    if groups is None and model.encoding is not None:
        widths = [len(column.feature_names) for column in model.encoding]
        if sum(widths) == d:
            return TableColumns(
                tuple(column.name for column in model.encoding), np.repeat(np.arange(len(widths)), widths)
            )
    names = model.feature_names or tuple(f"feature {j}" for j in range(d))
    group_of: dict[int, str] = {}
    for name, members in (groups or {}).items():
        for j in members:
            if isinstance(j, bool) or not 0 <= int(j) < d or int(j) in group_of:
                raise SpecError(
                    f"got feature {j!r} in the group {name!r}; expected numbers from 0 to {d - 1}, each in one group"
                )
            group_of[int(j)] = name
    found: dict[tuple[str, int], int] = {}  # a group may have the name of a feature
    owner = np.empty(d, np.int64)
    for j in range(d):
        key = (group_of[j], -1) if j in group_of else (names[j], j)
        owner[j] = found.setdefault(key, len(found))
    return TableColumns(tuple(name for name, _ in found), owner)
