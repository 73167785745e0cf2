"""Columns that differ between the files of a lake: types that hold the values of all, and columns that a file lacks."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from daskkern.data.lake.listing import LakeColumns, LakeFile
from daskkern.data.lake.partitions import PartitionValues
from daskkern.errors import DataError

FIELD_ID = b"PARQUET:field_id"
_UNITS = ("s", "ms", "us", "ns")


def joined(one: pa.Field, other: pa.Field, file: LakeFile, first: LakeFile) -> pa.Field:
    """Return the column with the narrowest type that holds the values of `one` in `first` and of `other` in `file`.

    Dates and times are moments, in UTC where a file has a time zone; booleans among numbers are 0 and 1; decimals among
    other numbers are floats. Raises DataError for other types that differ in kind.
    """
    if one.type == other.type:
        return one
    kinds = (one.type, other.type)
    if all(map(_is_time, kinds)):
        return one.with_type(_moments(kinds))
    for kind, partner in (kinds, kinds[::-1]):
        if pa.types.is_boolean(kind) and _is_number(partner):
            return one.with_type(partner)
        if pa.types.is_decimal(kind) and _is_number(partner) and not pa.types.is_decimal(partner):
            return one.with_type(pa.float64())
    try:
        return pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive").field(0)
    except pa.ArrowException as error:
        raise DataError(
            f"column {one.name!r} holds {one.type} values in {first.place} and {other.type} in {file.place}; write "
            "both with one type, or leave the column out with --drop"
        ) from error


def absent_columns(
    file: LakeFile, stored: pa.Schema, needed: Sequence[str], partitions: Collection[str]
) -> PartitionValues:
    """Return the needed columns of its table that a file was written before, as missing values of all of its rows."""
    if file.columns is None:
        return ()
    return tuple((name, None) for name in needed if name not in stored.names and name not in partitions)


def renamed_since(stored: pa.Schema, columns: LakeColumns) -> dict[str, str | None]:
    """Return the columns of a file whose name in its table is another one now, and that name; None for dropped ones.

    Iceberg, and Delta Lake in one of its modes, tells columns by numbers, which their fields have as metadata; without
    these, names count.
    """
    now = {_id(field): field.name for field in columns.schema if _id(field) is not None}
    names = {field.name: now.get(_id(field)) for field in stored if _id(field) is not None} if now else {}
    if not names and columns.in_files is not None:
        names = {name: columns.in_files.get(name) for name in stored.names}
    return {former: name for former, name in names.items() if name != former}


def with_names(stored: pa.Schema, renamed: dict[str, str | None]) -> pa.Schema:
    """Return the columns of a file under other names, without those that have none."""
    if not renamed:
        return stored
    named = [(field, renamed.get(field.name, field.name)) for field in stored]
    return pa.schema([field.with_name(name) for field, name in named if name is not None], stored.metadata)


def check_written(file: LakeFile, stored: pa.Schema, chosen: Sequence[str]) -> None:
    """Raise DataError where a file leaves a chosen column to the metadata of its table."""
    assert file.columns is not None
    for name in chosen:
        if name in file.columns.in_metadata and name in file.columns.schema.names and name not in stored.names:
            raise DataError(f"{file.place} leaves column {name!r} to the metadata of its table; write the files again")


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _moments(kinds: Sequence[pa.DataType]) -> pa.DataType:
    times = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    zones = {kind.tz for kind in times} if len(times) == len(kinds) else {*(kind.tz for kind in times), None}
    unit = max((kind.unit for kind in times), key=_UNITS.index)
    return pa.timestamp(unit, None if zones == {None} else next(iter(zones)) if len(zones) == 1 else "UTC")
