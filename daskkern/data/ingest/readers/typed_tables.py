"""Tables from files whose columns have Arrow types: Parquet, and Arrow's own formats."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.categories import (
    missing_like,
    note_on_texts,
    plain_encoding,
    survey_categories,
)
from daskkern.data.ingest.columns.choice import ColumnRoles, check_same_columns, choose_columns
from daskkern.data.ingest.columns.dates import DateSurvey, note_on_dates
from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.ingest.readers.arrow import is_number, is_text, is_time, piece_of, texts_of
from daskkern.data.ingest.readers.tables import (
    Parts,
    Piece,
    Request,
    Table,
    TargetKind,
    block_rows,
    concatenate,
    kind_of_all,
)
from daskkern.data.remote.url_files import SourceFile
from daskkern.data.schema.encoding import MISSING_TEXTS, ColumnEncoding, Encoding
from daskkern.data.schema.layout import stored_dtype
from daskkern.errors import DataError

ABSENT_TEXTS = ("",)  # texts that count as missing values, in addition to null
_SURVEY_ROWS = 1 << 16


@dataclass(frozen=True)
class TypedFile:
    """A file with typed columns. `batches(names, rows, start)` yields them from row `start` on, `rows` at a time.

    See :class:`daskkern.data.ingest.readers.tables.Table` for `starts`. `categories` names columns of categories whose
    texts are not in a dictionary any more.
    """

    path: SourceFile
    n_rows: int | None
    schema: pa.Schema
    batches: Callable[[Sequence[str], int, int], Iterator[pa.RecordBatch]]
    starts: tuple[int, ...] | None = None
    categories: tuple[str, ...] = ()

    @property
    def index(self) -> tuple[str, ...]:
        """Columns that pandas added."""
        described = self.schema.pandas_metadata or {}
        return tuple(name for name in described.get("index_columns", ()) if name in self.schema.names)

    @property
    def names(self) -> tuple[str, ...]:
        """All other columns."""
        index = self.index
        return tuple(name for name in self.schema.names if name not in index)


def open_typed(files: Sequence[TypedFile], request: Request) -> Parts:
    """Return the rows of files, columns matched by name. The index that pandas adds is left out."""
    first = files[0]
    columns = choose_columns(first.names, request, str(first.path))
    for file in files[1:]:
        if request.like is None:
            check_same_columns(first.names, file.names, str(file.path), str(first.path))
        choose_columns(file.names, request, str(file.path))
        _check_kinds(first, file, columns.all)
    encoder, notes = _encoder(files, columns, request)
    indexes = tuple(dict.fromkeys(name for file in files for name in file.index))
    note = (f"the index that pandas wrote was left out: {', '.join(indexes)}",) if indexes else ()
    tables = [_TypedReader(file, columns, encoder, request.like is not None).table() for file in files]
    typed = dates_of(first.schema, columns.features)
    numbers = [column for column in encoder.encoding if column.kind == "number"]
    times = note_on_dates([column.name for column in numbers if column.is_date or column.name in typed])
    return Parts(concatenate(tables), notes=(*note, *times, *notes), missing=encoder.missing)


def _check_kinds(first: TypedFile, other: TypedFile, names: Sequence[str]) -> None:
    """Raise DataError where a column has values of one kind in one file and of another in the other."""
    for name in (name for name in names if name in other.names):
        kinds = first.schema.field(name).type, other.schema.field(name).type
        if any(map(pa.types.is_null, kinds)):
            continue
        if any(is_kind(kinds[0]) != is_kind(kinds[1]) for is_kind in (is_text, is_time)):
            raise DataError(
                f"column {name!r} holds {kinds[0]} values in {first.path} and {kinds[1]} in {other.path}; write both "
                "with one type, or leave the column out with --drop"
            )


def _encoder(files: Sequence[TypedFile], columns: ColumnRoles, request: Request) -> tuple[Encoder, tuple[str, ...]]:
    """Return the conversion of columns to features, and notes for the user."""
    like = request.like
    if like is not None:
        encoding = like.encoding or plain_encoding(columns.features, {})
        return Encoder(encoding, missing_like(encoding), ABSENT_TEXTS, request.unknown), ()
    kinds = {name: files[0].schema.field(name).type for name in columns.features}
    missing = request.missing
    if missing == "auto":
        missing = "mean" if _has_gaps(files, [name for name in kinds if not is_text(kinds[name])]) else "refuse"
    texts = [name for name in kinds if is_text(kinds[name]) and request.categorical != "refuse"]
    dates = _written_dates(files, texts) if request.categorical == "auto" else {}
    if request.missing == "auto" and any(dates.values()):
        missing = "mean"
    texts = [name for name in texts if name not in dates]
    batches = (batch for file in files for batch in file.batches(texts, _SURVEY_ROWS, 0))
    source = str(files[0].path)
    known = (
        survey_categories(batches, texts, request.categorical, request.missing, ABSENT_TEXTS, source) if texts else {}
    )
    encoding = plain_encoding(columns.features, known, (*dates_of(files[0].schema, columns.features), *dates))
    return Encoder(encoding, missing, ABSENT_TEXTS), note_on_texts(request.categorical, known)


def _written_dates(files: Sequence[TypedFile], texts: Sequence[str]) -> dict[str, int]:
    """Return the columns of texts that are all dates, and how many rows have none; not columns of categories."""
    fields = [file.schema.field(name) for file in files for name in texts if name in file.names]
    coded = {name for file in files for name in file.categories}
    coded |= {field.name for field in fields if pa.types.is_dictionary(field.type)}
    surveys, gaps = {name: DateSurvey() for name in texts if name not in coded}, dict.fromkeys(texts, 0)
    for file in files:
        for batch in file.batches(list(surveys), _SURVEY_ROWS, 0) if surveys else ():
            for name, survey in surveys.items():
                known = texts_of(batch.column(name), MISSING_TEXTS)
                gaps[name] += known.null_count
                survey.update(known.drop_null())
            if all(survey.is_excluded for survey in surveys.values()):
                return {}
        surveys = {name: survey for name, survey in surveys.items() if not survey.is_excluded}
    return {name: gaps[name] for name, survey in surveys.items() if survey.are_dates}


def _has_gaps(files: Sequence[TypedFile], names: Sequence[str]) -> bool:
    """Return whether a value of these columns of numbers is missing, or is NaN."""
    return any(
        _misses(column)
        for file in files
        if names
        for batch in file.batches(names, _SURVEY_ROWS, 0)
        for column in batch.columns
    )


def _misses(column: pa.Array) -> bool:
    return bool(column.null_count or (pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()))


@dataclass(frozen=True)
class _TypedReader:
    file: TypedFile
    columns: ColumnRoles
    encoder: Encoder
    is_later: bool
    """Whether the rows get the columns of earlier ones."""

    def table(self) -> Table:
        self._refuse_types()
        schema, path = self.file.schema, str(self.file.path)
        kinds = [target_kind(name, schema.field(name).type, path) for name in self.columns.targets]
        return Table(
            source=str(self.file.path),
            n_rows=self.file.n_rows,
            n_features=len(self.encoder.feature_names),
            dtype=stored_dtype(dtype_of(self.encoder, self.file.schema)),
            target_kind=kind_of_all(kinds),
            n_targets=len(self.columns.targets),
            has_weight=self.columns.weight is not None,
            pieces=lambda: self._pieces(0),
            pieces_from=self._pieces,
            starts=self.file.starts,
            feature_names=self.encoder.feature_names,
            target_names=self.columns.targets or None,
            encoding=self.encoder.recorded,
            targets=self._target if kinds == ["float"] else None,
            narrow_from=self._narrow if kinds else None,
        )

    def _target(self) -> Iterator[HostArray]:
        for batch in self.file.batches(self.columns.targets, _SURVEY_ROWS, 0):
            yield batch.column(0).to_numpy(zero_copy_only=False)

    def _refuse_types(self) -> None:
        numbers = columns_of_numbers(self.encoder.encoding, self.file.schema)
        refuse_weight(self.columns, self.file.schema, str(self.file.path))
        for name in numbers:
            kind = self.file.schema.field(name).type
            if not is_number(kind) and not is_time(kind):
                batch = next(iter(self.file.batches([name], 1, 0)), None)
                values = None if batch is None else batch.column(0)
                raise unusable_type(name, str(self.file.path), kind, values, is_later=self.is_later)

    def _pieces(self, start: int) -> Iterator[Piece]:
        dtype, first, source = dtype_of(self.encoder, self.file.schema), start, str(self.file.path)
        rows = block_rows(8 * (len(self.columns.all) + len(self.encoder.feature_names)))
        for batch in self.file.batches(self.columns.all, rows, start):
            X = self.encoder.features(batch, dtype, source, first)
            yield piece_of(batch, X, self.columns, source, first)
            first += batch.num_rows

    def _narrow(self, start: int) -> Iterator[Piece]:
        names, first, source = self.columns.all[len(self.columns.features) :], start, str(self.file.path)
        for batch in self.file.batches(names, _SURVEY_ROWS, start):
            yield piece_of(batch, np.empty((batch.num_rows, 0)), self.columns, source, first)
            first += batch.num_rows


def dtype_of(encoder: Encoder, schema: pa.Schema) -> "np.dtype[np.generic]":
    """Return the dtype that holds every feature unchanged; missing numbers need one with NaN."""
    common = np.result_type(*(_feature_dtype(column, schema) for column in encoder.encoding))
    return common if encoder.missing == "refuse" or common.kind == "f" else np.dtype(np.float64)


def _feature_dtype(column: ColumnEncoding, schema: pa.Schema) -> "np.dtype[np.generic]":
    if column.kind == "number":
        if column.is_date:
            return np.dtype(np.float64)
        return _numpy_type(schema.field(column.name).type)
    if column.kind == "code":
        return np.min_scalar_type(len(column.categories))  # with 16 bits, float32 stays float32
    return np.dtype(np.uint8 if column.kind == "onehot" else np.int32)


def target_kind(name: str, kind: pa.DataType, source: str) -> TargetKind:
    """Return the kind of a target of an Arrow type. Raises DataError for other types."""
    if is_text(kind):
        return "text"
    if not is_number(kind):
        raise DataError(f"the target {name!r} of {source} holds {kind} values; expected numbers or strings")
    known: dict[str, TargetKind] = {"b": "truth", "i": "integer", "u": "integer", "f": "float"}
    return known[_numpy_type(kind).kind]


def unusable_type(
    name: str, source: str, kind: pa.DataType, values: pa.Array | None, *, is_later: bool = False
) -> DataError:
    """Return the error for a column that cannot be a feature; `values` are its first ones, where there are some.

    Of rows that are `is_later` no column can be left out, or become another one.
    """
    if is_later and pa.types.is_null(kind):
        return DataError(
            f"column {name!r} of {source} has no values at all; fill in the numbers that it had in training"
        )
    if pa.types.is_null(kind):
        return DataError(f"column {name!r} of {source} has no values at all; leave it out with --drop {name}")
    found = f", {values[0].as_py()!r:.60} in row 0 (counted from 0)," if values is not None and len(values) else ""
    if is_later:
        return DataError(
            f"column {name!r} of {source} holds {kind} values{found} where the training rows had numbers; write it as "
            "numbers"
        )
    remedy = "write it as numbers"
    if is_text(kind):
        remedy = "use --categorical onehot, codes or ordinal, or encode it as numbers"
    return DataError(
        f"column {name!r} of {source} holds {kind} values{found} where numbers are expected; {remedy}, or leave it "
        f"out with --drop {name}"
    )


def refuse_weight(columns: ColumnRoles, schema: pa.Schema, source: str) -> None:
    """Raise DataError where the weight is a column of dates, texts or other values that are not numbers."""
    kind = None if columns.weight is None else schema.field(columns.weight).type
    if kind is not None and not is_number(kind):
        raise DataError(f"the weight {columns.weight!r} of {source} holds {kind} values; expected numbers")


def dates_of(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of dates and times among `names`."""
    return tuple(name for name in names if is_time(schema.field(name).type))


def columns_of_numbers(encoding: Encoding, schema: pa.Schema) -> list[str]:
    """Return the columns that must hold numbers or dates; dates may be written as texts."""
    numbers = [column for column in encoding if column.kind == "number"]
    return [c.name for c in numbers if not (c.is_date and is_text(schema.field(c.name).type))]


def after(batches: Iterable[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without their first `start` rows."""
    for batch in batches:
        if start < batch.num_rows:
            yield batch.slice(start)
        start = max(0, start - batch.num_rows)


def _numpy_type(kind: pa.DataType) -> "np.dtype[np.generic]":
    if pa.types.is_dictionary(kind):
        return _numpy_type(kind.value_type)
    as_floats = pa.types.is_decimal(kind) or is_time(kind)
    return np.dtype(np.float64) if as_floats else np.dtype(kind.to_pandas_dtype())
