"""Tables from stored arrays: ``.npz`` files with X and y, and ``.npy`` pairs."""

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.ingest.readers.array_stream import StoredArray, file_array, member_array
from daskkern.data.ingest.readers.tables import Parts, Piece, Request, Table, block_rows, concatenate, kind_of
from daskkern.data.schema.layout import stored_dtype
from daskkern.errors import DataError

P = ParamSpec("P")
T = TypeVar("T")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def open_npy(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of a pair of ``.npy`` files, X first and then y; or of X alone."""
    _refuse_columns(request, "a .npy file")
    if request.target or request.weight:
        raise DataError(
            "--target and --weight name columns, which .npy files do not have; ingest the pair X.npy y.npy, or a .npz"
        )
    if len(paths) > 2 or (len(paths) == 1 and request.target is None):
        raise DataError(
            f"{len(paths)} .npy files were given; give two, X first and then y (for data without targets, say so: "
            "target=())"
        )
    arrays = [file_array(path) for path in paths]
    table, notes = _table(str(paths[0]), arrays[0], arrays[1] if len(arrays) == 2 else None, None)
    return Parts(table, notes=notes)


def open_npz(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of ``.npz`` files: X and y, or X_train and y_train with or without X_test and y_test."""
    _refuse_columns(request, "a .npz file")
    parts = [_open_npz(path, request) for path in paths]
    tests = [part.test for part in parts if part.test is not None]
    if tests and len(tests) != len(parts):
        raise DataError("some of the .npz files hold X_test and others do not; ingest them separately")
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Parts(concatenate([part.train for part in parts]), concatenate(tests) if tests else None, notes)


def _open_npz(path: Path, request: Request) -> Parts:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
        return _Archive(path, members, request).parts()
    except _DAMAGE as error:
        raise _damaged(path, error) from error


class _Archive:
    """The entries of one .npz file, listed once; every pass over the rows opens the file again."""

    def __init__(self, path: Path, members: set[str], request: Request) -> None:
        self._path, self._members, self._request = path, members, request
        self._used = {"task"}

    def parts(self) -> Parts:
        suffix = self._suffix()
        train, notes = self._part(suffix)
        test = None
        if "X_test" in self._members:
            test, more = self._part("_test")
            notes += more
            if test.target_kind is None and train.target_kind is not None:
                raise DataError(f"{self._path} holds X_test but no y_test; add it, or remove X_test")
        ignored = sorted(self._members - self._used)
        if ignored:
            notes += (f"entries of {self._path} that were not used: {', '.join(ignored)}",)
        return Parts(train, test, notes)

    def _suffix(self) -> str:
        found = [name for name in ("X", "X_train") if name in self._members]
        if len(found) != 1:
            raise DataError(
                f"{self._path} holds {', '.join(sorted(self._members)) or 'no arrays'}; expected X and y, or X_train "
                "and y_train (and X_test, y_test)"
            )
        return found[0].removeprefix("X")

    def _part(self, suffix: str) -> tuple[Table, tuple[str, ...]]:
        X, y, weight = self._array(f"X{suffix}"), self._target(suffix), self._weight(suffix)
        assert X is not None
        table, notes = _table(str(self._path), X, y, weight)
        rows = _guarded(self._path, table.rows_from)
        whole = replace(table, task_hint=self._task(), pieces=lambda: rows(0), pieces_from=rows, starts=(0,))
        targets = table.targets
        return replace(whole, targets=None if targets is None else _guarded(self._path, targets)), notes

    def _target(self, suffix: str) -> StoredArray | None:
        names = self._request.target
        if names is None:
            found = self._array(f"y{suffix}")
            if found is None and suffix != "_test":
                raise DataError(
                    f"{self._path} holds X{suffix} but no y{suffix}; name the targets with --target "
                    f"(entries: {', '.join(sorted(self._members))})"
                )
            return found
        if not names:
            return None
        if len(names) > 1:
            raise DataError(
                f"got {len(names)} target names, but in a .npz file one entry holds all targets: shape (rows, targets)"
            )
        name = f"{names[0]}_test" if suffix == "_test" else names[0]
        return self._named(name, "target")

    def _weight(self, suffix: str) -> StoredArray | None:
        name = self._request.weight
        if name is None:
            return None
        if suffix == "_test":
            return self._array(f"{name}_test")
        return self._named(name, "weight")

    def _named(self, name: str, role: str) -> StoredArray:
        array = self._array(name)
        if array is None:
            raise DataError(
                f"{self._path} has no entry {name!r} for the {role}; it has {', '.join(sorted(self._members))}"
            )
        return array

    def _array(self, name: str) -> StoredArray | None:
        if name not in self._members:
            return None
        self._used.add(name)
        return member_array(self._path, name, self._request.scratch)

    def _task(self) -> str | None:
        if "task" not in self._members:
            return None
        array = member_array(self._path, "task", self._request.scratch)
        if array.header.dtype.kind not in "US" or array.header.shape not in ((), (1,)):
            raise DataError(f"the entry 'task' of {self._path} is not a string; give --task instead")
        scalar = replace(array, header=replace(array.header, shape=(1,)))
        value = next(scalar.blocks(1))[0]
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _table(
    source: str, X: StoredArray, y: StoredArray | None, weight: StoredArray | None
) -> tuple[Table, tuple[str, ...]]:
    """Return the rows of parallel arrays, and a note when features had to be flattened."""
    shape = X.header.shape
    if len(shape) < 2 or 0 in shape[1:]:
        raise DataError(f"{X.name} has shape {shape}; expected rows of features (n, d)")
    if X.header.dtype.kind not in "fiub":
        raise DataError(f"{X.name} holds {X.header.dtype} values; features are real numbers, so encode them first")
    for other in (y, weight):
        if other is not None and other.header.shape[:1] != shape[:1]:
            raise DataError(
                f"{X.name} has shape {shape}, but {other.name} has shape {other.header.shape}: rows must agree"
            )
    if weight is not None and (len(weight.header.shape) != 1 or weight.header.dtype.kind not in "fiub"):
        raise DataError(f"{weight.name} holds {weight.header.dtype} {weight.header.shape}; expected one number per row")
    d, t = math.prod(shape[1:]), 0 if y is None else math.prod(y.header.row_shape)
    if y is not None and (len(y.header.shape) > 2 or t == 0):
        raise DataError(f"{y.name} has shape {y.header.shape}; expected (rows,) or (rows, targets)")
    table = Table(
        source=source,
        n_rows=shape[0],
        n_features=d,
        dtype=stored_dtype(X.header.dtype),
        target_kind=None if y is None else kind_of(y.header.dtype, y.name),
        n_targets=t,
        has_weight=weight is not None,
        pieces=lambda: _pieces(source, X, y, weight, 0),
        pieces_from=lambda start: _pieces(source, X, y, weight, start),
        targets=partial(_targets, y) if y is not None and t == 1 else None,
    )
    flattened = f"{X.name}: rows of shape {shape[1:]} were flattened to {d} features"
    return table, (flattened,) if len(shape) > 2 else ()


def _pieces(
    source: str, X: StoredArray, y: StoredArray | None, weight: StoredArray | None, first: int
) -> Iterator[Piece]:
    rows = block_rows(sum(array.header.row_bytes for array in (X, y, weight) if array is not None))
    with ExitStack() as stack:
        streams = [_open_blocks(stack, array, rows, first) for array in (X, y, weight)]
        for block in streams[0]:
            targets, weights = (next(stream, None) for stream in streams[1:])
            yield Piece(source, first, block.reshape(len(block), -1), _as_targets(targets), weights)
            first += len(block)


def _targets(y: StoredArray) -> Iterator[HostArray]:
    with closing(y.blocks(block_rows(y.header.row_bytes))) as blocks:
        for block in blocks:
            yield block.reshape(-1)


def _open_blocks(stack: ExitStack, array: StoredArray | None, rows: int, first: int) -> Iterator[HostArray]:
    if array is None:
        return iter(())
    blocks = array.blocks(rows, first)
    stack.callback(blocks.close)  # closes the file when a pass is abandoned
    return blocks


def _as_targets(y: HostArray | None) -> HostArray | None:
    if y is None:
        return None
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _guarded(path: Path, read: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return `read` with errors that appear only while inflating turned into a sentence."""

    def guarded(*arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        try:
            yield from read(*arguments, **named)
        except _DAMAGE as error:
            raise _damaged(path, error) from error

    return guarded


def _damaged(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path} is not a valid .npz file ({error}); make it again with numpy.savez")


def _refuse_columns(request: Request, what: str) -> None:
    if request.drop:
        raise DataError(f"--drop names columns, but {what} has no column names; remove them before saving it")
