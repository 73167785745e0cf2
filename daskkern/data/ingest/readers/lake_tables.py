"""Tables from lakes: Parquet files, local or remote, whose row groups workers read independently."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.categories import missing_like, note_on_texts, plain_encoding
from daskkern.data.ingest.columns.choice import ColumnRoles, choose_columns
from daskkern.data.ingest.columns.compiled.batch import RowConverter
from daskkern.data.ingest.columns.dates import note_on_dates
from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.ingest.columns.imputing import note_on_gaps
from daskkern.data.ingest.columns.values import all_finite
from daskkern.data.ingest.readers.arrow import is_number, is_text, is_time, piece_of, to_numpy
from daskkern.data.ingest.readers.lake_survey import LakeSurvey, SurveyJob, columns_with_nan, survey
from daskkern.data.ingest.readers.tables import Parts, Piece, Request, Table, kind_of_all
from daskkern.data.ingest.readers.typed_tables import (
    ABSENT_TEXTS,
    columns_of_numbers,
    dates_of,
    dtype_of,
    refuse_weight,
    target_kind,
    unusable_type,
)
from daskkern.data.lake.decoded_columns import DecodedColumns
from daskkern.data.lake.lake import Lake
from daskkern.data.lake.lake_piece import LakeBatch
from daskkern.data.lake.opening import TaskRunner, count_rows, nothing_passes
from daskkern.data.lake.read_ahead import one_ahead
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.encoding import ColumnEncoding, Encoding, MissingChoice
from daskkern.data.schema.layout import stored_dtype
from daskkern.errors import DataError

_TARGET_ROWS = 1 << 16
_ALL_ROWS = 1 << 62
_BLOCK_BYTES = 32 << 20
"""Of a batch of rows, as decoded and as features. Larger than elsewhere, because hundreds of columns are converted one
by one, which costs the same for few rows."""


class UnsurveyedGapError(DataError):
    """A column has NaN, although the footers of its files report no missing value."""


def open_lake_table(lake: Lake, request: Request, run: TaskRunner | None = None, *, every_float: bool = False) -> Parts:
    """Return the rows of a lake.

    Parameters
    ----------
    lake : Lake
    request : Request
    run : callable, optional
        Runs the tasks of the first pass; by default they run in threads of this process.
    every_float : bool
        Look for missing values in all columns of floats, not only in those of which the footers say that they have
        some: writers other than pandas may store NaN, which a footer does not count. The replacements of all columns
        are known at once, then.

    Raises
    ------
    DataError
        When columns do not fit the request. While rows are read, UnsurveyedGapError for NaN in a column without gaps.
    """
    columns = choose_columns(lake.columns, replace(request, drop=(), columns=None), lake.name)
    _refuse_types(lake, columns, request)
    lake = count_rows(lake, run)
    if lake.n_rows == 0 and request.where is not None:
        raise nothing_passes(lake.name, request.where)
    if lake.n_rows == 0:
        raise DataError(f"{lake.name} has no rows; at least one is needed")
    if lake.where is None:
        lake = replace(lake, decoded=DecodedColumns())
    encoder, notes = _encoder(lake, columns, request, run, every_float)
    checks_nan = request.like is None and request.missing != "refuse" and not every_float
    reader = _LakeReader(lake, columns, encoder, checks_nan, lake.n_rows or 0, dtype_of(encoder, lake.schema))
    index = (f"the index that pandas wrote was left out: {', '.join(lake.index)}",) if lake.index else ()
    typed = dates_of(lake.schema, columns.features)
    numbers = [column for column in encoder.encoding if column.kind == "number"]
    times = note_on_dates([column.name for column in numbers if column.is_date or column.name in typed])
    return Parts(reader.table(), notes=(*index, *times, *notes), missing="refuse")


def _encoder(
    lake: Lake, columns: ColumnRoles, request: Request, run: TaskRunner | None, every_float: bool
) -> tuple[Encoder, tuple[str, ...]]:
    """Return the conversion of columns to features, with the replacements of missing values, and notes."""
    if request.like is not None:
        encoding = request.like.encoding or plain_encoding(columns.features, {})
        return Encoder(encoding, missing_like(encoding), ABSENT_TEXTS, request.unknown), ()
    kinds = {name: lake.schema.field(name).type for name in columns.features}
    numbers = [name for name in kinds if not is_text(kinds[name])]
    texts = tuple(name for name in kinds if is_text(kinds[name]) and request.categorical != "refuse")
    surveyed = _to_survey(lake, numbers, request.missing, every_float)
    missing: MissingChoice = "mean" if request.missing == "auto" else request.missing
    job = SurveyJob(lake, surveyed, texts, missing, request.categorical, ABSENT_TEXTS)
    found = survey(job, run)
    known, dates = found.texts.encodings(request.missing), found.texts.dates
    found.numbers.update(dates)
    gaps = {name: counts.gaps for name, counts in found.numbers.items() if counts.gaps}
    if request.missing == "auto" and not gaps:
        missing = "refuse"
    if every_float and missing == "mean":
        others = tuple(name for name in numbers if name not in found.numbers)
        found.numbers.update(survey(replace(job, numbers=others, texts=()), run).numbers)
    plain = plain_encoding(columns.features, known, (*dates_of(lake.schema, columns.features), *dates))
    filled = plain if missing == "refuse" else _filled(plain, found, missing, lake)
    return Encoder(filled, missing, ABSENT_TEXTS), (
        *note_on_texts(request.categorical, known),
        *note_on_gaps(list(gaps.values()), missing),
    )


def _to_survey(lake: Lake, numbers: Sequence[str], missing: MissingChoice, every_float: bool) -> tuple[str, ...]:
    """Return the columns of numbers to examine: those that may have gaps, whose replacement must be known before."""
    if missing == "refuse":
        return ()
    if missing == "most_frequent":
        return tuple(numbers)
    if every_float and (missing == "mean" or (missing == "auto" and any(lake.nulls.get(name) for name in numbers))):
        return tuple(numbers)  # all means are wanted: one pass instead of two
    sure = [name for name in numbers if lake.nulls.get(name) == 0]
    floats = [name for name in sure if pa.types.is_floating(lake.schema.field(name).type)]
    suspect = floats if every_float else columns_with_nan(lake, floats)
    return tuple(name for name in numbers if name not in sure or name in suspect)


def _filled(encoding: Encoding, found: LakeSurvey, missing: MissingChoice, lake: Lake) -> Encoding:
    """Return the encoding with replacements; means of columns without gaps become known when all rows are."""
    filled = []
    for column in encoding:
        counts = found.numbers.get(column.name)
        if column.kind != "number":
            filled.append(column)
        elif missing == "constant":
            filled.append(replace(column, fill=0.0))
        elif counts is None:
            filled.append(column)
        else:
            fill = counts.fill(missing)
            if fill is None:
                raise DataError(
                    f"feature column {column.name!r} of {lake.name} has no values at all; leave it out with --drop, "
                    "or use --missing constant"
                )
            filled.append(replace(column, fill=fill))
    return tuple(filled)


def _refuse_types(lake: Lake, columns: ColumnRoles, request: Request) -> None:
    """Refuse columns that hold neither numbers nor dates, nor texts that are categories."""
    texts = request.categorical != "refuse" if request.like is None else True
    usable = [name for name in columns.features if not (texts and is_text(lake.schema.field(name).type))]
    if request.like is not None:
        encoding = request.like.encoding or plain_encoding(columns.features, {})
        usable = columns_of_numbers(encoding, lake.schema)
    refuse_weight(columns, lake.schema, lake.name)
    for name in usable:
        kind = lake.schema.field(name).type
        if not is_number(kind) and not is_time(kind):
            batch = next(lake.batches(lake.pieces[0], [name], 1), None) if lake.pieces else None
            values = None if batch is None else batch.rows.column(0)
            raise unusable_type(name, lake.name, kind, values, is_later=request.like is not None)


@dataclass(frozen=True, eq=False)
class _LakeReader:
    lake: Lake
    columns: ColumnRoles
    encoder: Encoder
    checks_nan: bool
    """Whether NaN in a column without a replacement means that the first pass has to be wider."""
    n_rows: int
    """Of the whole lake."""
    exact: "np.dtype[np.generic]"
    """Of the features in the files."""
    is_exact: bool = False
    """Whether features are read in the dtype of the files, and not in that of a store."""

    def table(self) -> Table:
        lake = self.lake
        kinds = [target_kind(name, lake.schema.field(name).type, lake.name) for name in self.columns.targets]
        counts = [piece.n_rows if piece.kept is None else piece.kept for piece in lake.pieces]
        starts = tuple(accumulate(counts[:-1], initial=0))
        deferred = self.encoder.missing == "mean" and any(
            column.kind == "number" and column.fill is None for column in self.encoder.encoding
        )
        return Table(
            source=lake.name,
            n_rows=lake.n_rows,
            n_features=len(self.encoder.feature_names),
            dtype=stored_dtype(self.exact),
            target_kind=kind_of_all(kinds),
            n_targets=len(self.columns.targets),
            has_weight=self.columns.weight is not None,
            pieces=partial(_pieces, self, 0, True),
            pieces_from=lambda start: self._window(starts, start, None)(),
            window=lambda start, stop: self._window(starts, start, stop),
            starts=starts,
            feature_names=self.encoder.feature_names,
            target_names=self.columns.targets or None,
            encoding=self.encoder.encoding if deferred else self.encoder.recorded,
            targets=self._target if kinds == ["float"] else None,
            fills_means=deferred,
            narrow_from=partial(self._narrow, starts) if kinds else None,
            exact=None if self.is_exact else lambda: replace(self, is_exact=True).table(),
        )

    def _narrow(self, starts: tuple[int, ...], start: int) -> Iterator[Piece]:
        """Yield the rows from `start` on, without features."""
        columns = self.columns
        names = [*columns.targets, *([columns.weight] if columns.weight else []), *columns.kept]
        first = max(0, int(np.searchsorted(starts, start, side="right")) - 1)
        left = start - starts[first]
        for piece in self.lake.pieces[first:]:
            for batch in self.lake.batches(piece, names, _TARGET_ROWS):
                skipped = min(left, batch.rows.num_rows)
                left -= skipped
                part, at = batch.rows.slice(skipped), batch.first + skipped
                if part.num_rows:
                    yield piece_of(part, np.empty((part.num_rows, 0)), columns, batch.source, at)

    def _window(self, starts: tuple[int, ...], start: int, stop: int | None) -> Callable[[], Iterator[Piece]]:
        """Return a pass over the rows from `start` on, which carries only the pieces that it reads."""
        first = max(0, int(np.searchsorted(starts, start, side="right")) - 1)
        last = len(starts) if stop is None else int(np.searchsorted(starts, stop, side="left"))
        part = replace(self, lake=self.lake.of(self.lake.pieces[first:last]))
        # Workers share the cores of a machine: what they read locally would not be decoded sooner by another thread.
        ahead = stop is None or any(is_url(piece.file) for piece in part.lake.pieces)
        return partial(_pieces, part, start - starts[first], ahead, _ALL_ROWS if stop is None else stop - starts[first])

    def _target(self) -> Iterator[HostArray]:
        for piece in self.lake.pieces:
            for batch in self.lake.batches(piece, self.columns.targets, _TARGET_ROWS):
                yield to_numpy(batch.rows.column(0))


def _pieces(reader: _LakeReader, start: int, ahead: bool, stop: int = _ALL_ROWS) -> Iterator[Piece]:
    """Yield the rows of a lake from `start` to `stop`, encoded; `ahead` decodes the next batch meanwhile."""
    lake, columns, encoder = reader.lake, reader.columns, reader.encoder
    exact = reader.exact
    stored = exact if reader.is_exact else stored_dtype(exact)
    rows = max(1, _BLOCK_BYTES // (8 * len(columns.all) + stored.itemsize * encoder.n_features))
    converter = RowConverter(encoder, stored, reader.n_rows)
    batches = _batches_until(lake, columns.all, rows, stop)
    for batch in one_ahead(batches) if ahead else batches:
        skipped = min(start, batch.rows.num_rows)
        start -= skipped
        if skipped == batch.rows.num_rows:
            continue
        part, first = batch.rows.slice(skipped), batch.first + skipped
        with np.errstate(over="ignore"):
            found = converter.rows(part, batch.source, first)
        X, is_finite = found.X, found.is_finite or all_finite(found.X)
        if not is_finite:
            if reader.checks_nan:
                _refuse_nan(X, encoder.encoding, batch.source)
            X = encoder.features(part, exact, batch.source, first)  # for the message, with the value as it was
        piece = piece_of(part, X, columns, batch.source, first)
        yield replace(piece, is_finite=is_finite, moments=found.moments if is_finite else None)


def _batches_until(lake: Lake, columns: Sequence[str], rows: int, stop: int) -> Iterator[LakeBatch]:
    """Yield the first `stop` rows; of a row group that has more, the rest is not decoded."""
    for piece in lake.pieces:
        most = rows if lake.where is not None else min(rows, stop)
        for batch in lake.batches(piece, columns, most):
            yield replace(batch, rows=batch.rows.slice(0, stop))
            stop -= batch.rows.num_rows
            if stop <= 0:
                return


def _refuse_nan(X: HostArray, encoding: Sequence[ColumnEncoding], source: str) -> None:
    if not np.isnan(X).any():
        return
    names = [column.name for column in encoding for _ in column.feature_names]
    column = names[int(np.flatnonzero(np.isnan(X).any(axis=0))[0])]
    raise UnsurveyedGapError(f"column {column!r} of {source} has NaN, which the footer of the file does not count")
