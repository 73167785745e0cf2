"""What a pass over a column finds out for the replacement of its missing values: of numbers, and of written dates."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import FloatArray
from daskkern.data.ingest.columns.dates import DateSurvey, days_of_texts
from daskkern.data.ingest.readers.arrow import to_numbers, to_numpy
from daskkern.data.schema.encoding import MISSING_TEXTS, MissingChoice
from daskkern.errors import DataError

_MOST_VALUES = 100_000  # different values of a column up to which the most frequent one is determined
_SUM = pc.ScalarAggregateOptions(min_count=0)


@dataclass
class NumberCounts:
    """The values of a column of numbers: their sum, how many are present and missing, and how often each occurs."""

    total: float = 0.0
    present: int = 0
    gaps: int = 0
    values: Counter[float] = field(default_factory=Counter)

    def add(self, other: "NumberCounts") -> None:
        """Count the rows that follow."""
        self.total += other.total
        self.present += other.present
        self.gaps += other.gaps
        self.values.update(other.values)

    def update(self, column: pa.Array, missing: MissingChoice, name: str) -> None:
        """Count a column of numbers or dates. DataError where `missing` asks for the most frequent of too many."""
        if missing == "mean" and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            numbers = column if pa.types.is_float64(column.type) else column.cast(pa.float64(), safe=False)
            total = pc.call_function("sum", [numbers], _SUM).as_py()  # pc.sum makes new options each time
            if not math.isnan(total):  # gaps are nulls alone
                self.total += total
                self.present += len(column) - column.null_count
                self.gaps += column.null_count
                return
        values: FloatArray = to_numbers(column.drop_null() if column.null_count else column).astype(
            np.float64, copy=False
        )
        holes = np.isnan(values)
        if holes.any():
            values = values[~holes]
        self.gaps += len(column) - len(values)
        found, times = np.unique(values, return_counts=True) if missing == "most_frequent" else (values, None)
        self.count(found, np.ones(len(found), np.int64) if times is None else times, missing, name)

    def count(self, values: FloatArray, times: np.ndarray, missing: MissingChoice, name: str) -> None:
        """Count present values that occur so many times. Raises DataError, as :meth:`update`."""
        self.present += int(times.sum())
        if missing == "mean":
            self.total += float((values * times).sum())
        elif missing == "most_frequent":
            self.values.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
            if len(self.values) > _MOST_VALUES:
                raise DataError(
                    f"{name} has more than {_MOST_VALUES} different values, so its most frequent one is not "
                    "meaningful; use --missing mean"
                )

    def fill(self, missing: MissingChoice) -> float | None:
        """Return the replacement of missing values; None for a column without values."""
        if missing == "constant":
            return 0.0
        if not self.present:
            return None
        if missing == "mean":
            return self.total / self.present
        return min(self.values, key=lambda value: (-self.values[value], value))


@dataclass
class DateCounts:
    """The texts of a column while all of them are dates, and the days that they are."""

    days: NumberCounts = field(default_factory=NumberCounts)
    survey: DateSurvey = field(default_factory=DateSurvey)

    def update(self, texts: Mapping[str, int], n_rows: int, missing: MissingChoice, name: str) -> None:
        """Count the different texts of `n_rows` rows, and how often each occurs."""
        present = {text: times for text, times in texts.items() if text not in MISSING_TEXTS}
        dates = pa.array(present, pa.string())
        self.survey.update(dates)
        self.days.gaps += n_rows - sum(present.values())
        if present and not self.survey.is_excluded:
            days = to_numpy(days_of_texts(dates, name, "", 0)).astype(np.float64)
            self.days.count(days, np.array(list(present.values())), missing, name)

    def add(self, other: "DateCounts") -> None:
        """Count the rows that follow, which were counted elsewhere."""
        self.days.add(other.days)
        self.survey.add(other.survey)
