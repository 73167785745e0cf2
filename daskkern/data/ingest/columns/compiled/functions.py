"""The compiled loops over the rows of one column: from Arrow's buffers to float32, and over float32 for moments.

Vectors have the same number of lanes on every processor, so that sums have the same bits. All values that are read are
within the rows: what is left of a vector is done one by one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, reduce

from llvmlite import ir

from daskkern.backend.machine_code.compiler import Function, machine_code, shape_for
from daskkern.backend.machine_code.emitter import F64, I64, Emitter, Value
from daskkern.data.ingest.columns.compiled.kinds import CALL, COLUMN, KINDS

LANES = 16
F32, I8, I32 = ir.FloatType(), ir.IntType(8), ir.IntType(32)
_TYPES = {"f": {4: F32, 8: F64}, "i": {n: ir.IntType(8 * n) for n in (1, 2, 4, 8)}}
_INFINITE = 0x7F800000
"""The bits of an infinite float32; without their sign, those of a NaN are larger."""
_lock = threading.Lock()


def conversion(kind: str) -> Function:
    """Return the function that makes features of columns and takes their moments, given the address of words CALL.

    `kind` is one of the :data:`KINDS`, ``"onehot"``, ``"code"``, or ``"features"``, which takes moments alone.
    """
    with _lock:
        return _conversion(kind)


@cache
def _conversion(kind: str) -> Function:
    loop = _Loops(f"convert_{kind}")
    with loop.columns():
        if kind in ("onehot", "code"):
            loop.look_up()
            if kind == "onehot":
                loop.spread()
            else:
                loop.number_codes()
        elif kind in KINDS:
            loop.convert(kind)
        loop.measure()  # while the features are in the cache
    return loop.finish()


class _Loops:
    """A function under construction, which goes over columns: `word` has those of the current one."""

    def __init__(self, name: str) -> None:
        self._name, module = name, ir.Module("daskkern")
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), name)
        function.attributes.add("nounwind")
        self._module, self.b = module, ir.IRBuilder(function.append_basic_block("entry"))
        self.e = Emitter(module, self.b, shape_for(4))
        self.call = {word: self.b.load(self.e.at(function.args[0], at)) for at, word in enumerate(CALL)}
        self.m = self.call["n_rows"]
        self.whole = self.b.and_(self.m, I64(-LANES))
        self.word: dict[str, Value] = {}

    @contextmanager
    def columns(self) -> Iterator[None]:
        """Write the code of the ``with`` for every column."""
        words = self.b.inttoptr(self.call["columns"], I64.as_pointer())
        with self.e.loop(0, self.call["n_columns"]) as column:
            own = self.e.at(words, self.e.times(column, len(COLUMN)))
            self.word = {word: self.b.load(self.e.at(own, at)) for at, word in enumerate(COLUMN)}
            yield

    def finish(self) -> Function:
        """Return the function."""
        self.b.ret_void()
        return machine_code(self._module, shape_for(4), self._name)

    def convert(self, kind: str) -> None:
        """Write the loop that makes numbers, once for columns with gaps and once for others."""
        gaps = self.b.icmp_unsigned("!=", self.word["validity"], I64(0))
        with self.b.if_else(gaps) as (some, none):
            for part, has_gaps in ((some, True), (none, False)):
                with part:
                    for i, lanes in self._rows():
                        self._store_to(self._number(kind, i, lanes, has_gaps), self.word["out"], i, lanes)

    def _number(self, kind: str, i: Value, lanes: int, has_gaps: bool) -> Value:
        """Return the values of some rows in float32; those of gaps, and NaN, are the fill of the column."""
        b, (letter, size, signed, scaled) = self.b, KINDS[kind]
        single, double = ir.VectorType(F32, lanes), ir.VectorType(F64, lanes)
        to_float = b.sitofp if signed else b.uitofp
        if letter == "b":
            x = b.uitofp(self._bits("values", i, lanes), single)
        else:
            x = self._load_from(self.word["values"], _TYPES[letter][size], i, lanes)
            if letter == "i" and (scaled or (has_gaps and size == 8)):  # Arrow makes float64 of integers with gaps
                x = to_float(x, double)
                if scaled:
                    x = b.fdiv(x, self._splat(b.bitcast(self.word["divisor"], F64), lanes))
            elif letter == "i":
                x = to_float(x, single)
            x = b.fptrunc(x, single) if x.type == double else x
        fill = self._splat(b.bitcast(b.trunc(self.word["fill"], I32), F32), lanes)
        if has_gaps:
            x = b.select(self._bits("validity", i, lanes), x, fill)
        return b.select(b.fcmp_unordered("uno", x, x), fill, x)

    def look_up(self) -> None:
        """Write the loop that looks up the code of every row; indices beyond the table count as gaps and set a flag."""
        b, e = self.b, self.e
        last = b.sub(self.word["n_codes"], I64(1))
        codes = b.inttoptr(self.call["codes"], I32.as_pointer())
        table = b.inttoptr(self.word["table"], I32.as_pointer())
        indices = b.inttoptr(self.word["values"], I32.as_pointer())
        flag = b.inttoptr(self.call["beyond"], I64.as_pointer())
        gaps = b.icmp_unsigned("!=", self.word["validity"], I64(0))
        with b.if_else(gaps) as (some, none):
            for part, has_gaps in ((some, True), (none, False)):
                with part, e.loop(0, self.m) as i:
                    index = b.zext(b.load(e.at(indices, i), align=1), I64)
                    beyond = b.icmp_unsigned(">=", index, last)
                    if has_gaps:
                        present = b.extract_element(self._bits("validity", i, 1), I32(0))
                        beyond = b.and_(beyond, present)
                        index = b.select(present, index, last)
                    with b.if_then(beyond, likely=False):
                        b.store(I64(1), flag)
                    b.store(b.load(e.at(table, b.select(beyond, last, index))), e.at(codes, i))

    def spread(self) -> None:
        """Write the loops that make features of codes, which are 1 where the code is that of the feature, else 0."""
        b = self.b
        with self.e.loop(0, self.word["width"]) as k:
            line = b.add(self.word["out"], b.mul(b.mul(k, self.call["stride"]), I64(4)))
            for i, lanes in self._rows():
                code = self._splat(b.trunc(k, I32), lanes)
                same = b.icmp_signed("==", self._load_from(self.call["codes"], I32, i, lanes), code)
                self._store_to(b.uitofp(same, ir.VectorType(F32, lanes)), line, i, lanes)

    def number_codes(self) -> None:
        """Write the loop that makes one feature of codes."""
        for i, lanes in self._rows():
            codes = self._load_from(self.call["codes"], I32, i, lanes)
            self._store_to(self.b.sitofp(codes, ir.VectorType(F32, lanes)), self.word["out"], i, lanes)

    def measure(self) -> None:
        """Write two loops: minimum, maximum and mean, and then the sum of squared deviations from that."""
        b, out = self.b, self.b.inttoptr(self.word["moments"], F64.as_pointer())
        wide = ir.VectorType(F64, LANES)
        with self.e.loop(0, self.word["width"]) as k:
            line = b.add(self.word["out"], b.mul(b.mul(k, self.call["stride"]), I64(4)))
            first = b.load(b.inttoptr(line, F32.as_pointer()), align=4)
            low, high = (self._variable(self._splat(first, LANES)) for _ in range(2))
            total, squares = (self._variable(ir.Constant(wide, [0.0] * LANES)) for _ in range(2))
            largest = self._variable(ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))
            for i, lanes in self._rows():
                x = self._load_from(line, F32, i, lanes)
                bits = b.and_(b.bitcast(x, ir.VectorType(I32, lanes)), self._splat(I32(0x7FFFFFFF), lanes))
                self._update(largest, bits, lambda new, old: b.select(b.icmp_unsigned(">", new, old), new, old))
                self._update(low, x, lambda new, old: b.select(b.fcmp_ordered("<", new, old), new, old))
                self._update(high, x, lambda new, old: b.select(b.fcmp_ordered(">", new, old), new, old))
                self._update(total, b.fpext(x, ir.VectorType(F64, lanes)), b.fadd)
            mean = b.fdiv(self._reduced(total, b.fadd), b.sitofp(self.m, F64))
            for i, lanes in self._rows():
                x = b.fpext(self._load_from(line, F32, i, lanes), ir.VectorType(F64, lanes))
                apart = b.fsub(x, self._splat(mean, lanes))
                self._update(squares, b.fmul(apart, apart), b.fadd)
            bits = self._reduced(largest, lambda x, y: b.select(b.icmp_unsigned(">", x, y), x, y))
            finite = b.icmp_unsigned("<", bits, I32(_INFINITE))
            least = self._reduced(low, lambda x, y: b.select(b.fcmp_ordered("<", x, y), x, y))
            most = self._reduced(high, lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
            nan = ir.Constant(F64, float("nan"))
            found = (b.fpext(least, F64), b.fpext(most, F64), mean, self._reduced(squares, b.fadd))
            place = self.e.at(out, b.mul(k, I64(4)))
            for at, value in enumerate(found):
                b.store(b.select(finite, value, nan), self.e.at(place, at))

    def _rows(self) -> Iterator[tuple[Value, int]]:
        """Write two loops, of whole vectors and of the rows that are left; yield the row and the lanes of each."""
        for start, stop, lanes in ((I64(0), self.whole, LANES), (self.whole, self.m, 1)):
            with self.e.loop(start, stop, lanes) as i:
                yield i, lanes

    def _load_from(self, address: Value, kind: Value, i: Value, lanes: int) -> Value:
        """Return `lanes` values of a type from number `i` on."""
        place = self.e.at(self.b.inttoptr(address, kind.as_pointer()), i)
        return self.b.load(self.b.bitcast(place, ir.VectorType(kind, lanes).as_pointer()), align=1)

    def _store_to(self, value: Value, address: Value, i: Value, lanes: int) -> None:
        """Write float32 values to numbers `i` and on."""
        place = self.e.at(self.b.inttoptr(address, F32.as_pointer()), i)
        self.b.store(value, self.b.bitcast(place, ir.VectorType(F32, lanes).as_pointer()), align=4)

    def _bits(self, word: str, i: Value, lanes: int) -> Value:
        """Return bits `i` and on of a bitmap, `i` being a multiple of `lanes`, as a vector."""
        b = self.b
        address = b.add(self.word[word], b.lshr(i, I64(3)))
        if lanes == LANES:
            bits = b.load(b.inttoptr(address, ir.IntType(LANES).as_pointer()), align=1)
            return b.bitcast(bits, ir.VectorType(ir.IntType(1), LANES))
        byte = b.load(b.inttoptr(address, I8.as_pointer()))
        bit = b.trunc(b.lshr(byte, b.trunc(b.and_(i, I64(7)), I8)), ir.IntType(1))
        return self._splat(bit, 1)

    def _splat(self, scalar: Value, lanes: int) -> Value:
        undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
        one = self.b.insert_element(undefined, scalar, I32(0))
        return self.b.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))

    def _variable(self, value: Value) -> Value:
        """Return a place, which becomes a register, with a first value."""
        with self.b.goto_entry_block():
            place = self.b.alloca(value.type)
        self.b.store(value, place)
        return place

    def _update(self, place: Value, x: Value, operation: Callable[[Value, Value], Value]) -> None:
        """Apply an operation to a vector and a variable; the single values that are left go to its first lane."""
        b, old = self.b, self.b.load(place)
        if x.type == old.type:
            b.store(operation(x, old), place)
            return
        new = operation(b.extract_element(x, I32(0)), b.extract_element(old, I32(0)))
        b.store(b.insert_element(old, new, I32(0)), place)

    def _reduced(self, place: Value, operation: Callable[[Value, Value], Value]) -> Value:
        """Return what an operation makes of the lanes of a variable, in their order."""
        vector = self.b.load(place)
        lanes: Sequence[Value] = [self.b.extract_element(vector, I32(lane)) for lane in range(LANES)]
        return reduce(operation, lanes)
