"""The compiled steps of :mod:`.block_problem`: three vectorised passes over the working set per step.

Elements, operations and their order are those of the plain twin, so that both give the same bits.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from daskkern.backend.machine_code.compiler import Function, machine_code, register_bytes, shape_for
from daskkern.backend.machine_code.emitter import F64, I64, Emitter
from daskkern.solvers.support_vectors.block_problem import LEAST_CURVATURE, PAD, BlockProblem, BlockSteps

_WORDS = ("K", "diagonal", "low", "high", "b", "g", "edges", "numbers", "size", "groups", "most")
_TOL, _SHARE, _LAST, _FIRST, _COUNT = range(5)  # places in "numbers"


def is_compilable() -> bool:
    """Return whether there is code for this processor, whose vectors must divide the padding of groups."""
    return register_bytes() > 0 and PAD % (register_bytes() // 8) == 0


def solve_compiled(problem: BlockProblem, tol: float, share: float, most: int) -> BlockSteps:
    """Take the steps of :func:`daskkern.solvers.support_vectors.block_problem.solve_plainly`, with the same bits."""
    numbers = np.array([tol, share, 0.0, 0.0, 0.0])
    arrays = (problem.K, problem.diagonal, problem.low, problem.high, problem.b, problem.g, problem.edges, numbers)
    words = [array.ctypes.data for array in arrays] + [len(problem.b), len(problem.edges) - 1, most]
    call = (ctypes.c_int64 * len(_WORDS))(*words)
    _function(problem.coupled)(ctypes.addressof(call))
    return BlockSteps(int(numbers[_COUNT]), float(numbers[_FIRST]), float(numbers[_LAST]))


@cache
def _function(coupled: bool) -> Function:
    module, name = ir.Module("daskkern"), "pairs" if coupled else "singles"
    _Steps(module, name).emit(coupled)
    return machine_code(module, shape_for(8), name)


@dataclass(frozen=True)
class _BestStep:
    """Places in memory of what a search found: violation, gain, step, and the numbers of two variables."""

    violation: Any
    gain: Any
    step: Any
    i: Any
    j: Any


class _Steps:
    """The function under construction."""

    def __init__(self, module: ir.Module, name: str) -> None:
        kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer()])
        self.function = ir.Function(module, kind, name)
        self.function.attributes.add("nounwind")
        self.e = Emitter(module, ir.IRBuilder(self.function.append_basic_block("entry")), shape_for(8))
        e = self.e
        words = {word: e.b.load(e.at(self.function.args[0], at)) for at, word in enumerate(_WORDS)}
        self.n = {word: words[word] for word in ("size", "groups", "most")}
        self.edges = e.b.inttoptr(words["edges"], I64.as_pointer())
        pointers = (*_WORDS[:6], "numbers")
        self.p = {word: e.b.inttoptr(words[word], F64.as_pointer()) for word in pointers}
        self.found = _BestStep(*(e.b.alloca(F64) for _ in range(3)), *(e.b.alloca(I64) for _ in range(2)))
        self.count = e.b.alloca(I64)

    def emit(self, coupled: bool) -> None:
        """Emit the loop over steps."""
        e, b = self.e, self.e.b
        lanes = range(e.shape.lanes)
        self.lanes = ir.Constant(e.vector, [float(lane) for lane in lanes])
        b.store(I64(0), self.count)
        turn, start, go, after = (b.append_basic_block() for _ in range(4))
        b.branch(turn)
        b.position_at_end(turn)
        for place in (self.found.violation, self.found.gain, self.found.step):
            b.store(F64(0.0), place)
        for place in (self.found.i, self.found.j):
            b.store(I64(0), place)
        if coupled:
            with e.loop(0, self.n["groups"]) as group:
                self._search_pair(e.scalar(self.edges, group), e.scalar(self.edges, group, 1))
        else:
            self._search_single()
        violation = b.load(self.found.violation)
        count = b.load(self.count)
        b.cbranch(b.icmp_signed("==", count, I64(0)), start, go)
        b.position_at_end(start)
        b.store(violation, e.at(self.p["numbers"], _FIRST))
        b.branch(go)
        b.position_at_end(go)
        first = b.fmul(e.scalar(self.p["numbers"], _SHARE), e.scalar(self.p["numbers"], _FIRST))
        bound = self._larger(e.scalar(self.p["numbers"], _TOL), first)
        over = b.or_(b.fcmp_ordered("<=", violation, bound), b.icmp_signed(">=", count, self.n["most"]))
        moving = b.append_basic_block()
        b.cbranch(over, after, moving)
        b.position_at_end(moving)
        self._step(coupled)
        b.store(b.add(count, I64(1)), self.count)
        b.branch(turn)
        b.position_at_end(after)
        b.store(violation, e.at(self.p["numbers"], _LAST))
        b.store(b.sitofp(count, F64), e.at(self.p["numbers"], _COUNT))
        b.ret_void()

    def _search_pair(self, start: Any, stop: Any) -> None:
        """Emit the search of the best pair of one group."""
        e, b, p, found = self.e, self.e.b, self.p, self.found
        none = e.const(-np.inf)

        def rises(k: Any) -> tuple[Any, ...]:
            free = b.fcmp_ordered("<", e.load(p["b"], k), e.load(p["high"], k))
            return (b.select(free, b.fneg(e.load(p["g"], k)), none),)

        top, i = self._largest(start, stop, rises, none, 0)[:2]
        row = e.at(p["K"], e.times(i, self.n["size"]))
        own, level = e.splat(e.scalar(p["diagonal"], i)), e.splat(top)
        tiny, lowest = e.const(LEAST_CURVATURE), e.const(-1.0)

        def gains(k: Any) -> tuple[Any, ...]:
            free = b.fcmp_ordered(">", e.load(p["b"], k), e.load(p["low"], k))
            apart = b.select(free, b.fadd(level, e.load(p["g"], k)), none)
            sums = b.fadd(own, e.load(p["diagonal"], k))
            curvature = e.larger(b.fsub(sums, b.fmul(e.const(2.0), e.load(row, k))), tiny)
            gain = b.fdiv(b.fmul(apart, apart), curvature)
            return b.select(b.fcmp_ordered(">", apart, e.const(0.0)), gain, lowest), apart

        gain, j, apart = self._largest(start, stop, gains, none, 1)
        b.store(self._larger(b.load(found.violation), apart), found.violation)
        with b.if_then(b.fcmp_ordered(">", gain, b.load(found.gain))):
            sums = b.fadd(e.scalar(p["diagonal"], i), e.scalar(p["diagonal"], j))
            curvature = self._larger(b.fsub(sums, b.fmul(F64(2.0), e.scalar(row, j))), F64(LEAST_CURVATURE))
            step = b.fdiv(b.fadd(top, e.scalar(p["g"], j)), curvature)
            for value, place in ((gain, found.gain), (step, found.step), (i, found.i), (j, found.j)):
                b.store(value, place)

    def _search_single(self) -> None:
        """Emit the search of the best single variable."""
        e, b, p, found = self.e, self.e.b, self.p, self.found
        zero = e.const(0.0)

        def curvature_at(k: Any) -> Any:
            return e.larger(e.load(p["diagonal"], k), e.const(LEAST_CURVATURE))

        def step_at(k: Any) -> Any:
            target = b.fsub(e.load(p["b"], k), b.fdiv(e.load(p["g"], k), curvature_at(k)))
            inside = e.smaller(e.larger(target, e.load(p["low"], k)), e.load(p["high"], k))
            return b.fsub(inside, e.load(p["b"], k))

        def gains(k: Any) -> tuple[Any, ...]:
            step, g, here = step_at(k), e.load(p["g"], k), e.load(p["b"], k)
            half = b.fmul(b.fmul(e.const(0.5), step), curvature_at(k))
            up = b.select(b.fcmp_ordered("<", here, e.load(p["high"], k)), b.fneg(g), zero)
            down = b.select(b.fcmp_ordered(">", here, e.load(p["low"], k)), g, zero)
            return b.fmul(b.fneg(step), b.fadd(g, half)), e.larger(up, down)

        _, i, over = self._largest(I64(0), self.n["size"], gains, e.const(-np.inf), 1)
        curvature = self._larger(e.scalar(p["diagonal"], i), F64(LEAST_CURVATURE))
        here, low, high = (e.scalar(p[name], i) for name in ("b", "low", "high"))
        target = self._larger(b.fsub(here, b.fdiv(e.scalar(p["g"], i), curvature)), low)
        b.store(b.fsub(self._smaller(target, high), here), found.step)
        b.store(over, found.violation)
        b.store(i, found.i)

    def _largest(
        self, start: Any, stop: Any, values: Callable[[Any], tuple[Any, ...]], least: Any, others: int
    ) -> tuple[Any, ...]:
        """Emit a pass; return the largest first value, its number, the least one of equals, and other maxima."""
        e, b, lanes = self.e, self.e.b, self.e.shape.lanes

        def body(k: Any, carried: list[Any]) -> list[Any]:
            value, *rest = values(k)
            number = b.fadd(e.splat(b.sitofp(k, F64)), self.lanes)
            better = b.fcmp_ordered(">", value, carried[0])
            kept = [b.select(better, value, carried[0]), b.select(better, number, carried[1])]
            return kept + [e.larger(before, other) for before, other in zip(carried[2:], rest, strict=True)]

        first = b.fadd(e.splat(b.sitofp(start, F64)), self.lanes)
        ends = e.accumulate(start, stop, [least, first] + [least] * others, body, lanes)
        each = [[b.extract_element(end, ir.IntType(32)(lane)) for lane in range(lanes)] for end in ends]
        value, number = each[0][0], each[1][0]
        for other, place in zip(each[0][1:], each[1][1:], strict=True):
            equal = b.and_(b.fcmp_ordered("==", other, value), b.fcmp_ordered("<", place, number))
            better = b.or_(b.fcmp_ordered(">", other, value), equal)
            value, number = b.select(better, other, value), b.select(better, place, number)
        maxima = []
        for parts in each[2:]:
            most = parts[0]
            for part in parts[1:]:
                most = self._larger(most, part)
            maxima.append(most)
        return value, b.fptosi(number, I64), *maxima

    def _step(self, coupled: bool) -> None:
        """Emit the move of the variables that were found, and of the gradient."""
        e, b, p = self.e, self.e.b, self.p
        i, j, t = b.load(self.found.i), b.load(self.found.j), b.load(self.found.step)
        row = e.at(p["K"], e.times(i, self.n["size"]))
        if coupled:
            t = self._smaller(t, b.fsub(e.scalar(p["high"], i), e.scalar(p["b"], i)))
            t = self._smaller(t, b.fsub(e.scalar(p["b"], j), e.scalar(p["low"], j)))
            self._move(j, b.fneg(t))
        self._move(i, t)
        length = e.splat(t)
        other = e.at(p["K"], e.times(j, self.n["size"]))
        with e.loop(0, self.n["size"], e.shape.lanes) as k:
            along = e.load(row, k)
            if coupled:
                along = b.fsub(along, e.load(other, k))
            e.store(b.fadd(e.load(p["g"], k), b.fmul(length, along)), p["g"], k)

    def _move(self, i: Any, t: Any) -> None:
        e, b, p = self.e, self.e.b, self.p
        here, low, high = (e.scalar(p[name], i) for name in ("b", "low", "high"))
        up = b.and_(b.fcmp_ordered(">", t, F64(0.0)), b.fcmp_ordered(">=", t, b.fsub(high, here)))
        down = b.and_(b.fcmp_ordered("<", t, F64(0.0)), b.fcmp_ordered(">=", b.fneg(t), b.fsub(here, low)))
        moved = b.select(up, high, b.select(down, low, b.fadd(here, t)))
        b.store(moved, e.at(p["b"], i))

    def _larger(self, x: Any, y: Any) -> Any:
        return self.e.b.select(self.e.b.fcmp_ordered(">", y, x), y, x)

    def _smaller(self, x: Any, y: Any) -> Any:
        return self.e.b.select(self.e.b.fcmp_ordered("<", y, x), y, x)
