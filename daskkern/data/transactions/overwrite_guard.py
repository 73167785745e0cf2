"""Overwrite protection: without ``overwrite``, only files written by daskkern, or by Dask for it, are replaced."""

import os
from enum import Enum
from pathlib import Path

from daskkern.data.remote.stores import is_url, public
from daskkern.errors import SpecError, StoreError

REPORT_MARK = '<meta name="generator" content="daskkern report">'
SUMMARY_MARK = "<!-- model card of daskkern -->"
_HEAD_BYTES = 1 << 16


class FileKind(Enum):
    """Kinds of files: a description, and bytes near the beginning that identify them."""

    REPORT = ("a report of daskkern", REPORT_MARK.encode())
    DASK_REPORT = ("a performance report of Dask", b"<title>Dask Performance Report</title>")
    PICTURE = ("a picture of daskkern", b"tEXtSoftware\0daskkern")
    ONNX = ("an ONNX file of daskkern", b"\x12\x08daskkern")  # producer_name, the second field of a model
    SUMMARY = ("a model card of daskkern", SUMMARY_MARK.encode())
    COMPARISON = ("a comparison of daskkern", b'{\n  "store": ')


def check_file(path: str | os.PathLike[str], kind: FileKind, *, overwrite: bool = False, option: str = "") -> Path:
    """Return the path of a local file that may be written as a file of `kind`.

    Parameters
    ----------
    path : path
    kind : Kind
        An older file of this kind is replaced.
    overwrite : bool
        Replace any other file, too.
    option : str
        The command-line option, for messages.

    Raises
    ------
    SpecError
        When `path` cannot be a local file: a URL, a folder, or a path in a missing folder.
    StoreError
        When there is a file of another kind.
    """
    given = f"{option} {public(os.fspath(path))!r} was given".lstrip()
    if not os.fspath(path) or is_url(os.fspath(path)):
        raise SpecError(f"{given}, which is not a local file; give the name of one")
    target = Path(path)
    if target.is_dir() or (os.path.lexists(target) and not target.is_file()):
        what = "a folder" if target.is_dir() else "not a regular file"
        raise SpecError(f"{given}, which is {what}; give the name of a file")
    if not target.absolute().parent.is_dir():
        raise SpecError(f"{given}, whose folder does not exist; give one in an existing folder")
    words, mark = kind.value
    if target.exists() and not overwrite and mark not in _head(target):
        raise StoreError(
            f"{target} exists and is not {words}, so it is not overwritten; choose another name or remove it first"
        )
    return target


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; choose another name") from None
