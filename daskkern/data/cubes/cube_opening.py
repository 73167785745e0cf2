"""The choice and checks of the variables of a Dataset that are features, targets and weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daskkern.data.cubes.cube_blocks import CubeBlocks
from daskkern.data.cubes.cube_features import chosen_features
from daskkern.data.cubes.cube_grid import grid_of
from daskkern.data.cubes.packages import as_dataset, is_labelled, xarray_package
from daskkern.errors import DataError

_TARGET, _WEIGHT = "target", "sample_weight"


@dataclass(frozen=True)
class CubeChoice:
    """What a user names of a Dataset.

    Attributes
    ----------
    target : tuple of str
        Variables to be predicted; may be empty where targets are a DataArray of their own.
    sample_dims : tuple of str or None
        The dims whose cells are rows; None takes those of the first target.
    coords : tuple of str
        Coordinates that become features.
    drop : tuple of str
        Variables that are not features.
    weight : str or None
        The variable with the weights of cells.
    """

    target: tuple[str, ...] = ()
    sample_dims: tuple[str, ...] | None = None
    coords: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None


def cube_blocks(X: Any, choice: CubeChoice, y: Any = None, weight: Any = None) -> CubeBlocks:
    """Return the blocks of a Dataset or DataArray `X` with its targets. Nothing is read.

    Parameters
    ----------
    X : Dataset or DataArray
    choice : CubeChoice
    y : DataArray or None
        Targets in place of a variable of `X`, with the same coordinates.
    weight : DataArray or None
        Weights of the cells, likewise.

    Raises
    ------
    DataError
        For names that the Dataset does not have, and coordinates that differ.
    """
    ds = as_dataset(X, "X")
    targets, weighs = choice.target, choice.weight
    if y is not None:
        if targets:
            raise DataError("got both target and y; name a variable of the Dataset, or give a DataArray as y")
        ds, added = _with(ds, y, "y", _TARGET)
        targets = (added,)
    if not targets:
        raise DataError(
            "which variable is the target? Give target=NAME, or a DataArray as y; the variables are "
            + ", ".join(map(str, ds.data_vars))
        )
    if weight is not None:
        ds, weighs = _with(ds, weight, "sample_weight", _WEIGHT)
    taken = (*targets, *([weighs] if weighs else []))
    _check_kinds(ds, taken)
    dims = tuple(map(str, ds[targets[0]].dims)) if choice.sample_dims is None else choice.sample_dims
    if not dims or len(set(dims)) < len(dims):
        raise DataError(f"got sample_dims={dims!r}; name one or more different dims")
    features = chosen_features(ds, dims, taken, choice.coords, choice.drop)
    blocks = CubeBlocks(ds, grid_of(ds, dims, list(map(str, (*targets, *_by_size(ds)))), len(features)), features)
    for name in taken:
        further = [dim for dim in ds[name].dims if dim not in dims]
        if further:
            raise DataError(
                f"variable {name!r} has the dim {further[0]!r} too, which is not among sample_dims {dims}; add it, "
                f"or select one place of it with isel({further[0]}=...)"
            )
    used = list(dict.fromkeys([*(f.variable for f in features), *taken]))
    kept = ds[[name for name in used if name in ds.data_vars]]
    kept = kept.assign_coords({name: ds[name] for name in used if name not in kept.variables})
    return CubeBlocks(kept, blocks.grid, features, targets, weighs)


def _check_kinds(ds: Any, names: Sequence[str]) -> None:
    """Raise DataError for targets and weights that the Dataset lacks, or whose values are of no possible kind."""
    for name in names:
        if name not in ds.data_vars:
            raise DataError(
                f"the Dataset has no variable {name!r}; it has {', '.join(map(str, ds.data_vars)) or 'none'}"
            )
        dtype = ds[name].dtype
        if dtype.kind == "S":
            raise DataError(
                f"variable {name!r} of the Dataset holds bytes ({dtype}); expected text, or numbers: decode it with "
                f"ds[{name!r}].str.decode('utf-8')"
            )
        if dtype.kind not in "fiubUTO":
            raise DataError(
                f"variable {name!r} of the Dataset holds {dtype} values; expected numbers, or text as classes: of "
                "complex numbers take .real, .imag or abs, of times a number"
            )


def _with(ds: Any, values: Any, role: str, name: str) -> tuple[Any, str]:
    """Return the Dataset with a further variable, and its name."""
    if not is_labelled(values):
        raise DataError(
            f"got {role} of type {type(values).__name__} with an xarray {type(ds).__name__}; give a DataArray with the "
            "same coordinates, or name a variable"
        )
    ds = _without(ds, values)
    names = [str(values.name)] * (values.name is not None) + [name, *(f"{name}_{k}" for k in range(len(ds.variables)))]
    own = next(one for one in names if one not in ds.variables)
    try:
        aligned, values = xarray_package().align(ds, values, join="exact", copy=False)
    except ValueError as error:
        raise DataError(f"{role} does not have the coordinates of X ({error}); align them first") from None
    return aligned.assign({own: values}), own


def _without(ds: Any, values: Any) -> Any:
    """Return the Dataset without the variable of a name that `values` are: it is a target or weight, and no feature."""
    if values.name not in ds.data_vars:
        return ds
    own, other = ds[values.name].variable, values.variable
    if own is other or (own._in_memory and other._in_memory and own.equals(other)):
        return ds.drop_vars(values.name)
    lazy = own.chunks is not None and other.chunks is not None
    return ds.drop_vars(values.name) if lazy and own.data.name == other.data.name else ds


def _by_size(ds: Any) -> list[str]:
    return sorted(map(str, ds.data_vars), key=lambda name: -int(ds[name].size))
