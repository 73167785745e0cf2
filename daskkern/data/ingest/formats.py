"""The formats that can be ingested: one row here and one reader file each."""

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daskkern.data.ingest.array_tables import open_npy, open_npz
from daskkern.data.ingest.csv_tables import open_csv
from daskkern.data.ingest.parquet_tables import open_parquet
from daskkern.data.ingest.tables import Parts, Request
from daskkern.errors import DataError


@dataclass(frozen=True)
class Format:
    """A file format: its name, how such files end, and the reader that opens them together."""

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[Sequence[Path], Request], Parts]


FORMATS = (
    Format("npz", (".npz",), open_npz),
    Format("npy", (".npy",), open_npy),
    Format("csv", (".csv", ".csv.gz"), open_csv),
    Format("parquet", (".parquet", ".pq"), open_parquet),
)


def find_files(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Format, list[Path]]:
    """Return the files that `sources` (names or patterns) mean, in order, and their one format."""
    names = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    files = [path for name in names for path in _expand(os.fspath(name))]
    if not files:
        raise DataError("no source was given; name at least one file")
    formats = [_format_of(path) for path in files]
    if len(set(formats)) > 1:
        raise DataError(
            f"{files[0]} and {files[[f is formats[0] for f in formats].index(False)]} are of different formats; "
            "ingest files of one format at a time"
        )
    return formats[0], files


def _expand(name: str) -> list[Path]:
    if os.path.isdir(name):
        raise DataError(f"{name} is a folder; name the files in it, for example '{name}/*.csv'")
    if os.path.exists(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise DataError(f"there is no file {name}; check the name")
    found = sorted(glob.glob(name))
    if not found:
        raise DataError(f"no file matches {name}; check the pattern")
    return [Path(path) for path in found]


def _format_of(path: Path) -> Format:
    for known in FORMATS:
        if path.name.lower().endswith(known.suffixes):
            return known
    endings = ", ".join(suffix for known in FORMATS for suffix in known.suffixes)
    raise DataError(f"{path} is of no known format; files ending in {endings} can be ingested")
