"""Delta Lake and Iceberg tables: the files of their current version, listed by the packages of these formats.

Their folders also hold files of earlier versions, so the files in a folder are never read without these packages.
"""

import os
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from daskkern.data.lake.listing import LakeColumns, LakeFile, natural_key
from daskkern.data.lake.schemas import FIELD_ID
from daskkern.data.remote.files import FoundFile, files_below
from daskkern.data.remote.stores import is_url
from daskkern.errors import DataError, StoreError

_METADATA = ".metadata.json"
_DELTA_NAME, _DELTA_ID = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"


def table_files(place: str) -> list[LakeFile] | None:
    """Return the files of the current version of a Delta Lake or Iceberg table; None for any other place.

    Parameters
    ----------
    place : str
        A path or URL: the folder of a table, or a metadata file of an Iceberg table.

    Raises
    ------
    StoreError
        When the package of the format is not installed: ``deltalake`` or ``pyiceberg``.
    DataError
        When the table cannot be read, or marks rows as deleted without having written their files again.
    """
    if place.endswith(_METADATA):
        return _iceberg(place)
    if place.lower().endswith((".parquet", ".pq")) or (not is_url(place) and not os.path.isdir(place)):
        return None
    root = place.rstrip("/")
    if _exists(f"{root}/_delta_log"):
        return _delta(root)
    versions = [file.place for file in _below(f"{root}/metadata") if file.place.endswith(_METADATA)]
    return _iceberg(max(versions, key=natural_key)) if versions else None


def _below(folder: str) -> list[FoundFile]:
    return files_below(folder) if is_url(folder) or os.path.isdir(folder) else []


def _exists(folder: str) -> bool:
    return bool(_below(folder))


def _delta(place: str) -> list[LakeFile]:
    try:
        from deltalake import DeltaTable  # optional package
    except ImportError as error:
        raise _missing(place, "Delta Lake", "deltalake") from error
    try:
        table = DeltaTable(place, storage_options={"allow_http": "true"} if is_url(place) else None)
        features = {*(table.protocol().reader_features or ())}
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        names = list(table.metadata().partition_columns)
        columns = _mapped(pa.schema(table.schema().to_arrow()), mode)
        deletions = "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows > 0
    except Exception as error:
        raise DataError(f"{place} cannot be read as a Delta Lake table: {error}") from error
    if deletions:
        raise _deleted(place, "Delta Lake", "with OPTIMIZE or REORG TABLE ... APPLY (PURGE)")
    files = []
    for action in sorted(actions, key=lambda one: natural_key(str(one["path"]))):
        path = unquote(str(action["path"]))
        found = FoundFile(
            path if is_url(path) else f"{place}/{path}", int(action["size_bytes"]), str(action["modification_time"])
        )
        partition = tuple((name, action.get(f"partition.{name}")) for name in names)
        files.append(LakeFile(found, place, partition, columns))
    return _some(files, place)


def _mapped(schema: pa.Schema, mode: str) -> LakeColumns:
    """Return the columns of a Delta Lake table, which its files have under other names where it maps columns.

    Delta Transaction Log Protocol, "Column Mapping": by the physical name of a column, or by its number.
    """
    if mode == "none":
        return LakeColumns(schema)
    if mode not in ("name", "id"):
        raise DataError(f"its columns are mapped by {mode!r}; expected 'name' or 'id'")
    in_files, fields = {}, []
    for field in schema:
        known = field.metadata or {}
        in_files[known.get(_DELTA_NAME, field.name.encode()).decode()] = field.name
        fields.append(field.with_metadata({FIELD_ID: known[_DELTA_ID]} if mode == "id" and _DELTA_ID in known else {}))
    return LakeColumns(pa.schema(fields), in_files=in_files)


def _iceberg(metadata: str) -> list[LakeFile]:
    try:
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # optional package
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise _missing(metadata, "Iceberg", "pyiceberg") from error
    place = metadata.rpartition("/metadata/")[0]
    try:
        table = StaticTable.from_metadata(metadata, _iceberg_settings())
        tasks: list[Any] = list(table.scan().plan_files())
        columns = LakeColumns(schema_to_pyarrow(table.schema()), _partitioned(table))
    except Exception as error:
        raise DataError(f"{metadata} cannot be read as an Iceberg table: {error}") from error
    if any(task.delete_files for task in tasks):
        raise _deleted(place, "Iceberg", "by compacting the table")
    places = sorted((_plain(task.file.file_path), int(task.file.file_size_in_bytes)) for task in tasks)
    files = [LakeFile(FoundFile(path, size, ""), place, (), columns) for path, size in places]
    return _some(sorted(files, key=lambda file: natural_key(file.place)), place)


def _partitioned(table: Any) -> frozenset[str]:
    """Return the columns that an Iceberg table is partitioned by, whose values migrated files may lack."""
    fields = [field for spec in table.specs().values() for field in spec.fields]
    named = [table.schema().find_column_name(field.source_id) for field in fields]
    return frozenset(name for name in named if name is not None)


def _iceberg_settings() -> dict[str, str]:
    """Return the settings by which pyiceberg finds other servers than Amazon's."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    return {} if endpoint is None else {"s3.endpoint": endpoint}


def _plain(place: str) -> str:
    return unquote(urlparse(place).path) if place.startswith("file:") else place


def _some(files: list[LakeFile], place: str) -> list[LakeFile]:
    if not files:
        raise DataError(f"the table at {place} has no rows; at least one is needed")
    return files


def _missing(place: str, name: str, package: str) -> StoreError:
    return StoreError(
        f"{place} is {'an' if name[0] in 'AEIOU' else 'a'} {name} table, which needs the package {package}; install "
        "daskkern[lake]"
    )


def _deleted(place: str, name: str, how: str) -> DataError:
    return DataError(
        f"the {name} table at {place} marks rows as deleted that its files still hold; write these files again {how}"
    )
