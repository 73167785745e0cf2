"""The footers of Parquet files: columns, and the size and missing values of each row group."""

from dataclasses import dataclass

import pyarrow as pa

from daskkern.data.lake.lake import damaged
from daskkern.data.lake.listing import LakeFile
from daskkern.data.lake.partitions import PartitionValues, partition_expression
from daskkern.data.remote.files import open_file


@dataclass(frozen=True)
class Group:
    """A row group: its number, the row of the file at which it begins, its rows and its compressed bytes."""

    number: int
    first: int
    n_rows: int
    n_bytes: int
    nulls: tuple[tuple[str, int | None], ...]
    """Missing values of each column; None where the writer has not recorded them."""


@dataclass(frozen=True, eq=False)
class Footer:
    """The schema of a file, and its row groups."""

    schema: pa.Schema
    groups: tuple[Group, ...]


@dataclass(frozen=True, eq=False)
class FooterJob:
    """A file whose footer is read, and a filter by which its row groups are chosen, in the form for statistics."""

    file: LakeFile
    partition: PartitionValues = ()
    schema: pa.Schema | None = None
    where: "pa.compute.Expression | None" = None
    filtered: tuple[str, ...] = ()
    """The columns that the filter reads."""


def footer(job: FooterJob) -> Footer:
    """Return the footer of a file, without row groups whose statistics exclude every row. Raises DataError."""
    import pyarrow.dataset as ds

    file = job.file
    with open_file(file.place, file.found.size) as stream:
        try:
            fragment = ds.ParquetFileFormat().make_fragment(
                stream, partition_expression=partition_expression(job.partition)
            )
            schema, metadata = fragment.physical_schema, fragment.metadata
            chosen = set(range(metadata.num_row_groups))
            if job.where is not None and _has_types(schema, job):
                found = fragment.split_by_row_group(job.where, schema=job.schema)
                chosen = {group.id for part in found for group in part.row_groups}
        except (pa.ArrowException, OSError) as error:
            raise damaged(file.place, error) from error
        groups, first = [], 0
        for number in range(metadata.num_row_groups):
            found = metadata.row_group(number)
            if number in chosen and found.num_rows:
                groups.append(Group(number, first, found.num_rows, _compressed(found), _nulls(found)))
            first += found.num_rows
    return Footer(schema, tuple(groups))


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


def _compressed(group: object) -> int:
    return sum(group.column(j).total_compressed_size for j in range(group.num_columns))  # type: ignore[attr-defined]


def _nulls(group: object) -> tuple[tuple[str, int | None], ...]:
    found = []
    for j in range(group.num_columns):  # type: ignore[attr-defined]
        column = group.column(j)  # type: ignore[attr-defined]
        known = column.statistics
        has = known is not None and known.has_null_count
        found.append((column.path_in_schema, int(known.null_count) if has else None))
    return tuple(found)
