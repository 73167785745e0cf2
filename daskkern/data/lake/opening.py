"""Opening a lake: files are listed once, footers read concurrently, and schemas unified."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from daskkern.backend.processors import cpu_count
from daskkern.data.lake.footers import Footer, FooterJob, alike, footer
from daskkern.data.lake.lake import Lake
from daskkern.data.lake.lake_piece import LakePiece
from daskkern.data.lake.listing import LakeFile, listed
from daskkern.data.lake.parsed_footers import ParsedFooters
from daskkern.data.lake.partitions import PartitionValues, partition_values, partitions_that_may_pass
from daskkern.data.lake.schemas import absent_columns, check_written, joined
from daskkern.data.lake.table_formats import table_files
from daskkern.data.lake.where import group_expression, where_columns, where_expression
from daskkern.data.remote.stores import absolute, is_url
from daskkern.errors import DataError

PathLike: TypeAlias = str | os.PathLike[str]
Job = TypeVar("Job")
Result = TypeVar("Result")

_THREADS = 16  # that wait for servers
_AT_SERVERS = 4  # threads for each core that read from servers and decode what comes
_FILES_AT_ONCE = 64  # of one task of a worker


class TaskRunner(Protocol):
    """Runs a function over jobs, for example on workers, and returns the results in the order of the jobs."""

    def __call__(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]: ...


def run_here(function: Callable[[Job], Result], jobs: Sequence[Job], threads: int = _THREADS) -> list[Result]:
    """Run jobs in threads of this process; by default as many as suit jobs that wait for files or servers."""
    if len(jobs) < 2:
        return [function(job) for job in jobs]
    with ThreadPoolExecutor(min(threads, len(jobs))) as pool:
        return list(pool.map(function, jobs))


def decode_here(lake: Lake) -> TaskRunner:
    """Return a runner of jobs that decode row groups of a lake, in threads of this process.

    There is one thread for each core, or four where files are at URLs, and 16 at most: a thread holds some 50 MB where
    rows are wide, and more than one for each core help only while some of them wait.
    """
    is_remote = any(is_url(piece.file) for piece in lake.pieces)
    return partial(run_here, threads=min(_THREADS, cpu_count() * (_AT_SERVERS if is_remote else 1)))


def open_lake(
    sources: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | Callable[[Sequence[str]], Sequence[str]] | None = None,
    where: str | None = None,
    run: TaskRunner | None = None,
    texts: Collection[str] = (),
) -> Lake:
    """Open Parquet files as one table of row groups; no row is read.

    Parameters
    ----------
    sources : path or URL, or a sequence of them
        Files, folders and patterns, see :func:`daskkern.data.lake.listing.listed`; a folder may be a Delta Lake or
        Iceberg table. Columns in the names of folders (``day=1/``) become columns of the table.
    columns : sequence of str or callable, optional
        The columns to be read, or a function that chooses them among all; all by default. Files must agree in these
        alone.
    where : str, optional
        A filter, see :mod:`daskkern.data.lake.where`. Folders and row groups in which no row passes are not read.
    run : callable, optional
        Runs jobs, for example on workers; by default they run in threads of this process.
    texts : collection of str
        Columns that hold texts where they are in the names of folders, also if all values are whole numbers.

    Returns
    -------
    Lake
        Row groups in the natural order of their files.

    Raises
    ------
    DataError
        When there is no file, a file is damaged, or files differ in their columns.
    SpecError
        When the filter is not understood.
    StoreError
        When a server cannot be reached.
    """
    names = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    files = [file for name in names for file in _files(absolute(name))]
    if not files:
        raise DataError("got no source; name at least one file")
    fixed, values = partition_values(files, texts)
    parsed = ParsedFooters()
    first = footer(FooterJob(files[0], parsed=parsed))
    index = _index(first.schema)
    columns_of_first = first.schema if files[0].columns is None else files[0].columns.schema
    schema = _with_partitions(plain_schema(columns_of_first, index), fixed, files[0])
    if where is not None and fixed.names:
        files, values = _files_that_may_pass(files, values, schema, where)
    filtered = () if where is None else where_columns(where, schema)
    known = [] if where is not None else [first]
    rest = _footers_of(files[len(known) :], values[len(known) :], schema, where, parsed, run or run_here)
    footers = alike([*known, *rest])
    wanted = columns(schema.names) if callable(columns) else columns
    chosen = schema.names if wanted is None else _chosen(wanted, schema, files)
    needed = (*chosen, *(name for name in filtered if name not in chosen))
    schema = _united(schema, needed, fixed, list(zip(files, footers, strict=True)), index)
    # After all files have been seen: numbers of the filter take the types that hold the values of each.
    expression = None if where is None else where_expression(where, schema)
    pieces = tuple(
        piece
        for file, found, one in zip(files, values, footers, strict=True)
        for piece in _pieces(file, one, (*found, *absent_columns(file, one.schema, needed, fixed.names)))
    )
    if not pieces and where is not None:
        raise nothing_passes(str(names[0]), where)
    label = files[0].place if len(files) == 1 else f"{len(files)} files from {files[0].place}"
    nulls = _nulls(footers, chosen, fixed, values)
    stamps = tuple(f"{file.place} {file.found.size} {file.found.stamp}" for file in files)
    schema = pa.schema([field for field in schema if field.name in chosen or field.name in filtered])
    coded = tuple(field.name for field in first.schema if pa.types.is_dictionary(field.type))
    return Lake(label, schema, tuple(chosen), pieces, expression, filtered, nulls, index, coded, stamps, footers=parsed)


def _files_that_may_pass(
    files: Sequence[LakeFile], values: Sequence[PartitionValues], schema: pa.Schema, where: str
) -> tuple[list[LakeFile], list[PartitionValues]]:
    """Return the files that the values in the names of their folders do not exclude, and these values."""
    able = partitions_that_may_pass(values, schema, where_expression(where, schema))
    pairs = [(file, found) for file, found in zip(files, values, strict=True) if found in able]
    return [file for file, _ in pairs], [found for _, found in pairs]


def _footers_of(
    files: Sequence[LakeFile],
    values: Sequence[PartitionValues],
    schema: pa.Schema,
    where: str | None,
    parsed: ParsedFooters,
    run: TaskRunner,
) -> list[Footer]:
    """Return the footers of files, without row groups that the filter excludes."""
    filtered = () if where is None else where_columns(where, schema)
    of_groups = None if where is None else group_expression(where, schema)
    jobs = [FooterJob(*pair, schema, of_groups, filtered, parsed) for pair in zip(files, values, strict=True)]
    batches = [jobs[at : at + _FILES_AT_ONCE] for at in range(0, len(jobs), _FILES_AT_ONCE)]
    return [one for batch in run(_footers, batches) for one in batch]


def _pieces(file: LakeFile, footer: Footer, fixed: PartitionValues) -> Iterator[LakePiece]:
    """Yield the row groups of a file, in which the columns `fixed` have one value."""
    for group in footer.groups:
        place = file.place, file.found.size, group.number, group.first, group.n_rows, group.n_bytes
        yield LakePiece(*place, fixed, renamed=footer.renamed)


def nothing_passes(name: str, where: str) -> DataError:
    """Return the error for a filter that keeps no row."""
    return DataError(f"no row of {name} passes the filter {where!r}; check the filter")


def count_rows(lake: Lake, run: TaskRunner | None = None) -> Lake:
    """Return the lake with the rows of every piece counted that pass its filter; reads the columns of the filter."""
    if lake.n_rows is not None:
        return lake
    counts = (run or decode_here(lake))(_count, [lake.of([piece]) for piece in lake.pieces])
    pieces = [replace(piece, kept=count) for piece, count in zip(lake.pieces, counts, strict=True)]
    return replace(lake, pieces=tuple(piece for piece in pieces if piece.kept))


def _count(lake: Lake) -> int:
    return sum(lake.counted(piece) for piece in lake.pieces)


def _files(place: str) -> list[LakeFile]:
    known = table_files(place)
    return listed(place) if known is None else known


def _footers(jobs: Sequence[FooterJob]) -> list[Footer]:
    return alike(run_here(footer, jobs))


def _index(schema: pa.Schema) -> tuple[str, ...]:
    described = schema.pandas_metadata or {}
    return tuple(name for name in described.get("index_columns", ()) if name in schema.names)


def plain_schema(schema: pa.Schema, index: Sequence[str] = ()) -> pa.Schema:
    """Return a schema without metadata and without the index of pandas; texts of all kinds are strings."""
    return pa.schema([(field.name, _plain_type(field.type)) for field in schema if field.name not in index])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    texts = (pa.types.is_large_string, pa.types.is_string_view)
    return pa.string() if any(is_text(kind) for is_text in texts) else kind


def _with_partitions(schema: pa.Schema, fixed: pa.Schema, file: LakeFile) -> pa.Schema:
    """Return the columns of files and of folder names; a column that is in both is taken from the folders."""
    kept = [field for field in schema if field.name not in fixed.names]
    if not kept and not fixed.names:
        raise DataError(f"{file.place} has no columns; write it again")
    return pa.schema([*kept, *fixed])


def _chosen(columns: Sequence[str], schema: pa.Schema, files: Sequence[LakeFile]) -> list[str]:
    for name in columns:
        if name not in schema.names:
            raise DataError(
                f"{files[0].place} has no column {name!r}; the columns are {', '.join(map(repr, schema.names[:12]))}"
            )
    return [name for name in schema.names if name in columns]


def _united(
    first: pa.Schema,
    chosen: Sequence[str],
    fixed: pa.Schema,
    footers: Sequence[tuple[LakeFile, Footer]],
    index: Sequence[str],
) -> pa.Schema:
    """Return one type for every chosen column of all files: the narrowest that holds the values of each."""
    united = pa.schema([first.field(name) for name in first.names])
    seen: set[int] = set()
    for file, one in footers:
        if id(one.schema) in seen:  # files with the same columns share it
            continue
        seen.add(id(one.schema))
        found = plain_schema(one.schema, (*index, *_index(one.schema)))
        if file.columns is None:
            _check_columns(first, found, fixed, chosen, (file, footers[0][0]))
        else:
            check_written(file, one.schema, chosen)
        for name in chosen:
            if name not in fixed.names:
                at = united.get_field_index(name)
                if name in found.names:
                    united = united.set(at, joined(united.field(at), found.field(name), file, footers[0][0]))
    return united


def _check_columns(
    first: pa.Schema,
    found: pa.Schema,
    fixed: pa.Schema,
    chosen: Sequence[str],
    files: tuple[LakeFile, LakeFile],
) -> None:
    wanted = [name for name in chosen if name not in fixed.names]
    missing = [name for name in wanted if name not in found.names]
    everything = len(chosen) == len(first.names)
    extra = [name for name in found.names if name not in first.names] if everything else []
    if missing or extra:
        says = [f"lacks {', '.join(map(repr, missing[:12]))}"] * bool(missing)
        says += [f"also has {', '.join(map(repr, extra[:12]))}"] * bool(extra)
        raise DataError(
            f"the columns of {files[0].place} differ from those of {files[1].place}: it {' and '.join(says)}; "
            "make the columns the same, name those that all files have with --columns, or ingest the files separately"
        )


def _nulls(
    footers: Sequence[Footer], names: Sequence[str], fixed: pa.Schema, values: Sequence[PartitionValues]
) -> dict[str, int | None]:
    """Return the missing values of each column in all files, as far as the footers record them."""
    totals: dict[str, int | None] = dict.fromkeys(names, 0)
    for one in footers:
        unknown = dict.fromkeys(set(names) - set(one.schema.names) - set(fixed.names))
        for group in one.groups:
            for name, more in (unknown | dict(group.nulls)).items():
                total = totals.get(name)
                if total is not None:
                    totals[name] = None if more is None else total + more
    for name in set(fixed.names) & set(names):
        totals[name] = sum(dict(found)[name] is None for found in set(values))
    return totals
