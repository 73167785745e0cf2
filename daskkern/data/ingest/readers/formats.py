"""The table of formats that can be ingested: one entry and one reader module each."""

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskkern.data.ingest.readers.array_tables import open_npy, open_npz
from daskkern.data.ingest.readers.arrow_files import open_arrow, open_orc
from daskkern.data.ingest.readers.csv_tables import open_csv
from daskkern.data.ingest.readers.hdf5_files import open_hdf5
from daskkern.data.ingest.readers.json_lines_tables import open_json_lines
from daskkern.data.ingest.readers.svm_tables import open_svm
from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.zarr_files import open_zarr
from daskkern.data.lake.listing import SUFFIXES, is_data, listed, natural_key
from daskkern.data.remote.disk_cache import FileBlocks
from daskkern.data.remote.files import files_below
from daskkern.data.remote.stores import is_url, public
from daskkern.data.remote.url_files import SourceFile, UrlFile
from daskkern.errors import DataError


@dataclass(frozen=True)
class Format:
    """A file format: its name, its file endings, and the reader that opens its files together.

    `streams` says that files are read from their beginning, and can therefore be behind URLs.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[Sequence[Any], Request], Parts]
    streams: bool = False


FORMATS = (
    Format("npz", (".npz",), open_npz),
    Format("npy", (".npy",), open_npy),
    Format("csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz"), open_csv, streams=True),
    Format("hdf5", (".h5", ".hdf5", ".h5ad"), open_hdf5),
    Format("zarr", (".zarr",), open_zarr),
    Format("arrow", (".arrow", ".feather", ".arrows", ".ipc"), open_arrow, streams=True),
    Format("orc", (".orc",), open_orc, streams=True),
    Format("json lines", (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), open_json_lines, streams=True),
    Format(
        "svmlight",
        tuple(f"{name}{gz}" for gz in ("", ".gz") for name in (".svm", ".libsvm", ".svmlight")),
        open_svm,
        streams=True,
    ),
)


TABLE_SUFFIXES = (
    *SUFFIXES,
    ".metadata.json",
    *(s for known in FORMATS if known.name != "zarr" for s in known.suffixes),
)
"""Endings of files of rows, other than Zarr."""


_WAYS = {
    ".json": "write an object a line to a .jsonl file, with pandas.read_json(...).to_json(..., orient='records', "
    "lines=True)",
    ".xlsx": "write the sheet to a .csv or .parquet file, with pandas.read_excel(...).to_parquet(...)",
    ".xls": "write the sheet to a .csv or .parquet file, with pandas.read_excel(...).to_parquet(...)",
    ".txt": "rename it to .csv where commas, or to .tsv where tabs separate its columns",
    "": "write it as Parquet or CSV",
}
"""What to do with files of other formats, by their ending."""
CSV_SUFFIXES = next(known.suffixes for known in FORMATS if known.name == "csv")
TEXT_SUFFIXES = tuple(s for known in FORMATS if known.name in ("csv", "svmlight") for s in known.suffixes)
"""Endings of files that are read line by line, and have no row groups to draw batches from."""


def is_lake(places: Sequence[str]) -> bool:
    """Return whether sources are Parquet files, or folders, which stand for the Parquet files in them.

    Raises
    ------
    DataError
        When some are and some are not.
    """
    kinds = [_is_lake(place) for place in places]
    if len(set(kinds)) > 1:
        raise DataError(
            f"{places[0]} and {places[kinds.index(not kinds[0])]} are of different formats; ingest files of one format "
            "at a time"
        )
    return bool(kinds) and kinds[0]


def _is_lake(place: str) -> bool:
    name = public(place).lower().rstrip("/")
    if name.endswith((*SUFFIXES, ".metadata.json")):
        return True
    if any(name.endswith(known.suffixes) for known in FORMATS):
        return False
    if not is_url(place) and glob.has_magic(place) and not os.path.exists(place):
        first = next(glob.iglob(place), None)  # a pattern of folders, such as day=*
        return first is not None and _is_lake(first)
    return is_url(place) or (os.path.isdir(place) and not is_zarr(Path(place)))


def find_files(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Format, list[SourceFile]]:
    """Return the files that `sources` (names or patterns) refer to, in order, and their common format."""
    names = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    files = [path for name in names for path in _expand(os.fspath(name))]
    if not files:
        raise DataError("got no source; name at least one file")
    return _common_format(files), files


def find_in_folders(places: Sequence[str]) -> tuple[Format, list[SourceFile]] | None:
    """Return the files in folders without Parquet files, in natural order, and their format; None where there are none.

    Raises
    ------
    DataError
        For files of several formats, and for columns in the names of folders.
    """
    suffixes = tuple(suffix for known in FORMATS if known.streams for suffix in known.suffixes)
    cache, files = FileBlocks(), list[SourceFile]()
    for place in places:
        root = place.rstrip("/") if is_url(place) else os.path.abspath(place)
        inside = [file for file in files_below(root) if is_data(file.place, root, suffixes)]
        for file in sorted(inside, key=lambda file: natural_key(file.place)):
            if "=" in os.path.dirname(file.place.removeprefix(root)):
                raise DataError(
                    f"{file.place}: the names of folders such as day=1 become columns for Parquet files only; write "
                    "Parquet, or name the files by a pattern to read them without these columns"
                )
            files.append(UrlFile(file, cache) if is_url(place) else Path(file.place))
    return (_common_format(files), files) if files else None


def is_source(name: str) -> bool:
    """Return whether `name` is a pattern, or a file or folder in a known format."""
    if glob.has_magic(name) and not os.path.exists(name):
        return True
    path = Path(name)
    if path.is_dir():
        return is_zarr(path) or any(
            file.lower().endswith(TABLE_SUFFIXES) for _, _, names in os.walk(path) for file in names
        )
    suffixes = (*SUFFIXES, *(suffix for known in FORMATS for suffix in known.suffixes))
    return path.is_file() and path.name.lower().endswith(suffixes)


def _expand(name: str) -> list[SourceFile]:
    if is_url(name):
        return _behind_url(name)
    if os.path.exists(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise DataError(f"there is no file {name}; check the name")
    found = sorted(glob.glob(name, recursive=True), key=natural_key)
    if not found:
        raise DataError(f"no file matches {name}; check the pattern")
    return [Path(path) for path in found]


def _behind_url(url: str) -> list[SourceFile]:
    url = url.rstrip("/")
    known = next(known for known in FORMATS if public(url).lower().endswith(known.suffixes))
    if not known.streams:
        *others, last = ["Parquet, Delta Lake, Iceberg", *(one.name for one in FORMATS if one.streams)]
        raise DataError(
            f"got {public(url)}, but only {', '.join(others)} and {last} are read from URLs, not {known.name}; copy "
            "the file to this machine"
        )
    cache = FileBlocks()
    return [UrlFile(file.found, cache) for file in listed(url, known.suffixes)]


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a Zarr array or group, of version 2 or 3."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _common_format(files: Sequence[SourceFile]) -> Format:
    _refuse_parquet(files)
    formats = [_format_of(path) for path in files]
    if len(set(formats)) > 1:
        raise DataError(
            f"{files[0]} and {files[[f is formats[0] for f in formats].index(False)]} are of different formats; "
            "ingest files of one format at a time"
        )
    return formats[0]


def _refuse_parquet(files: Sequence[SourceFile]) -> None:
    """Refuse Parquet files among others: a pattern may stand for several formats."""
    parquet = [file for file in files if file.name.lower().endswith(SUFFIXES)]
    if parquet and len(parquet) < len(files):
        other = next(file for file in files if file not in parquet)
        raise DataError(f"{parquet[0]} and {other} are of different formats; ingest files of one format at a time")


def _format_of(path: SourceFile) -> Format:
    if isinstance(path, Path) and path.is_dir() and is_zarr(path):
        return next(known for known in FORMATS if known.name == "zarr")
    for known in FORMATS:
        if path.name.lower().endswith(known.suffixes):
            return known
    plain = (suffix for known in FORMATS for suffix in known.suffixes if not suffix.endswith(".gz"))
    endings = ", ".join((*SUFFIXES, *plain))
    remedy = next((way for suffix, way in _WAYS.items() if path.name.lower().endswith(suffix)), _WAYS[""])
    raise DataError(f"{path} has an unknown format; {remedy}; known endings are {endings}")
