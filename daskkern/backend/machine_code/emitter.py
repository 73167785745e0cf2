"""A thin layer over LLVM's builder: vectors of one element type, loops, and pointers with element offsets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from daskkern.backend.machine_code.shape import Shape

I64 = ir.IntType(64)
F64 = ir.DoubleType()
Value = Any
Body = Callable[[Value, list[Value]], list[Value]]


class Emitter:
    """Writes instructions for one function, in vectors of `shape`."""

    def __init__(self, module: ir.Module, builder: ir.IRBuilder, shape: Shape) -> None:
        self.module, self.b, self.shape = module, builder, shape
        single = shape.itemsize == 4
        self.element = ir.FloatType() if single else F64
        self.integer = ir.IntType(8 * shape.itemsize)
        self.vector = ir.VectorType(self.element, shape.lanes)
        self.integers = ir.VectorType(self.integer, shape.lanes)
        self.dtype = np.float32 if single else np.float64
        self._suffix = f"v{shape.lanes}f{8 * shape.itemsize}"

    def const(self, value: float) -> Value:
        """Return a vector of one number."""
        return ir.Constant(self.vector, [float(self.dtype(value))] * self.shape.lanes)

    def int_const(self, value: int) -> Value:
        """Return an integer vector of one number."""
        return ir.Constant(self.integers, [value] * self.shape.lanes)

    def splat(self, scalar: Value) -> Value:
        """Return a vector with `scalar` in all lanes."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.b.insert_element(undefined, scalar, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.shape.lanes), [0] * self.shape.lanes)
        return self.b.shuffle_vector(one, undefined, mask)

    def call(self, name: str, *args: Value) -> Value:
        """Call the LLVM intrinsic ``llvm.<name>`` on vectors."""
        full = f"llvm.{name}.{self._suffix}"
        function = self.module.globals.get(full)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(self.vector, [self.vector] * len(args)), full)
        return self.b.call(function, args)

    def intrinsic(self, name: str, result: Value, *others: Value) -> Value:
        """Call ``llvm.<name>``, an instruction of one processor, whose first operand has the type of its result."""
        args = [result, *others]
        function = self.module.globals.get(f"llvm.{name}")
        if function is None:
            kind = ir.FunctionType(result.type, [arg.type for arg in args])
            function = ir.Function(self.module, kind, f"llvm.{name}")
        return self.b.call(function, args)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """Return ``x * y + z``, rounded once."""
        return self.call("fma", x, y, z)

    def larger(self, x: Value, bound: Value) -> Value:
        """Return the larger of two vectors; x where x is not a number."""
        return self.b.select(self.b.fcmp_ordered(">", bound, x), bound, x)

    def smaller(self, x: Value, bound: Value) -> Value:
        """Return the smaller of two vectors; x where x is not a number."""
        return self.b.select(self.b.fcmp_ordered("<", bound, x), bound, x)

    def at(self, pointer: Value, *offsets: Value | int) -> Value:
        """Return `pointer` moved by the sum of `offsets`, in elements."""
        for offset in offsets:
            pointer = self.b.gep(pointer, [I64(offset) if isinstance(offset, int) else offset])
        return pointer

    def load(self, pointer: Value, *offsets: Value | int) -> Value:
        """Return the vector that starts at `pointer` plus `offsets`."""
        place = self.b.bitcast(self.at(pointer, *offsets), self.vector.as_pointer())
        return self.b.load(place, align=self.shape.itemsize)

    def store(self, value: Value, pointer: Value, *offsets: Value | int) -> None:
        """Write a vector to `pointer` plus `offsets`."""
        place = self.b.bitcast(self.at(pointer, *offsets), self.vector.as_pointer())
        self.b.store(value, place, align=self.shape.itemsize)

    def prefetch(self, pointer: Value, *offsets: Value | int) -> None:
        """Prefetch the cache line at `pointer` plus `offsets`, which may be beyond the end of its array."""
        byte = ir.IntType(8).as_pointer()
        function = self.module.globals.get("llvm.prefetch.p0i8")
        if function is None:
            words = [ir.IntType(32)] * 3
            function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [byte, *words]), "llvm.prefetch.p0i8")
        place = self.b.bitcast(self.at(pointer, *offsets), byte)
        self.b.call(function, [place, *(ir.IntType(32)(word) for word in (0, 3, 1))])  # to read, for all levels, data

    def scalar(self, pointer: Value, *offsets: Value | int) -> Value:
        """Return the one element at `pointer` plus `offsets`."""
        return self.b.load(self.at(pointer, *offsets))

    def times(self, x: Value, y: Value | int) -> Value:
        """Return the product of two 64-bit integers."""
        return self.b.mul(x, I64(y) if isinstance(y, int) else y)

    def least(self, x: Value, y: Value | int) -> Value:
        """Return the smaller of two 64-bit integers."""
        other = I64(y) if isinstance(y, int) else y
        return self.b.select(self.b.icmp_signed("<", x, other), x, other)

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: int = 1) -> Iterator[Value]:
        """Emit the body of the ``with`` once, run for start, start + step, ... below stop."""
        first = I64(start) if isinstance(start, int) else start
        bound = I64(stop) if isinstance(stop, int) else stop
        before, body, after = self.b.block, self.b.append_basic_block(), self.b.append_basic_block()
        self.b.cbranch(self.b.icmp_signed("<", first, bound), body, after)
        self.b.position_at_end(body)
        index = self.b.phi(I64)
        index.add_incoming(first, before)
        yield index
        following = self.b.add(index, I64(step))
        index.add_incoming(following, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, bound), body, after)
        self.b.position_at_end(after)

    def accumulate(
        self, start: Value | int, stop: Value, initial: Sequence[Value], body: Body, step: int = 1
    ) -> list[Value]:
        """Emit a loop (at least one turn) that carries vectors in registers; return them after the last turn."""
        first = I64(start) if isinstance(start, int) else start
        before, turn, after = self.b.block, self.b.append_basic_block(), self.b.append_basic_block()
        self.b.branch(turn)
        self.b.position_at_end(turn)
        index = self.b.phi(I64)
        index.add_incoming(first, before)
        carried = []
        for value in initial:
            phi = self.b.phi(self.vector)
            phi.add_incoming(value, before)
            carried.append(phi)
        results = body(index, carried)
        following = self.b.add(index, I64(step))
        index.add_incoming(following, self.b.block)
        for phi, value in zip(carried, results, strict=True):
            phi.add_incoming(value, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, stop), turn, after)
        self.b.position_at_end(after)
        return results

    def totals(self, vectors: Sequence[Value]) -> Value:
        """Return the sum of each vector's lanes, as a vector of float64: halves added to halves, down to one lane.

        The vectors share instructions: two that are half done fill one register. Each sum has the same bits
        whatever the others are, and their number.
        """
        lanes = self.shape.lanes
        wide = ir.VectorType(F64, lanes)
        parts = [x if self.element is F64 else self.b.fpext(x, wide) for x in vectors]
        if self.element is not F64:  # twice as wide as a register
            parts, lanes = [self._halve([x], 1, lanes) for x in parts], lanes // 2
        sums = 1  # in each part
        while lanes > 1:
            pairs = 2 if len(parts) > 1 else 1
            parts = [self._halve(parts[k : k + pairs], sums, lanes) for k in range(0, len(parts), pairs)]
            sums, lanes = sums * pairs, lanes // 2
        while len(parts) > 1:
            order = range(2 * sums)
            parts = [self._pick(parts[k], parts[k + 1], order) for k in range(0, len(parts), 2)]
            sums *= 2
        return parts[0]

    def _halve(self, parts: Sequence[Value], sums: int, lanes: int) -> Value:
        """Add the upper to the lower half of all sums in one or two vectors, and return them in one."""
        starts = [k * lanes for k in range(sums * len(parts))]
        half = range(lanes // 2)
        low = self._pick(parts[0], parts[-1], [start + k for start in starts for k in half])
        high = self._pick(parts[0], parts[-1], [start + lanes // 2 + k for start in starts for k in half])
        return self.b.fadd(low, high)

    def _pick(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.b.shuffle_vector(first, second, mask)
