"""The derivative of a formula, which is itself a formula."""

from collections.abc import Callable
from math import pi

from daskkern.errors import SpecError
from daskkern.kernels.formula import SYMBOLS, Expression, constant, cos, maximum, sqrt

Derive = Callable[["Expression"], "Expression"]
_TINY = 1e-36


def differentiate(formula: Expression, symbol: str) -> Expression:
    """Return the derivative by the symbol named.

    ``distance`` counts as the root of ``squared_distance``, with derivative 0 where it is 0. A ``maximum`` has the
    derivative 0 where both sides are equal.
    """
    known: dict[Expression, Expression] = {}

    def of(node: Expression) -> Expression:
        if node not in known:
            known[node] = _derivative(node, symbol, of)
        return known[node]

    return of(formula)


def _derivative(node: Expression, symbol: str, of: Derive) -> Expression:
    if node.op == symbol:
        return constant(1)
    if node.op == "distance" and symbol == "squared_distance":
        return 0.5 * node / maximum(Expression(symbol), _TINY)  # 1 / (2 r), and 0 where r is
    if node.op == "constant" or node.op in SYMBOLS:
        return constant(0)
    x = node.args[0]
    if node.op in ("add", "sub"):
        return of(x) + of(node.args[1]) if node.op == "add" else of(x) - of(node.args[1])
    if node.op == "mul":
        return of(x) * node.args[1] + x * of(node.args[1])
    if node.op == "div":
        y = node.args[1]
        return (of(x) - node * of(y)) / y
    outer = {
        "exp": lambda: node,
        "log": lambda: 1 / x,
        "sqrt": lambda: 0.5 / node,
        "arccos": lambda: -1 / sqrt(maximum(1 - x * x, 0)),
        "cos": lambda: cos(x + pi / 2),
        "maximum": lambda: _step(x - node.args[1]),
    }
    if node.op not in outer:
        raise SpecError(f"a formula with {node.op} has no derivative; write it without {node.op}")
    return outer[node.op]() * of(x)


def _step(t: Expression) -> Expression:
    """Return 1 for positive `t`, else 0."""
    return maximum(t, 0) / maximum(sqrt(t * t), _TINY)
