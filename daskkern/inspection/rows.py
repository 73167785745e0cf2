"""Rows for the inspection of a model: arrays, Dask arrays and stores, sampled or block by block."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import zarr
from dask.base import compute

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.rows.rows import Fields, take
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.score import check_store, raw_blocks
from daskkern.evaluation.tables.opening import frame_features, needs_features
from daskkern.models import KernelModel

BLOCK_ROWS = 4096
_STREAM = 97


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory, not scaled: X (m, d) dense or CSR, targets as given, or codes of a store, and weights (m,)."""

    X: Any
    y: HostArray | None
    weight: HostArray | None


@dataclass(frozen=True, eq=False)
class Inspected:
    """The rows (n, d) that a model is inspected on.

    Attributes
    ----------
    X, y, weight
        Arrays, or dask arrays; None where `store` has them.
    store : Store or None
    classes : tuple or None
        Labels by code of the targets of a store.
    """

    model: KernelModel
    n_rows: int
    X: Any = None
    y: Any = None
    weight: Any = None
    store: Store | None = None
    classes: tuple[ClassLabel, ...] | None = None

    @classmethod
    def of(
        cls, model: KernelModel, X: Any, y: Any = None, sample_weight: Any = None, *, targets: bool = False
    ) -> "Inspected":
        """Return the rows of arrays, data frames, dask arrays, or a store, which brings its own targets and weights.

        Frames are encoded as the training rows were.

        Raises
        ------
        DataError
            For rows that do not fit the model, targets that are missing, or another number of them than rows; for NaN
            where the rows are in memory.
        """
        if isinstance(X, Store | str | os.PathLike | zarr.Group):
            if y is not None or sample_weight is not None:
                raise DataError("a store brings its own targets and weights; pass y and sample_weight with arrays only")
            store = X if isinstance(X, Store) else open_store(X)
            check_store(model, store, targets=targets)
            return cls(model, store.info.n_rows, store=store, classes=store.info.classes)
        if targets and y is None:
            raise DataError("got X without y; pass arrays X and y, or a store")
        if isinstance(X, da.Array):
            if X.ndim != 2 or X.shape[1] != model.n_features or np.isnan(X.shape[0]):
                raise DataError(
                    f"got a dask array of shape {X.shape}; expected known rows of {model.n_features} features; "
                    "call compute_chunk_sizes() where sizes are unknown"
                )
            refuse_masks(X, "X")
            X = X.rechunk({1: -1})
        else:
            X = model.check(frame_features(model, X) if needs_features(model, X) else X)
        others = {"y": y, "sample_weight": sample_weight}
        for name, other in others.items():
            if other is None:
                continue
            refuse_masks(other, name)
            if not isinstance(other, da.Array):
                others[name] = other = np.asarray(other)
            if other.shape[0] != X.shape[0]:
                raise DataError(f"X has {X.shape[0]} rows, but {name} has {other.shape[0]}; give one for each row")
        return cls(model, int(X.shape[0]), X, others["y"], others["sample_weight"])

    @property
    def is_lazy(self) -> bool:
        """Whether the rows are not in memory."""
        return self.store is not None or isinstance(self.X, da.Array)

    def sampled(self, most: int | None, seed: int) -> "Inspected":
        """Return at most `most` random rows, in memory; of None, or of fewer rows, these rows themselves.

        Raises
        ------
        SpecError
            For a number below 1.
        """
        if most is not None and (isinstance(most, bool) or int(most) < 1):
            raise SpecError(f"got max_rows={most!r}; give 1 or more, or None for all rows")
        if most is None or most >= self.n_rows:
            return self
        block = self.rows(np.sort(generator(seed, _STREAM).permutation(self.n_rows)[: int(most)]))
        return Inspected(self.model, int(most), block.X, block.y, block.weight, classes=self.classes)

    def rows(self, positions: HostArray) -> Block:
        """Return the rows at ascending positions."""
        if self.store is not None:
            found = take(StoreRows(self.store, np.float64, Scaling()), positions)
            return self.checked(found.X, found.y, found.weight)
        parts = [None if part is None else part[positions] for part in (self.X, self.y, self.weight)]
        if isinstance(self.X, da.Array) or any(isinstance(part, da.Array) for part in parts):
            parts = list(compute(*parts))
        return self.checked(*parts)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """X, y and weights given as arrays; None for a store."""
        return self.X, self.y, self.weight

    def block(self) -> Block:
        """Return all rows at once."""
        return self.rows(np.arange(self.n_rows)) if self.is_lazy else self.checked(*compute(*self.arrays))

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in order; of lazy rows a block is in memory at a time."""
        if self.store is not None:
            yield from self._stored()
            return
        if isinstance(self.X, da.Array):
            edges = np.cumsum([0, *self.X.chunks[0]]).tolist()
            cuts = [slice(start, stop) for start, stop in pairwise(edges)]
        else:
            cuts = slices(self.n_rows, BLOCK_ROWS)
        for part in cuts:
            found = compute(*(None if each is None else each[part] for each in (self.X, self.y, self.weight)))
            yield self.checked(*found)

    def _stored(self) -> Iterator[Block]:
        assert self.store is not None
        rows, start = StoreRows(self.store), 0
        for X in raw_blocks(self.store):
            stop = start + X.shape[0]
            other = rows.read(start, stop, Fields.y | Fields.weight)
            yield self.checked(X, other.y, other.weight)
            start = stop

    def checked(self, X: Any, y: Any, weight: Any) -> Block:
        """Return rows in memory as a block. DataError for NaN, and for weights that are none."""
        refuse_masks(y, "y")
        refuse_masks(weight, "sample_weight")
        if weight is not None:
            weight = np.asarray(weight, np.float64)
            if weight.ndim != 1 or not np.isfinite(weight).all() or (weight < 0).any():
                raise DataError("got weights that are not one finite number of 0 or more for each row; correct them")
        return Block(self.model.check(X), None if y is None else np.asarray(y), weight)


def scaled(model: KernelModel, X: Any) -> Any:
    """Return rows as the kernel of `model` takes them: scaled, in the dtype of its points."""
    if is_sparse(X) and model.scaling.shifts:
        X = X.toarray()  # the points are dense too
    return model.scaling.apply(X, model.points.dtype)
