"""Text columns as features: their categories, and the conversion of batches of Arrow columns to numbers."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.dates import days_of_texts
from daskkern.data.ingest.columns.written_values import MOST_WRITTEN, written_as
from daskkern.data.ingest.readers.arrow import is_text, refuse_missing, texts_of, to_numbers, to_numpy
from daskkern.data.schema.encoding import (
    ABSENT,
    CategoricalChoice,
    ColumnEncoding,
    ColumnKind,
    Encoding,
    MissingChoice,
    feature_names_of,
)
from daskkern.errors import DataError

MOST_ONEHOT, MOST_CODES = 1000, 100_000
_KINDS: dict[str, ColumnKind] = {"ordinal": "ordinal", "codes": "code"}  # of a number for each category


@dataclass(frozen=True)
class Encoder:
    """Conversion of Arrow columns to features.

    Attributes
    ----------
    encoding : tuple of ColumnEncoding
        Encodings of the feature columns, in order.
    missing : MissingChoice
        Missing numbers become NaN, to be filled later, unless they are refused.
    absent : sequence of str
        Texts that stand for a missing value.
    """

    encoding: Encoding
    missing: MissingChoice
    absent: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the source columns, in order."""
        return tuple(column.name for column in self.encoding)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return feature_names_of(self.encoding)

    @property
    def recorded(self) -> Encoding | None:
        """The encoding that a store records: None when every column is used unchanged."""
        return None if all(column.is_plain for column in self.encoding) else self.encoding

    def features(self, batch: pa.RecordBatch, dtype: "np.dtype[np.generic]", source: str, first: int) -> HostArray:
        """Return the features (m, d) of a batch, whose first row is row `first` of `source`."""
        X = np.empty((len(self.feature_names), batch.num_rows), dtype)
        at = 0
        for column in self.encoding:
            rows = X[at : at + len(column.feature_names)]
            values = batch.column(column.name)
            if column.kind == "number":
                if column.is_date and is_text(values.type):
                    values = days_of_texts(texts_of(values, self.absent), column.name, source, first)
                if self.missing == "refuse":
                    refuse_missing(values, column.name, source, first)
                rows[0] = _numbers(values, column.fill)
            else:
                codes = self._codes(values, column, source, first)
                if column.kind != "onehot":
                    rows[0] = codes
                else:
                    rows[:] = 0
                    rows[codes, np.arange(batch.num_rows)] = 1
            at += len(rows)
        return X.T  # (m, d), in column order

    def _codes(self, values: pa.Array, column: ColumnEncoding, source: str, first: int) -> HostArray:
        """Return the positions of texts among the categories; of codes, their number for unknown texts."""
        if pa.types.is_dictionary(values.type):
            codes = self._codes_of_dictionary(values, column)
            if codes is not None:
                return codes
        texts = texts_of(values, self.absent)
        if column.fill is not None:
            texts = pc.fill_null(texts, column.fill)
        if column.kind != "code" or self.missing == "refuse":
            refuse_missing(texts, column.name, source, first)
        codes = pc.index_in(texts, value_set=pa.array(column.categories, pa.string()))
        if column.kind == "code":
            return to_numpy(pc.fill_null(codes, len(column.categories)))
        unknown = pc.index(pc.is_null(codes), True).as_py()
        if unknown >= 0:
            raise DataError(
                f"row {first + unknown} of {source} (counted from 0) has {texts[unknown].as_py()!r:.60} in column "
                f"{column.name!r}, a category that the training data do not have; remove such rows, or add them to "
                "the training data"
            )
        return to_numpy(codes)

    def _codes_of_dictionary(self, values: pa.DictionaryArray, column: ColumnEncoding) -> HostArray | None:
        """Return the codes by way of the few texts of a dictionary; None where some row needs a closer look."""
        texts = texts_of(values.dictionary, self.absent)
        found = pc.index_in(texts, value_set=pa.array(column.categories, pa.string()))
        known = to_numbers(pc.fill_null(found, -1)).astype(np.int64)
        absent = -1 if column.fill is None else column.categories.index(str(column.fill))
        if column.kind == "code":
            known[known < 0] = len(column.categories)
            absent = len(column.categories) if column.fill is None and self.missing != "refuse" else absent
        known[to_numbers(pc.is_null(texts))] = absent
        indices = to_numbers(pc.fill_null(values.indices, len(known))).astype(np.int64)
        codes: HostArray = np.append(known, absent)[indices]
        return None if codes.size and codes.min() < 0 else codes


def _numbers(values: pa.Array, fill: float | str | None) -> HostArray:
    """Return a column of numbers or dates; missing ones are `fill`, or NaN without it."""
    found = to_numbers(values)
    if fill is None or found.dtype.kind != "f":
        return found
    gaps = np.isnan(found)
    return np.where(gaps, found.dtype.type(fill), found) if gaps.any() else found


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
    """

    def __init__(
        self, names: Sequence[str], categorical: CategoricalChoice, absent: Sequence[str], source: str
    ) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._gaps = dict.fromkeys(names, 0)
        self._categorical, self._absent, self._source = categorical, tuple(absent), source

    def update(self, batch: pa.RecordBatch) -> None:
        """Count the texts of a batch. Raises DataError for a column with too many different ones."""
        for name, counts in self._counts.items():
            present = 0
            for text, times in _value_counts(batch.column(name)):
                if text not in self._absent:
                    counts[text] += times
                    present += times
            self._gaps[name] += batch.num_rows - present
            _refuse_many(name, len(counts), self._categorical, self._source)

    def add(self, other: "TextCounts") -> None:
        """Count the texts of the rows that follow, which were counted elsewhere. Raises DataError likewise."""
        for name, counts in self._counts.items():
            counts.update(other._counts[name])
            self._gaps[name] += other._gaps[name]
            _refuse_many(name, len(counts), self._categorical, self._source)

    def encodings(self, missing: MissingChoice) -> dict[str, ColumnEncoding]:
        """Return the encodings of the columns, whose categories are those of all rows, in ascending order."""
        if self._categorical == "auto":
            for name, counts in self._counts.items():
                _refuse_names(name, counts, self._source)
        return {
            name: _encoding(name, counts, self._gaps[name], self._categorical, missing, self._source)
            for name, counts in self._counts.items()
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
        texts = column.dictionary.cast(pa.string()).to_pylist()
        indices = column.indices.drop_null().to_numpy(zero_copy_only=False)
        times = np.bincount(indices, minlength=len(texts)).tolist() if texts else []
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


def _refuse_many(name: str, found: int, categorical: CategoricalChoice, source: str) -> None:
    most = MOST_CODES if categorical in _KINDS else MOST_ONEHOT
    if found > most:
        other = "" if categorical in _KINDS else ", or use --categorical codes"
        raise DataError(
            f"column {name!r} of {source} has more than {most} different texts, so it does not look like a category; "
            f"leave it out with --drop{other}"
        )


def _refuse_names(name: str, counts: Counter[str], source: str) -> None:
    """Refuse names and free text, numbers mixed with some text, and quantities that are written as texts."""
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
            f"{n_values} rows; correct them, leave such cells empty, or use --categorical onehot"
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
            f"column {name!r} of {source} has {len(counts)} different texts in {n_values} rows, so it does not look "
            f"like a category; leave it out with --drop {name}, or use --categorical onehot"
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
