"""Tables from ``.csv`` files, streamed by Arrow.

Feature columns are read as float64 whatever their first block contains, so a column that starts with whole numbers
may continue with fractions. The kind of a target is determined over the whole column, in a separate pass.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.categories import (
    missing_like,
    note_on_texts,
    plain_encoding,
    survey_categories,
)
from daskkern.data.ingest.columns.choice import (
    ColumnRoles,
    check_same_columns,
    choose_columns,
    note_on_indexes,
    written_indexes,
)
from daskkern.data.ingest.columns.copied_columns import kept_types
from daskkern.data.ingest.columns.dates import note_on_dates
from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.ingest.columns.kind_survey import TYPES, KindSurvey, booleans_of
from daskkern.data.ingest.columns.long_integers import may_be_rounded, refuse_rounded
from daskkern.data.ingest.columns.written_values import is_number
from daskkern.data.ingest.readers.arrow import piece_of
from daskkern.data.ingest.readers.csv_dialects import LONGEST_ROW, UNREADABLE, refuse_other_dialects, separator_of
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
from daskkern.data.remote.url_files import SourceFile, open_source_file
from daskkern.data.schema.encoding import MISSING_TEXTS, ColumnEncoding
from daskkern.errors import DataError

_MISSING = list(MISSING_TEXTS)
_BLOCK_BYTES = 1 << 20
_CONVERT = "convert it, from Latin-1 for example with: iconv -f latin1 -t utf-8 FILE > NEW"
_FIRST_DATA_ROW = 2  # Arrow counts the header as row 1


def open_csv(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.csv`` and ``.tsv`` files, also ``.gz``, whose first line names the columns."""
    names = [_header(path) for path in paths]
    indexes = written_indexes(names[0], request)
    columns = choose_columns(names[0], request, str(paths[0]), indexes)
    for path, others in zip(paths[1:], names[1:], strict=True):
        if request.like is None:
            check_same_columns(names[0], others, str(path), str(paths[0]))
        choose_columns(others, request, str(path))
    files = [_File(path, tuple(others)) for path, others in zip(paths, names, strict=True)]
    kinds, counts = _survey(files, columns, request)
    encoder, notes = _encoder(files, columns, request)
    kept = kept_types([file.batches for file in files], columns.only_kept)
    numbers = [column.name for column in encoder.encoding if not _is_written(column)]
    files = [replace(file, others={**booleans_of(file.batches, numbers), **kept}) for file in files]
    tables = [file.table(columns, kinds, encoder, n) for file, n in zip(files, counts, strict=True)]
    return Parts(concatenate(tables), notes=(*note_on_indexes(indexes), *notes), missing=encoder.missing)


def _encoder(files: Sequence["_File"], columns: ColumnRoles, request: Request) -> tuple[Encoder, tuple[str, ...]]:
    """Return the conversion of columns to features, and notes for the user."""
    absent = tuple(_MISSING)
    if request.like is not None:
        encoding = request.like.encoding or plain_encoding(columns.features, {})
        return Encoder(encoding, missing_like(encoding), absent, request.unknown), ()
    if request.categorical == "refuse" and request.missing != "auto":
        return Encoder(plain_encoding(columns.features, {}), request.missing, absent), ()
    surveys = _feature_surveys(files, columns)
    dates = [name for name, survey in surveys.items() if survey.is_date and request.categorical == "auto"]
    written = [name for name, survey in surveys.items() if survey.is_text and request.categorical != "refuse"]
    texts = [name for name in written if name not in dates]
    missing = request.missing
    if missing == "auto":
        missing = "mean" if any(survey.gaps for name, survey in surveys.items() if name not in texts) else "refuse"
    batches = (batch for file in files for batch in file.batches(dict.fromkeys(texts, pa.string()), texts))
    source = str(files[0].path)
    known = survey_categories(batches, texts, request.categorical, request.missing, absent, source) if texts else {}
    encoding = plain_encoding(columns.features, known, dates)
    return Encoder(encoding, missing, absent), (*note_on_texts(request.categorical, known), *note_on_dates(dates))


def _feature_surveys(files: Sequence["_File"], columns: ColumnRoles) -> dict[str, "KindSurvey"]:
    """Return the kinds of values in the feature columns, and the numbers of missing ones."""
    surveys = {name: KindSurvey() for name in columns.features}
    for file in files:
        for batch in file.batches(dict.fromkeys(surveys, pa.string()), list(surveys)):
            for name, survey in surveys.items():
                survey.update(batch.column(name))
    return surveys


def _survey(
    files: Sequence["_File"], columns: ColumnRoles, request: Request
) -> tuple[tuple[TargetKind, ...], list[int | None]]:
    """Return the kind of each target, and the number of rows of each file as far as it was read."""
    quantity: TargetKind = "float"
    quantities = (quantity,) * len(columns.targets)
    if request.task == "regression" and not request.count:
        return quantities, [None] * len(files)
    surveys = [KindSurvey(labels=True) for _ in columns.targets]
    counts: list[int | None] = []
    for file in files:
        seen = 0
        for batch in file.batches(
            {name: pa.string() for name in columns.targets}, columns.targets or columns.features[:1]
        ):
            seen += batch.num_rows
            for survey, name in zip(surveys, columns.targets, strict=True):
                survey.update(batch.column(name))
            if not request.count and all(survey.is_text for survey in surveys):
                return tuple(survey.kind for survey in surveys), [None] * len(files)
        counts.append(seen)
    return (quantities if request.task == "regression" else tuple(survey.kind for survey in surveys)), counts


@dataclass(frozen=True)
class _File:
    path: SourceFile
    names: tuple[str, ...]
    others: Mapping[str, pa.DataType] = field(default_factory=dict)  # types of columns that are carried, or truths

    def table(self, columns: ColumnRoles, kinds: tuple[TargetKind, ...], encoder: Encoder, n_rows: int | None) -> Table:
        return Table(
            source=str(self.path),
            n_rows=n_rows,
            n_features=len(encoder.feature_names),
            dtype=np.dtype(np.float32),
            target_kind=kind_of_all(kinds),
            n_targets=len(columns.targets),
            has_weight=columns.weight is not None,
            pieces=lambda: self._pieces(columns, kinds, encoder),
            feature_names=encoder.feature_names,
            target_names=columns.targets or None,
            encoding=encoder.recorded,
            starts=(0,),
            targets=(lambda: self._target(columns.targets[0])) if kinds == ("float",) else None,
        )

    def _pieces(self, columns: ColumnRoles, kinds: tuple[TargetKind, ...], encoder: Encoder) -> Iterator[Piece]:
        types = dict.fromkeys(columns.all, pa.float64())
        types.update({column.name: pa.string() for column in encoder.encoding if _is_written(column)})
        types.update({name: TYPES[kind] for name, kind in zip(columns.targets, kinds, strict=True)} | {**self.others})
        first, are_exact = 0, False
        for batch in self.batches(types, columns.all):
            for part in _narrow(batch, len(encoder.feature_names)):
                X = encoder.features(part, np.dtype(np.float64), str(self.path), first)
                piece = piece_of(part, X, columns, str(self.path), first)
                if piece.y is not None and not are_exact and may_be_rounded(piece.y):
                    refuse_rounded(self.batches, columns.targets, str(self.path))
                    are_exact = True
                yield piece
                first += part.num_rows

    def _target(self, name: str) -> Iterator[HostArray]:
        for batch in self.batches({name: pa.float64()}, [name]):
            yield batch.column(0).to_numpy(zero_copy_only=False)

    def batches(self, types: dict[str, pa.DataType], wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns block by block; Arrow's errors become a sentence."""
        convert = pa.csv.ConvertOptions(
            column_types=types, include_columns=list(wanted), null_values=_MISSING, strings_can_be_null=False
        )
        try:
            with _open(self.path, convert) as reader:
                yield from reader
        except UNREADABLE as error:
            _explain(error, self.path, self.names)


def _is_written(column: ColumnEncoding) -> bool:
    """Return whether a column is read as texts: categories, and dates."""
    return column.kind != "number" or column.is_date


def _narrow(batch: pa.RecordBatch, n_features: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts whose features, many when categories are one-hot, stay small."""
    rows = block_rows(8 * n_features)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _open(path: SourceFile, convert: "pa.csv.ConvertOptions") -> "pa.csv.CSVStreamingReader":
    with open_source_file(path) as stream:
        lines = [stream.readline(LONGEST_ROW) for _ in range(2)]  # the header and the first row
    block = max(_BLOCK_BYTES, 4 * max(map(len, lines)))  # every row must fit, and Arrow reads some 32 blocks ahead
    read = pa.csv.ReadOptions(use_threads=False, block_size=block)  # with threads, errors lose their row
    separator = separator_of(path.name, lines[0])
    parse = pa.csv.ParseOptions(
        delimiter=separator, newlines_in_values=True
    )  # or a quoted line break could end a block
    in_capitals = path.name.lower().endswith(".gz") and not path.name.endswith(".gz")  # Arrow does not know .GZ
    place = path if isinstance(path, Path) and not in_capitals else open_source_file(path)
    return pa.csv.open_csv(place, read_options=read, parse_options=parse, convert_options=convert)


def _header(path: SourceFile) -> list[str]:
    """Return the column names of a file, in order."""
    refuse_other_dialects(path)
    try:
        with _open(path, pa.csv.ConvertOptions()) as reader:
            names = list(reader.schema.names)
    except UNREADABLE as error:
        _explain(error, path, ())
    except UnicodeDecodeError as error:
        raise DataError(f"the first line of {path} is not encoded in UTF-8; {_CONVERT}") from error
    if all(is_number(name) for name in names):
        raise DataError(
            f"the first line of {path} holds numbers ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''}), but "
            "it must name the columns; add a line with names at the top"
        )
    return names


def _explain(error: Exception, path: SourceFile, names: Sequence[str]) -> NoReturn:
    text = str(error)
    if "Empty CSV" in text:
        raise DataError(f"{path} is empty; expected a line of column names and rows of values") from error
    bad = re.search(r"In CSV column #(\d+): Row #(\d+): .*invalid value '(.*)'", text, re.DOTALL)
    if bad and int(bad[1]) < len(names):
        raise DataError(
            f"row {int(bad[2]) - _FIRST_DATA_ROW} of {path} (counted from 0) has {bad[3]!r:.60} in column "
            f"{names[int(bad[1])]!r}, where a number is expected; encode it, or leave the column out with --drop"
        ) from error
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
    if ragged:
        raise DataError(
            f"row {int(ragged[1]) - _FIRST_DATA_ROW} of {path} (counted from 0) has {ragged[3]} values, but there are "
            f"{ragged[2]} columns; correct the row"
        ) from error
    if "straddling" in text:
        raise DataError(f"a row of {path} is far longer than the first; is it a CSV file?") from error
    if "UTF8" in text:
        row = re.search(r"In CSV column #(\d+): Row #(\d+)", text)
        known = row is not None and int(row[1]) < len(names)
        where = f" (row {int(row[2]) - _FIRST_DATA_ROW}, column {names[int(row[1])]!r})" if row and known else ""
        raise DataError(f"{path} is not encoded in UTF-8{where}; {_CONVERT}") from error
    raise DataError(f"{path} cannot be read as CSV: {text}") from error
