"""Kernel formulas as ONNX nodes, one for each instruction."""

from collections.abc import Mapping
from math import pi

import numpy as np
import numpy.typing as npt

from daskkern.kernels.formula import Program
from daskkern.models.onnx_graph.builder import GraphBuilder

OPERATORS = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "cos": "Cos",
    "maximum": "Max",
}
"""Operations of formulas, and ONNX's operators; ``arccos`` is in :func:`arccos`."""


def evaluate_nodes(graph: GraphBuilder, what: Program, values: Mapping[str, str], dtype: npt.DTypeLike) -> str:
    """Return the name of the formula's result for tensors of its symbols; see :func:`daskkern.kernels.formula`."""
    results: list[str] = []
    numbers = iter(what.constants)
    for step in what.instructions:
        operands = [results[arg] for arg in step.args]
        if step.op == "constant":
            results.append(graph.constant(next(numbers), dtype))
        elif step.op in values:
            results.append(values[step.op])
        elif step.op == "arccos":
            results.append(arccos(graph, operands[0], dtype))
        else:
            results.append(graph.op(OPERATORS[step.op], *operands))
    return results[-1]


def arccos(graph: GraphBuilder, x: str, dtype: npt.DTypeLike) -> str:
    """Return the angle of a cosine; in float64 by one Newton step, because runtimes have none.

    For ``v = |x|`` the angle is ``2 arcsin(s)``, ``s = ((1 - v) / 2)^(1/2)``, at most 0.71, where the step is stable:
    its error is the square of float32's.
    """
    if np.dtype(dtype) == np.float32:
        return graph.op("Acos", x)
    one, two = graph.constant(1.0, dtype), graph.constant(2.0, dtype)
    v = graph.op("Abs", x)
    s = graph.op("Sqrt", graph.op("Div", graph.op("Sub", one, v), two))
    c = graph.op("Sqrt", graph.op("Div", graph.op("Add", one, v), two))
    rough = graph.cast(graph.op("Asin", graph.cast(s, np.float32)), dtype)
    half = graph.op("Add", rough, graph.op("Div", graph.op("Sub", s, graph.op("Sin", rough)), c))
    angle = graph.op("Mul", half, two)
    negative = graph.op("Less", x, graph.constant(0.0, dtype))
    return graph.op("Where", negative, graph.op("Sub", graph.constant(pi, dtype), angle), angle)


def arcsinh(graph: GraphBuilder, x: str, dtype: npt.DTypeLike) -> str:
    """Return ``sign(x) log(|x| + (x^2 + 1)^(1/2))``, which runtimes have in both precisions."""
    size, one = graph.op("Abs", x), graph.constant(1.0, dtype)
    root = graph.op("Sqrt", graph.op("Add", graph.op("Mul", x, x), one))
    return graph.op("Mul", graph.op("Sign", x), graph.op("Log", graph.op("Add", size, root)))
