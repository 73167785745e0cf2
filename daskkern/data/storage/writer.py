"""Writing a store: blocks of rows of any size are written as whole chunks, in bounded memory."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.rows.csr import CsrRows, FeatureRows, as_csr
from daskkern.data.schema.code_columns import with_codes_unscaled
from daskkern.data.schema.column_scaling import Scaling, check_scaling_kind, check_sparse_scaling
from daskkern.data.schema.encoding import Encoding, code_columns, with_means
from daskkern.data.schema.layout import default_chunk_rows, sparse_chunk_rows, stored_dtype
from daskkern.data.schema.provenance import Provenance
from daskkern.data.schema.schema import FORMAT, SOURCE_KEY, STATISTICS, ClassLabel, StoreInfo, Task
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.chunk_buffers import Incoming
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.csr_store import CsrWriter, State, part_of
from daskkern.data.storage.recorded_checksums import write_records
from daskkern.data.storage.row_statistics import RowStatistics
from daskkern.data.storage.whole_arrays import write_whole
from daskkern.data.transactions.partial_group import PartialGroup, partial_group
from daskkern.errors import DataError, StoreError


class StoreWriter:
    """Writer of one store; a context manager that leaves a complete store behind, or nothing.

    Parameters
    ----------
    path : str or Path
        A local folder or URL where nothing is, or with `overwrite` an existing daskkern store.
    n_features : int
        Columns of ``X``.
    dtype : dtype
        Dtype of the rows to come, which are stored as :func:`stored_dtype` defines.
    task : "classification", "regression" or None
        What the targets are; None writes no ``y``.
    n_targets : int
        Columns of a regression target.
    classes : sequence or None
        Labels by code. May be given later to :meth:`set_classes`, if they are not known yet.
    scale : str
        The scaling to compute from the rows and record: see :meth:`daskkern.data.schema.column_statistics.Scaling.of`.
        Sparse rows allow those without a shift.
    chunk_rows : int or None
        Rows of a chunk; None for :func:`default_chunk_rows`, for sparse rows 4096 or what the first rows suggest.
    sparse : bool
        Rows are received and stored as CSR.
    encoding : tuple of ColumnEncoding or None
        How the columns of the source became these features, to be recorded.
    resume_key : str or None
        A digest of the data being written. The work of a killed writer with the same key is resumed: see `partial`.

    Notes
    -----
    Holds at most one chunk in addition to the block that is being appended.
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
        index_base: int | None = None,
        resume_key: str | None = None,
    ) -> None:
        check_scaling_kind(scale)
        if sparse:
            check_sparse_scaling(scale)
        if n_features < 1:
            raise DataError(f"got rows with {n_features} features; give at least one feature")
        if chunk_rows is not None and chunk_rows < 1:
            raise DataError(f"got chunk_rows={chunk_rows}; expected 1 or more")
        self.path = str(path)
        n_targets = 0 if task is None else 1 if task == "classification" else n_targets
        self._incoming = Incoming(n_features, stored_dtype(dtype), task, n_targets, has_weight, sparse)
        self._classes = None if classes is None else tuple(classes)
        self._names = [None if names is None else tuple(names) for names in (feature_names, target_names)]
        self._scale = scale
        self._scaling: Scaling | None = None
        self._overwrite, self._encoding, self.resume_key = overwrite, encoding, resume_key
        self._fills_means, self._index_base = False, index_base
        self.partial: PartialGroup | None = None
        """What is being written, once entered, and whether it was found incomplete with this resume key."""
        self._chunk_rows = chunk_rows or (0 if sparse else default_chunk_rows(n_features, self._incoming.dtype))
        self._observed = RowStatistics(n_features, n_targets if task == "regression" else 0)
        self._csr: CsrWriter | None = None
        self._provenance: Provenance = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.partial = self._stack.enter_context(
            partial_group(self.path, kind=FORMAT, key=self.resume_key, overwrite=self._overwrite)
        )
        self._group = self.partial.group
        if self._chunk_rows:
            self._open_arrays()
        return self

    def _open_arrays(self) -> None:
        self._buffers = self._incoming.buffers(self._chunk_rows)
        self._arrays = ChunkedArrays(self._group, self._buffers, self._chunk_rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack as context:  # removes the partial store when completing raises
            if error is None:
                self._complete()
            else:
                context.__exit__(kind, error, trace)

    def append(
        self,
        X: FeatureRows,
        y: HostArray | None = None,
        weight: HostArray | None = None,
        moments: FloatArray | None = None,
    ) -> None:
        """Add rows: `X` (m, d), `y` codes (m,) or targets (m,) or (m, t), `weight` (m,). A sparse store takes CSR.

        `moments` (4, d) are minimum, maximum, mean and sum of squared deviations of X as stored, where they are known.

        Raises
        ------
        DataError
            When shapes do not fit, or a value is NaN, infinite or too large for float32. Nothing of the store remains.
        """
        self._incoming.check_format(X)
        if X.shape[0] == 0:
            return
        if self._incoming.sparse:
            X = as_csr(X)
            self._prepare_sparse(X)
        blocks = self._incoming.check(X, y, weight)
        done, total = 0, X.shape[0]
        while done < total:
            fill, step = self._arrays.fill, min(total - done, self._arrays.room)
            rows, new = slice(fill, fill + step), slice(done, done + step)
            self._incoming.fill(self._buffers, blocks, rows, new, by_blocks=moments is not None)
            if self._csr is not None:
                self._append_sparse(X[new])
            stored = self._incoming.stored(self._buffers, blocks, rows, new, without_X=moments is not None)
            self._observed.take(stored, self._arrays.n_rows + fill)
            self._arrays.commit(step)
            done += step
        if moments is not None:
            self._observed.features.take(total, moments)

    def set_encoding(self, encoding: Encoding | None) -> None:
        """Record this encoding instead of the one that was given."""
        self._encoding = encoding

    def fill_means(self) -> None:
        """Record the means of columns of numbers, when all rows are known, as the values for missing ones."""
        self._fills_means = True

    def _prepare_sparse(self, X: CsrRows) -> None:
        """Create the buffers on the first rows, which determine how many entries a chunk of rows has."""
        if self._csr is not None:
            return
        entries = max(1, X.nnz // X.shape[0])  # of a row
        if not self._chunk_rows:
            self._chunk_rows = sparse_chunk_rows(entries, self._incoming.dtype)
            self._open_arrays()
        self._csr = CsrWriter(self._group, self._incoming.n_features, self._incoming.dtype, entries * self._chunk_rows)

    def _append_sparse(self, X: CsrRows) -> None:
        assert self._csr is not None
        with np.errstate(over="ignore"):
            X = X.astype(self._incoming.dtype, copy=False)
        self._observed.take_sparse(X, self._csr.n_rows)
        self._csr.append(X)

    def set_scaling(self, scaling: Scaling) -> None:
        """Record this scaling instead of one computed from these rows: test rows are scaled like training rows."""
        if self._incoming.sparse and scaling.shifts:
            check_sparse_scaling(scaling.kind)
        self._scaling = scaling

    def state(self) -> State:
        """Return the progress of the writer, for :meth:`restore` in another process that resumes the same group."""
        state = self._observed.state()
        if self._chunk_rows:
            state["chunk_rows"] = np.array(self._chunk_rows)
            state.update({f"arrays/{key}": value for key, value in self._arrays.state().items()})
        if self._csr is not None:
            state.update({f"csr/{key}": value for key, value in self._csr.state().items()})
        return state

    def restore(self, state: State) -> None:
        """Continue from a :meth:`state`; to be called before any row is appended."""
        self._observed.restore(state)
        if "chunk_rows" in state:
            self._chunk_rows = int(state["chunk_rows"])
            self._open_arrays()
            self._arrays.restore(part_of(state, "arrays"))
        if self._incoming.sparse and "csr/sizes" in state:
            self._csr = CsrWriter.resumed(
                self._group, self._incoming.n_features, self._incoming.dtype, part_of(state, "csr")
            )

    def set_provenance(self, provenance: Provenance) -> None:
        """Record the provenance of the store, which only people read."""
        self._provenance = provenance

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk; 0 for sparse rows while unknown."""
        return self._chunk_rows

    def set_classes(self, classes: Sequence[ClassLabel], recode: IntArray | None = None) -> None:
        """Set the labels after all rows were appended.

        A code ``c`` as appended becomes ``recode[c]`` in a second pass over ``y``.
        """
        self._classes = tuple(classes)
        if recode is not None:
            self._settle()
            self._arrays.recode("y", recode)
            self._arrays.recompute_checksums("y")

    def scaling(self) -> Scaling:
        """Return the scaling to be recorded, computed from the rows appended so far."""
        codes = code_columns(self._encoding)
        return with_codes_unscaled(
            self._scaling or Scaling.of(self._scale, self._observed.features.result(), codes), codes
        )

    def _complete(self) -> None:
        self._settle()
        if "weight" in self._buffers and not self._observed.weighs:
            raise DataError("got weights that are all 0; at least one must be positive")
        info = self._info()
        if info.statistics.is_wide:
            write_whole(self._group, STATISTICS, info.statistics.table(), overwrite=True)
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
        observed, fills = self._observed, self._fills_means and self._encoding
        return StoreInfo(
            n_rows=self._arrays.n_rows,
            n_features=self._incoming.n_features,
            n_targets=self._incoming.n_targets,
            chunk_rows=self._arrays.stored_chunk_rows,
            task=self._incoming.task,
            classes=self._classes if self._incoming.task == "classification" else None,
            class_counts=self._class_counts(),
            feature_names=features,
            target_names=targets,
            statistics=observed.features.result(),
            target_statistics=None if observed.targets is None else observed.targets.result(),
            scaling=self.scaling(),
            has_weight="weight" in self._buffers,
            checksums={name: sums.whole for name, sums in self._sums().items()},
            is_sparse=self._incoming.sparse,
            encoding=with_means(fills, observed.features.result().mean) if fills else self._encoding,
            index_base=self._index_base,
        )

    def _class_counts(self) -> tuple[int, ...] | None:
        if self._incoming.task != "classification":
            return None
        if self._classes is None:
            raise StoreError("a classification store was written without classes; call set_classes first")
        return self._arrays.counts("y", len(self._classes))
