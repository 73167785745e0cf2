"""Text columns as features: their categories, found in one pass over the texts."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.ingest.columns.value_counts import DateCounts, NumberCounts
from daskkern.data.ingest.columns.written_values import MOST_WRITTEN, written_as
from daskkern.data.ingest.readers.arrow import indices_of, known_texts
from daskkern.data.schema.encoding import (
    ABSENT,
    CategoricalChoice,
    ColumnEncoding,
    ColumnKind,
    Encoding,
    MissingChoice,
)
from daskkern.errors import DataError

MOST_ONEHOT, MOST_CODES = 1000, 100_000
_KINDS: dict[str, ColumnKind] = {"ordinal": "ordinal", "codes": "code"}  # of a number for each category


class TextCounts:
    """The texts of columns, counted a batch at a time, and the encodings that follow.

    Parameters
    ----------
    names : sequence of str
        Columns of text.
    categorical : CategoricalChoice
        With ``"auto"`` a column is encoded one-hot, and refused when its texts occur less than twice on average.
    absent : sequence of str
        Texts that stand for a missing value.
    source : str
        For messages.
    dates : sequence of str
        Columns that are dates, and not categories, if all of their texts are.
    missing : MissingChoice
        What is counted of dates.
    """

    def __init__(
        self,
        names: Sequence[str],
        categorical: CategoricalChoice,
        absent: Sequence[str],
        source: str,
        dates: Sequence[str] = (),
        missing: MissingChoice = "mean",
    ) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._dates = {name: DateCounts() for name in dates}
        self._gaps = dict.fromkeys(names, 0)
        self._categorical, self._absent, self._source = categorical, tuple(absent), source
        self._missing = missing

    @property
    def dates(self) -> dict[str, NumberCounts]:
        """The columns whose texts are all dates, and the days that they are."""
        return {name: dates.days for name, dates in self._dates.items() if dates.survey.are_dates}

    def update(self, batch: pa.RecordBatch) -> None:
        """Count the texts of a batch. Raises DataError for a column with too many different ones."""
        for name in self._counts:
            found = {text: n for text, n in _value_counts(batch.column(name)) if text not in self._absent}
            self._gaps[name] += batch.num_rows - sum(found.values())
            if name in self._dates and not self._dates[name].survey.is_excluded:
                self._dates[name].update(found, batch.num_rows, self._missing, f"column {name!r} of {self._source}")
            self._count(name, found)

    def add(self, other: "TextCounts") -> None:
        """Count the texts of the rows that follow, which were counted elsewhere. Raises DataError likewise."""
        for name, dates in self._dates.items():
            dates.add(other._dates[name])
        for name in self._counts:
            self._gaps[name] += other._gaps[name]
            self._count(name, other._counts[name])

    def _count(self, name: str, texts: Mapping[str, int]) -> None:
        """Count texts; of dates, which may all differ, no more than it takes to refuse them with a later text."""
        counts = self._counts[name]
        may_be_dates = name in self._dates and not self._dates[name].survey.is_excluded
        if not may_be_dates or len(counts) <= MOST_ONEHOT:
            counts.update(texts)
        if not may_be_dates:
            _refuse_many(name, counts, self._categorical, self._source)

    def encodings(self, missing: MissingChoice) -> dict[str, ColumnEncoding]:
        """Return the encodings of all columns but dates; categories are those of all rows, in ascending order."""
        dates = self.dates
        others = {name: counts for name, counts in self._counts.items() if name not in dates}
        if self._categorical == "auto":
            for name, counts in others.items():
                _refuse_names(name, counts, self._source)
        return {
            name: _encoding(name, counts, self._gaps[name], self._categorical, missing, self._source)
            for name, counts in others.items()
        }


def survey_categories(
    batches: Iterable[pa.RecordBatch],
    names: Sequence[str],
    categorical: CategoricalChoice,
    missing: MissingChoice,
    absent: Sequence[str],
    source: str,
) -> dict[str, ColumnEncoding]:
    """Return the encodings of text columns, see :class:`TextCounts`."""
    counts = TextCounts(names, categorical, absent, source)
    for batch in batches:
        counts.update(batch)
    return counts.encodings(missing)


def _value_counts(column: pa.Array) -> Iterator[tuple[str, int]]:
    """Yield the texts of a column and how often each occurs, without missing values."""
    if pa.types.is_dictionary(column.type):
        texts = known_texts(column.dictionary)
        times = np.bincount(indices_of(column.indices, len(texts)), minlength=len(texts)).tolist()[: len(texts)]
        yield from ((text, n) for text, n in zip(texts, times, strict=True) if n and text is not None)
        return
    for item in pc.value_counts(column.cast(pa.string()).drop_null()).to_pylist():
        yield item["values"], item["counts"]


def _encoding(
    name: str, counts: Counter[str], gaps: int, categorical: CategoricalChoice, missing: MissingChoice, source: str
) -> ColumnEncoding:
    fill: str | None = None
    categories = set(counts)
    if missing in ("auto", "constant") and gaps:
        fill = ABSENT
        categories.add(ABSENT)
    elif missing in ("mean", "most_frequent") and counts:
        fill = min(counts, key=lambda text: (-counts[text], text))  # the most frequent, the first of ties
    if not categories:
        raise DataError(f"column {name!r} of {source} has no values at all; leave it out with --drop")
    kind: ColumnKind = _KINDS.get(categorical, "onehot")
    return ColumnEncoding(name, kind, tuple(sorted(categories)), fill)


def _refuse_many(name: str, counts: Counter[str], categorical: CategoricalChoice, source: str) -> None:
    most = MOST_CODES if categorical in _KINDS else MOST_ONEHOT
    if len(counts) > most:
        if categorical == "auto":
            _refuse_names(name, counts, source, " read so far")
        other = "" if categorical in _KINDS else ", or use --categorical codes"
        raise DataError(
            f"column {name!r} of {source} has more than {most} different texts, so it does not look like a category; "
            f"leave it out with --drop{other}"
        )


def _refuse_names(name: str, counts: Counter[str], source: str, which: str = "") -> None:
    """Refuse names and free text, numbers mixed with some text, and quantities that are written as texts.

    `which` says of which rows the counts are, "" for all.
    """
    n_values = sum(counts.values())
    texts = {text: count for text, count in counts.items() if not _is_number(text)}
    if len(counts) > MOST_WRITTEN and not texts:
        raise DataError(
            f"column {name!r} of {source} holds numbers that are stored as text, such as {min(counts)!r:.60}; store "
            f"them as numbers, leave it out with --drop {name}, or use --categorical onehot"
        )
    if len(counts) - len(texts) > MOST_WRITTEN and 2 * sum(texts.values()) < n_values:
        first = max(texts, key=lambda text: (texts[text], text))
        raise DataError(
            f"column {name!r} of {source} holds numbers, but texts such as {first!r:.60} in {sum(texts.values())} of "
            f"{n_values} rows{which}; correct them, leave such cells empty, or use --categorical onehot"
        )
    way = written_as(texts, n_values) if len(counts) > MOST_WRITTEN else None
    if way is not None:
        first = next(text for text in texts if way.pattern.fullmatch(text))
        raise DataError(
            f"column {name!r} of {source} holds {way.name}, such as {first!r:.60}, and would become {len(counts)} "
            f"categories; {way.remedy}, leave it out with --drop {name}, or use --categorical onehot"
        )
    if len(counts) > MOST_WRITTEN and n_values < 2 * len(counts):
        raise DataError(
            f"column {name!r} of {source} has {len(counts)} different texts in {n_values} rows{which}, so it does not "
            f"look like a category; leave it out with --drop {name}, or use --categorical onehot"
        )


def _is_number(text: str) -> bool:
    """Return whether a reader takes the text for a finite number: without underscores and digits of other scripts."""
    try:
        return text.isascii() and "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def note_on_texts(categorical: CategoricalChoice, known: Mapping[str, ColumnEncoding]) -> tuple[str, ...]:
    """Return a note on the text columns that ``"auto"`` has encoded."""
    if categorical != "auto" or not known:
        return ()
    features = sum(len(column.feature_names) for column in known.values())
    columns = f"{len(known)} columns of text" if len(known) > 1 else "1 column of text"
    return (f"{columns} became {features} feature{'s' * (features > 1)}, one for each category (--categorical onehot)",)


def plain_encoding(names: Sequence[str], texts: dict[str, ColumnEncoding], dates: Collection[str] = ()) -> Encoding:
    """Return the encodings of all columns: those of `texts`, dates, and numbers."""
    return tuple(texts.get(name, ColumnEncoding(name, is_date=name in dates)) for name in names)


def missing_like(encoding: Encoding) -> MissingChoice:
    """Return how readers treat missing values of rows with a recorded encoding: as NaN where some are filled.

    Codes have one for all that the training data do not have, a missing category too.
    """
    return "mean" if any(column.fill is not None or column.kind == "code" for column in encoding) else "refuse"
