"""The cells of one block of a cube as rows: features (m, d) and targets, read here or by a worker."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import futures_of

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_features import CubeFeature
from daskkern.data.cubes.cube_grid import CubeGrid
from daskkern.errors import DataError


@dataclass(frozen=True, eq=False)
class CubeBlocks:
    """The blocks of a Dataset. Chunks are read with their block, in the calling thread.

    Attributes
    ----------
    ds : xarray.Dataset
    grid : CubeGrid
    features : tuple of CubeFeature
    targets : tuple of str
        Variables; none for rows without targets.
    weight : str or None
        The variable with the weights of cells.
    """

    ds: Any
    grid: CubeGrid
    features: tuple[CubeFeature, ...]
    targets: tuple[str, ...] = ()
    weight: str | None = None

    def variables(self, *, features: bool = True, targets: bool = True, weight: bool = True) -> list[str]:
        """Return the names of the variables and coordinates that the parts of a block are made of."""
        names = [feature.variable for feature in self.features] if features else []
        names += [*self.targets] if targets else []
        names += [self.weight] if weight and self.weight is not None else []
        return list(dict.fromkeys(names))

    def cells(self, number: int, names: Sequence[str]) -> Any:
        """Return the part of the Dataset in a block, not read."""
        where = self.grid.block(number)
        subset = self.ds[list(names)]
        return subset.isel({dim: part for dim, part in where.items() if dim in subset.dims})

    def read(self, number: int, names: Sequence[str]) -> Any:
        """Return the part of the Dataset in a block, in memory."""
        try:
            cells = self.cells(number, names)
            held = futures_of(cells)  # of persist(): only their cluster has them
            return held[0].client.compute(cells).result() if held else cells.compute(scheduler="synchronous")
        except DataError:
            raise
        except Exception as error:  # stores, codecs and graphs have exceptions of their own
            raise DataError(
                f"block {number} of the Dataset ({self._where(number)}) cannot be read: {type(error).__name__}: {error}"
            ) from error

    def table(self, loaded: Any, number: int, dtype: npt.DTypeLike) -> HostArray:
        """Return the features (m, d) of all cells of a block that was read, NaN or infinite where one is missing."""
        shape = self.shape(number)
        X = np.empty((int(np.prod(shape)), len(self.features)), dtype)
        for column, feature in enumerate(self.features):
            variable = loaded[feature.variable]
            X[:, column] = self._flat(feature.of(variable), variable.dims, feature, shape)
        return X

    def values(self, loaded: Any, name: str, number: int) -> HostArray:
        """Return the values (m,) of a variable in all cells of a block that was read."""
        variable = loaded[name]
        return self._flat(plain_texts(variable.values), variable.dims, CubeFeature(name, name), self.shape(number))

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the number of cells of a block along each sample dim."""
        return tuple(part.stop - part.start for part in self.grid.block(number).values())

    def _flat(self, values: HostArray, dims: Sequence[str], feature: CubeFeature, shape: tuple[int, ...]) -> HostArray:
        """Return values by the dims of a variable as values by cell (m,), broadcast along the dims that it lacks."""
        if feature.at:
            positions = dict(feature.at)
            values = values[tuple(positions.get(dim, slice(None)) for dim in dims)]
            dims = [dim for dim in dims if dim not in positions]
        order = [dims.index(dim) for dim in self.grid.dims if dim in dims]
        placed = np.transpose(values, order)
        there = tuple(n if dim in dims else 1 for dim, n in zip(self.grid.dims, shape, strict=True))
        return np.broadcast_to(placed.reshape(there), shape).reshape(-1)

    def _where(self, number: int) -> str:
        return ", ".join(f"{dim} {part.start}:{part.stop}" for dim, part in self.grid.block(number).items())


def present_cells(X: HostArray, others: Sequence[HostArray]) -> HostArray:
    """Return which cells (m,) have all features (m, d), and all of the further values (m,), bool.

    An empty text is a missing one, as in predictions.
    """
    there: HostArray = np.asarray(np.isfinite(X).all(axis=1))
    for values in others:
        if values.dtype.kind == "f":
            there &= np.isfinite(values)
        elif values.dtype.kind == "U":
            there &= values != ""
        elif values.dtype.kind == "O":
            there &= np.array([value is not None and value == value and value != "" for value in values], bool)
    return there


def plain_texts(values: HostArray) -> HostArray:
    """Return texts of variable width (NumPy's StringDType) as objects, of which more functions know; others as is."""
    return values.astype(object) if values.dtype.kind == "T" else values


def packed(mask: HostArray) -> bytes | None:
    """Return a mask (m,) in few bytes; None where all cells are there."""
    return None if mask.all() else zlib.compress(np.packbits(mask).tobytes(), 1)


def unpacked(mask: bytes | None, cells: int) -> HostArray | slice:
    """Return what selects the cells of a packed mask."""
    if mask is None:
        return slice(None)
    return np.unpackbits(np.frombuffer(zlib.decompress(mask), np.uint8), count=cells).astype(bool)
