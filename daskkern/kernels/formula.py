"""Kernels as formulas in a few statistics of two rows, written once for every engine.

A kernel writes ``exp(pair.squared_distance * (-0.5 / s**2))`` once. The expression becomes a :class:`Program`, a
straight list of instructions, and that list is what the engines read: NumPy and CuPy evaluate it on whole tiles
(:func:`evaluate`), the compiled engines turn each instruction into machine code or CUDA. The derivative of a
formula (:mod:`daskkern.kernels.derivative`) is a formula again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Union

from daskkern.arrays import Array
from daskkern.errors import SpecError
from daskkern.kernels.norms import Difference

Number = int | float
Operand = Union["Expression", int, float]


@dataclass(frozen=True)
class Expression:
    """An operation on at most two expressions. Made by arithmetic on :data:`PAIR`'s members, never by hand."""

    op: str
    args: tuple["Expression", ...] = ()
    value: float = 0.0

    def __add__(self, other: Operand) -> "Expression":
        return _binary("add", self, _lift(other))

    def __radd__(self, other: Operand) -> "Expression":
        return _binary("add", self, _lift(other))

    def __sub__(self, other: Operand) -> "Expression":
        return _binary("sub", self, _lift(other))

    def __rsub__(self, other: Operand) -> "Expression":
        return _binary("sub", _lift(other), self)

    def __mul__(self, other: Operand) -> "Expression":
        return _binary("mul", self, _lift(other))

    def __rmul__(self, other: Operand) -> "Expression":
        return _binary("mul", self, _lift(other))

    def __truediv__(self, other: Operand) -> "Expression":
        divisor = _lift(other)
        return self * (1.0 / divisor.value) if divisor.op == "constant" else _binary("div", self, divisor)

    def __rtruediv__(self, other: Operand) -> "Expression":
        return _binary("div", _lift(other), self)

    def __neg__(self) -> "Expression":
        return self * -1.0

    def __pow__(self, exponent: Number) -> "Expression":
        return _power(self, exponent)


def constant(value: Number) -> Expression:
    """Return a number as an expression; the engines take it as an argument, so that it costs no compilation."""
    return Expression("constant", value=float(value))


def exp(x: Expression) -> Expression:
    """Return ``e**x``. Results below 2e-38 (float32) may be rounded up to that."""
    return constant(math.exp(x.value)) if x.op == "constant" else Expression("exp", (x,))


def log(x: Expression) -> Expression:
    """Return the natural logarithm of a positive `x`."""
    return Expression("log", (x,))


def sqrt(x: Expression) -> Expression:
    """Return the square root of a non-negative `x`."""
    return Expression("sqrt", (x,))


def arccos(x: Expression) -> Expression:
    """Return the angle in [0, pi] whose cosine is `x`, for `x` in [-1, 1]."""
    return Expression("arccos", (x,))


def cos(x: Expression) -> Expression:
    """Return the cosine of `x`."""
    return Expression("cos", (x,))


def maximum(x: Expression, bound: Number) -> Expression:
    """Return the larger of `x` and a number."""
    return Expression("maximum", (x, constant(bound)))


@dataclass(frozen=True)
class Pair:
    """The numbers of two rows x and z that a formula may use.

    Attributes
    ----------
    inner : Expression
        ``x . z``
    squared_distance, distance : Expression
        ``|x - z|^2`` (never negative) and its root. A formula that uses `distance` has an infinite slope at 0, so
        squared distances within rounding of 0 are cut to exactly 0.
    cosine : Expression
        ``x . z / (|x| |z|)`` in [-1, 1]; 0 when a row is zero.
    norms : Expression
        ``|x| |z|``
    absolute_sum : Expression
        ``sum_j |x_j - z_j|``. A formula of this sum, of :meth:`power_sum` or of `saturated_sum` reads nothing else of a
        pair: engines sum differences for it, in place of products.
    saturated_sum : Expression
        ``sum_j (1 - exp(-|x_j - z_j|))``: the number of features that differ, for differences far above 1.
    """

    inner: ClassVar[Expression] = Expression("inner")
    squared_distance: ClassVar[Expression] = Expression("squared_distance")
    distance: ClassVar[Expression] = Expression("distance")
    cosine: ClassVar[Expression] = Expression("cosine")
    norms: ClassVar[Expression] = Expression("norms")
    absolute_sum: ClassVar[Expression] = Expression("absolute_sum")
    saturated_sum: ClassVar[Expression] = Expression("saturated_sum")

    def power_sum(self, p: float) -> Expression:
        """Return ``sum_j |x_j - z_j|^p`` for a positive `p`, which is a constant of the formula."""
        return self.absolute_sum if p == 1 else Expression("power_sum", (constant(p),))

    @staticmethod
    def capped(sums: Expression) -> Expression:
        """Return one of the three sums with ``min(|x_j - z_j|, cap_j)`` in place of ``|x_j - z_j|``.

        The caps (d,) are not in the formula: the kernel gives them (:meth:`PairFunction.caps`).
        """
        return Expression(_CAPPED + sums.op, sums.args)


PAIR = Pair()
_CAPPED = "capped_"
_UNCAPPED = ("absolute_sum", "power_sum", "saturated_sum")
DIFFERENCES = (*_UNCAPPED, *(_CAPPED + name for name in _UNCAPPED))
"""Sums of differences, in place of which the other symbols have the inner product."""
SYMBOLS = ("inner", "squared_distance", "distance", "cosine", "norms", *DIFFERENCES)


@dataclass(frozen=True)
class Instruction:
    """One operation: its name and the numbers of the instructions whose results are its operands."""

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A formula as a list of instructions; the last one is the result.

    `constants` are the values of the instructions named "constant", in order. Two programs with equal
    `instructions` differ in numbers only, and share compiled code.
    """

    instructions: tuple[Instruction, ...]
    constants: tuple[float, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """Which members of :class:`Pair` it reads."""
        return frozenset(step.op for step in self.instructions if step.op in SYMBOLS)

    @property
    def difference(self) -> Difference | None:
        """The terms of the sum of differences that it reads, without caps; None where it reads inner products."""
        sums = next((step for step in self.instructions if step.op in DIFFERENCES), None)
        if sums is None:
            return None
        if sums.args:
            places = [at for at, step in enumerate(self.instructions) if step.op == "constant"]
            return Difference(self.constants[places.index(sums.args[0])])
        return Difference(saturates=sums.op.endswith("saturated_sum"))

    @property
    def is_capped(self) -> bool:
        """Whether the differences that it sums are at most the caps of their features."""
        return is_capped(self.instructions)

    @property
    def cuts_off(self) -> bool:
        """Whether squared distances within rounding of 0 must be cut to 0."""
        return "distance" in self.symbols

    @property
    def cuts_angles(self) -> bool:
        """Whether cosines within rounding of 1 must be raised to 1: angles have an infinite slope there."""
        return any(step.op == "arccos" for step in self.instructions)


def is_capped(instructions: tuple[Instruction, ...]) -> bool:
    """Return whether one of the instructions is a capped sum of differences."""
    return any(step.op.startswith(_CAPPED) for step in instructions)


def program(formula: Expression) -> Program:
    """Return the instructions of `formula`, each common part once.

    Raises
    ------
    SpecError
        When it reads a sum of differences and anything else of a pair: no engine computes both in one pass.
    """
    steps: list[Instruction] = []
    constants: list[float] = []
    known: dict[Expression, int] = {}

    def visit(node: Expression) -> int:
        if node in known:
            return known[node]
        args = tuple(visit(arg) for arg in node.args)
        if node.op == "constant":
            constants.append(node.value)
        steps.append(Instruction(node.op, args))
        known[node] = len(steps) - 1
        return known[node]

    visit(formula)
    read = [step.op for step in steps if step.op in SYMBOLS]
    if len(read) > 1 and set(read) & set(DIFFERENCES):
        raise SpecError(f"got a formula of {' and '.join(read)}; expected one sum of differences and nothing else")
    return Program(tuple(steps), tuple(constants))


def evaluate(what: Program, values: Mapping[str, Array], xp: ModuleType) -> Array | float:
    """Return the program's result for tiles of its symbols; NumPy and CuPy run the same text.

    The tiles in `values` may be overwritten. A constant formula gives a float.
    """
    uses = [0] * len(what.instructions)
    for step in what.instructions:
        for arg in step.args:
            uses[arg] += 1
    results: list[Array | float] = []
    numbers = iter(what.constants)
    for step in what.instructions:
        if step.op == "constant":
            results.append(next(numbers))
        elif step.op in SYMBOLS:
            results.append(values[step.op])
        else:
            for arg in step.args:
                uses[arg] -= 1
            operands = [results[arg] for arg in step.args]
            free = (operands[k] for k, arg in enumerate(step.args) if uses[arg] == 0 and hasattr(operands[k], "shape"))
            results.append(_apply(xp, step.op, operands, next(free, None)))
    return results[-1]


_NUMPY_NAMES = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}


def _apply(xp: ModuleType, op: str, operands: list[Array | float], out: Array | None) -> Array | float:
    function = getattr(xp, _NUMPY_NAMES.get(op, op))
    result: Array | float = function(*operands) if out is None else function(*operands, out=out)
    return result


def _lift(value: Operand) -> Expression:
    return value if isinstance(value, Expression) else constant(value)


def _binary(op: str, left: Expression, right: Expression) -> Expression:
    if left.op == right.op == "constant":
        a, b = left.value, right.value
        return constant({"add": a + b, "sub": a - b, "mul": a * b, "div": a / b if b else math.nan}[op])
    if op in ("add", "mul") and left.op == "constant":
        left, right = right, left
    if right.op == "constant":
        if (op in ("add", "sub") and right.value == 0) or (op in ("mul", "div") and right.value == 1):
            return left
        if op == "mul" and right.value == 0:
            return constant(0)
        if op == "mul" and left.op == "mul" and left.args[1].op == "constant":
            return _binary("mul", left.args[0], constant(left.args[1].value * right.value))
    return Expression(op, (left, right))


def _power(base: Expression, exponent: Number) -> Expression:
    if exponent == 0:
        return constant(1)
    if exponent < 0:
        return 1 / _power(base, -exponent)
    if float(exponent).is_integer():
        half = _power(base, int(exponent) // 2)
        squared = half * half
        return squared * base if int(exponent) % 2 else squared
    if float(2 * exponent).is_integer():
        return _power(base, int(exponent)) * sqrt(base)
    return exp(log(base) * float(exponent))
