"""Columns that are encoded in folder names, as by Hive, Spark and Dask: ``day=1/part-0.parquet``."""

import re
from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs

from daskkern.data.lake.listing import LakeFile
from daskkern.errors import DataError

_WHOLE = re.compile(r"-?\d{1,18}")

PartitionValues: TypeAlias = tuple[tuple[str, Any], ...]
"""Columns and their values in all rows of a file; None is a missing value."""


def partition_values(files: Sequence[LakeFile], texts: Collection[str] = ()) -> tuple[pa.Schema, list[PartitionValues]]:
    """Return the columns in the names of folders, and their values for each file.

    A column whose values are all whole numbers holds integers, any other one texts, as do those named in `texts`.

    Raises
    ------
    DataError
        When files have different columns in their names.
    """
    import pyarrow.dataset as ds

    recorded = [file.partition for file in files if file.partition is not None]
    if len(recorded) == len(files):
        columns = {name: [dict(values)[name] for values in recorded] for name, _ in recorded[0]}
        return pa.schema([(name, pa.array(values).type) for name, values in columns.items()]), recorded
    paths = [file.place.removeprefix(file.base).strip("/") for file in files]
    names = [_names(path) for path in paths]
    for file, found in zip(files, names, strict=True):
        if found != names[0]:
            raise DataError(
                f"the folders of {files[0].place} and {file.place} hold different columns ({_listed(names[0])} and "
                f"{_listed(found)}); ingest them separately"
            )
    if not names[0]:
        return pa.schema([]), [()] * len(files)
    known = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names[0]]))
    folders = {path.rpartition("/")[0]: path for path in paths}
    parsed = {folder: ds.get_partition_keys(known.parse(path)) for folder, path in folders.items()}
    kinds = {
        name: pa.string() if name in texts else _kind([found.get(name) for found in parsed.values()])
        for name in names[0]
    }
    typed = {
        folder: tuple((name, _typed(found.get(name), kinds[name])) for name in kinds)
        for folder, found in parsed.items()
    }
    return pa.schema(list(kinds.items())), [typed[path.rpartition("/")[0]] for path in paths]


def partition_expression(values: PartitionValues) -> "pc.Expression":
    """Return the values as an expression that is true for all rows of a file, for :mod:`pyarrow.dataset`."""
    parts = [pc.field(name).is_null() if value is None else pc.field(name) == value for name, value in values]
    return reduce(and_, parts, pc.scalar(True))


def partitions_that_may_pass(
    values: Sequence[PartitionValues], schema: pa.Schema, where: "pc.Expression"
) -> set[PartitionValues]:
    """Return those partitions of a lake in which a row may pass a filter."""
    import pyarrow.dataset as ds

    distinct = list(dict.fromkeys(values))
    form, system = ds.ParquetFileFormat(), pa.fs.LocalFileSystem()
    fragments = [
        form.make_fragment(str(number), filesystem=system, partition_expression=partition_expression(found))
        for number, found in enumerate(distinct)
    ]
    known = ds.FileSystemDataset(fragments, schema, form, system)
    return {distinct[int(fragment.path)] for fragment in known.get_fragments(where)}


def _kind(texts: Sequence[str | None]) -> pa.DataType:
    """Return the type of a column: 32 bits for whole numbers where they fit, as pyarrow takes them, else 64."""
    known = [text for text in texts if text is not None]
    if not known or not all(_WHOLE.fullmatch(text) for text in known):
        return pa.string()
    return pa.int32() if all(-(1 << 31) <= int(text) < 1 << 31 for text in known) else pa.int64()


def _typed(text: str | None, kind: pa.DataType) -> int | str | None:
    return text if text is None or pa.types.is_string(kind) else int(text)


def _names(path: str) -> tuple[str, ...]:
    return tuple(part.partition("=")[0] for part in path.split("/")[:-1] if "=" in part)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
