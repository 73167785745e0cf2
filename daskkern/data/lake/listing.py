"""The files that a name, folder or pattern matches, local or remote: listed once, in natural order."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from fsspec.utils import glob_translate

from daskkern.data.remote.files import FoundFile, file_at, files_below
from daskkern.data.remote.stores import WEB, absolute, is_url
from daskkern.errors import DataError

SUFFIXES = (".parquet", ".pq")
_TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson", ".svm", ".libsvm", ".svmlight")
OTHER_TABLES = (*_TEXTS, *(f"{text}.gz" for text in _TEXTS), ".arrow", ".feather", ".arrows", ".ipc", ".orc")
"""Endings of tables of other formats, which a folder of Parquet files must not have."""
_HIDDEN = (".", "_")
_WEB = tuple(f"{scheme}://" for scheme in WEB)


class NoParquetError(DataError):
    """A folder without Parquet files, which may have tables of another format."""


@dataclass(frozen=True, eq=False)
class LakeColumns:
    """The columns that the format of a table records.

    `in_metadata` are those whose values its files may leave to the format. `in_files` has the names of the columns in
    the files, and the names that the table has for them now; None where these are the same.
    """

    schema: pa.Schema
    in_metadata: frozenset[str] = frozenset()
    in_files: Mapping[str, str] | None = None


@dataclass(frozen=True)
class LakeFile:
    """A file of a lake, and the folder `base` below which the names of folders may hold partition values.

    `partition` are these values where a table format records them itself; None means the names of folders. `columns`
    are those of the table that the file belongs to, where its format records them: a file that was written before one
    of them was added lacks it.
    """

    found: FoundFile
    base: str
    partition: tuple[tuple[str, Any], ...] | None = None
    columns: LakeColumns | None = None

    @property
    def place(self) -> str:
        """The path or URL of the file."""
        return self.found.place


def natural_key(place: str) -> tuple[object, ...]:
    """Return the key of the natural order of paths: ``part-2`` before ``part-10``, folder by folder."""
    return (tuple(tuple(_words(part)) for part in place.split("/")), place)


def listed(place: str, suffixes: Sequence[str] = SUFFIXES) -> list[LakeFile]:
    """Return the files of one source in natural order.

    Parameters
    ----------
    place : str
        A file, a folder, or a pattern with ``*``, ``?``, ``[...]`` and ``**``; a path or a URL. In folders, files with
        other endings, and all below a name that begins with a dot or an underscore, are left out.
    suffixes : sequence of str

    Raises
    ------
    DataError
        When no file matches, or a folder has tables of other formats, too; NoParquetError if it has no Parquet files.
    StoreError
        When the server cannot be reached.
    """
    place = absolute(place)
    if not _has_magic(place):
        one = file_at(place)
        if one is not None:
            return [LakeFile(one, place.rpartition("/")[0])]
    root = _root(place)
    below = files_below(root)
    matched = below if root == place else [file for file in below if _matches(file.place, place)]
    kept = [file for file in matched if is_data(file.place, root, suffixes)]
    if not kept:
        raise _nothing(place, root, len(below))
    other = next((file.place for file in matched if is_data(file.place, root, OTHER_TABLES)), None)
    if other is not None and not set(suffixes).intersection(OTHER_TABLES):
        raise DataError(
            f"{kept[0].place} and {other} are of different formats; a folder has files of one format: name the files, "
            f"for example '{place.rstrip('/')}/*{os.path.splitext(kept[0].place)[1]}'"
        )
    return sorted((LakeFile(file, root) for file in kept), key=lambda file: natural_key(file.place))


def is_data(place: str, root: str, suffixes: Sequence[str] = SUFFIXES) -> bool:
    """Return whether a file is data: by its ending, and because nothing below the root hides it."""
    parts = place.removeprefix(root).strip("/").split("/")
    hidden = any(part.startswith(_HIDDEN) and "=" not in part for part in parts)
    return not hidden and parts[-1].lower().endswith(tuple(suffixes))


def _words(part: str) -> list[object]:
    """Return a name as texts and numbers in turn, so that keys of any two names can be compared."""
    return [int(word) if number % 2 else word for number, word in enumerate(re.split(r"(\d+)", part))]


def _has_magic(place: str) -> bool:
    if place.startswith(_WEB):  # "?" begins a query, and nothing can be listed
        return False
    return glob.has_magic(place.partition("://")[2] if is_url(place) else place) and not os.path.exists(place)


def _root(place: str) -> str:
    """Return the folder above the first part of a pattern that has wildcards."""
    if not _has_magic(place):
        return place.rstrip("/")
    scheme, mark, path = place.partition("://") if is_url(place) else ("", "", place)
    parts = path.split("/")
    first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return f"{scheme}{mark}{'/'.join(parts[:first])}"


@lru_cache(maxsize=64)
def _pattern(place: str) -> re.Pattern[str]:
    return re.compile(glob_translate(place))


def _matches(place: str, pattern: str) -> bool:
    """Return whether a pattern matches a file, or a folder that it is in."""
    known = _pattern(pattern.rstrip("/"))
    parts = place.split("/")
    return any(known.match("/".join(parts[:stop])) for stop in range(len(parts), 1, -1))


def _nothing(place: str, root: str, n_found: int) -> DataError:
    if _has_magic(place):
        return DataError(f"no file matches {place}; check the pattern")
    if n_found or (not is_url(place) and os.path.isdir(root)):
        return NoParquetError(f"{place} is a folder without tables; name files, for example '{place}/*.npz'")
    return DataError(f"there is no file {place}; check the name")
