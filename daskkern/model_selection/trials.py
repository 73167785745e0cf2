"""The table of the trials of a search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

import numpy as np

from daskkern.arrays import HostArray
from daskkern.display import html_table
from daskkern.errors import SpecError

_NAN = float("nan")


@dataclass(frozen=True)
class TrialRow:
    """One trial of a search.

    Attributes
    ----------
    candidate : str
    method : str
        "ridge" where kernels were compared by ridge regression, "softmax" by kernel logistic regression with one score
        a class, "leaves" in leaves of a tree, and "fit" where whole fits were.
    rows : int
        Sampled rows, fitted and held out.
    folds : int
        Number of times that some of them were held out.
    loss : float
        Mean loss of held-out rows: what `scoring` says.
    error : float
        Share of wrong labels, or of variance that is not explained; NaN where the trial failed.
    seconds : float
    verdict : str
    """

    candidate: str
    method: str
    rows: int
    folds: int
    loss: float = _NAN
    error: float = _NAN
    seconds: float = _NAN
    verdict: str = ""


_NAMES = tuple(item.name for item in fields(TrialRow))
_WHOLE = frozenset({"rows", "folds"})
_TEXT = frozenset({"candidate", "method", "verdict"})


@dataclass(frozen=True, eq=False, repr=False)
class TrialTable(Sequence[TrialRow]):
    """What a search has tried, in this order: a table with one row for each trial.

    ``trials["loss"]`` is a column as an array, ``trials[-1]`` a row, and ``to_pandas()`` a DataFrame.

    Attributes
    ----------
    rows : tuple of TrialRow
    note : str
        Why the search ended where it did, and what was chosen.
    """

    rows: tuple[TrialRow, ...] = ()
    note: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return _NAMES

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[TrialRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: int) -> TrialRow: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[TrialRow, ...]: ...
    @overload
    def __getitem__(self, key: str) -> HostArray: ...
    def __getitem__(self, key: int | slice | str) -> TrialRow | tuple[TrialRow, ...] | HostArray:
        """Return a row, rows, or a column as a new array. KeyError for another name."""
        if not isinstance(key, str):
            return self.rows[key]
        if key not in _NAMES:
            raise KeyError(f"the trials have no column {key!r}; they have {', '.join(_NAMES)}")
        dtype: Any = object if key in _TEXT else np.int64 if key in _WHOLE else np.float64
        return np.array([getattr(row, key) for row in self.rows], dtype)

    def to_pandas(self) -> Any:
        """Return a new pandas.DataFrame. SpecError where pandas is not installed."""
        try:
            import pandas as pd
        except ImportError:
            raise SpecError(
                "to_pandas() needs pandas, which is not installed; install it, or take columns as trials['loss']"
            ) from None
        return pd.DataFrame({name: self[name] for name in _NAMES})

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as texts: a row for each trial."""
        return [
            (
                row.candidate,
                row.method,
                f"{row.rows:,}",
                f"{row.folds}",
                "" if np.isnan(row.loss) else f"{row.loss:.4f}",
                "" if np.isnan(row.error) else f"{row.error:.2%}",
                "" if np.isnan(row.seconds) else f"{row.seconds:.1f}",
                row.verdict,
            )
            for row in self.rows
        ]

    def __repr__(self) -> str:
        cells = [_NAMES, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def _repr_html_(self) -> str:
        return html_table(f"{len(self.rows)} trials", _NAMES, self.cells(), self.note)

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON values, without NaN; see :meth:`from_json`."""
        rows = [
            {
                key: None if isinstance(value, float) and not np.isfinite(value) else value
                for key, value in asdict(row).items()
            }
            for row in self.rows
        ]
        return {"trials": rows, "note": self.note}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrialTable":
        """Rebuild the table from :meth:`to_json`.

        Raises
        ------
        ValueError, TypeError, KeyError
            For values that are not a table of trials.
        """
        return cls(tuple(_row(row) for row in values["trials"]), str(values["note"]))


def _row(values: Mapping[str, Any]) -> TrialRow:
    row = {name: values[name] for name in _NAMES}
    texts = {name: str(row[name]) for name in _TEXT}
    whole = {name: int(row[name]) for name in _WHOLE}
    numbers = {name: _NAN if row[name] is None else float(row[name]) for name in set(_NAMES) - _TEXT - _WHOLE}
    return TrialRow(**texts, **whole, **numbers)  # type: ignore[arg-type]
