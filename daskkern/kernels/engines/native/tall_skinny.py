"""Compiled tall-skinny products: BLAS would copy the whole block before multiplying it with a few columns.

Each number of the block is loaded once and multiplied by all columns in registers:

    times:  out[i, c] += sum over columns j of K[i, j] V[c, j]      (sums in lanes, added to float64 at the end)
    pull:   out[c, j] += sum over rows i of K[i, j] G[i, c]         (the same)
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.machine_code import compiler
from daskkern.backend.machine_code.emitter import F64, I64, Emitter, Value
from daskkern.backend.machine_code.shape import Shape

_AHEAD = 2  # panels
_WORDS = (
    "k", "k_stride", "n_rows", "n_columns", "other", "other_stride", "out", "out_stride", "edges", "n_blocks",
)  # fmt: skip
_Call = ctypes.c_int64 * len(_WORDS)
_K, _ROWS, _OTHER = (_WORDS.index(name) for name in ("k", "n_rows", "other"))
_lock = threading.RLock()
_compiled: dict[tuple[str, int, Shape], Callable[[int], None]] = {}


class Edges:
    """Where blocks of columns begin and the last one ends, (blocks + 1,) int64, at least one vector register apart."""

    def __init__(self, numbers: IntArray) -> None:
        self._numbers = numbers  # what the address points to must live
        self.address, self.n_blocks = numbers.ctypes.data, numbers.size - 1


def times(K: HostArray, V: HostArray, edges: Edges, out: HostArray) -> None:
    """Add ``K V^T`` to `out` (m, c) float64, for rows `V` (c, p). Sums are in the dtype of `K` between two `edges`."""
    call = _call(K, V, out, edges)
    _function("times", V.shape[0], compiler.shape_for(K.itemsize))(ctypes.addressof(call))


def pull(K: HostArray, G: HostArray, out: HostArray, strips: Sequence[slice]) -> None:
    """Add ``G^T K`` to `out` (c, p or more) float64, whose lines are padded to whole registers; `G` is (m, c).

    Sums are taken in the dtype of `K` over each of the `strips` of rows.
    """
    call = _call(K, G, out, _NO_EDGES)
    function, address = _function("pull", G.shape[1], compiler.shape_for(K.itemsize)), ctypes.addressof(call)
    first_row, first_factor = call[_K], call[_OTHER]
    for strip in strips:
        call[_K] = first_row + strip.start * K.strides[0]
        call[_OTHER] = first_factor + strip.start * G.strides[0]
        call[_ROWS] = strip.stop - strip.start
        function(address)


_NO_EDGES = Edges(np.zeros(1, np.int64))


def _call(K: HostArray, other: HostArray, out: HostArray, edges: Edges) -> "ctypes.Array[ctypes.c_int64]":
    size = K.itemsize
    words = (K.ctypes.data, K.strides[0] // size, *K.shape, other.ctypes.data, other.strides[0] // size)
    return _Call(*words, out.ctypes.data, out.strides[0] // out.itemsize, edges.address, edges.n_blocks)


def _function(makes: str, count: int, shape: Shape) -> Callable[[int], None]:
    key = (makes, count, shape)
    if key not in _compiled:
        with _lock:
            if key not in _compiled:
                module = ir.Module("daskkern_skinny")
                name = f"{makes}_{count}"
                _TallSkinny(module, shape, count, name).emit(makes)
                _compiled[key] = compiler.machine_code(module, shape, name)
    return _compiled[key]


@dataclass(frozen=True)
class _Tail:
    """The valid lanes: a mask, and zeros for the others."""

    mask: Value
    zeros: Value


class _TallSkinny:
    """Emits one product with `count` columns."""

    def __init__(self, module: ir.Module, shape: Shape, count: int, name: str) -> None:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), name)
        function.attributes.add("nounwind")
        self.shape, self.count, self.module = shape, count, module
        self.e = e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape)
        words = {word: e.b.load(e.at(function.args[0], at)) for at, word in enumerate(_WORDS)}
        self.k, self.other = (e.b.inttoptr(words[word], e.element.as_pointer()) for word in ("k", "other"))
        self.edges = e.b.inttoptr(words["edges"], I64.as_pointer())
        self.out = e.b.inttoptr(words["out"], F64.as_pointer())
        self.n = words

    def emit(self, makes: str) -> None:
        """Write the whole function."""
        self._times() if makes == "times" else self._pull()
        self.e.b.ret_void()

    def _times(self) -> None:
        e, rows = self.e, self.n["n_rows"]
        together = max(1, 2 * self.shape.rows // self.count)
        whole = e.times(e.b.sdiv(rows, I64(together)), together)
        with e.loop(0, whole, together) as i, e.loop(0, self.n["n_blocks"]) as block:
            self._rows(i, together, block)
        with e.loop(whole, rows) as i, e.loop(0, self.n["n_blocks"]) as block:
            self._rows(i, 1, block)

    def _rows(self, first: Value, together: int, block: Value) -> None:
        e, lanes = self.e, self.shape.lanes
        start, stop = (e.b.load(e.at(self.edges, block, k)) for k in range(2))
        whole = e.b.add(start, e.b.and_(e.b.sub(stop, start), I64(-lanes)))
        lines = [e.at(self.k, e.times(e.b.add(first, I64(i)), self.n["k_stride"])) for i in range(together)]
        rights = [e.at(self.other, e.times(self.n["other_stride"], c)) for c in range(self.count)]

        def step(at: Value, sums: list[Value], tail: _Tail | None = None) -> list[Value]:
            values = [self._load(line, at, tail) for line in lines]
            out = []
            for c, right in enumerate(rights):
                factor = self._load(right, at, tail)
                out += [e.fma(value, factor, sums[c * together + i]) for i, value in enumerate(values)]
            return out

        sums = e.accumulate(start, whole, [e.const(0)] * (together * self.count), step, lanes)
        sums = step(whole, sums, self._tail(whole, stop))
        for i in range(together):
            place = e.at(self.out, e.times(e.b.add(first, I64(i)), self.n["out_stride"]))
            self._add_totals([sums[c * together + i] for c in range(self.count)], place)

    def _add_totals(self, vectors: list[Value], place: Value) -> None:
        e, start = self.e, 0
        for size in (8, 4, 2, 1):
            while len(vectors) - start >= size:
                totals = e.totals(vectors[start : start + size])
                target = e.b.bitcast(e.at(place, start), ir.VectorType(F64, size).as_pointer())
                e.b.store(e.b.fadd(e.b.load(target, align=8), totals), target, align=8)
                start += size

    def _pull(self) -> None:
        e, lanes = self.e, self.shape.lanes
        whole = e.b.and_(self.n["n_columns"], I64(-2 * lanes))
        with e.loop(0, whole, 2 * lanes) as at:
            self._panel(at, [None, None])
        with e.loop(whole, self.n["n_columns"], lanes) as at:
            self._panel(at, [self._tail(at, self.n["n_columns"])])

    def _panel(self, at: Value, tails: list[_Tail | None]) -> None:
        e, lanes, wide = self.e, self.shape.lanes, ir.VectorType(F64, self.shape.lanes)

        def step(i: Value, sums: list[Value]) -> list[Value]:
            line = e.at(self.k, e.times(i, self.n["k_stride"]), at)
            values = [self._load(line, I64(v * lanes), tail) for v, tail in enumerate(tails)]
            for v in range(len(tails)):  # lines of a block are far apart: processors do not prefetch the next panels
                e.prefetch(line, (_AHEAD * 2 + v) * lanes)
            weights = e.at(self.other, e.times(i, self.n["other_stride"]))
            out = []
            for c in range(self.count):
                weight = e.splat(e.scalar(weights, c))
                out += [e.fma(value, weight, sums[c * len(tails) + v]) for v, value in enumerate(values)]
            return out

        sums = e.accumulate(0, self.n["n_rows"], [e.const(0)] * (self.count * len(tails)), step)
        for c in range(self.count):
            line = e.at(self.out, e.times(self.n["out_stride"], c), at)
            for v in range(len(tails)):
                total = sums[c * len(tails) + v]
                total = total if self.shape.itemsize == 8 else e.b.fpext(total, wide)
                target = e.b.bitcast(e.at(line, v * lanes), wide.as_pointer())
                e.b.store(e.b.fadd(e.b.load(target, align=8), total), target, align=8)

    def _tail(self, start: Value, stop: Value) -> _Tail:
        """Return which lanes from column `start` on are before `stop`."""
        e, lanes = self.e, self.shape.lanes
        kind = ir.VectorType(I64, lanes)
        left = e.b.sub(stop, start)
        undefined = ir.Constant(kind, ir.Undefined)
        spread = e.b.shuffle_vector(
            e.b.insert_element(undefined, left, ir.IntType(32)(0)),
            undefined,
            ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes),
        )
        return _Tail(e.b.icmp_signed("<", ir.Constant(kind, list(range(lanes))), spread), e.const(0))

    def _load(self, line: Value, at: Value, tail: _Tail | None) -> Value:
        """Return a vector, without reading beyond the block."""
        e = self.e
        if tail is None:
            return e.load(line, at)
        bits = "f32" if self.shape.itemsize == 4 else "f64"
        vector = f"v{self.shape.lanes}{bits}"
        name = f"llvm.masked.load.{vector}.p0{vector}"
        function = self.module.globals.get(name)
        if function is None:
            words = [e.vector.as_pointer(), ir.IntType(32), tail.mask.type, e.vector]
            function = ir.Function(self.module, ir.FunctionType(e.vector, words), name)
        place = e.b.bitcast(e.at(line, at), e.vector.as_pointer())
        return e.b.call(function, [place, ir.IntType(32)(self.shape.itemsize), tail.mask, tail.zeros])
