"""A uniform random permutation of rows on disk, in two passes and bounded memory.

Every row has a random 64-bit key, and the new order is that of the keys. Pass one cuts the range of the keys into
K equal intervals and appends each row to the file of its interval, its bucket. Pass two loads one bucket after
the other, sorts it by key, and yields its rows. Keys depend on the seed and the row number alone, so the order
does not depend on K, which follows from the memory, nor on how the rows are read.

References
----------
P. Sanders, "Random permutations on distributed, external and hierarchical memory", Information Processing
Letters 67, 1998: random buckets, then a permutation within each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.csr import CsrRows, FeatureRows, is_sparse
from daskkern.data.storage.csr_store import index_dtype
from daskkern.data.storage.raw_rows import StoredBlock
from daskkern.errors import SpecError, StoreError

Keys = npt.NDArray[np.uint64]

DEFAULT_MEMORY = 256 << 20
"""Default number of bytes that a shuffle may hold."""

_PARTS = ("key", "X", "data", "indices", "lengths", "y", "weight")  # files of a bucket
_STREAM = 0xDA7A_0006
_GROUP = 4096  # keys drawn together; part of the definition of the order for a seed
_SHARE = 4  # a bucket, and a load of pass one, use this fraction of the memory; sorting and writing need the rest


def row_keys(seed: int, start: int, stop: int) -> Keys:
    """Return the keys of the rows from `start` to `stop` (excluded)."""
    groups = range(start // _GROUP, -(-stop // _GROUP))
    drawn = [generator(seed, _STREAM, number).bit_generator.random_raw(_GROUP) for number in groups]
    offset = start - groups.start * _GROUP
    return np.concatenate([*drawn, np.empty(0, np.uint64)])[offset : offset + stop - start].astype(np.uint64)


@dataclass(frozen=True)
class RowFormat:
    """The layout of rows in the files of a bucket: dtypes, width, and the fields in addition to X."""

    n_features: int
    dtype: np.dtype[np.generic]
    target: tuple[np.dtype[np.generic], tuple[int, ...]] | None
    """The dtype of y and the shape of one row of it."""
    has_weight: bool

    @classmethod
    def of(cls, block: StoredBlock) -> "RowFormat":
        """Return the format of rows like these."""
        target = None if block.y is None else (block.y.dtype, block.y.shape[1:])
        return cls(int(block.X.shape[1]), block.X.dtype, target, block.weight is not None)


class Buckets:
    """Rows in files by the interval of their keys; :meth:`append` all of them, then take :meth:`blocks` once.

    Parameters
    ----------
    folder : Path
        Created here and removed by the caller. It grows to the bytes of the rows and 8 more per row.
    n_bytes : int
        Approximate bytes of all rows to come.
    seed : int
    memory : int
        Bytes to hold at most.
    first_row : int
        Number of the first row to come; earlier rows go to the buckets of other tasks.
    """

    def __init__(self, folder: Path, n_bytes: int, seed: int, memory: int = DEFAULT_MEMORY, first_row: int = 0) -> None:
        if memory < 1 or seed < 0:
            raise SpecError(
                f"got memory {memory} and seed {seed}; expected memory of 1 or more and a seed of 0 or more"
            )
        folder.mkdir()
        self._folder, self._seed = folder, seed
        self.n_buckets = max(1, -(-_SHARE * n_bytes // memory))
        self.load_bytes = max(1, memory // _SHARE)
        """Bytes to append at once."""
        self._rows = first_row
        self._format: RowFormat | None = None

    def append(self, block: StoredBlock) -> None:
        """Add the next rows. Raises StoreError when they cannot be written."""
        if block.n_rows == 0:
            return
        self._format = RowFormat.of(block)
        keys = row_keys(self._seed, self._rows, self._rows + block.n_rows)
        self._rows += block.n_rows
        buckets = interval_of(keys, self.n_buckets)
        order = np.argsort(buckets, kind="stable")
        cuts = np.flatnonzero(np.diff(buckets[order])) + 1
        try:
            for rows in np.split(order, cuts):
                self._write(int(buckets[rows[0]]), keys[rows], block.take(rows))
        except OSError as error:
            raise StoreError(f"the temporary files in {self._folder} cannot be written: {error}") from error

    def blocks(self) -> Iterator[StoredBlock]:
        """Yield all rows in the order of their keys. Each bucket's files are removed when it is loaded."""
        for number in range(self.n_buckets):
            if (self._folder / f"{number}.key").exists():
                assert self._format is not None
                keys, rows = load_bucket(self._folder, number, self._format)
                for name in (self._folder / f"{number}.{part}" for part in _PARTS):
                    name.unlink(missing_ok=True)
                order = np.argsort(keys, kind="stable")
                step = max(1, len(order) // 4)
                for start in range(0, len(order), step):  # the sorted copy is never complete in memory
                    yield rows.take(order[start : start + step])
                del rows

    def sizes(self) -> IntArray:
        """Return the number of rows of each bucket so far (n_buckets,)."""
        files = (self._folder / f"{number}.key" for number in range(self.n_buckets))
        return np.array([file.stat().st_size // 8 if file.exists() else 0 for file in files], np.int64)

    def _write(self, number: int, keys: Keys, rows: StoredBlock) -> None:
        parts: dict[str, HostArray] = {"key": keys}
        parts |= _sparse_parts(rows.X) if is_sparse(rows.X) else {"X": rows.X}
        parts |= {} if rows.y is None else {"y": rows.y}
        parts |= {} if rows.weight is None else {"weight": rows.weight}
        for name, values in parts.items():
            with (self._folder / f"{number}.{name}").open("ab") as file:
                file.write(np.ascontiguousarray(values).data)


def load_bucket(folder: Path, number: int, form: RowFormat) -> tuple[Keys, StoredBlock]:
    """Return the keys and the rows of one bucket, in the order in which they were appended."""

    def values(name: str, dtype: np.dtype[np.generic]) -> HostArray:
        return np.fromfile(folder / f"{number}.{name}", dtype)

    y = None if form.target is None else values("y", form.target[0]).reshape(-1, *form.target[1])
    weight = values("weight", np.dtype(np.float64)) if form.has_weight else None
    if (folder / f"{number}.X").exists():
        X: FeatureRows = values("X", form.dtype).reshape(-1, form.n_features)
    else:
        lengths = values("lengths", np.dtype(np.int64))
        parts = (
            values("data", form.dtype),
            values("indices", index_dtype(form.n_features)),
            np.concatenate([[0], np.cumsum(lengths)]),
        )
        X = scipy.sparse.csr_array(parts, shape=(len(lengths), form.n_features))
    return values("key", np.dtype(np.uint64)), StoredBlock(X, y, weight)


def _sparse_parts(X: CsrRows) -> dict[str, HostArray]:
    return {
        "data": X.data,
        "indices": X.indices.astype(index_dtype(X.shape[1]), copy=False),
        "lengths": np.diff(X.indptr).astype(np.int64),
    }


def interval_of(keys: Keys, n_buckets: int) -> npt.NDArray[np.unsignedinteger]:
    """Return the interval (m,) of each key: the upper 32 bits, as a fraction, times the number of intervals."""
    number = (keys >> np.uint64(32)) * np.uint64(n_buckets) >> np.uint64(32)
    return number.astype(np.uint16) if n_buckets <= 1 << 16 else number.astype(np.uint32)  # 16 bits sort by radix
