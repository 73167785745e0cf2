"""Opening rows to predict or to score: stores, table files and data frames, encoded as the training rows were."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask.base import is_dask_collection

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_stores import is_cube_store, plain_arrays
from daskkern.data.ingest.columns.imputing import filled_as
from daskkern.data.ingest.columns.match_schema import decide_like
from daskkern.data.ingest.pipeline.sources import open_source
from daskkern.data.ingest.readers.frames import is_frame, open_table
from daskkern.data.ingest.readers.keyed_choice import USUAL_FEATURES
from daskkern.data.ingest.readers.tables import Request, Table
from daskkern.data.remote.stores import is_url
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.encoding import UnknownChoice
from daskkern.data.schema.same_columns import column_names
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.store import Store, open_store
from daskkern.data.transactions.resumable import work_key
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.raw_tables import TablePlace, named_targets, store_at, trained_schema
from daskkern.evaluation.score import check_store, raw_blocks
from daskkern.evaluation.tables.rows import BLOCK_ROWS, InputRows, StoreInput, TableInput
from daskkern.models import KernelModel


@dataclass(frozen=True, eq=False)
class OpenedRows:
    """Rows, and a digest that identifies them; None where that is not possible."""

    rows: InputRows
    key: str | None


def open_rows(
    model: KernelModel,
    source: Any,
    *,
    keep: Sequence[str] = (),
    targets: bool = False,
    unknown: UnknownChoice = "refuse",
    weight: str | None = None,
) -> OpenedRows:
    """Return the rows of `source`, with its targets if `targets`.

    Parameters
    ----------
    model : KernelModel
    source : path, URL, Store, TablePlace, sequence of paths, data frame, or dask dataframe
        A store, or files and frames as :func:`daskkern.data.ingest.ingest` takes them.
    keep : sequence of str
        Columns to carry through.
    targets : bool
    unknown : "refuse" or "ignore"
        What becomes of rows of files and frames with a category that the training data lack, in a column of one feature
        for each.
    weight : str or None
        The column of a table with the weights of its rows. A store brings its own.

    Raises
    ------
    DaskkernError
        When the rows do not match the model, or targets or columns to keep are missing.
    """
    if hasattr(source, "data_vars"):
        raise DataError(
            "got an xarray Dataset, to which an estimator applies its model: "
            "KernelRegressor.from_model(model).predict(dataset)"
        )
    store = source if isinstance(source, Store) else None
    if isinstance(source, TablePlace):
        source = source.place
    elif isinstance(source, str | os.PathLike):
        store = store_at(os.fspath(source))
    if store is not None:
        if weight is not None:
            raise SpecError(f"got --weight {weight} for a store, which brings its own weights; leave it out")
        check_store(model, store, targets=targets)
        found = StoreInput(store, tuple(keep))
        found.check()
        return OpenedRows(found, work_key([store.fingerprint(), list(keep)]))
    if isinstance(source, str) and not is_url(source) and _has_cells_only(source):
        raise DataError(
            f"{source} is a Zarr store of xarray, whose cells an estimator predicts and scores in Python: "
            f"KernelRegressor.from_model(model).{'score' if targets else 'predict'}(xarray.open_zarr(store))"
        )
    schema = trained_schema(model)
    scratch = Path(tempfile.gettempdir())
    request = Request(
        None if targets else (), weight, (), "auto", scratch, False, like=schema, keep=tuple(keep), unknown=unknown
    )
    table, key, shared = _table(source, request, schema)
    decision = decide_like(table, schema)
    if targets and decision.task is None:
        raise DataError(
            f"{table.source} has no targets to score predictions against; add {named_targets(model)} with the true "
            "values"
        )
    if model.scaling.is_far or model.points.dtype == np.float64:
        table = table.unrounded()
    return OpenedRows(TableInput(table, decision, model.classes, shared), key)


def _has_cells_only(place: str) -> bool:
    """Return whether a local path is a Zarr store of xarray without an array that may be a table of features."""
    return is_cube_store(place) and not set(USUAL_FEATURES) & plain_arrays(place).keys()


def feature_blocks(
    model: KernelModel, source: Any, unknown: UnknownChoice = "refuse"
) -> tuple[Iterator[FeatureRows], int | None]:
    """Return the features of a store or of table files in blocks, encoded and not scaled, and the number of rows.

    Parameters
    ----------
    model : KernelModel
    source : path, URL or zarr.Group
    unknown : UnknownChoice
        What becomes of categories of a table that the training rows lack.

    Raises
    ------
    DaskkernError
        When the rows do not match the model.
    """
    store = open_store(source) if isinstance(source, zarr.Group) else store_at(os.fspath(source))
    if store is not None:
        check_store(model, store, targets=False)
        return raw_blocks(store), store.info.n_rows
    rows = open_rows(model, TablePlace(os.fspath(source)), unknown=unknown).rows
    return (block.X for block in rows.blocks((BLOCK_ROWS,))), rows.n_rows


def frame_features(model: KernelModel, frame: Any) -> HostArray:
    """Return the features (n, d) of a data frame, encoded as the training rows were and not scaled.

    Raises
    ------
    DataError
        When the columns do not match the model.
    """
    rows = open_rows(model, frame).rows
    parts = [np.asarray(block.X) for block in rows.blocks((BLOCK_ROWS,))]
    return np.concatenate(parts) if parts else np.zeros((0, model.n_features))


def needs_features(model: KernelModel, X: Any) -> bool:
    """Return whether `X` is a data frame with columns as the training rows had them, rather than features of them."""
    if model.encoding is None or not is_frame(X) or is_dask_collection(X):
        return False
    names = column_names(X)
    if names is None or not {column.name for column in model.encoding} <= set(names):
        return False
    values = np.asarray(X)
    return tuple(names) != model.feature_names or values.dtype.kind not in "fiub" or bool(np.isnan(values).any())


def _table(source: Any, request: Request, schema: TableSchema) -> tuple[Table, str | None, bool]:
    """Return a table, its digest, and whether it is of files."""
    if is_frame(source) and not is_dask_collection(source):
        table = open_table(source, request).train
        return table if schema.encoding is None else filled_as(table, schema.encoding), None, False
    found = open_source(source, request, ())
    return found.parts.train, found.key, found.key is not None
