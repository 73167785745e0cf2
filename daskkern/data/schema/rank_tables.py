"""Rank transforms of features, learned from a sample and stored as tables of a few hundred numbers.

The rank of a value is its position among the sorted values that a sample holds, so a model does not change when a
feature is replaced by an increasing function of it, as for trees. Where values repeat, the usual rank (scikit-learn's
``QuantileTransformer``) gives each value room in proportion to its frequency: an amount that is 0 in nine rows of ten
has a tenth of the range for all other amounts. Here each distinct value has room in proportion to the square root of
its frequency, half-way to equal room for each, which trees give it. Between the values of the table the map is linear,
beyond them constant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError

MOST_KNOTS = 256
"""Values in the table of a feature."""
_MOST_NUMBERS = 1 << 16  # of all tables together: a model records them as JSON
_FEWEST_KNOTS = 16
_POWER = 0.5
_LEAST_SPREAD = 0.15  # of ranks from 0 to 1; evenly spread ones have 0.29, and those of mostly one value nearly none


@dataclass(frozen=True)
class RankTable:
    """The increasing map of one feature from values to ranks, which are centred and divided by their spread.

    The table of a warped feature has its other coordinate in place of ranks.

    Attributes
    ----------
    column : int
    values, ranks : tuple of float
        At least two; both increase strictly.
    """

    column: int
    values: tuple[float, ...]
    ranks: tuple[float, ...]

    def __post_init__(self) -> None:
        table = (self.values, self.ranks)
        if self.column < 0 or len({*map(len, table)}) != 1 or len(self.values) < 2 or not all(map(_increases, table)):
            raise SpecError(
                f"got a table of ranks for column {self.column} that is not two or more finite, increasing values and "
                "as many ranks; learn the scaling again"
            )

    def apply(self, x: Array) -> Array:
        """Return the ranks (m,) of the values x (m,), in float64, where these are."""
        xp = namespace_of(x)
        return xp.interp(xp.ascontiguousarray(x), xp.asarray(self.values), xp.asarray(self.ranks))

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "values": list(self.values), "ranks": list(self.ranks)}

    @classmethod
    def from_json(cls, value: Any) -> "RankTable":
        """Raise SpecError for anything else than :meth:`to_json` gives."""
        try:
            column, values, ranks = value["column"], value["values"], value["ranks"]
            return cls(int(column), tuple(map(float, values)), tuple(map(float, ranks)))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise SpecError("got a table of ranks without column, values or ranks; learn the scaling again") from None


def rank_tables(sample: FloatArray, columns: Sequence[int]) -> tuple[RankTable, ...]:
    """Return the tables of those `columns` of the sample (m, d) that have three distinct values or more."""
    most = min(MOST_KNOTS, max(_FEWEST_KNOTS, _MOST_NUMBERS // max(1, len(columns))))
    found = (_table(sample[:, column], int(column), most) for column in columns)
    return tuple(table for table in found if table is not None)


def check_tables(tables: Sequence[RankTable], n_columns: int) -> None:
    """Raise SpecError unless the tables belong to different columns out of `n_columns`."""
    columns = [table.column for table in tables]
    if len(set(columns)) != len(columns) or any(column >= n_columns for column in columns):
        raise SpecError(f"got tables of ranks for columns {columns!r:.80} out of {n_columns}; learn the scaling again")


def tables_from_json(entry: Mapping[str, Any]) -> tuple[RankTable, ...]:
    """Return the tables under the key "ranks", which older models do not have."""
    given = entry.get("ranks", ())
    if not isinstance(given, list | tuple):
        raise SpecError("got ranks that are not a list of tables; learn the scaling again")
    return tuple(map(RankTable.from_json, given))


def _table(x: FloatArray, column: int, most: int) -> RankTable | None:
    values, counts = np.unique(x, return_counts=True)
    if len(values) < 3:
        return None
    room = counts.astype(np.float64) ** _POWER
    ranks = (np.cumsum(room) - room / 2) / room.sum()
    if len(values) > most:
        kept = np.unique(np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], most)))
        values, ranks = values[kept], ranks[kept]
    each = np.interp(x, values, ranks)
    ranks = (ranks - each.mean()) / max(each.std(), _LEAST_SPREAD)
    return RankTable(column, tuple(map(float, values)), tuple(map(float, ranks)))


def _increases(numbers: tuple[float, ...]) -> bool:
    given = np.asarray(numbers)
    return bool(np.isfinite(given).all() and (given[1:] > given[:-1]).all())
