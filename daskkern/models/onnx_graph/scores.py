"""The scores of a model as ONNX nodes: ``f(x) = sum_j k(x, z_j) a_j``, for every kind of columns."""

from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.errors import ModelError
from daskkern.kernels import Coordinate, Drawn, Fastfood, Kernel, Partitioned, Placement, TreeAverage
from daskkern.kernels.columns.partition_tree import PartitionTree
from daskkern.models.onnx_graph.builder import GraphBuilder
from daskkern.models.onnx_graph.kernel_values import check_expressible, kernel_values, mapped_rows
from daskkern.models.onnx_graph.loops import PIECE, PointLoop, piece_size

MOST_BYTES = 2_000_000_000
"""Of the numbers of a model: ONNX files are limited to 2 GiB."""


def score_nodes(graph: GraphBuilder, kernel: Kernel, points: Any, coef: HostArray, rows: str) -> str:
    """Return the name of the scores (n, c), float64, of scaled rows (n, d) in the dtype of the points.

    Raises
    ------
    ModelError
        For a model that ONNX cannot express, or whose numbers take more than 2 GB.
    """
    check_size(kernel, points, coef)
    if isinstance(kernel, Coordinate):
        return _linear(graph, points, coef, rows)
    dtype = points.dtype
    if isinstance(kernel, Drawn | Fastfood):
        numbers = np.asarray(points.toarray() if is_sparse(points) else points)[:, 0].astype(np.int64)
        neuron, weights = kernel.as_neurons(numbers)
        return _sum(graph, neuron, neuron, weights.astype(dtype), coef, rows, neuron.placement_for(weights))
    inner = kernel.kernel if isinstance(kernel, Partitioned | TreeAverage) else kernel
    check_expressible(inner)
    placement = kernel.placement_for(points)
    dense = points.toarray() if is_sparse(points) else np.asarray(points)
    if isinstance(kernel, TreeAverage) and dense.shape[1] == kernel.n_features:  # of all trees
        owners = np.repeat(np.arange(kernel.n_trees), len(dense))
        dense = np.column_stack([np.tile(dense, (kernel.n_trees, 1)), owners]).astype(dtype)
        coef = np.tile(coef, (kernel.n_trees, 1))
    return _sum(graph, kernel, inner, dense, coef, rows, placement)


def check_size(kernel: Kernel, points: Any, coef: HostArray) -> None:
    """Raise ModelError when the dense points and the coefficients take more than 2 GB."""
    width = coef.shape[1] if isinstance(kernel, Coordinate) else kernel.features_of(points) + coef.shape[1]
    n_bytes = points.shape[0] * width * points.dtype.itemsize
    if n_bytes > MOST_BYTES:
        raise ModelError(
            f"{points.shape[0]:,} points of {kernel.features_of(points):,} features take {n_bytes / 1e9:.1f} GB as an "
            "ONNX graph, more than the 2 GB that its files hold; fit with fewer landmarks, or predict with daskkern"
        )


def _linear(graph: GraphBuilder, points: Any, coef: HostArray, rows: str) -> str:
    dtype = points.dtype
    slopes = graph.op("MatMul", rows, graph.constant(points.T @ coef, dtype))
    empty = points.indptr[1:] == points.indptr[:-1]
    constant = graph.constant(coef[empty].sum(axis=0, dtype=np.float64), np.float64)
    return graph.op("Add", graph.cast(slopes, np.float64), constant)


def _sum(
    graph: GraphBuilder,
    kernel: Kernel,
    inner: Kernel,
    points: FloatArray,
    coef: HostArray,
    rows: str,
    placement: Placement,
) -> str:
    own = points[:, : kernel.n_features] if isinstance(kernel, TreeAverage) else points
    wide = placement.becomes_float64(points.dtype, None)
    dtype = np.dtype(np.float64) if wide else points.dtype
    of_differences = any(member.program.difference for member in _members(inner))
    loop = PointLoop(graph, rows, len(points), piece_size(own.shape[1]) if of_differences else PIECE, dtype)
    loop.rows = graph.cast(rows, dtype) if wide else rows
    values = kernel_values(loop, inner, loop.rows, own.astype(dtype), placement)
    if isinstance(kernel, Partitioned | TreeAverage):
        values = _within_leaves(loop, kernel, inner, rows, points, own, values)
    return loop.total(values, coef)


def _members(kernel: Kernel) -> tuple[Kernel, ...]:
    members: tuple[Kernel, ...] = getattr(kernel, "members", ())
    return tuple(one for member in members for one in _members(member)) if members else (kernel,)


def _within_leaves(
    loop: PointLoop, kernel: Any, inner: Kernel, rows: str, points: FloatArray, own: FloatArray, values: str
) -> str:
    """Return the values (n, size) where rows and points lie in the same leaf of the tree of the point, else 0."""
    outer, body = loop.outer, loop.body
    average = isinstance(kernel, TreeAverage)
    trees = kernel.trees if average else (kernel.tree,)
    owners = points[:, kernel.n_features].astype(np.int64) if average else np.zeros(len(points), np.int64)
    there = inner.transform(own)
    leaves = np.zeros(len(points), np.int64)
    for number, tree in enumerate(trees):
        at = np.flatnonzero(owners == number)
        leaves[at] = tree.leaves(there[at])
    mapped = mapped_rows(outer, inner, rows, own.shape[1], points.dtype)
    here = outer.op("Concat", *(leaf_nodes(outer, tree, mapped) for tree in trees), axis=1)
    met = body.op("Equal", body.op("Gather", here, loop.pieces(owners), axis=1), loop.pieces(leaves))
    share = body.op("Mul", values, body.constant(1.0 / len(trees), loop.dtype))
    return body.op("Where", met, share, body.constant(0.0, loop.dtype))


def leaf_nodes(graph: GraphBuilder, tree: PartitionTree, rows: str) -> str:
    """Return the numbers (n, 1) int64 of the leaves that rows lie in.

    Every cut holds or not, as 1 or -1; a row lies in the leaf whose path agrees with all cuts on it.
    """
    k = len(tree.thresholds)
    if k == 0:
        first = graph.op("IsNaN", graph.op("Gather", rows, graph.constant([0], np.int64), axis=1))
        return graph.op("Mul", graph.cast(first, np.int64), graph.constant(0, np.int64))
    paths = np.zeros((k, k + 1), np.float32)
    waiting: list[tuple[int, list[tuple[int, float]]]] = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        if node < 0:
            for cut, sign in path:
                paths[cut, -1 - node] = sign
            continue
        left, right = tree.children[node].tolist()
        waiting += [(left, [*path, (node, 1.0)]), (right, [*path, (node, -1.0)])]
    return _agreeing(graph, tree, paths, rows)


def _agreeing(graph: GraphBuilder, tree: PartitionTree, paths: FloatArray, rows: str) -> str:
    directions = graph.cast(graph.constant(tree.directions.T, np.float32), np.float64)
    sides = graph.op("MatMul", graph.cast(rows, np.float64), directions)
    holds = graph.op("LessOrEqual", sides, graph.constant(tree.thresholds, np.float64))
    signs = graph.op("Where", holds, graph.constant(1.0, np.float32), graph.constant(-1.0, np.float32))
    agree = graph.op("MatMul", signs, graph.constant(paths, np.float32))
    depths = np.abs(paths).sum(axis=0)
    return graph.op("ArgMax", graph.op("Sub", agree, graph.constant(depths, np.float32)), axis=1, keepdims=1)
