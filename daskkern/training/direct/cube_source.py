"""The cells of an xarray Dataset as a source of rows."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, futures_of

from daskkern.backend.task_names import task_name
from daskkern.data.cubes.cube_opening import CubeChoice, cube_blocks
from daskkern.data.cubes.cube_reader import (
    BlockSurvey,
    CubeReader,
    Each,
    class_labels,
    map_in_threads,
    reader_of,
    surveyed,
)
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.remote.stores import name_of_place, public
from daskkern.data.rows.exact_integers import check_label_floats
from daskkern.data.rows.rows import ALL
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.errors import DataError
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.feeding.cluster_blocks import LazyBlock, Triple
from daskkern.training.feeding.row_source import SourceInfo

_FEW = 20
"""Different whole numbers up to which a target of floats is one of classes, as in an ingestion."""
_AHEAD = 64


def cube_source(
    X: Any,
    choice: CubeChoice,
    task: str | None,
    *,
    y: Any = None,
    weight: Any = None,
    classes: tuple[ClassLabel, ...] | None = None,
    client: Client | None = None,
    place: str | None = None,
) -> GroupSource:
    """Return the cells of a Dataset with all features and targets as rows.

    All variables that are used are read once: to find the cells in which none is missing, and the classes.

    Parameters
    ----------
    X : Dataset or DataArray
    choice : CubeChoice
    task : "classification", "regression" or None
        None decides by the values of the target, as an ingestion does.
    y, weight : DataArray or None
        In place of variables of `X`.
    classes : tuple or None
        The labels by code; None takes those that occur.
    client : Client or None
        A cluster on which blocks are surveyed.
    place : str or None
        Where the Dataset is stored.

    Raises
    ------
    DataError
        For names that the Dataset does not have, values that do not suit the task, and no cell without missing values.
    """
    blocks = cube_blocks(X, choice, y, weight)
    fix_places(blocks.ds)
    held = bool(futures_of(blocks.ds))
    found = surveyed(blocks, map_in_threads if client is None or not _travels(blocks.ds, held) else _on(client))
    labels = class_labels(found) if len(blocks.targets) == 1 else None
    if task is None:
        task = "classification" if _like_classes(labels, blocks.ds[blocks.targets[0]].dtype.kind) else "regression"
    if task == "classification":
        classes = classes or _checked(labels, blocks.targets, blocks.ds[blocks.targets[0]].dtype.kind)
    else:
        _check_numbers(blocks.ds, blocks.targets)
        classes = None
    reader = reader_of(blocks, found, classes)
    info = SourceInfo(
        sum(reader.sizes),
        len(blocks.features),
        task,
        classes,
        Scaling(),
        tuple(feature.name for feature in blocks.features),
        len(blocks.targets),
        len(blocks.targets) == 1,
        target_names=blocks.targets,
    )
    cells = f"{info.n_rows:,} of {blocks.grid.n_cells:,} cells by {', '.join(blocks.grid.dims)}"
    where = cells if place is None else f"{public(place)} ({cells})"
    name = "a Dataset in memory" if place is None else name_of_place(public(place))
    lazy = _LazyCells(reader) if held else None
    return GroupSource(reader, info, where, name, _identity(found, reader, classes), lazy)


@dataclass(frozen=True, eq=False)
class _LazyCells:
    """The groups of a reader as tasks, whose inputs are on the cluster."""

    reader: CubeReader

    def __call__(self, dtype: str) -> tuple[LazyBlock, ...]:
        blocks, names = self.reader.blocks, self.reader.blocks.variables()
        return tuple(
            LazyBlock((blocks.cells(block, names), None, None), _CellRows(self.reader, number, dtype))
            for number, block in enumerate(self.reader.numbers)
        )


@dataclass(frozen=True, eq=False)
class _CellRows:
    """Makes rows of the cells of a block that was computed."""

    reader: CubeReader
    number: int
    dtype: str

    def __call__(self, loaded: Any, _y: None, _weight: None) -> Triple:
        block = self.reader.rows_of(loaded, self.number, ALL, self.dtype)
        assert block.X is not None
        return block.X, block.y, block.weight


def _travels(ds: Any, held: bool) -> bool:
    """Return whether workers can read the Dataset themselves: not what is in the memory of this process."""
    variables = [ds[name].variable for name in ds.data_vars]
    return not held and not any(v._in_memory and v.nbytes > 1 << 20 for v in variables)


def _on(client: Client) -> Each:
    def each(function: Callable[[int], BlockSurvey], n: int) -> Iterable[BlockSurvey]:
        shared = client.scatter(function, broadcast=True, hash=False)
        for begin in range(0, n, _AHEAD):
            numbers = range(begin, min(begin + _AHEAD, n))
            futures = [client.submit(_call, shared, number, key=task_name("survey")) for number in numbers]
            yield from client.gather(futures)

    return each


def _call(function: Callable[[int], BlockSurvey], number: int) -> BlockSurvey:
    return function(number)


def _like_classes(labels: tuple[ClassLabel, ...] | None, kind: str) -> bool:
    return labels is not None and (kind in "iubUTO" or len(labels) <= _FEW)


def _checked(labels: tuple[ClassLabel, ...] | None, targets: tuple[str, ...], kind: str) -> tuple[ClassLabel, ...]:
    if labels is None or len(targets) > 1:
        raise DataError(
            f"the target {targets[0]!r} holds fractions, or more than 1,000 different values, so it does not look like "
            "classes; use KernelRegressor"
            if len(targets) == 1
            else f"got {len(targets)} targets; the classes are one variable"
        )
    if len(labels) < 2:
        raise DataError(
            f"every cell of {targets[0]!r} has the same value {labels[0]!r}; classification needs two classes"
        )
    if kind == "f":
        check_label_floats(np.array(labels, np.float64))
    return labels


def _check_numbers(ds: Any, targets: tuple[str, ...]) -> None:
    for name in targets:
        if ds[name].dtype.kind not in "fiub":
            raise DataError(f"the target {name!r} holds {ds[name].dtype} values; a regression needs numbers")


def _identity(found: list[BlockSurvey], reader: CubeReader, classes: tuple[ClassLabel, ...] | None) -> dict[str, Any]:
    sums = np.array([(survey.rows, survey.checksum) for survey in found], np.int64)
    shapes = [repr(reader.blocks.grid), [feature.name for feature in reader.blocks.features]]
    return {"cells": [zlib.crc32(sums.tobytes()), *shapes, None if classes is None else list(classes)]}
