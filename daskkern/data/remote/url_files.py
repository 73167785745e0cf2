"""Remote files that are read from the beginning, in place of a local path."""

import gzip
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from daskkern.data.remote.disk_cache import BLOCK_BYTES, FileBlocks, KeptFile
from daskkern.data.remote.files import FoundFile
from daskkern.data.remote.stores import name_of_place, public


@dataclass(frozen=True)
class UrlFile:
    """A file behind a URL, as it was listed, and where its blocks are kept; as text it has no secrets."""

    found: FoundFile
    cache: FileBlocks = field(default_factory=FileBlocks, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return name_of_place(self.found.place)

    def __str__(self) -> str:
        return public(self.found.place)


SourceFile: TypeAlias = Path | UrlFile


def open_source_file(file: SourceFile) -> BinaryIO:
    """Return a stream of the bytes of a file, decompressed where its name ends in ``.gz``.

    A file behind a URL is read in requests of 4 MiB, which are repeated when they break off. Its blocks are kept for
    later passes, see :class:`daskkern.data.remote.disk_cache.FileBlocks`.

    Raises
    ------
    OSError, DataError, StoreError
        When it does not exist or cannot be reached; when a read breaks off for good.
    """
    if not file.name.lower().endswith(".gz"):
        return open_bytes(file)
    compressed = open_bytes(file) if isinstance(file, UrlFile) else file
    return cast(BinaryIO, gzip.open(compressed, "rb"))  # closes what it opens, and a UrlFile holds nothing open


def open_bytes(file: SourceFile) -> BinaryIO:
    """Return a stream of the bytes of a file as they are; seekable. Raises as :func:`open_source_file`."""
    if isinstance(file, UrlFile):
        return io.BufferedReader(KeptFile(file.found, file.cache), BLOCK_BYTES)
    return file.open("rb")
