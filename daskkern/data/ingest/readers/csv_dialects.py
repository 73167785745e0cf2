"""Text files that are no CSV of commas in an encoding of single bytes: found early, by their first line."""

import codecs
import re
import zlib

import pyarrow as pa

from daskkern.data.remote.url_files import SourceFile, open_source_file
from daskkern.errors import DataError

LONGEST_ROW = 64 << 20
UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error)
"""What reading a file that is damaged, or no text, raises."""
_SEPARATORS = {b";": "semicolons", b"\t": "tabs", b"|": "vertical bars"}


def refuse_other_dialects(path: SourceFile) -> None:
    """Refuse files in UTF-16 or UTF-32, as spreadsheets write them, and those with other separators than commas."""
    try:
        with open_source_file(path) as stream:
            line = stream.readline(LONGEST_ROW)
    except UNREADABLE:
        return  # opening it again says what is wrong
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path} is encoded in UTF-16 or UTF-32; save it in UTF-8")
    line = re.sub(rb'"[^"]*"', b"", line)
    other = next((mark for mark in _SEPARATORS if mark in line), None)
    if other is not None and b"," not in line:
        raise DataError(
            f"the first line of {path} has no comma, but {_SEPARATORS[other]}; separate values by commas, and write "
            "numbers with a decimal point"
        )
