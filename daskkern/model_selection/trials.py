"""The table of the trials of a search."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from daskkern.display import html_table
from daskkern.row_table import RowTable

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
class TrialTable(RowTable[TrialRow]):
    """What a search has tried, in this order: a table with one row for each trial.

    ``trials["loss"]`` is a column as an array, ``trials[-1]`` a row, and ``to_pandas()`` a DataFrame.

    Attributes
    ----------
    rows : tuple of TrialRow
    note : str
        Why the search ended where it did, and what was chosen.
    """

    row_type = TrialRow
    title = "trials"
    rows: tuple[TrialRow, ...] = ()
    note: str = ""

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
