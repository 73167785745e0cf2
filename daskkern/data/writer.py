"""Writing a store: rows come in blocks of any size and go out as whole chunks, in bounded memory."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray, IntArray
from daskkern.data.atomic import atomic_group
from daskkern.data.chunked import ChunkedArrays
from daskkern.data.columns import Moments, Scaling, check_scaling_kind
from daskkern.data.schema import FORMAT, ClassLabel, StoreInfo, Task
from daskkern.errors import DataError, StoreError

DEFAULT_CHUNK_ROWS = 4096
_MAX_CHUNK_BYTES = 32 << 20


def default_chunk_rows(n_features: int, dtype: npt.DTypeLike) -> int:
    """Return how many rows a chunk holds: 4096, fewer where such a chunk would exceed 32 MiB."""
    return max(1, min(DEFAULT_CHUNK_ROWS, _MAX_CHUNK_BYTES // (n_features * np.dtype(dtype).itemsize)))


def stored_dtype(dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """Return the dtype in which features of `dtype` are stored.

    Integers keep their own, truth values become uint8. All floats become float32: a float64 value beyond its
    range is refused when it is written.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return dtype.newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float32)
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
        The scaling to compute from the rows and record: ``"standard"``, ``"minmax"`` or ``"none"``.
    chunk_rows : int or None
        Rows of a chunk; None for :func:`default_chunk_rows`.

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
    ) -> None:
        check_scaling_kind(scale)
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
        self._chunk_rows = chunk_rows or default_chunk_rows(n_features, self._dtype)
        self._moments = Moments(n_features)
        self._target_moments = Moments(self._n_targets) if task == "regression" else None
        self._buffers = self._make_buffers(n_features, has_weight)
        self._weighs = False
        self._stack = ExitStack()

    def _make_buffers(self, n_features: int, has_weight: bool) -> dict[str, HostArray]:
        rows = self._chunk_rows
        buffers: dict[str, HostArray] = {"X": np.empty((rows, n_features), self._dtype)}
        if self._task == "classification":
            buffers["y"] = np.empty(rows, np.int64)
        elif self._task == "regression":
            buffers["y"] = np.empty((rows, self._n_targets), np.float64)
        if has_weight:
            buffers["weight"] = np.empty(rows, np.float64)
        return buffers

    def __enter__(self) -> "StoreWriter":
        self._group = self._stack.enter_context(atomic_group(self.path, kind=FORMAT, overwrite=self._overwrite))
        self._arrays = ChunkedArrays(self._group, self._buffers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack as context:  # removes the partial store when completing raises
            if error is None:
                self._complete()
            else:
                context.__exit__(kind, error, trace)

    def append(self, X: HostArray, y: HostArray | None = None, weight: HostArray | None = None) -> None:
        """Add rows: `X` (m, d), `y` codes (m,) or targets (m,) or (m, t), `weight` (m,).

        Raises
        ------
        DataError
            When shapes do not fit, or a value is NaN, infinite or too large for float32. Nothing of the store remains.
        """
        blocks = self._check(X, y, weight)
        done, total = 0, len(X)
        while done < total:
            fill = self._arrays.fill
            step = min(total - done, self._arrays.room)
            for name, block in blocks.items():
                with np.errstate(over="ignore"):  # an overflow is found as infinity below
                    self._buffers[name][fill : fill + step] = block[done : done + step]
            self._observe(fill, fill + step)
            self._arrays.commit(step)
            done += step

    def set_scaling(self, scaling: Scaling) -> None:
        """Record this scaling rather than one of these rows: a test store is loaded like its training store."""
        self._scaling = scaling

    def set_classes(self, classes: Sequence[ClassLabel], recode: IntArray | None = None) -> None:
        """Give the labels when all rows are in.

        A code ``c`` as appended becomes ``recode[c]`` in a second pass over ``y``.
        """
        self._classes = tuple(classes)
        if recode is not None:
            self._arrays.settle()
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
            if (block is None) != (name not in self._buffers):
                raise DataError(
                    f"{name} was {'not ' if block is None else ''}given, unlike what the store was made for"
                )
            if block is not None:
                blocks[name] = block
        if self._task == "regression" and blocks["y"].ndim == 1:
            blocks["y"] = blocks["y"][:, None]  # (m, 1)
        for name, block in blocks.items():
            expected = (len(X), *self._buffers[name].shape[1:])
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
            if moments is not None and not moments.update(self._buffers[name][start:stop]):
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
        self._arrays.settle()
        if "weight" in self._buffers and not self._weighs:
            raise DataError("all weights are 0; at least one row must weigh something")
        self._group.update_attributes(self._info().to_attributes())

    def _info(self) -> StoreInfo:
        features, targets = self._names
        return StoreInfo(
            n_rows=self._arrays.n_rows,
            n_features=self._buffers["X"].shape[1],
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
            checksums=self._arrays.checksums,
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
