"""Opening a store for reading: from a folder, a zip, a URL or a Zarr group."""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import zarr
from zarr.storage import ZipStore

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.machine_code.crc32 import crc32
from daskkern.data.remote.stores import is_url, open_zarr, public
from daskkern.data.schema.schema import STATISTICS, StoreInfo
from daskkern.data.storage.csr_store import PARTS
from daskkern.data.storage.random_access import rows_in_chunk
from daskkern.data.storage.sizes import ZarrArray, check_chunks
from daskkern.display import html_facts
from daskkern.errors import StoreError

StoreLocation: TypeAlias = str | os.PathLike[str] | zarr.Group


@dataclass(frozen=True)
class Store:
    """An open store: its schema, the Zarr group, and its path."""

    info: StoreInfo
    group: zarr.Group
    path: str

    def __repr__(self) -> str:
        size = f"{self.info.n_rows:,} rows x {self.info.n_features:,} features"
        return f"<Store {public(self.path)!r}: {size}, {self.info.task or 'no targets'}>"

    def _repr_html_(self) -> str:
        info = self.info
        classes = "" if info.classes is None else f"{len(info.classes)}: {', '.join(map(str, info.classes[:10]))}"
        facts = [
            ("rows", f"{info.n_rows:,}"),
            ("features", f"{info.n_features:,}{', sparse' * info.is_sparse}"),
            ("task", info.task or "no targets"),
            ("targets", f"{info.n_targets}" if info.n_targets > 1 else ""),
            ("classes", classes + ", ..." * (info.classes is not None and len(info.classes) > 10)),
            ("weights", "yes" if info.has_weight else ""),
            ("names", ", ".join(info.feature_names or ())),
            ("rows of a chunk", f"{info.chunk_rows:,}"),
        ]
        return html_facts(f"Store {public(self.path)}", facts)

    def array(self, name: str) -> ZarrArray:
        """Return the Zarr array ``"X"`` (of sparse rows ``"X/data"`` and such), ``"y"`` or ``"weight"``."""
        return _array(self.group, name, self.path)

    def array_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that hold the rows, as :meth:`array` takes them."""
        features = tuple(f"X/{part}" for part in PARTS) if self.info.is_sparse else ("X",)
        return (
            *features,
            *(["y"] if self.info.task is not None else []),
            *(["weight"] if self.info.has_weight else []),
        )

    def csr_parts(self) -> Mapping[str, ZarrArray]:
        """Return the parts of sparse rows."""
        return {part: self.array(f"X/{part}") for part in PARTS}

    def fingerprint(self) -> str:
        """Return a short digest that identifies the data, independent of the name of the store.

        It covers shapes, dtype, the attributes and through them the checksums of the rows; no row is read.
        """
        X = self.array("X/data" if self.info.is_sparse else "X")
        shape = (self.info.n_rows, self.info.n_features)
        identity = {"shape": shape, "dtype": str(X.dtype), **self.info.to_attributes()}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def verify(self) -> None:
        """Read everything and raise StoreError when an array differs from what was written."""
        for name, expected in self.info.checksums.items():
            array = self.array(name)
            if checksum(array, array.chunks[0]) != expected:
                raise StoreError(
                    f"array {name!r} of the store {self.path} is not what was written (its checksum differs); "
                    "copy the store again or ingest the data again"
                )


def open_store(source: StoreLocation, *, chunks_present: bool = True) -> Store:
    """Open a store for reading and check that it is complete.

    Parameters
    ----------
    source : str, path or zarr.Group
        A folder, a zip file of one, a URL (see :mod:`daskkern.data.remote.stores`), or an open group.
    chunks_present : bool
        Refuse the store when a chunk is missing, which Zarr would read as zeros.

    Raises
    ------
    StoreError
        When it is missing, not a daskkern store, of a newer schema, incomplete or damaged.
    """
    group, path = _open_group(source)
    info = StoreInfo.from_attributes(group.attrs.asdict(), path, _statistics(group, path))
    shapes: dict[str, tuple[int, ...]] = {}
    if info.is_sparse:
        _check_csr(group, info, path)
    else:
        shapes["X"] = (info.n_rows, info.n_features)
    if info.task is not None:
        shapes["y"] = (info.n_rows,) if info.task == "classification" else (info.n_rows, info.n_targets)
    if info.has_weight:
        shapes["weight"] = (info.n_rows,)
    for name, shape in shapes.items():
        _check_array(_array(group, name, path), name, shape, info, path)
    store = Store(info, group, path)
    if chunks_present:
        for name in store.array_names():
            _refuse_missing_chunk(store.array(name), name, path)
    return store


def checksum(array: ZarrArray, chunk_rows: int) -> int:
    """Return the CRC-32 of the rows of `array`, read chunk by chunk."""
    value = 0
    for start in range(0, array.shape[0], chunk_rows):
        value = crc32(np.ascontiguousarray(read_array(array, start, start + chunk_rows)), value)
    return value


def read_array(array: ZarrArray, start: int, stop: int) -> HostArray:
    """Return the rows from `start` to `stop` of an array of a store, as stored; StoreError when they are damaged."""
    try:
        rows = rows_in_chunk(array, start, stop)
        return np.asarray(array[start:stop]) if rows is None else rows
    except StoreError:
        raise
    except Exception as error:  # a truncated chunk, a lost disk: codecs and stores have their own types
        raise StoreError(
            f"rows {start} to {stop} of {array.store_path} cannot be read ({type(error).__name__}: {error}); "
            "copy the store again or ingest the data again"
        ) from error


def _open_group(source: StoreLocation) -> tuple[zarr.Group, str]:
    if isinstance(source, zarr.Group):
        return source, str(source.store_path)
    text = os.fspath(source)
    try:
        if is_url(text):
            return open_zarr(text), text
        path = Path(text)
        if not path.exists():
            kind = "file or store" if path.suffix not in ("", ".zarr", ".zip") else "store"
            raise StoreError(f"there is no {kind} at {path}; check the name, or make a store with 'daskkern ingest'")
        if path.is_dir():
            return zarr.open_group(path, mode="r", zarr_format=3), str(path)
        return _open_zip(path), str(path)
    except StoreError:
        raise
    except FileNotFoundError as error:
        raise StoreError(f"{text} holds no Zarr v3 group; make a store with 'daskkern ingest'") from error
    except Exception as error:  # damaged metadata, network: zarr and fsspec have their own types
        raise StoreError(f"{text} cannot be opened as a store: {type(error).__name__}: {error}") from error


def _open_zip(path: Path) -> zarr.Group:
    """Open a zipped store, whether its files were packed at the top or inside a folder."""
    if not zipfile.is_zipfile(path):
        raise StoreError(f"{path} is a file but not a store; convert it with 'daskkern ingest {path} --out STORE'")
    with zipfile.ZipFile(path) as archive:
        roots = [name for name in archive.namelist() if name == "zarr.json" or name.endswith("/zarr.json")]
    if not roots:
        raise StoreError(f"{path} is a zip file without a Zarr v3 group; make a store with 'daskkern ingest'")
    root = min(roots, key=lambda name: name.count("/")).removesuffix("zarr.json").rstrip("/")
    return zarr.open_group(ZipStore(path, mode="r"), path=root, mode="r", zarr_format=3)


def _array(group: zarr.Group, name: str, path: str) -> ZarrArray:
    try:
        array = group.get(name)
    except StoreError:
        raise
    except Exception as error:  # damaged metadata: zarr raises many types
        raise StoreError(f"array {name!r} of the store {path} is damaged: {error}; ingest the data again") from error
    if not isinstance(array, zarr.Array):
        raise StoreError(f"the store {path} has no array {name!r}; copy it again or ingest the data again")
    return array


def _check_array(array: ZarrArray, name: str, shape: tuple[int, ...], info: StoreInfo, path: str) -> None:
    if array.shape != shape:
        raise StoreError(
            f"array {name!r} of the store {path} has shape {array.shape}, but its attributes say {shape}; "
            "ingest the data again"
        )
    expected = {"X": "fiu", "y": "i" if info.task == "classification" else "f", "weight": "f"}[name]
    if array.dtype.kind not in expected:
        raise StoreError(f"array {name!r} of the store {path} holds {array.dtype} values; expected numbers")
    if array.chunks != (info.chunk_rows, *shape[1:]):
        raise StoreError(
            f"array {name!r} of the store {path} has chunks {array.chunks}, but its attributes say "
            f"{info.chunk_rows} rows; ingest the data again"
        )


def _statistics(group: zarr.Group, path: str) -> FloatArray | None:
    try:
        present = STATISTICS in group
    except StoreError:
        raise
    except Exception as error:  # damaged metadata: zarr raises many types
        raise StoreError(f"array {STATISTICS!r} of the store {path} is damaged: {error}; ingest again") from error
    if not present:
        return None
    array = _array(group, STATISTICS, path)
    _refuse_missing_chunk(array, STATISTICS, path)
    return read_array(array, 0, 4).astype(np.float64)


def _check_csr(group: zarr.Group, info: StoreInfo, path: str) -> None:
    """Check that the parts of sparse rows are there, complete and of consistent lengths."""
    parts = {name: _array(group, f"X/{name}", path) for name in PARTS}
    lengths = {name: array.shape for name, array in parts.items()}
    if lengths["indptr"] != (info.n_rows + 1,) or lengths["data"] != lengths["indices"] or len(lengths["data"]) != 1:
        raise StoreError(
            f"the parts of X of the store {path} have the shapes {lengths}, which do not fit {info.n_rows} rows; "
            "ingest the data again"
        )
    for name, array in parts.items():
        if array.dtype.kind not in ("fiu" if name == "data" else "iu"):
            raise StoreError(f"array 'X/{name}' of the store {path} holds {array.dtype} values; ingest the data again")


def _refuse_missing_chunk(array: ZarrArray, name: str, path: str) -> None:
    """Refuse an array that lacks chunks, or whose chunks are far too small for its shape."""
    missing = check_chunks(array, f"array {name!r} of the store {path}")
    if missing is not None:
        raise StoreError(
            f"the store {path} is incomplete: chunk {missing} of array {name!r} is missing; "
            "copy the store again or ingest the data again"
        )
