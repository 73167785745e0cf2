"""Detection of the separator of a text table from its first line, and of files that cannot be read."""

import codecs
import re
import zlib

import pyarrow as pa

from daskkern.data.remote.url_files import SourceFile, open_source_file
from daskkern.errors import DataError

LONGEST_ROW = 64 << 20
TAB_SUFFIX = ".tsv"
UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error)
"""What reading a file that is damaged, or no text, raises."""
_SEPARATORS = {b";": "semicolons", b"|": "vertical bars"}
_QUOTED = re.compile(rb'"[^"]*"')


def separator_of(name: str, line: bytes) -> str:
    """Return what separates the values of a file with this name and first line: tabs, or else commas."""
    by_tabs = b"\t" in line and b"," not in _QUOTED.sub(b"", line)
    return "\t" if by_tabs or name.lower().removesuffix(".gz").endswith(TAB_SUFFIX) else ","


def refuse_other_dialects(path: SourceFile) -> None:
    """Refuse files in UTF-16 or UTF-32, as spreadsheets write them, and those with semicolons or vertical bars."""
    try:
        with open_source_file(path) as stream:
            line = stream.readline(LONGEST_ROW)
    except UNREADABLE:
        return  # opening it again says what is wrong
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path} is encoded in UTF-16 or UTF-32; save it in UTF-8")
    if separator_of(path.name, line) != ",":
        return
    line = _QUOTED.sub(b"", line)
    other = next((mark for mark in _SEPARATORS if mark in line), None)
    if other is not None and b"," not in line:
        raise DataError(
            f"the first line of {path} has no comma, but {_SEPARATORS[other]}; separate values by commas or tabs, and "
            "write numbers with a decimal point"
        )
