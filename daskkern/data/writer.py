"""Writing a store: rows come in blocks of any size and go out as whole chunks, in bounded memory."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import zarr

from daskkern.arrays import HostArray, IntArray
from daskkern.data.checksums import Checksum
from daskkern.data.chunked import ChunkedArrays
from daskkern.data.columns import WIDE, Moments, Scaling, check_scaling_kind, check_sparse_scaling
from daskkern.data.csr import CsrRows, FeatureRows, as_csr, first_not_finite, is_sparse
from daskkern.data.csr_store import CsrWriter, State, part_of
from daskkern.data.encoding import Encoding
from daskkern.data.provenance import Provenance
from daskkern.data.records import write_records
from daskkern.data.resumable import Partial, resumable_group
from daskkern.data.schema import FORMAT, SOURCE_KEY, STATISTICS, ClassLabel, StoreInfo, Task
from daskkern.errors import DataError, StoreError

DEFAULT_CHUNK_ROWS = 4096
_MAX_CHUNK_BYTES = 32 << 20


def default_chunk_rows(n_features: int, dtype: npt.DTypeLike) -> int:
    """Return how many rows a chunk holds: 4096, fewer where such a chunk would exceed 32 MiB."""
    return max(1, min(DEFAULT_CHUNK_ROWS, _MAX_CHUNK_BYTES // (n_features * np.dtype(dtype).itemsize)))


def stored_dtype(dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """Return the dtype in which features of `dtype` are stored.

    Integers and float16 keep their own, truth values become uint8. Other floats become float32: a float64 value
    beyond its range is refused when it is written.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return dtype.newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float16) if dtype.itemsize == 2 else np.dtype(np.float32)
    raise DataError(f"features of type {dtype} cannot be stored; give real numbers")


class StoreWriter:
    """Writes one store; a context manager that leaves a whole store behind, or nothing.

    Parameters
    ----------
    path : str or Path
        A local folder that does not exist, or with `overwrite` an existing daskkern store.
    n_features : int
        Columns of ``X``.
    dtype : dtype
        Of the rows that will come; they are kept as :func:`stored_dtype` says.
    task : "classification", "regression" or None
        What the targets are; None writes no ``y``.
    n_targets : int
        Columns of a regression target.
    classes : sequence or None
        Labels by code. May be given later to :meth:`set_classes`, when only then they are known.
    scale : str
        The scaling to compute from the rows and record: see :meth:`daskkern.data.columns.Scaling.of`. Sparse rows
        allow those that shift nothing.
    chunk_rows : int or None
        Rows of a chunk; None for :func:`default_chunk_rows`, of sparse rows for 4096 or what the first rows suggest.
    sparse : bool
        Rows come and are kept as CSR.
    encoding : tuple of ColumnEncoding or None
        How the columns of the source became these features, to be recorded.
    resume_key : str or None
        A digest of what is being written. A writer of the same key that was killed is taken up: see `partial`.

    Notes
    -----
    Holds at most one chunk beyond the block that is being appended.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        n_features: int,
        dtype: npt.DTypeLike = np.float32,
        task: Task | None = None,
        n_targets: int = 1,
        classes: Sequence[ClassLabel] | None = None,
        has_weight: bool = False,
        feature_names: Sequence[str] | None = None,
        target_names: Sequence[str] | None = None,
        scale: str = "none",
        chunk_rows: int | None = None,
        overwrite: bool = False,
        sparse: bool = False,
        encoding: Encoding | None = None,
        resume_key: str | None = None,
    ) -> None:
        check_scaling_kind(scale)
        if sparse:
            check_sparse_scaling(scale)
        if n_features < 1:
            raise DataError(f"rows with {n_features} features were given; at least one feature is needed")
        if chunk_rows is not None and chunk_rows < 1:
            raise DataError(f"chunks of {chunk_rows} rows were asked; at least 1 is needed")
        self.path = str(path)
        self._task = task
        self._n_targets = 0 if task is None else 1 if task == "classification" else n_targets
        self._classes = None if classes is None else tuple(classes)
        self._names = (_tuple(feature_names), _tuple(target_names))
        self._scale = scale
        self._scaling: Scaling | None = None
        self._overwrite = overwrite
        self._dtype = stored_dtype(dtype)
        self._n_features, self._has_weight, self._encoding = n_features, has_weight, encoding
        self._sparse, self.resume_key = sparse, resume_key
        self.partial: Partial | None = None
        """The folder being written, and whether it was found half-written with this resume key."""
        self._chunk_rows = chunk_rows or (0 if sparse else default_chunk_rows(n_features, self._dtype))
        self._moments = Moments(n_features)
        self._target_moments = Moments(self._n_targets) if task == "regression" else None
        self._csr: CsrWriter | None = None
        self._weighs = False
        self._provenance: Provenance = {}
        self._stack = ExitStack()

    def _make_buffers(self) -> dict[str, HostArray]:
        rows = self._chunk_rows
        buffers: dict[str, HostArray] = {}
        if not self._sparse:
            buffers["X"] = np.empty((rows, self._n_features), self._dtype)
        if self._task == "classification":
            buffers["y"] = np.empty(rows, np.int64)
        elif self._task == "regression":
            buffers["y"] = np.empty((rows, self._n_targets), np.float64)
        if self._has_weight:
            buffers["weight"] = np.empty(rows, np.float64)
        return buffers

    def __enter__(self) -> "StoreWriter":
        key = self.resume_key or secrets.token_hex(8)
        self.partial = self._stack.enter_context(
            resumable_group(self.path, kind=FORMAT, key=key, overwrite=self._overwrite)
        )
        self._group = self.partial.group
        if self._chunk_rows:
            self._open_arrays()
        return self

    def _open_arrays(self) -> None:
        self._buffers = self._make_buffers()
        self._arrays = ChunkedArrays(self._group, self._buffers, self._chunk_rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack as context:  # removes the partial store when completing raises
            if error is None:
                self._complete()
            else:
                context.__exit__(kind, error, trace)

    def append(self, X: FeatureRows, y: HostArray | None = None, weight: HostArray | None = None) -> None:
        """Add rows: `X` (m, d), `y` codes (m,) or targets (m,) or (m, t), `weight` (m,). A sparse store takes CSR.

        Raises
        ------
        DataError
            When shapes do not fit, or a value is NaN, infinite or too large for float32. Nothing of the store remains.
        """
        if is_sparse(X) != self._sparse:
            raise DataError(
                f"{'sparse' if is_sparse(X) else 'dense'} rows were appended to a store of "
                f"{'sparse' if self._sparse else 'dense'} rows; convert them first"
            )
        if X.shape[0] == 0:
            return
        if self._sparse:
            X = as_csr(X)
            self._prepare_sparse(X)
        blocks = self._check(X, y, weight)
        done, total = 0, X.shape[0]
        while done < total:
            fill = self._arrays.fill
            step = min(total - done, self._arrays.room)
            for name, block in blocks.items():
                if name in self._buffers:
                    with np.errstate(over="ignore"):  # an overflow is found as infinity below
                        self._buffers[name][fill : fill + step] = block[done : done + step]
            if self._csr is not None:
                self._append_sparse(X[done : done + step])
            self._observe(fill, fill + step)
            self._arrays.commit(step)
            done += step

    def _prepare_sparse(self, X: CsrRows) -> None:
        """Make room when the first rows are here: only they tell how many entries a chunk of rows has."""
        if self._csr is not None:
            return
        entries = max(1, X.nnz // X.shape[0])  # of a row
        if not self._chunk_rows:
            row_bytes = entries * (self._dtype.itemsize + 4)
            self._chunk_rows = max(1, min(DEFAULT_CHUNK_ROWS, _MAX_CHUNK_BYTES // row_bytes))
            self._open_arrays()
        self._csr = CsrWriter(self._group, self._n_features, self._dtype, entries * self._chunk_rows)

    def _append_sparse(self, X: CsrRows) -> None:
        assert self._csr is not None
        with np.errstate(over="ignore"):
            X = X.astype(self._dtype, copy=False)
        if not self._moments.update(X):
            bad = first_not_finite(X)
            assert bad is not None
            raise DataError(
                f"X holds an unusable value (NaN, infinite, or beyond the range of {self._dtype}) in row "
                f"{self._csr.n_rows + bad[0]} (counted from 0), column {bad[1]}"
            )
        self._csr.append(X)

    def set_scaling(self, scaling: Scaling) -> None:
        """Record this scaling rather than one of these rows: a test store is loaded like its training store."""
        if self._sparse:
            check_sparse_scaling(scaling.kind)
        self._scaling = scaling

    def state(self) -> State:
        """Return how far the writer came, for :meth:`restore` in another process that took up the same group."""
        state: State = {"moments": self._moments.state(), "weighs": np.array(self._weighs)}
        if self._target_moments is not None:
            state["target_moments"] = self._target_moments.state()
        if self._chunk_rows:
            state["chunk_rows"] = np.array(self._chunk_rows)
            state.update({f"arrays/{key}": value for key, value in self._arrays.state().items()})
        if self._csr is not None:
            state.update({f"csr/{key}": value for key, value in self._csr.state().items()})
        return state

    def restore(self, state: State) -> None:
        """Go on after a :meth:`state`; before any row is appended."""
        self._moments.restore(state["moments"])
        self._weighs = bool(state["weighs"])
        if self._target_moments is not None:
            self._target_moments.restore(state["target_moments"])
        if "chunk_rows" in state:
            self._chunk_rows = int(state["chunk_rows"])
            self._open_arrays()
            self._arrays.restore(part_of(state, "arrays"))
        if self._sparse and "csr/sizes" in state:
            self._csr = CsrWriter.resumed(self._group, self._n_features, self._dtype, part_of(state, "csr"))

    def set_provenance(self, provenance: Provenance) -> None:
        """Record what the store was made of. Nothing reads it but people."""
        self._provenance = provenance

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk; 0 for sparse rows while it is not known."""
        return self._chunk_rows

    def make_room(self, n_rows: int) -> zarr.Group:
        """Make dense arrays of `n_rows` rows and return their group, into which other processes write parts."""
        self._arrays.make(n_rows)
        return self._group

    def write_part(self, group: zarr.Group, start: int) -> None:
        """Append rows from row `start` on, where a chunk begins, into the group of another process. Not entered."""
        self._group = group
        self._open_arrays()
        self._arrays.go_on_at(start)

    def leave_part(self) -> State:
        """Write the rest of a part and return what :meth:`join_part` needs."""
        sums = {f"arrays/{key}": value for key, value in self._arrays.leave().items()}
        return {**self.state(), **sums}

    def join_part(self, state: State, rows: int, recode: IntArray | None) -> None:
        """Count the next `rows` rows, which another process wrote; their class code c becomes ``recode[c]``."""
        first = self._arrays.n_rows
        self._arrays.join(part_of(state, "arrays"), rows)
        self._moments.add(state["moments"])
        if self._target_moments is not None:
            self._target_moments.add(state["target_moments"])
        self._weighs = self._weighs or bool(state["weighs"])
        if recode is not None:
            for start in range(first, first + rows, self._chunk_rows):
                self._arrays.replace("y", start, recode[self._arrays.read("y", start)])

    def sum_classes(self) -> None:
        """Compute the checksums of the class codes anew, when all parts have joined."""
        self._arrays.sum_again("y")

    def set_classes(self, classes: Sequence[ClassLabel], recode: IntArray | None = None) -> None:
        """Give the labels when all rows are in.

        A code ``c`` as appended becomes ``recode[c]`` in a second pass over ``y``.
        """
        self._classes = tuple(classes)
        if recode is not None:
            self._settle()
            for start in self._arrays.starts():
                self._arrays.replace("y", start, recode[self._arrays.read("y", start)])
            self._arrays.sum_again("y")

    def scaling(self) -> Scaling:
        """Return the scaling that will be recorded, as of the rows appended so far."""
        return self._scaling or Scaling.of(self._scale, self._moments.result())

    def _check(self, X: HostArray, y: HostArray | None, weight: HostArray | None) -> dict[str, HostArray]:
        given = {"X": X, "y": y, "weight": weight}
        blocks: dict[str, HostArray] = {}
        for name, block in given.items():
            if (block is None) != (name not in self._buffers and not (self._sparse and name == "X")):
                raise DataError(
                    f"{name} was {'not ' if block is None else ''}given, unlike what the store was made for"
                )
            if block is not None:
                blocks[name] = block
        if self._task == "regression" and blocks["y"].ndim == 1:
            blocks["y"] = blocks["y"][:, None]  # (m, 1)
        for name, block in blocks.items():
            width = (self._n_features,) if name == "X" else self._buffers[name].shape[1:]
            expected = (X.shape[0], *width)
            if block.shape != expected:
                raise DataError(f"{name} has shape {block.shape}; {expected} was expected")
        if self._task == "classification" and blocks["y"].dtype.kind not in "iu":
            raise DataError(f"class codes were given as {blocks['y'].dtype}; whole numbers from 0 are expected")
        if stored_dtype(X.dtype) != self._dtype and not np.can_cast(X.dtype, self._dtype):
            raise DataError(f"rows of {X.dtype} were appended to a store of {self._dtype}")
        return blocks

    def _observe(self, start: int, stop: int) -> None:
        """Take the moments of new rows in the buffers, and refuse them when one is not finite."""
        for name, moments in (("X", self._moments), ("y", self._target_moments)):
            if moments is not None and name in self._buffers and not moments.update(self._buffers[name][start:stop]):
                self._refuse_value(name, start, stop)
        if "weight" in self._buffers:
            weight = self._buffers["weight"][start:stop]
            if not (np.isfinite(weight) & (weight >= 0)).all():
                self._refuse_value("weight", start, stop)
            self._weighs = self._weighs or bool(weight.any())

    def _refuse_value(self, name: str, start: int, stop: int) -> None:
        rows = self._buffers[name][start:stop]
        bad = ~np.isfinite(rows) if name != "weight" else ~(np.isfinite(rows) & (rows >= 0))
        where = np.argwhere(bad)[0]
        raise DataError(
            f"{name} holds an unusable value (NaN, infinite, beyond the range of {rows.dtype}, or a negative weight) "
            f"in row {self._arrays.n_rows + start + int(where[0])} (counted from 0)"
            + (f", column {int(where[1])}" if rows.ndim == 2 else "")
        )

    def _complete(self) -> None:
        self._settle()
        if "weight" in self._buffers and not self._weighs:
            raise DataError("all weights are 0; at least one row must weigh something")
        info = self._info()
        if info.n_features > WIDE:
            self._group.create_array(STATISTICS, data=info.statistics.table(), compressors=None, overwrite=True)
        key = {} if self.resume_key is None else {SOURCE_KEY: self.resume_key}
        attributes = {**info.to_attributes(), **key, "provenance": dict(self._provenance)}
        self._group.update_attributes({**attributes, "records": write_records(self._group, self._sums(), attributes)})

    def _sums(self) -> Mapping[str, Checksum]:
        return {**self._arrays.sums, **({} if self._csr is None else self._csr.sums())}

    def _settle(self) -> None:
        if not self._chunk_rows:
            raise DataError("the data has no rows; at least one is needed")
        self._arrays.settle()
        if self._csr is not None:
            self._csr.settle()

    def _info(self) -> StoreInfo:
        features, targets = self._names
        return StoreInfo(
            n_rows=self._arrays.n_rows,
            n_features=self._n_features,
            n_targets=self._n_targets,
            chunk_rows=self._arrays.stored_chunk_rows,
            task=self._task,
            classes=self._classes if self._task == "classification" else None,
            class_counts=self._class_counts(),
            feature_names=features,
            target_names=targets,
            statistics=self._moments.result(),
            target_statistics=self._target_moments.result() if self._target_moments else None,
            scaling=self.scaling(),
            has_weight="weight" in self._buffers,
            checksums={name: sums.whole for name, sums in self._sums().items()},
            is_sparse=self._sparse,
            encoding=self._encoding,
        )

    def _class_counts(self) -> tuple[int, ...] | None:
        if self._task != "classification":
            return None
        if self._classes is None:
            raise StoreError("a classification store was written without classes; call set_classes first")
        counts = np.zeros(len(self._classes), np.int64)
        for start in self._arrays.starts():
            codes = self._arrays.read("y", start)
            if codes.min() < 0 or codes.max() >= len(counts):
                raise DataError(
                    f"class codes from 0 to {len(counts) - 1} were expected, found {codes.min()} to {codes.max()}"
                )
            counts += np.bincount(codes, minlength=len(counts))
        return tuple(int(count) for count in counts)


def _tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
