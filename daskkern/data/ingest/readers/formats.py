"""The formats that can be ingested: one entry here and one reader module each."""

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daskkern.data.ingest.readers.array_tables import open_npy, open_npz
from daskkern.data.ingest.readers.arrow_files import open_arrow
from daskkern.data.ingest.readers.csv_tables import open_csv
from daskkern.data.ingest.readers.hdf5_files import open_hdf5
from daskkern.data.ingest.readers.parquet_tables import open_parquet
from daskkern.data.ingest.readers.svm_tables import open_svm
from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.zarr_files import open_zarr
from daskkern.errors import DataError


@dataclass(frozen=True)
class Format:
    """A file format: its name, its file endings, and the reader that opens its files together."""

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[Sequence[Path], Request], Parts]


FORMATS = (
    Format("npz", (".npz",), open_npz),
    Format("npy", (".npy",), open_npy),
    Format("csv", (".csv", ".csv.gz"), open_csv),
    Format("parquet", (".parquet", ".pq"), open_parquet),
    Format("hdf5", (".h5", ".hdf5", ".h5ad"), open_hdf5),
    Format("zarr", (".zarr",), open_zarr),
    Format("arrow", (".arrow", ".feather", ".arrows", ".ipc"), open_arrow),
    Format(
        "svmlight", tuple(f"{name}{gz}" for gz in ("", ".gz") for name in (".svm", ".libsvm", ".svmlight")), open_svm
    ),
)


def find_files(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Format, list[Path]]:
    """Return the files that `sources` (names or patterns) refer to, in order, and their common format."""
    names = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    files = [path for name in names for path in _expand(os.fspath(name))]
    if not files:
        raise DataError("got no source; name at least one file")
    formats = [_format_of(path) for path in files]
    if len(set(formats)) > 1:
        raise DataError(
            f"{files[0]} and {files[[f is formats[0] for f in formats].index(False)]} are of different formats; "
            "ingest files of one format at a time"
        )
    return formats[0], files


def is_source(name: str) -> bool:
    """Return whether `name` is a pattern, or a file or folder in a known format."""
    if glob.has_magic(name) and not os.path.exists(name):
        return True
    path = Path(name)
    if path.is_dir():
        return is_zarr(path) or any(path.rglob("*.parquet"))
    return path.is_file() and any(path.name.lower().endswith(known.suffixes) for known in FORMATS)


def _expand(name: str) -> list[Path]:
    if os.path.isdir(name) and not is_zarr(Path(name)):
        return _inside(Path(name))
    if os.path.exists(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise DataError(f"there is no file {name}; check the name")
    found = sorted(glob.glob(name))
    if not found:
        raise DataError(f"no file matches {name}; check the pattern")
    return [Path(path) for path in found]


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a Zarr array or group, of version 2 or 3."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _inside(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder and its folders, sorted, as in data sets of other programs."""
    suffixes = (".parquet", ".pq")
    found = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(suffixes) and path.is_file())
    visible = [path for path in found if not path.name.startswith((".", "_"))]
    if not visible:
        raise DataError(
            f"{folder} is a folder without Parquet files; name the files in it, for example '{folder}/*.csv'"
        )
    partitioned = next((part for path in visible for part in path.relative_to(folder).parts[:-1] if "=" in part), None)
    if partitioned is not None:
        raise DataError(
            f"{folder} stores a column in the names of its folders ({partitioned}), which would be lost; write it as "
            "plain files, or name the files to ingest without that column"
        )
    return visible


def _format_of(path: Path) -> Format:
    if path.is_dir() and is_zarr(path):
        return next(known for known in FORMATS if known.name == "zarr")
    for known in FORMATS:
        if path.name.lower().endswith(known.suffixes):
            return known
    endings = ", ".join(suffix for known in FORMATS for suffix in known.suffixes)
    raise DataError(f"{path} is of no known format; files ending in {endings} can be ingested")
