"""The eigenfeatures of stored Nystrom-SGD: computed once by Dask tasks, and read as rows of a scratch store."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

import numpy as np
import zarr
from dask.base import compute
from dask.delayed import delayed

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.task_names import task_name
from daskkern.backend.tiles import slices
from daskkern.basis import KernelBasis
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError, SpecError, StoreError
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared, training_rows

_COLUMN_BLOCKS = 8
_TASK_ROWS = 4096


def is_stored(prepared: Prepared, settings: FitSettings, machines: Iterable[str] = ()) -> bool:
    """Return whether psi is stored on disk: when requested, or when it fits and is read more than twice.

    `machines` are those of the workers. Others than this one do not see its folder for temporary files.
    """
    how, folder = settings.solver.storage, settings.solver.storage_folder
    if how == "never" or settings.sampling != "uniform":
        return False
    if folder is not None and not Path(folder).is_dir():
        raise SpecError(f"the scratch folder {folder} does not exist; create it, or leave scratch out")
    if how == "always":
        return True
    if folder is None and not {gethostname()}.issuperset(machines):
        return False
    size = prepared.plan.n_rows * _feature_map(prepared).shape[1] * np.dtype(settings.dtype).itemsize
    free = shutil.disk_usage(folder or tempfile.gettempdir()).free
    return settings.max_epochs > 2 and size <= free // 4


@contextmanager
def stored_features(source: RowSource, settings: FitSettings, prepared: Prepared) -> Iterator[str]:
    """Write psi (n, r) to a scratch store, yield its path, and remove it at the end.

    One Dask task reads the landmarks, where rows are those of workers, and one writes each chunk of rows. Columns are
    chunked too, so that a rank reads only its own.
    """
    M = _feature_map(prepared)
    n, r = prepared.plan.n_rows, M.shape[1]
    chunk = _chunk_rows(prepared)
    folder = Path(tempfile.mkdtemp(prefix="daskkern-features-", dir=settings.solver.storage_folder))
    path = str(folder / "psi.zarr")
    try:
        zarr.create_array(
            path,
            shape=(n, r),
            chunks=(chunk, max(1, -(-r // _COLUMN_BLOCKS))),
            dtype=settings.dtype,
            compressors=None,
        )
        held = prepared.validation
        Z = prepared.points
        if Z is None:
            drawn = delayed(_drawn_rows, pure=False)
            Z = drawn(source, settings.dtype, held, prepared.indices, dask_key_name=task_name("landmarks"))
        shared = delayed((prepared.basis, Z, M), pure=False)
        write = delayed(_write_chunk, pure=False)
        compute(
            *[
                write(source, settings.dtype, held, shared, path, part, dask_key_name=task_name("eigenfeatures"))
                for part in slices(n, chunk * (_TASK_ROWS // chunk))
            ]
        )
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _feature_map(prepared: Prepared) -> HostArray:
    """Return M (p, r), from kernel values to eigenfeatures."""
    assert prepared.state is not None
    assert prepared.state.feature_map is not None
    return prepared.state.feature_map


def _chunk_rows(prepared: Prepared) -> int:
    """Return the rows of a chunk of psi: at most a part, so that a window reads no rows of other windows."""
    assert isinstance(prepared.plan, BatchPlan)
    return min(_TASK_ROWS, prepared.plan.part_rows, prepared.plan.n_rows)


def _drawn_rows(source: RowSource, dtype: str, validation: IntArray | None, indices: IntArray) -> HostArray:
    X = take(training_rows(source.open(dtype), validation), indices, Fields.X).X
    assert X is not None
    return X


def _write_chunk(
    source: RowSource,
    dtype: str,
    validation: IntArray | None,
    shared: tuple[KernelBasis, HostArray, HostArray],
    path: str,
    part: slice,
) -> None:
    basis, Z, M = shared
    X = training_rows(source.open(dtype), validation).read(part.start, part.stop, Fields.X).X
    try:
        psi = zarr.open_array(path, mode="r+")
    except FileNotFoundError:
        raise StoreError(
            f"a worker cannot see the scratch folder {path}; give NystromSGD(scratch=...) a folder that all "
            "workers share, or mode='streamed'"
        ) from None
    assert X is not None
    psi[part] = basis.kernel.block(X, basis.points(Z)) @ M


class FeatureRows(Rows):
    """The training rows with some columns of their stored eigenfeatures in place of X."""

    def __init__(self, rows: Rows, path: str, columns: slice, dtype: str) -> None:
        self._rows, self._columns = rows, columns
        self._psi = zarr.open_array(path, mode="r")
        if self._psi.shape[0] != rows.n_rows:
            raise DataError(f"the stored features are for {self._psi.shape[0]} rows, the data has {rows.n_rows}")
        self.n_rows, self.n_features = rows.n_rows, columns.stop - columns.start
        self.n_targets, self.chunk_rows = rows.n_targets, int(self._psi.chunks[0])
        self.task, self.classes, self.has_weight = rows.task, rows.classes, rows.has_weight
        self.dtype = np.dtype(dtype)

    def _read_features(self, start: int, stop: int) -> HostArray:
        return np.asarray(self._psi[start:stop, self._columns])

    def _read_targets(self, start: int, stop: int) -> HostArray:
        y = self._rows.read(start, stop, Fields.y).y
        assert y is not None
        return y

    def _read_weight(self, start: int, stop: int) -> HostArray:
        weight = self._rows.read(start, stop, Fields.weight).weight
        assert weight is not None
        return weight


@contextmanager
def features_for(
    source: RowSource, settings: FitSettings, prepared: Prepared, machines: Iterable[str] = ()
) -> Iterator[str | None]:
    """Yield the path of the eigenfeatures of stored Nystrom-SGD, or None for every other fit."""
    if is_stored(prepared, settings, machines):
        with stored_features(source, settings, prepared) as path:
            yield path
    else:
        yield None
