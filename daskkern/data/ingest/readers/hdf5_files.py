"""Opening HDF5 files, ``.h5`` and AnnData's ``.h5ad``, with the optional package h5py."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daskkern.data.ingest.readers.keyed_tables import KeyedFile, open_keyed
from daskkern.data.ingest.readers.tables import Parts, Request, concatenate
from daskkern.errors import DataError


def open_hdf5(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of ``.h5``, ``.hdf5`` or ``.h5ad`` files."""
    files = [KeyedFile(path, lambda path=path: _opened(path)) for path in paths]  # type: ignore[misc]
    return open_keyed(files, request, concatenate)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            f"reading {path} needs the package h5py, which is not installed; run: pip install 'daskkern[formats]'"
        ) from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} cannot be opened as HDF5: {error}; make the file again") from error
    with file:
        yield file
