"""Kernel values of rows and a block of the points as ONNX nodes."""

from dataclasses import replace
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.errors import ModelError
from daskkern.kernels import Kernel, Placement, ScaledDistanceKernel
from daskkern.kernels.formula import DIFFERENCES, Expression, program
from daskkern.kernels.functions.activations import Neuron
from daskkern.kernels.functions.algebra import Composite
from daskkern.kernels.functions.differences.base import DifferenceKernel
from daskkern.kernels.norms import Difference
from daskkern.kernels.operands import PairFunction
from daskkern.kernels.points import slack_of
from daskkern.models.onnx_graph.builder import GraphBuilder
from daskkern.models.onnx_graph.formulas import evaluate_nodes
from daskkern.models.onnx_graph.loops import PointLoop

_EVALUATION = ("block", "points", "left", "matvec", "_matvec", "_engine", "_fill")
"""Methods of kernels that evaluate the formula: whoever replaces one computes something else."""
_LINEAR = (ScaledDistanceKernel.transform, DifferenceKernel.transform)


def kernel_values(loop: PointLoop, kernel: Kernel, rows: str, points: FloatArray, placement: Placement) -> str:
    """Return the name, in a step of `loop`, of ``k(x_i, z_j)`` (n, size).

    Parameters
    ----------
    loop : PointLoop
    kernel : Kernel
    rows : str
        Rows x (n, d) of the outer graph.
    points : (p, d) array
        Dense points z.
    placement : Placement
        What is subtracted from both before differences are taken.

    Raises
    ------
    ModelError
        For a kernel that is not given by a formula of the rows.
    """
    if isinstance(kernel, Composite) and (
        kernel.coordinates is None or (placement.shift is not None and not kernel.is_shift_invariant)
    ):
        values = {
            f"member{number}": kernel_values(loop, member, rows, points, _own_placement(member, placement))
            for number, member in enumerate(kernel.members)
        }
        combined = program(kernel.combine([Expression(name) for name in values]))
        return evaluate_nodes(loop.body, combined, values, loop.dtype)
    check_expressible(kernel)
    shift = None if placement.shift is None else placement.shift.astype(points.dtype)
    if shift is not None:
        rows, points = loop.outer.op("Sub", rows, loop.outer.constant(shift, loop.dtype)), points - shift
    if isinstance(kernel, Neuron) and kernel.bias:
        rows = _with_ones(loop.outer, rows, loop.dtype)
    n_features = points.shape[1]
    mapped, rows = kernel.transform(points), _mapped(loop.outer, kernel, rows, n_features, loop.dtype)
    return _formula_values(loop, kernel, rows, mapped, kernel.caps(n_features))


def check_expressible(kernel: Kernel) -> None:
    """Raise ModelError for a kernel whose values do not follow from its formula and a linear map of rows."""
    kind = type(kernel)
    own = [name for name in _EVALUATION if getattr(kind, name) is not getattr(Kernel, name)]
    known: Any = (PairFunction.transform, *_LINEAR)
    if not isinstance(kernel, Composite | Neuron) and (own or kind.transform not in known):
        raise ModelError(
            f"the {kernel.name} kernel computes its values by functions of its own, which ONNX cannot express; fit "
            "with a kernel that is a formula of two rows, such as gaussian"
        )
    if isinstance(kernel, Composite):
        for member in kernel.members:
            check_expressible(member)


def mapped_rows(graph: GraphBuilder, kernel: Kernel, rows: str, n_features: int, dtype: Any) -> str:
    """Return the rows as the kernel's formula has them (:meth:`Kernel.transform`)."""
    check_expressible(kernel)
    return _mapped(graph, kernel, rows, n_features, dtype)


def _own_placement(member: Kernel, placement: Placement) -> Placement:
    shifted = isinstance(member, Composite) or member.is_shift_invariant
    return placement if shifted else replace(placement, shift=None)


def _mapped(graph: GraphBuilder, kernel: Kernel, rows: str, n_features: int, dtype: Any) -> str:
    while isinstance(kernel, Composite):
        kernel = kernel.members[0]
    if not isinstance(kernel, ScaledDistanceKernel):
        return rows
    if np.ndim(kernel.length_scale) == 2 or getattr(kernel, "has_metric", False):
        return graph.op("MatMul", rows, graph.constant(kernel.transform(np.eye(n_features)), dtype))
    factors = kernel.transform(np.ones((1, n_features)))[0]
    return rows if (factors == 1).all() else graph.op("Mul", rows, graph.constant(factors, dtype))


def _with_ones(graph: GraphBuilder, rows: str, dtype: Any) -> str:
    first = graph.op("Gather", rows, graph.constant([0], np.int64), axis=1)
    zero = graph.op("Mul", first, graph.constant(0.0, dtype))
    return graph.op("Concat", rows, graph.op("Add", zero, graph.constant(1.0, dtype)), axis=1)


def _formula_values(loop: PointLoop, kernel: Kernel, rows: str, points: FloatArray, caps: FloatArray | None) -> str:
    what, body, dtype = kernel.program, loop.body, loop.dtype
    difference = what.difference
    if difference is not None:
        sums = _difference_sums(loop, rows, points, replace(difference, caps=caps))
        return evaluate_nodes(body, what, dict.fromkeys(DIFFERENCES, sums), dtype)
    inner = body.op("MatMul", rows, loop.pieces(points.astype(dtype), transposed=True))
    values = {"inner": inner}
    squares = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    slack = slack_of(points.shape[1], dtype)
    if what.symbols & {"squared_distance", "distance"}:
        norms = _squared_norms(loop.outer, rows)
        if what.cuts_off:
            norms = loop.outer.op("Mul", norms, loop.outer.constant(1 - slack, dtype))
        there = loop.pieces(squares.astype(dtype))
        twice = body.op("Mul", inner, body.constant(-2.0, dtype))
        sums = body.op("Add", body.op("Add", twice, norms), there)
        values["squared_distance"] = body.op("Max", sums, body.constant(0.0, dtype))
        if "distance" in what.symbols:
            values["distance"] = body.op("Sqrt", values["squared_distance"])
    if what.symbols & {"cosine", "norms"}:
        norm = loop.outer.op("Sqrt", _squared_norms(loop.outer, rows))
        lengths = np.sqrt(squares)
        if "norms" in what.symbols:
            values["norms"] = body.op("Mul", norm, loop.pieces(lengths.astype(dtype)))
        values["cosine"] = _cosine(loop, inner, norm, lengths, slack if what.cuts_angles else 0.0)
    return evaluate_nodes(body, what, values, dtype)


def _cosine(loop: PointLoop, inner: str, norm: str, lengths: HostArray, slack: float) -> str:
    """Return cosines from -1 to 1, 0 for rows of 0; those within rounding of 1 are raised to it by `slack`."""
    outer, body, dtype = loop.outer, loop.body, loop.dtype
    one = outer.constant(1.0, dtype)
    is_zero = outer.op("Equal", norm, outer.constant(0.0, dtype))
    inverse = outer.op("Div", outer.constant(1 + slack, dtype), outer.op("Where", is_zero, one, norm))
    inverses = np.where(lengths == 0, 0, 1 / np.where(lengths == 0, 1, lengths))
    cosine = body.op("Mul", body.op("Mul", inner, inverse), loop.pieces(inverses.astype(dtype)))
    low = body.op("Max", cosine, body.constant(-1.0, dtype))
    return body.op("Min", low, body.constant(1.0, dtype))


def _squared_norms(graph: GraphBuilder, rows: str) -> str:
    return graph.op("ReduceSum", graph.op("Mul", rows, rows), axes=[1], keepdims=1)


def _difference_sums(loop: PointLoop, rows: str, points: FloatArray, difference: Difference) -> str:
    body, dtype = loop.body, loop.dtype
    left = loop.outer.op("Unsqueeze", rows, axes=[1])  # (n, 1, d) beside (size, d)
    gaps = body.op("Abs", body.op("Sub", left, loop.pieces(points.astype(dtype))))
    if difference.caps is not None:
        gaps = body.op("Min", gaps, body.constant(difference.caps, dtype))
    if difference.saturates:
        kept = body.op("Exp", body.op("Neg", gaps))
        gaps = body.op("Sub", body.constant(1.0, dtype), kept)
    elif difference.power != 1:
        gaps = body.op("Pow", gaps, body.constant(difference.power, dtype))
    return body.op("ReduceSum", gaps, axes=[2], keepdims=0)
