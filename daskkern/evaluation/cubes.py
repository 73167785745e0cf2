"""Predictions for an xarray Zarr store, written to another one chunk by chunk."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_predictions import predicted_cube
from daskkern.data.cubes.cube_stores import open_cube
from daskkern.data.transactions.atomic import atomic_group
from daskkern.models import KernelModel

FORMAT = "daskkern-cube-predictions"


def predict_cube(model: KernelModel, place: str, out: str | Path, *, overwrite: bool = False) -> tuple[int, str]:
    """Write predictions for every cell of the Dataset at `place` to a new Zarr group at `out`, for xarray to open.

    Returns the number of cells, and the name of the variable. Cells in which a feature is missing have none. Classes
    that are texts are texts, and "" where there is none. On errors nothing remains.

    Raises
    ------
    DataError
        When the Dataset lacks a feature of the model.
    StoreError
        When `out` exists.
    """
    name = (model.target_names or ("prediction",))[0] if len(model.target_names or ("",)) == 1 else "prediction"
    like = model.labels(model.coef[:0])
    labels = ("target", list(model.target_names or range(like.shape[1]))) if like.ndim > 1 else None
    ds, work = open_cube(place), _CellLabels(model)
    found = predicted_cube(ds, model.feature_names, work, like, name=name, outputs=labels, classes=model.classes)
    if found.dtype.kind == "O":
        found = found.astype(f"U{max(len(str(label)) for label in model.classes or ('',))}")
    with atomic_group(out, kind=FORMAT, overwrite=overwrite) as group:
        found.drop_encoding().to_dataset(name=name).to_zarr(
            group.store, group=group.path or None, mode="a", zarr_format=3, consolidated=False
        )
    return int(np.prod(found.shape)), name


@dataclass(frozen=True)
class _CellLabels:
    """The predictions of checked rows, with one thread: Dask runs one on each of its threads."""

    model: KernelModel

    def __call__(self, X: HostArray) -> HostArray:
        return self.model.labels(self.model.scores(self.model.check(X), threads=1))
