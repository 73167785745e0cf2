"""The footers of Parquet files: columns, and the size and missing values of each row group."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from daskkern.data.lake.lake import damaged
from daskkern.data.lake.listing import LakeFile
from daskkern.data.lake.parsed_footers import ParsedFooters
from daskkern.data.lake.partitions import PartitionValues, partition_expression
from daskkern.data.lake.schemas import renamed_since, with_names
from daskkern.data.remote.files import open_file

_KINDS = 16
"""Schemas of the files before, one of which the next file is expected to have."""


@dataclass(frozen=True)
class Group:
    """A row group: its number, the row of the file at which it begins, its rows and its compressed bytes."""

    number: int
    first: int
    n_rows: int
    n_bytes: int
    nulls: tuple[tuple[str, int | None], ...]
    """Missing values of the columns that have some; None where the writer has not recorded them."""


@dataclass(frozen=True, eq=False)
class Footer:
    """The schema of a file, its row groups, and the columns that its table has renamed since it was written."""

    schema: pa.Schema
    groups: tuple[Group, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    """Names in the schema, and in the file."""


@dataclass(frozen=True, eq=False)
class FooterJob:
    """A file whose footer is read, and a filter by which its row groups are chosen, in the form for statistics."""

    file: LakeFile
    partition: PartitionValues = ()
    schema: pa.Schema | None = None
    where: "pa.compute.Expression | None" = None
    filtered: tuple[str, ...] = ()
    """The columns that the filter reads."""
    parsed: ParsedFooters | None = None
    """Keeps footers for the passes over the rows."""


def footer(job: FooterJob) -> Footer:
    """Return the footer of a file, without row groups whose statistics exclude every row. Raises DataError."""
    import pyarrow.dataset as ds

    file = job.file
    with open_file(file.place, file.found.size) as stream:
        try:
            fragment = ds.ParquetFileFormat().make_fragment(
                stream, partition_expression=partition_expression(job.partition)
            )
            stored, metadata = fragment.physical_schema, fragment.metadata
            names = {} if file.columns is None else renamed_since(stored, file.columns)
            schema = with_names(stored, names)
            chosen = set(range(metadata.num_row_groups))
            moved = {*names, *names.values()}.intersection(job.filtered)
            if job.where is not None and not moved and _has_types(schema, job):
                found = fragment.split_by_row_group(job.where, schema=job.schema)
                chosen = {group.id for part in found for group in part.row_groups}
        except (pa.ArrowException, OSError) as error:
            raise damaged(file.place, error) from error
        if job.parsed is not None:
            job.parsed.keep(file.found, metadata)
        groups, first = [], 0
        for number in range(metadata.num_row_groups):
            found = metadata.row_group(number)
            if number in chosen and found.num_rows:
                groups.append(Group(number, first, found.num_rows, *_columns(found, schema, names)))
            first += found.num_rows
    return Footer(schema, tuple(groups), tuple((now, former) for former, now in names.items() if now is not None))


def alike(footers: Sequence[Footer]) -> list[Footer]:
    """Return footers of which those with the same columns share one schema, which has kilobytes for a wide table.

    The metadata of the schema, such as the index of pandas, is that of the first of them.
    """
    kinds: deque[tuple[pa.Schema, pa.Schema]] = deque(maxlen=_KINDS)
    found = []
    for one in footers:
        columns = one.schema.remove_metadata()  # but for that of columns, such as the identities of Iceberg
        same = next((whole for known, whole in kinds if columns.equals(known, check_metadata=True)), None)
        if same is None:
            kinds.append((columns, one.schema))
        found.append(one if same is None else replace(one, schema=same))
    return found


def _has_types(stored: pa.Schema, job: FooterJob) -> bool:
    """Return whether the columns of a filter have the same type here, or are integers, texts or missing."""
    assert job.schema is not None
    fixed = dict(job.partition)
    kinds = [
        (stored.field(name).type, job.schema.field(name).type)
        for name in job.filtered
        if name in stored.names and name not in fixed
    ]
    return all(one == other or not (_is_converted(one) or _is_converted(other)) for one, other in kinds)


def _is_converted(kind: pa.DataType) -> bool:
    """Return whether statistics of this type mean something else in another type."""
    checks = (pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal, pa.types.is_boolean)
    return any(check(kind) for check in checks)


def _columns(
    group: Any, schema: pa.Schema, renamed: dict[str, str | None]
) -> tuple[int, tuple[tuple[str, int | None], ...]]:
    """Return the compressed bytes of a row group, and what :attr:`Group.nulls` says."""
    n_bytes = 0
    nulls: list[tuple[str, int | None]] = []
    for j in range(group.num_columns):  # of hundreds, in thousands of files
        column = group.column(j)
        known = column.statistics
        n_bytes += column.total_compressed_size
        count = known.null_count if known is not None and known.has_null_count else None
        if count != 0:
            name = renamed.get(column.path_in_schema, column.path_in_schema)
            nulls += [] if name is None else [(name, count)]
    nested = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_nested(kind)]
    return n_bytes, (*nulls, *((name, None) for name in nested))
