"""Scores of predictions for the cells of a Dataset, accumulated block by block."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.base import compute
from dask.delayed import delayed
from sklearn.exceptions import UndefinedMetricWarning

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_blocks import plain_texts, present_cells
from daskkern.data.cubes.cube_grid import CubeGrid, chunk_edges_of
from daskkern.data.cubes.packages import is_labelled, xarray_package
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.exact_integers import check_label_floats
from daskkern.errors import DataError
from daskkern.evaluation.r2 import r2_of
from daskkern.models import KernelModel


def cell_score(predicted: Any, model: KernelModel, X: Any, y: Any, weight: Any) -> float:
    """Return the accuracy or R2 of predictions in the cells of a Dataset that have a target, prediction and weight.

    What is of dask or in a file is computed block by block, and each block once.

    Parameters
    ----------
    predicted : DataArray
    model : KernelModel
    X : Dataset or DataArray
    y, weight : DataArray or None
        Without `y`, the variable that the model was fitted to.

    Raises
    ------
    DataError
        For several targets, other kinds of arrays, other coordinates, and no such cell.
    """
    if len(model.target_names or ("",)) > 1:
        raise DataError("got a Dataset to score a model of several targets; compare predict(X) with each of them")
    if y is None:
        name = (model.target_names or ("",))[0]
        if name not in getattr(X, "data_vars", ()):
            raise DataError(f"the Dataset has no variable {name!r} to score predictions against; give y as a DataArray")
        y = X[name]
    variables = _aligned(predicted, y, weight)
    sums = _class_sums if model.classes is not None else _value_sums
    found = [part for part in _of_blocks(sums, variables) if part.cells]
    if not found:
        raise DataError("no cell has a target and a prediction; at least one is needed")
    if not sum(part.weight for part in found):
        raise DataError("the weights of all cells with a target and a prediction are 0; at least one must be larger")
    return _accuracy(found) if model.classes is not None else _r2(found)


@dataclass(frozen=True)
class _CellSums:
    """Sums over the cells of a block that have all values: of weights, and of what a score is made of.

    Attributes
    ----------
    cells : int
    weight : float
    right : float
        The weights of cells whose prediction is right, or their sum of weighted squared errors.
    mean, spread : float
        The weighted mean of targets, and the sum of weighted squared departures from it.
    """

    cells: int
    weight: float = 0.0
    right: float = 0.0
    mean: float = 0.0
    spread: float = 0.0


_CellSumsOf = Callable[[HostArray, HostArray, HostArray], _CellSums]
"""From targets, predictions and weights (m,) to their sums."""


def _aligned(predicted: Any, y: Any, weight: Any) -> list[Any]:
    """Return the variables of targets, predictions and weights, whose coordinates are the same."""
    arrays = [y, predicted] if weight is None else [y, predicted, weight]
    for array in arrays:
        if not is_labelled(array):
            raise DataError(f"got y or sample_weight of type {type(array).__name__} with a Dataset; give a DataArray")
    try:
        arrays = xarray_package().align(*arrays, join="exact", copy=False)
    except ValueError as error:
        raise DataError(f"y does not have the coordinates of X ({error}); align them first") from None
    fix_places(*arrays)
    for dim in arrays[-1].dims:
        if all(dim not in array.dims for array in arrays[:2]):
            raise DataError(
                f"sample_weight has the dim {dim!r}, which neither y nor the predictions have; select one place of it "
                f"with isel({dim}=...)"
            )
    return [array.variable for array in arrays]


def _of_blocks(sums: _CellSumsOf, variables: Sequence[Any]) -> list[_CellSums]:
    """Return the sums of all blocks of the cells, lazy variables being computed a few blocks at a time."""
    dims = tuple(dict.fromkeys(str(dim) for variable in variables for dim in variable.dims))
    names = [f"v{number}" for number in range(len(variables))]
    cells = xarray_package().Dataset(dict(zip(names, variables, strict=True)))
    grid = CubeGrid(dims, tuple(chunk_edges_of(cells, dims, [names[1], names[0], *names[2:]], 1)))
    work = _OfBlock(sums, tuple(tuple(map(str, variable.dims)) for variable in variables), dims)
    if all(variable.chunks is None and variable._in_memory for variable in variables):
        parts = (cells.isel(grid.block(number)) for number in range(grid.n_blocks))
        return [work(*(part[name].values for name in names)) for part in parts]
    lengths = {dim: tuple(np.diff(cut).tolist()) for dim, cut in zip(dims, grid.cuts, strict=True)}
    lazy = [variable.chunk({dim: lengths[str(dim)] for dim in variable.dims}).data for variable in variables]
    blocks = [array.to_delayed() for array in lazy]
    places = [dict(zip(dims, index, strict=True)) for index in np.ndindex(*grid.counts)]
    tasks = [
        delayed(work)(*(block[tuple(place[dim] for dim in own)] for block, own in zip(blocks, work.own, strict=True)))
        for place in places
    ]
    return list(compute(*tasks))


@dataclass(frozen=True)
class _OfBlock:
    """Sums of a block of arrays with these dims each, broadcast along all `dims`."""

    sums: _CellSumsOf
    own: tuple[tuple[str, ...], ...]
    dims: tuple[str, ...]

    def __call__(self, *values: HostArray) -> _CellSums:
        placed = []
        for array, own in zip(map(plain_texts, values), self.own, strict=True):
            ordered = array.transpose([own.index(dim) for dim in self.dims if dim in own])
            lengths = iter(ordered.shape)
            placed.append(ordered.reshape([next(lengths) if dim in own else 1 for dim in self.dims]))
        flat = [array.reshape(-1) for array in np.broadcast_arrays(*placed)]
        there = present_cells(np.empty((len(flat[0]), 0)), flat)
        if not there.any():
            return _CellSums(0)
        y, found, *weights = (array[there] for array in flat)
        return self.sums(y, found, weights[0].astype(np.float64) if weights else np.ones(len(y)))


def _class_sums(y: HostArray, found: HostArray, weight: HostArray) -> _CellSums:
    if _is_text(y) != _is_text(found):
        of, expected = ("text", "numbers") if _is_text(y) else ("numbers", "text")
        raise DataError(f"y holds {of}; expected labels that are {expected}, as the classes of the model are")
    check_label_floats(y)
    return _CellSums(len(y), float(weight.sum()), float(weight[np.asarray(y == found, bool)].sum()))


def _value_sums(y: HostArray, found: HostArray, weight: HostArray) -> _CellSums:
    if y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype} values; expected numbers, as the model predicts")
    y, total = y.astype(np.float64), float(weight.sum())
    mean = float((weight * y).sum()) / total if total else 0.0
    return _CellSums(
        len(y), total, float((weight * (y - found) ** 2).sum()), mean, float((weight * (y - mean) ** 2).sum())
    )


def _accuracy(parts: Sequence[_CellSums]) -> float:
    return sum(part.right for part in parts) / sum(part.weight for part in parts)


def _r2(parts: Sequence[_CellSums]) -> float:
    """Return R2; of targets without spread 1 where they are predicted exactly, else 0, as scikit-learn has it."""
    if sum(part.cells for part in parts) < 2:
        warnings.warn("R2 of a single cell is undefined; score more of them", UndefinedMetricWarning, stacklevel=4)
        return float("nan")
    weight = sum(part.weight for part in parts)
    mean = sum(part.weight * part.mean for part in parts) / weight
    spread = sum(part.spread + part.weight * (part.mean - mean) ** 2 for part in parts)
    return float(r2_of(sum(part.right for part in parts), spread, mean, weight))


def _is_text(labels: HostArray) -> bool:
    return labels.dtype.kind in "UO"
