"""Raw tables, predicted and scored by a model that records how its training table was encoded.

A table is first ingested like the training rows of the model, in row order, into a temporary store, which takes the
size of the encoded rows on disk.
"""

import glob
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr

from daskkern.data.cubes.cube_stores import is_cube_store
from daskkern.data.ingest import ingest
from daskkern.data.ingest.readers.formats import TABLE_SUFFIXES, is_source
from daskkern.data.remote.objects import get_object
from daskkern.data.remote.stores import is_url, public
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.store import Store, open_store
from daskkern.data.transactions.work_folder import work_folder
from daskkern.errors import DataError, StoreError
from daskkern.models import KernelModel


@dataclass(frozen=True)
class TablePlace:
    """A path or URL that is known to be a table's, so that it is not checked again for a store."""

    place: str


@contextmanager
def rows_of(model: KernelModel, place: str, out: str | None = None, *, targets: bool = True) -> Iterator[Store]:
    """Yield the store at `place`, or a temporary one made from the table there with the encoding of `model`.

    Parameters
    ----------
    model : KernelModel
    place : str
        A store, or files that :func:`daskkern.data.ingest.ingest` takes.
    out : str or None
        Path next to which the temporary store is written; None uses the folder for temporary files.
    targets : bool
        Whether the targets of a table are read, where it has them.

    Raises
    ------
    DataError
        When a column, a category or a label does not occur in the training data, as in an ingestion.
    """
    found = store_at(place)
    if found is not None:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="daskkern-") if out is None else work_folder(out) as folder:
        store = Path(folder) / "rows"
        ingest(place, store, target=None if targets else (), like=trained_schema(model), shuffle=False)
        rows = open_store(store)
        if targets and rows.info.task is None:
            raise DataError(
                f"{place} has no targets to score predictions against; add {named_targets(model)} with the true values"
            )
        yield rows


def named_targets(model: KernelModel) -> str:
    """Return which columns of a table hold the targets of a model, for messages."""
    names = [repr(name) for name in model.target_names or ()]
    return f"the columns {' and '.join(names)}" if len(names) > 1 else f"a column {names[0]}" if names else "a column"


def trained_schema(model: KernelModel) -> TableSchema:
    """Return the schema of the rows that `model` was trained on."""
    regression = model.task != "classification"
    recorded = model.provenance.get("data", {}).get("index_base")
    return TableSchema(
        model.n_features,
        model.feature_names,
        model.target_names,
        model.encoding,
        model.scaling,
        "regression" if regression else "classification",
        model.n_targets if regression else 1,
        model.classes,
        recorded if recorded in (0, 1) else None,
    )


def store_at(place: str) -> Store | None:
    """Return the open store at `place`, or None where :func:`is_table` holds. Raises what opening a store raises.

    The metadata of a store whose URL does not tell what it is are asked for once, by opening it.
    """
    if not is_url(place):
        return None if is_table(place) else open_store(place)
    by_name = _is_named_as_table(place)
    if by_name:
        return None
    try:
        return open_store(place)
    except StoreError as error:
        if by_name is None and isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def kind_of_place(place: str) -> Store | TablePlace | None:
    """Return the open store at `place`, or that it is a table, or None for a Zarr store of xarray."""
    try:
        found = store_at(place)
    except StoreError:
        if is_cube_store(place):
            return None
        raise
    if found is None and not is_url(place) and is_cube_store(place):
        return None
    return TablePlace(place) if found is None else found


def is_table(place: str) -> bool:
    """Return whether `place` names files to ingest rather than a daskkern store, complete or not.

    Behind a URL, what has neither the ending of a table nor of a store is a store where it has the metadata of one.
    """
    if not is_url(place):
        return is_source(place) and not _is_ours(Path(place))
    by_name = _is_named_as_table(place)
    return get_object(place, "zarr.json") is None if by_name is None else by_name


def _is_named_as_table(url: str) -> bool | None:
    """Return whether the name of a URL is that of a table; None where it is neither a table's nor a store's."""
    name = public(url).lower().rstrip("/")
    if name.endswith(TABLE_SUFFIXES) or glob.has_magic(name):
        return True
    return False if name.endswith(".zarr") else None


def _is_ours(path: Path) -> bool:
    if not path.is_dir():
        return False
    try:
        group: Any = zarr.open_group(store=path, mode="r", zarr_format=3)
        return str(group.attrs.get("format", "")).startswith("daskkern-")
    except Exception:  # zarr raises many types when there is no group
        return False
