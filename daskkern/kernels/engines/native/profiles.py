"""Formulas as vector instructions, from inner products to kernel values."""

from collections.abc import Sequence
from dataclasses import dataclass

from daskkern.backend.machine_code.emitter import Emitter, Value
from daskkern.kernels.engines.native.exponential import distance, exp2, exp2_falling
from daskkern.kernels.formula import DIFFERENCES, SYMBOLS, Instruction, Program

LOG2_E = 1.4426950408889634
# asin(x) = x + x**3 P(x**2) on [0, 1/2] (Cephes asinf), ascending powers.
_ARCSIN = (1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2)
# log(1 + x) = x - x**2/2 + x**3 P(x) on [sqrt(1/2) - 1, sqrt(2) - 1] (Cephes logf), ascending powers.
_LOG = (3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
        -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2)  # fmt: skip
_STEEPEST = 1e30  # exponents fall by factors of at most this size, and at least its inverse: bounds are in range
_ONLY_SINGLE = frozenset({"arccos", "log", "power_sum", "capped_power_sum"})
_TINY = 1e-36  # below, a power is linear
_KNOWN = frozenset({"constant", "add", "sub", "mul", "div", "exp", "sqrt", "maximum"}) | _ONLY_SINGLE


def is_expressible(what: Program, itemsize: int, symbols: frozenset[str]) -> bool:
    """Return whether every instruction has a vector form for elements of this size."""
    missing = frozenset() if itemsize == 4 else _ONLY_SINGLE
    known = (_KNOWN | symbols) - missing
    return all(step.op in known for step in what.instructions)


@dataclass(frozen=True)
class Lowered:
    """A program in the engine's instructions; `constants` are passed at run time."""

    instructions: tuple[Instruction, ...]
    constants: tuple[float, ...]


def lower(what: Program) -> Lowered:
    """Return `what` with ``exp(k s)`` as ``2**(k log2(e) s)``: the factor is folded into the constant."""
    steps, constants = list(what.instructions), list(what.constants)
    places = {at: k for k, at in enumerate(n for n, step in enumerate(steps) if step.op == "constant")}
    positive = _positive(what)
    uses = [sum(step.args.count(n) for step in steps) for n in range(len(steps))]
    out: list[Instruction] = []
    moved: dict[int, int] = {}
    values: list[float] = []

    def put(op: str, *args: int) -> int:
        out.append(Instruction(op, args))
        return len(out) - 1

    def number(value: float) -> int:
        values.append(value)
        return put("constant")

    for at, step in enumerate(steps):
        if step.op == "constant":
            moved[at] = number(constants[places[at]])
        elif step.op == "exp":
            (arg,) = step.args
            inner = steps[arg]
            if inner.op == "mul" and inner.args[1] in places and uses[arg] == 1:
                value = constants[places[inner.args[1]]] * LOG2_E
                factor = number(value)
                if inner.args[0] in positive and -_STEEPEST < value < -1 / _STEEPEST:
                    moved[at] = put("exp2_falling", moved[inner.args[0]], factor)
                else:
                    moved[at] = put("exp2", put("mul", moved[inner.args[0]], factor))
            else:
                moved[at] = put("exp2", put("mul", moved[arg], number(LOG2_E)))
        else:
            moved[at] = put(step.op, *(moved[arg] for arg in step.args))
    return Lowered(tuple(out), tuple(values))


def _positive(what: Program) -> set[int]:
    """Return the instructions whose values are at least 0, or not a number."""
    constants = iter(what.constants)
    found: set[int] = set()
    for at, step in enumerate(what.instructions):
        if step.op == "constant":
            always = next(constants) >= 0
        elif step.op in ("add", "mul", "div"):
            always = all(arg in found for arg in step.args)
        else:
            always = step.op in ("squared_distance", "distance", "norms", *DIFFERENCES, "exp", "sqrt") or (
                step.op == "maximum" and any(arg in found for arg in step.args)
            )
        if always:
            found.add(at)
    return found


@dataclass(frozen=True)
class RowStats:
    """Splats of one row's numbers, as far as the formula needs them."""

    squared: Value | None
    norm: Value | None
    inverse: Value | None


@dataclass(frozen=True)
class ColumnStats:
    """Vectors of the columns' numbers, as far as the formula needs them."""

    squared: Value | None
    norm: Value | None
    inverse: Value | None


def emit_profile(
    e: Emitter,
    what: Lowered,
    numbers: Sequence[Value],
    raw: list[Value],
    rows: list[RowStats],
    columns: list[ColumnStats],
) -> list[Value]:
    """Return the kernel's values for vectors of inner products; vectors are worked on side by side."""
    results: list[list[Value]] = []
    constants = iter(numbers)
    for step in what.instructions:
        args = [results[arg] for arg in step.args]
        if step.op == "constant":
            results.append([next(constants)] * len(raw))
        elif step.op in SYMBOLS:
            results.append([_symbol(e, step.op, *stats) for stats in zip(raw, rows, columns, strict=True)])
        elif step.op == "exp2":
            results.append(exp2(e, args[0]))
        elif step.op == "exp2_falling":
            results.append(exp2_falling(e, *args))
        else:
            results.append([_operation(e, step.op, *operands) for operands in zip(*args, strict=True)])
    return results[-1]


def _symbol(e: Emitter, name: str, inner: Value, row: RowStats, column: ColumnStats) -> Value:
    if name == "inner":
        return inner
    if name in DIFFERENCES:
        # CSR rows have summed what their entries change of the sum over the column's.
        return inner if column.squared is None else e.larger(e.b.fadd(inner, column.squared), e.const(0))
    if name in ("squared_distance", "distance"):
        if name == "distance":
            return distance(e, inner, row.squared, column.squared)
        squared = e.fma(inner, e.const(-2), e.b.fadd(row.squared, column.squared))
        return e.larger(squared, e.const(0))
    if name == "norms":
        return e.b.fmul(row.norm, column.norm)
    cosine = e.b.fmul(inner, e.b.fmul(row.inverse, column.inverse))
    return e.smaller(e.larger(cosine, e.const(-1)), e.const(1))


def _operation(e: Emitter, op: str, *args: Value) -> Value:
    plain = {"add": e.b.fadd, "sub": e.b.fsub, "mul": e.b.fmul, "div": e.b.fdiv}
    if op in plain:
        return plain[op](*args)
    if op == "maximum":
        return e.larger(*args)
    if op == "sqrt":
        return e.call("sqrt", *args)
    return {"arccos": _arccos, "log": _log}[op](e, *args)


def power(e: Emitter, x: Value, exponent: Value) -> Value:
    """Return ``x**exponent`` for x at least 0 in float32, and a positive exponent: ``x 2**((exponent - 1) log2 x)``."""
    logarithm = _log(e, e.larger(x, e.const(_TINY)))
    factor = e.b.fmul(e.b.fsub(exponent, e.const(1)), e.const(LOG2_E))
    return e.b.fmul(x, exp2(e, [e.b.fmul(logarithm, factor)])[0])


def saturated(e: Emitter, x: Value) -> Value:
    """Return ``1 - exp(-x)`` for x at least 0."""
    return e.b.fsub(e.const(1), exp2(e, [e.b.fmul(x, e.const(-LOG2_E))])[0])


def _polynomial(e: Emitter, x: Value, ascending: Sequence[float]) -> Value:
    result = e.const(ascending[-1])
    for coefficient in ascending[-2::-1]:
        result = e.fma(result, x, e.const(coefficient))
    return result


def _arccos(e: Emitter, x: Value) -> Value:
    size = e.call("fabs", x)
    large = e.b.fcmp_ordered(">", size, e.const(0.5))
    half = e.b.fmul(e.b.fsub(e.const(1), size), e.const(0.5))
    z = e.b.select(large, half, e.b.fmul(size, size))
    root = e.b.select(large, e.call("sqrt", half), size)
    arcsine = e.fma(e.b.fmul(_polynomial(e, z, _ARCSIN), z), root, root)
    positive = e.b.select(large, e.b.fmul(arcsine, e.const(2)), e.b.fsub(e.const(1.5707963267948966), arcsine))
    return e.b.select(e.b.fcmp_ordered("<", x, e.const(0)), e.b.fsub(e.const(3.141592653589793), positive), positive)


def _log(e: Emitter, x: Value) -> Value:
    bits = e.b.bitcast(x, e.integers)
    # The mantissa in [sqrt(1/2), sqrt(2)): subtracting sqrt(1/2)'s bits moves the cut between exponents there.
    start = 0x3F3504F3
    exponent = e.b.ashr(e.b.sub(bits, e.int_const(start)), e.int_const(23))
    mantissa = e.b.bitcast(e.b.sub(bits, e.b.shl(exponent, e.int_const(23))), e.vector)
    scale = e.b.sitofp(exponent, e.vector)
    r = e.b.fsub(mantissa, e.const(1))
    squared = e.b.fmul(r, r)
    tail = e.fma(e.b.fmul(_polynomial(e, r, _LOG), r), squared, e.fma(scale, e.const(-2.12194440e-4), e.const(0)))
    tail = e.fma(squared, e.const(-0.5), tail)
    return e.fma(scale, e.const(0.693359375), e.b.fadd(r, tail))
