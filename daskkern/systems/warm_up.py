"""A small fit before the one that is timed: it compiles kernel products and imports what a system needs."""

from contextlib import suppress
from dataclasses import replace

from daskkern.backend.namespace import is_sparse
from daskkern.cluster.connect.clients import ClusterLike
from daskkern.data.schema.column_scaling import Scaling
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

_ROWS, _SECONDS = 1000, 2.0


def warm_up(source: StoreSource, settings: FitSettings, client: ClusterLike) -> None:
    """Fit to the first rows of a store for one epoch, and forget the model.

    What it raises is left to the fit that follows, with the sentence about all rows.

    Raises
    ------
    KeyboardInterrupt
    """
    few = _first_rows(source, settings.dtype)
    with suppress(Exception):
        ended = fit(few, replace(settings, max_epochs=1, max_seconds=_SECONDS), client=client, validation=few)
        if ended.finished.reason == "interrupted":
            raise KeyboardInterrupt


def _first_rows(source: StoreSource, dtype: str) -> ArraySource:
    count = min(_ROWS, source.info.n_rows)
    rows = source.open(dtype).read(0, count)
    assert rows.X is not None
    stored = len(rows.X.data) if is_sparse(rows.X) else None
    info = replace(source.info, n_rows=count, scaling=Scaling("none"), n_stored=stored)
    return ArraySource(rows.X, rows.y, rows.weight, info)
