"""Opening Zarr groups of version 2 or 3 as sources: X and y, or AnnData; also daskkern's own stores."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr

from daskkern.data.ingest.readers.keyed_tables import KeyedFile, open_keyed
from daskkern.data.ingest.readers.tables import Parts, Request, concatenate
from daskkern.data.schema.schema import FORMAT
from daskkern.errors import DataError


def open_zarr(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of Zarr groups, or of a pair of Zarr arrays: X first and then y, as with ``.npy`` files."""
    if all(isinstance(_open(path), zarr.Array) for path in paths):
        return _open_arrays(paths, request)
    files = [KeyedFile(path, lambda path=path: _group(path)) for path in paths]  # type: ignore[misc]
    return open_keyed(files, request, concatenate)


def _open_arrays(paths: Sequence[Path], request: Request) -> Parts:
    if request.features or request.target or request.weight:
        raise DataError("--features, --target and --weight name arrays of a Zarr group, but Zarr arrays were given")
    if len(paths) > 2 or (len(paths) == 1 and request.target is None):
        raise DataError(
            f"{len(paths)} Zarr arrays were given; give two, X first and then y, or a group that holds both"
        )
    named = dict(zip(("X", "y"), paths, strict=False))

    @contextmanager
    def pair() -> Iterator[Any]:
        yield {name: _open(path) for name, path in named.items()}

    return open_keyed([KeyedFile(paths[0], pair)], request, concatenate)


@contextmanager
def _group(path: Path) -> Iterator[Any]:
    group = _open(path)
    if not isinstance(group, zarr.Group):
        raise DataError(f"{path} is a Zarr array, but a group was given, too; give groups, or X and y as two arrays")
    if group.attrs.get("format") == FORMAT:
        raise DataError(f"{path} is already a daskkern store; use it directly")
    yield group


def _open(path: Path) -> "zarr.Group | zarr.Array[Any]":
    try:
        return zarr.open(store=path, mode="r")
    except Exception as error:  # damaged metadata and unknown codecs: zarr raises many types
        raise DataError(f"{path} cannot be opened as Zarr ({type(error).__name__}: {error}); make it again") from error
