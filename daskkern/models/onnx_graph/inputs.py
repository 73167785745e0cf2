"""The inputs of an ONNX graph - a matrix of features, or table columns - and their conversion to scaled rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.data.schema.encoding import MISSING_TEXTS, ColumnEncoding
from daskkern.data.schema.schema import Scaling
from daskkern.models.onnx_graph.builder import GraphBuilder
from daskkern.models.onnx_graph.formulas import arcsinh

FEATURES = "X"
"""Name of the input that is a matrix."""


def matrix_input(graph: GraphBuilder, n_features: int) -> tuple[list[Any], str]:
    """Return the declaration of a matrix of features (n, d) float64, and its name."""
    return [graph.value_info(FEATURES, np.float64, [None, n_features])], FEATURES


def column_inputs(graph: GraphBuilder, encoding: Sequence[ColumnEncoding]) -> tuple[list[Any], str]:
    """Return declarations of one input (n, 1) for each column, and the name of the features (n, d) float64.

    Columns of numbers are float64, NaN where a value is missing; those of categories are texts, of which the empty one
    and its like (``MISSING_TEXTS``) are missing.
    """
    infos, features = [], []
    for column in encoding:
        is_number = column.kind == "number"
        infos.append(graph.value_info(column.name, np.dtype(np.float64 if is_number else "U"), [None, 1]))
        features.append(_number(graph, column) if is_number else _category(graph, column))
    return infos, graph.op("Concat", *features, axis=1)


def scaled_rows(graph: GraphBuilder, scaling: Scaling, rows: str, dtype: npt.DTypeLike) -> str:
    """Return rows (n, d) float64 as the model's points are scaled, in their dtype."""
    if scaling.kind != "none":
        shifted = graph.op("Sub", rows, graph.constant(scaling.shift, np.float64))
        rows = graph.op("Div", shifted, graph.constant(scaling.scale, np.float64))
        rows = _bent(graph, scaling, rows)
        rows = _ranked(graph, scaling, rows)
    return graph.cast(rows, dtype)


def _number(graph: GraphBuilder, column: ColumnEncoding) -> str:
    if column.fill is None:
        return column.name
    fill = graph.constant(float(column.fill), np.float64)
    return graph.op("Where", graph.op("IsNaN", column.name), fill, column.name)


def _category(graph: GraphBuilder, column: ColumnEncoding) -> str:
    """Return the features (n, k) of a column of texts.

    A text that the training data do not have is beyond all codes; a one-hot or ordinal column has no feature for it,
    and looking up its number fails, as an ingestion does.
    """
    n = len(column.categories)
    numbers = {text: number for number, text in enumerate(column.categories)}
    if column.fill is not None:
        numbers |= {text: numbers[str(column.fill)] for text in MISSING_TEXTS if text not in numbers}
    code = graph.op(
        "LabelEncoder",
        column.name,
        domain="ai.onnx.ml",
        keys_strings=list(numbers),
        values_int64s=list(numbers.values()),
        default_int64=n,
    )
    if column.kind == "code":
        return graph.cast(code, np.float64)
    known = graph.op("Gather", graph.constant(np.arange(n)), code)
    if column.kind == "ordinal":
        return graph.cast(known, np.float64)
    return graph.cast(graph.op("Equal", known, graph.constant(np.arange(n)[None])), np.float64)


def _bent(graph: GraphBuilder, scaling: Scaling, rows: str) -> str:
    bend = np.asarray(scaling.bend, np.float64)
    if not bend.any():
        return rows
    units = graph.constant(np.where(bend > 0, bend, 1.0), np.float64)
    bent = graph.op("Mul", arcsinh(graph, graph.op("Div", rows, units), np.float64), units)
    return graph.op("Where", graph.constant((bend > 0)[None]), bent, rows)


def _ranked(graph: GraphBuilder, scaling: Scaling, rows: str) -> str:
    """Replace columns that have a table by ranks, which are linear between the values of the table."""
    if not scaling.ranks:
        return rows
    tables = {table.column: table for table in scaling.ranks}
    columns = []
    for number in range(len(scaling.scale)):
        column = graph.op("Gather", rows, graph.constant([number], np.int64), axis=1)
        table = tables.get(number)
        columns.append(column if table is None else _ranks(graph, column, table.values, table.ranks))
    return graph.op("Concat", *columns, axis=1)


def _ranks(graph: GraphBuilder, x: str, values: Sequence[float], ranks: Sequence[float]) -> str:
    """Return the ranks (n, 1) of x: the line through the two values around it, constant beyond the last ones."""
    at, to = np.asarray(values), np.asarray(ranks)
    low, high = (graph.constant(float(end), np.float64) for end in (at[0], at[-1]))
    inside = graph.op("Min", graph.op("Max", x, low), high)
    passed = graph.cast(graph.op("LessOrEqual", graph.constant(at[1:-1][None], np.float64), inside), np.int64)
    piece = graph.op("ReduceSum", passed, axes=[1], keepdims=1)
    start, rank, slope = (
        graph.op("Gather", graph.constant(part, np.float64), piece)
        for part in (at[:-1], to[:-1], np.diff(to) / np.diff(at))
    )
    return graph.op("Add", rank, graph.op("Mul", graph.op("Sub", inside, start), slope))
