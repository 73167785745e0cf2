"""Rows of the valid cells of a cube: a survey that finds them, and a reader that skips the others."""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray, IntArray
from daskkern.data.cubes.cube_blocks import CubeBlocks, packed, present_cells, unpacked
from daskkern.data.rows.exact_integers import check_quantities
from daskkern.data.rows.grouped_rows import GroupReader
from daskkern.data.rows.rows import Fields, RowBlock
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError

_MOST_CLASSES = 1000
_THREADS = 2  # more hold more blocks in memory, and decode little faster

T = TypeVar("T")
Each = Callable[[Callable[[int], Any], int], Iterable[Any]]
"""Calls a function with the numbers from 0 to n - 1, here or on a cluster, and yields the results in order."""


@dataclass(frozen=True)
class BlockSurvey:
    """What a survey finds in a block.

    Attributes
    ----------
    rows : int
        Cells with all features, targets and weights.
    mask : bytes or None
        Which cells these are, packed; None for all.
    checksum : int
        CRC-32 of the features and targets of these cells.
    labels : tuple or None
        The values of a single target, if they are as few as classes and no fractions.
    """

    rows: int
    mask: bytes | None
    checksum: int
    labels: tuple[ClassLabel, ...] | None


@dataclass(frozen=True, eq=False)
class Surveyor:
    """The function that surveys a block, which is sent to workers."""

    blocks: CubeBlocks

    def __call__(self, number: int) -> BlockSurvey:
        blocks = self.blocks
        loaded = blocks.read(number, blocks.variables())
        X = blocks.table(loaded, number, np.float32)
        further = [blocks.values(loaded, name, number) for name in blocks.variables(features=False)]
        mask = present_cells(X, further)
        rows, checksum = int(mask.sum()), zlib.crc32(np.ascontiguousarray(X[mask]).data)
        for name, values in zip(blocks.variables(features=False), further, strict=True):
            kept = values[mask]
            kept = _texts(kept, name) if kept.dtype.kind == "O" else kept
            checksum = zlib.crc32(np.ascontiguousarray(kept).view(np.uint8).data, checksum)
        labels = _labels(further[0][mask]) if len(blocks.targets) == 1 else None
        return BlockSurvey(rows, packed(mask), checksum, labels)


@dataclass(frozen=True, eq=False)
class CubeReader(GroupReader):
    """Reads the cells of a block that have all features, targets and weights.

    Attributes
    ----------
    blocks : CubeBlocks
    numbers : tuple of int
        The blocks that have such cells.
    masks : tuple of bytes or None
        Which cells of each these are.
    sizes : tuple of int
        How many.
    classes : tuple or None
        Labels by code, for classes as targets.
    """

    blocks: CubeBlocks
    numbers: tuple[int, ...]
    masks: tuple[bytes | None, ...]
    sizes: tuple[int, ...]
    classes: tuple[ClassLabel, ...] | None

    @property
    def has_weight(self) -> bool:
        """Whether cells have weights."""
        return self.blocks.weight is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the variables that are in the memory of this process."""
        variables = [self.blocks.ds[name].variable for name in self.blocks.variables()]
        return sum(int(v.nbytes) for v in variables if v._in_memory and v.ndim == len(self.blocks.grid.dims))

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a block; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        blocks = self.blocks
        names = blocks.variables(
            features=Fields.X in fields, targets=Fields.y in fields, weight=Fields.weight in fields
        )
        return self.rows_of(blocks.read(self.numbers[number], names), number, fields, dtype)

    def rows_of(self, loaded: Any, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a block whose part of the Dataset was read."""
        blocks, block = self.blocks, self.numbers[number]
        kept = unpacked(self.masks[number], int(np.prod(blocks.shape(block))))
        X, y, weight = None, None, None
        if Fields.X in fields:
            X = blocks.table(loaded, block, dtype)[kept]
        if Fields.y in fields and blocks.targets:
            targets = [blocks.values(loaded, name, block)[kept] for name in blocks.targets]
            y = self._codes(targets[0]) if self.classes is not None else _quantities(targets)
        if Fields.weight in fields and blocks.weight is not None:
            weight = blocks.values(loaded, blocks.weight, block)[kept].astype(np.float64)
            if weight.size and weight.min() < 0:
                raise DataError(f"variable {blocks.weight!r} holds the weight {weight.min():g}; expected 0 or more")
        return RowBlock(X, y, weight)

    def _codes(self, values: HostArray) -> IntArray:
        known = np.array(self.classes)
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known, values, sorter=order), len(known) - 1)
        codes = order[at]
        if not np.array_equal(known[codes], values):
            raise DataError(
                f"variable {self.blocks.targets[0]!r} holds {values[known[codes] != values][0]!r}, which is not among "
                f"the classes {known[:20].tolist()}"
            )
        return codes.astype(np.int64)


def _quantities(targets: Sequence[HostArray]) -> HostArray:
    for values in targets:
        check_quantities(values)
    return np.stack(targets, axis=1).astype(np.float64)


def surveyed(blocks: CubeBlocks, each: Each) -> list[BlockSurvey]:
    """Return what a survey of all blocks finds: one pass over all variables that are needed.

    Raises
    ------
    DataError
        When no cell has all of them.
    """
    found = list(each(Surveyor(blocks), blocks.grid.n_blocks))
    if not any(survey.rows for survey in found):
        names = ", ".join(repr(name) for name in blocks.variables())
        raise DataError(f"no cell of the Dataset has values of all of {names}; at least one is needed")
    return found


def class_labels(found: Sequence[BlockSurvey]) -> tuple[ClassLabel, ...] | None:
    """Return the values of a single target, ascending, if they are as few as classes and no fractions; else None."""
    if any(survey.labels is None for survey in found):
        return None
    known: set[ClassLabel] = {label for survey in found for label in survey.labels or ()}
    return tuple(sorted(known)) if len(known) <= _MOST_CLASSES else None


def reader_of(blocks: CubeBlocks, found: Sequence[BlockSurvey], classes: tuple[ClassLabel, ...] | None) -> CubeReader:
    """Return the reader of the blocks in which a survey has found rows."""
    kept = [number for number, survey in enumerate(found) if survey.rows]
    return CubeReader(
        blocks,
        tuple(kept),
        tuple(found[number].mask for number in kept),
        tuple(found[number].rows for number in kept),
        classes,
    )


def map_in_threads(function: Callable[[int], T], n: int) -> Iterator[T]:
    """Call a function with the numbers from 0 to n - 1 in a few threads, and yield the results in order."""
    threads = max(1, min(_THREADS, os.cpu_count() or 1, n))
    with ThreadPoolExecutor(threads, thread_name_prefix="daskkern-survey") as pool:
        numbers = iter(range(n))
        pending = [pool.submit(function, number) for number in islice(numbers, 2 * threads)]
        while pending:
            first = pending.pop(0)
            yield first.result()
            pending += [pool.submit(function, number) for number in islice(numbers, 1)]


def _texts(values: HostArray, name: str) -> HostArray:
    """Return objects that are texts as such. DataError for other ones."""
    other = next((value for value in values if not isinstance(value, str)), None)
    if other is not None:
        raise DataError(
            f"variable {name!r} of the Dataset holds the object {other!r} of type {type(other).__name__}; expected "
            "text, or an array of numbers: convert it with astype"
        )
    return values.astype(str)


def _labels(values: HostArray) -> tuple[ClassLabel, ...] | None:
    unique = np.unique(values.astype(str) if values.dtype.kind == "O" else values)
    if len(unique) > _MOST_CLASSES or (unique.dtype.kind == "f" and not (unique == np.rint(unique)).all()):
        return None
    return tuple((unique.astype(np.int64) if unique.dtype.kind == "f" else unique).tolist())
