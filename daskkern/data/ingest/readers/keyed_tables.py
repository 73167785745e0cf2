"""Tables from files of named arrays that are read in slices: HDF5, Zarr, and AnnData in either.

Both libraries open a file as a group of arrays and groups with attributes, so one reader serves both. Rows are
read a block at a time, along the chunks of the file.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.tiles import slices
from daskkern.data.ingest.readers.annotations import refuse_packed
from daskkern.data.ingest.readers.keyed_choice import (
    Node,
    column_of,
    feature_names_of,
    features_of,
    kept_features,
    targets_of,
    weight_of,
)
from daskkern.data.ingest.readers.tables import (
    Parts,
    Piece,
    Request,
    Table,
    TargetKind,
    block_rows,
    kind_of,
    kind_of_all,
)
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.layout import stored_dtype
from daskkern.data.storage.csr_store import CsrReader
from daskkern.errors import DataError

Opener: TypeAlias = Callable[[], AbstractContextManager[Node]]

_SPARSE = "csr_matrix"


@dataclass(frozen=True)
class KeyedFile:
    """A file of named arrays; `open` is a context manager that yields its root."""

    path: Path
    open: Opener


def open_keyed(files: Sequence[KeyedFile], request: Request, join: Callable[[list[Table]], Table]) -> Parts:
    """Return the rows of files: X and y by their usual names, or those that --features and --target name.

    In AnnData files (those with ``obs``), --target, --weight and the features to --drop name columns of ``obs`` and
    entries of ``var``.
    """
    tables = []
    for file in files:
        with file.open() as root:
            tables.append(_Layout.of(file, root, request).table())
    return Parts(join(tables))


@dataclass(frozen=True)
class _Layout:
    """The locations of the rows of a file."""

    file: KeyedFile
    features: str
    targets: tuple[str, ...]
    weight: str | None
    n_rows: int
    n_features: int
    dtype: "np.dtype[np.generic]"
    is_sparse: bool
    chunk_rows: int
    names: tuple[str, ...] | None
    target_kinds: tuple[TargetKind, ...]
    n_targets: int
    kept: tuple[int, ...] | None

    @classmethod
    def of(cls, file: KeyedFile, root: Node, request: Request) -> "_Layout":
        is_annotated = "obs" in root and not hasattr(root["obs"], "shape")
        features = features_of(root, request, file.path)
        X = root[features]
        n_rows, n_features, dtype, sparse = _shape_of(X, features, file)
        targets = targets_of(root, request, is_annotated, file.path)
        weight = weight_of(request, is_annotated)
        columns = [column_of(root, name, file.path) for name in (*targets, *weight)]
        for column in columns:
            if column.shape[:1] != (n_rows,):
                raise DataError(
                    f"{features!r} of {file.path} has {n_rows} rows, but {column.name!r} has shape {column.shape}: "
                    "rows must agree"
                )
        names = feature_names_of(root) if is_annotated else None
        kept = kept_features(names, request, file.path)
        described = columns[: len(targets)]
        kinds = tuple(kind_of(column.dtype, f"{column.name!r} of {file.path}") for column in described)
        width = sum(column.shape[1] if len(column.shape) == 2 else 1 for column in described)
        return cls(
            file,
            features,
            targets,
            weight[0] if weight else None,
            n_rows,
            n_features if kept is None else len(kept),
            dtype,
            sparse,
            1 if sparse or not getattr(X, "chunks", None) else int(X.chunks[0]),
            names if names is None or kept is None else tuple(names[j] for j in kept),
            kinds,
            width,
            kept,
        )

    def table(self) -> Table:
        return Table(
            source=str(self.file.path),
            n_rows=self.n_rows,
            n_features=self.n_features,
            dtype=stored_dtype(self.dtype),
            target_kind=kind_of_all(self.target_kinds),
            n_targets=self.n_targets,
            has_weight=self.weight is not None,
            pieces=lambda: self._pieces(0),
            feature_names=self.names,
            target_names=tuple(name.rpartition("/")[2] for name in self.targets) if self.names else None,
            is_sparse=self.is_sparse,
            pieces_from=self._pieces,
            targets=self._target if self.target_kinds == ("float",) else None,
        )

    def _pieces(self, start: int) -> Iterator[Piece]:
        source = str(self.file.path)
        with self.file.open() as root:
            reader = self._reader(root)
            columns = [column_of(root, name, self.file.path) for name in self.targets]
            weight = None if self.weight is None else column_of(root, self.weight, self.file.path)
            step = self._step(root)
            while start < self.n_rows:
                stop = min(self.n_rows, (start // step + 1) * step)
                X = reader(start, stop)
                y = [column.read(start, stop) for column in columns]
                yield Piece(
                    source,
                    start,
                    X if self.kept is None else X[:, list(self.kept)],
                    _joined(y),
                    None if weight is None else weight.read(start, stop),
                )
                start = stop

    def _target(self) -> Iterator[HostArray]:
        with self.file.open() as root:
            column = column_of(root, self.targets[0], self.file.path)
            for rows in slices(self.n_rows, block_rows(column.dtype.itemsize)):
                yield column.read(rows.start, rows.stop).reshape(-1)

    def _step(self, root: Node) -> int:
        """Return the number of rows to read at once: whole chunks of the file, about 8 MiB."""
        if self.is_sparse:
            n_stored = int(root[self.features]["data"].shape[0])
            return max(1, block_rows(12 * max(1, n_stored // max(1, self.n_rows))))
        rows = block_rows(self.dtype.itemsize * self.n_features)
        return max(1, rows // self.chunk_rows) * self.chunk_rows if rows >= self.chunk_rows else rows

    def _reader(self, root: Node) -> Callable[[int, int], FeatureRows]:
        X, native = root[self.features], self.dtype.newbyteorder("=")
        where = f"{self.features!r} of {self.file.path}"
        if self.is_sparse:
            csr = CsrReader(X, int(X.attrs["shape"][1]), where)
            return lambda start, stop: csr.read(start, stop).astype(native, copy=False)
        return lambda start, stop: _slice(X, start, stop, where).astype(native, copy=False)


def _slice(array: Node, start: int, stop: int, where: str) -> HostArray:
    try:
        rows = np.asarray(array[start:stop])
    except Exception as error:  # damaged chunks and missing filters: both libraries raise many types
        raise DataError(
            f"rows {start} to {stop} of {where} cannot be read ({type(error).__name__}: {error})"
        ) from error
    return rows.reshape(len(rows), -1)


def _shape_of(X: Node, name: str, file: KeyedFile) -> tuple[int, int, "np.dtype[np.generic]", bool]:
    if not hasattr(X, "shape"):
        encoding = X.attrs.get("encoding-type")
        if encoding != _SPARSE or "shape" not in X.attrs:
            raise DataError(
                f"{name!r} of {file.path} is a group of encoding {encoding!r}; expected an array or a csr_matrix "
                "(give another with --features, or convert a csc_matrix with X.tocsr() before writing)"
            )
        n_rows, d = (int(length) for length in X.attrs["shape"])
        if X["indptr"].shape != (n_rows + 1,):
            raise DataError(f"{name!r} of {file.path} is not a valid csr_matrix: its indptr does not fit {n_rows} rows")
        return n_rows, d, _number(X["data"].dtype, name, file), True
    if len(X.shape) < 2 or 0 in X.shape[1:]:
        raise DataError(f"{name!r} of {file.path} has shape {tuple(X.shape)}; expected rows of features (n, d)")
    refuse_packed(X, name, str(file.path))
    return int(X.shape[0]), int(np.prod(X.shape[1:])), _number(X.dtype, name, file), False


def _number(dtype: "np.dtype[np.generic]", name: str, file: KeyedFile) -> "np.dtype[np.generic]":
    if dtype.kind not in "fiub":
        raise DataError(
            f"{name!r} of {file.path} holds {dtype} values; features are real numbers, so encode them first"
        )
    return dtype


def _joined(columns: Sequence[HostArray]) -> HostArray | None:
    if not columns:
        return None
    if len(columns) == 1:
        y = columns[0]
        return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return np.column_stack(columns)
