"""The base class of tables whose rows are records of one dataclass."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, overload

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import SpecError

Row = TypeVar("Row")
_DTYPES: dict[Any, Any] = {str: object, int: np.int64}
"""Of the columns, by the type of a field; all others are float64."""


class RowTable(Sequence[Row]):
    """A table: ``table["loss"]`` is a column as an array, ``table[-1]`` a row, ``len(table)`` the number of rows."""

    row_type: ClassVar[type]
    """The dataclass of the rows."""
    title: ClassVar[str]
    """What messages call the table, such as "history"."""
    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(item.name for item in fields(self.row_type))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Row, ...]: ...
    @overload
    def __getitem__(self, key: str) -> HostArray: ...
    def __getitem__(self, key: int | slice | str) -> Row | tuple[Row, ...] | HostArray:
        """Return a row, rows, or a column: a new array (n_rows,). KeyError for another name."""
        if not isinstance(key, str):
            return self.rows[key]
        types = {item.name: item.type for item in fields(self.row_type)}
        if key not in types:
            raise KeyError(f"got {key!r} as a column of {self.title}; expected one of {', '.join(types)}")
        return np.array([getattr(row, key) for row in self.rows], _DTYPES.get(types[key], np.float64))

    def to_pandas(self) -> Any:
        """Return a new pandas.DataFrame. SpecError where pandas is not installed."""
        try:
            import pandas as pd
        except ImportError:
            raise SpecError(
                f"to_pandas() needs pandas, which is not installed; install it, or take columns as {self.title}['loss']"
            ) from None
        return pd.DataFrame({name: self[name] for name in self.columns})
