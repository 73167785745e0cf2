"""Groups of rows that were decoded once, kept in an unnamed scratch file for the other passes of a fit.

A set-up takes about ten samples of all rows, each of which would decode nearly every group of the files for a row or
two of it, and every epoch would decode all. From the file, samples read their own rows, and epochs what a store has.
Rows are kept as readers return them, not scaled, so that a fit has the same bits with and without the file.
"""

import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any
from weakref import WeakValueDictionary, finalize

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.data.rows.grouped_rows import GroupReader
from daskkern.data.rows.rows import ALL, Fields, RowBlock
from daskkern.data.storage.local_chunks import write_at
from daskkern.errors import DataError, SpecError
from daskkern.training.feeding.block_cache_policy import disk_room
from daskkern.training.feeding.scratch import scratch_folder
from daskkern.training.run.settings import FitSettings

_SPARSE = 8
"""Rows are read one by one where they are fewer than one of so many."""
_EXACT = 2.0**53
_HERE: "WeakValueDictionary[str, DecodedGroups]" = WeakValueDictionary()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class _Field:
    """Where a field of the rows of a group is in the file."""

    at: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class DecodedGroups:
    """Groups of rows in a scratch file of this process, which the system removes even when the process is killed.

    Sent to another process, it is an empty one there, once for each process. Threads may read and write at once.
    Nothing is kept any more when the disk has no room: groups are decoded again then.

    Parameters
    ----------
    settings : FitSettings
        The dtype of the features, the folder, and the most bytes; by default, half of the free disk is left free.
    token : str
        The same in all processes.
    """

    def __init__(self, settings: FitSettings, token: str = "") -> None:
        self.dtype = np.dtype(settings.dtype)
        self._settings, self.token = settings, token or uuid.uuid4().hex
        self._lock = threading.Lock()
        self._file: Any = None
        self._folder = ""
        self._room, self._used, self._floor = -1, 0, 0
        self._found: dict[tuple[int, np.dtype[Any]], tuple[_Field | None, ...]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return groups_here, (self._settings, self.token)

    def has(self, number: int, dtype: npt.DTypeLike) -> bool:
        """Return whether a group is there with features of a dtype."""
        return (number, np.dtype(dtype)) in self._found

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike, places: IntArray | None = None) -> RowBlock:
        """Return a group that is there, or its rows at `places` (k,), ascending."""
        kept = self._found[number, np.dtype(dtype)]
        wanted = (Fields.X, Fields.y, Fields.weight)
        return RowBlock(
            *(
                None if part is None or field not in fields else self._values(part, places)
                for part, field in zip(kept, wanted, strict=True)
            )
        )

    def keep(self, number: int, block: RowBlock) -> None:
        """Write a group, with all fields that its rows have."""
        parts = [None if part is None else np.ascontiguousarray(part) for part in (block.X, block.y, block.weight)]
        assert parts[0] is not None
        size = sum(part.nbytes for part in parts if part is not None)
        with self._lock:
            if (number, parts[0].dtype) in self._found or not self._has_room(size):
                return
            at, self._used = self._used, self._used + size
        found: list[_Field | None] = []
        try:
            for part in parts:
                found.append(None if part is None else _Field(at, part.dtype, part.shape))
                if part is not None:
                    write_at(self._file.fileno(), part, at)
                    at += part.nbytes
        except OSError:  # the disk is full, whoever filled it
            self._room = 0
            return
        self._found[number, parts[0].dtype] = tuple(found)

    def _has_room(self, size: int) -> bool:
        if self._room < 0:
            self._open()
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:  # the folder was removed, but not what was written
            self._room = 0
            return False
        return self._used + size <= self._room and free - size >= self._floor

    def _open(self) -> None:
        self._folder = scratch_folder(self._settings)
        self._room = disk_room(self._settings)
        if not self._room:
            return
        try:
            self._floor = shutil.disk_usage(self._folder).free // 2
            self._file = _unnamed(self._folder)
            finalize(self, self._file.close)
        except OSError as error:
            if self._settings.scratch is not None:
                raise SpecError(
                    f"no scratch file for rows can be created in {self._folder} ({error.strerror}); give another "
                    "--set scratch=FOLDER, or --set disk=1"
                ) from None
            self._room = 0

    def _values(self, part: _Field, places: IntArray | None) -> HostArray:
        if places is None or len(places) * _SPARSE > part.shape[0] or part.shape[1:] == ():
            whole = _read(self._file.fileno(), part, part.at, part.shape)
            return whole if places is None else whole[places]
        row = part.dtype.itemsize * int(np.prod(part.shape[1:]))
        values = np.empty((len(places), *part.shape[1:]), part.dtype)
        cuts = np.flatnonzero(np.diff(places) != 1) + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(places)]):
            at = part.at + row * int(places[begin])
            values[begin:end] = _read(self._file.fileno(), part, at, values[begin:end].shape)
        return values


def groups_here(settings: FitSettings, token: str = "") -> DecodedGroups:
    """Return the groups that this process has for a token, or new ones."""
    with _LOCK:
        found = _HERE.get(token)
        if found is None:
            found = DecodedGroups(settings, token)
            _HERE[found.token] = found
        return found


@dataclass(frozen=True, eq=False)
class KeptGroups(GroupReader):
    """Reads groups once, and then from the scratch file.

    Attributes
    ----------
    reader : GroupReader
    kept : DecodedGroups
    keep_as : dtype
        Of the features that are kept; float64 ones are rounded for it.
    """

    reader: GroupReader
    kept: DecodedGroups
    keep_as: np.dtype[Any]

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        """Rows of each group."""
        return self.reader.sizes

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights."""
        return self.reader.has_weight

    def features_on(self, dtype: npt.DTypeLike) -> Iterator[Array] | None:
        """Return features on the GPU of this process; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        return self.reader.features_on(dtype)

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a group; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        as_kept = dtype if Fields.X in fields else self.keep_as
        if self.kept.has(number, as_kept):
            return self.kept.read(number, fields, as_kept)
        if Fields.X not in fields:
            return self.reader.read(number, fields, dtype)
        block = self.reader.read(number, ALL, dtype)
        rounded = _rounded(block, self.keep_as)
        if rounded is not None:
            self.kept.keep(number, rounded)
        every = (block.X, block.y, block.weight)
        wanted = (Fields.X, Fields.y, Fields.weight)
        return RowBlock(*(part if field in fields else None for part, field in zip(every, wanted, strict=True)))

    def read_some(self, number: int, places: IntArray, fields: Fields, dtype: npt.DTypeLike) -> RowBlock | None:
        """Return rows of a group that is in the scratch file; None of others."""
        as_kept = dtype if Fields.X in fields else self.keep_as
        return self.kept.read(number, fields, as_kept, places) if self.kept.has(number, as_kept) else None


def _rounded(block: RowBlock, dtype: np.dtype[Any]) -> RowBlock | None:
    """Return a block as a reader returns it in `dtype`; None where that may differ.

    Integers beyond 2^53 are rounded twice by way of float64. Values beyond float32 are refused when they are read.
    """
    assert block.X is not None
    if block.X.dtype == dtype:
        return block
    if block.X.dtype.itemsize < dtype.itemsize:
        return None
    with np.errstate(over="ignore"):
        X = block.X.astype(dtype)
    is_exact = X.size == 0 or bool(max(X.max(), -X.min()) < _EXACT)  # also not for NaN
    return RowBlock(X, block.y, block.weight) if is_exact else None


def _unnamed(folder: str) -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="daskkern-rows-", dir=folder, buffering=0)


def _read(file: int, part: _Field, at: int, shape: tuple[int, ...]) -> HostArray:
    values = np.empty(shape, part.dtype)
    view = values.data.cast("B") if values.size else memoryview(b"")
    while view:
        count = os.preadv(file, [view], at)
        if not count:
            raise DataError("a scratch file of rows ended early; fit again with --set disk=1")
        view, at = view[count:], at + count
    return values
