"""Vectorised powers of two and square roots, with AVX-512 instructions where the processor has them."""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from daskkern.backend.machine_code.emitter import Emitter, Value

_SMALLEST = {4: -126.0, 8: -1022.0}  # exponents of the smallest normal numbers: below, exp stops there
_ABOVE = 2.0**-7  # exponents are clipped this much above it, so that no rounding leaves the normal numbers
_ROUND = {4: 12582912.0, 8: 6755399441055744.0}  # adding and subtracting 1.5 * 2**(mantissa bits) rounds to integers
_MANTISSA = {4: 23, 8: 52}
# 2**x on [-1/2, 1/2], ascending powers: least squares in relative error, 2e-9 (float32); Taylor, 1e-17 (float64).
_EXP2 = {
    4: (1.0, 0.6931471824645996, 0.24022646248340607, 0.05550329014658928, 0.009618519805371761,
        0.0013399859890341759, 0.00015337577497120947),
    8: tuple(0.6931471805599453**k / f for k, f in enumerate(
        (1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800))),
}  # fmt: skip
_STEPS = 32  # entries of a table that two AVX-512 registers hold
_PLACE = 18  # where an integer of 1/32 must be moved to for its whole part to be added to a float32's exponent
# 2**x - 1 on [-1/64, 1/64] is x (c1 + c2 x) to 5.3e-8: Taylor, with the cube's best linear approximation in c1.
_LN2 = 0.6931471805599453
_SHORT = (_LN2 + _LN2**3 / 8 / (2 * _STEPS) ** 2, _LN2**2 / 2)


def exp2(e: Emitter, xs: Sequence[Value]) -> list[Value]:
    """Return 2**x, not below the smallest normal number and infinite above the largest."""
    size = e.shape.itemsize
    magic, low, high = e.const(_ROUND[size]), e.const(_SMALLEST[size]), e.const(2 - _SMALLEST[size])
    bounded = [e.smaller(e.larger(x, low), high) for x in xs]
    shifted = [e.b.fadd(x, magic) for x in bounded]
    rest = [e.b.fsub(x, e.b.fsub(s, magic)) for x, s in zip(bounded, shifted, strict=True)]
    return _scaled_polynomial(e, shifted, rest)


def exp2_falling(e: Emitter, xs: Sequence[Value], factors: Sequence[Value]) -> list[Value]:
    """Return 2**(x factor) for x at least 0 and one negative factor, not below the smallest normal number.

    The product is not rounded. Infinite x are allowed.
    """
    size, factor = e.shape.itemsize, factors[0]
    tabled = e.shape.avx512 and size == 4
    magic = e.const(_ROUND[size] / _STEPS if tabled else _ROUND[size])
    most = e.b.fdiv(e.const(_SMALLEST[size] + _ABOVE), factor)
    bounded = [e.smaller(x, most) for x in xs]
    shifted = [e.fma(x, factor, magic) for x in bounded]
    whole = [e.b.fsub(magic, s) for s in shifted]
    rest = [e.fma(x, factor, w) for x, w in zip(bounded, whole, strict=True)]
    return (_tabled if tabled else _scaled_polynomial)(e, shifted, rest)


def _scaled_polynomial(e: Emitter, shifted: Sequence[Value], rest: Sequence[Value]) -> list[Value]:
    """Return 2**rest by a polynomial, its exponents raised by the integers in the last bits of `shifted`."""
    size = e.shape.itemsize
    powers = [e.const(_EXP2[size][-1])] * len(rest)
    for coefficient in _EXP2[size][-2::-1]:
        powers = [e.fma(p, r, e.const(coefficient)) for p, r in zip(powers, rest, strict=True)]
    return [_raised(e, e.b.bitcast(p, e.integers), s, _MANTISSA[size]) for p, s in zip(powers, shifted, strict=True)]


def _tabled(e: Emitter, shifted: Sequence[Value], rest: Sequence[Value]) -> list[Value]:
    """Return the same from a table of 2**(j / 32) in two registers, where `shifted` counts 1/32 and rest is small."""
    steps = np.arange(_STEPS)
    # Moving j / 32 to the exponent leaves j in the mantissa: the table has it subtracted.
    table = (2 ** (steps / _STEPS)).astype(np.float32).view(np.uint32) - (steps << _PLACE).astype(np.uint32)
    low, high = (ir.Constant(e.integers, [int(word) for word in half]) for half in np.split(table, 2))
    picked = [e.intrinsic("x86.avx512.vpermi2var.d.512", low, e.b.bitcast(s, e.integers), high) for s in shifted]
    powers = [_raised(e, p, s, _PLACE) for p, s in zip(picked, shifted, strict=True)]
    excess = [e.b.fmul(r, e.fma(r, e.const(_SHORT[1]), e.const(_SHORT[0]))) for r in rest]
    return [e.fma(p, x, p) for p, x in zip(powers, excess, strict=True)]


def _raised(e: Emitter, bits: Value, shifted: Value, place: int) -> Value:
    moved = e.b.shl(e.b.bitcast(shifted, e.integers), e.int_const(place))
    return e.b.bitcast(e.b.add(bits, moved), e.vector)


def distance(e: Emitter, inner: Value, row: Value, column: Value) -> Value:
    """Return the square root of ``row + column - 2 inner``, 0 where that is below 0, else to 2 units in the last
    place; the squared distance is at most the largest number.

    With AVX-512, the reciprocal root r to 14 bits, and one step of Newton's method: the root itself takes longer than
    all else that a kernel does with the distance. Of q, a quarter of the squared distance, ``q r (3 - q r r)`` is
    the root, so that nothing need be halved.
    """
    if not (e.shape.avx512 and e.shape.itemsize == 4):
        squared = e.fma(inner, e.const(-2), e.b.fadd(row, column))
        return e.call("sqrt", e.larger(squared, e.const(0)))
    quarter = e.const(0.25)
    q = e.fma(inner, e.const(-0.5), e.fma(row, quarter, e.b.fmul(column, quarter)))
    is_some = e.b.bitcast(e.b.fcmp_unordered(">", q, e.const(0)), ir.IntType(e.shape.lanes))
    reciprocal = e.intrinsic("x86.avx512.rsqrt14.ps.512", q, e.const(0), is_some)
    root = e.b.fmul(q, reciprocal)
    return e.b.fmul(root, e.fma(e.b.fneg(root), reciprocal, e.const(3)))
