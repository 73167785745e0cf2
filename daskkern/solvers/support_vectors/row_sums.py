"""Weighted sums of the rows of a table in float64: compiled, with a NumPy reference.

Both add the rows in their order, a product and a sum for each, so that they give the same bits.
"""

import ctypes
from functools import cache

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.tiles import for_each, slices

try:
    from llvmlite import ir

    from daskkern.backend.machine_code.compiler import Function, machine_code, register_bytes, shape_for
    from daskkern.backend.machine_code.emitter import F64, I64, Emitter
except ModuleNotFoundError as error:  # llvmlite is missing
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = register_bytes() > 0

_TILE = 1024
"""Columns that are added up at once: their sums stay in the first-level cache."""
_WORDS = ("table", "stride", "slots", "factors", "count", "start", "stop", "sums")


def sum_rows(table: HostArray, slots: IntArray, factors: FloatArray) -> FloatArray:
    """Return ``sum_k factors_k table[slots_k]`` (w,), float64, for a table (s, w) of contiguous rows.

    Tiles of columns are distributed over the threads of :func:`daskkern.backend.tiles.tile_pool`.
    """
    sums = np.zeros(table.shape[1])
    slots, factors = np.ascontiguousarray(slots, np.int64), np.ascontiguousarray(factors, np.float64)
    add = add_compiled if _available else add_plainly
    parts = slices(sums.size, _TILE)
    for_each(parts, lambda part: add(table, slots, factors, part, sums), float(slots.size) * sums.size)
    return sums


def add_plainly(table: HostArray, slots: IntArray, factors: FloatArray, part: slice, sums: FloatArray) -> None:
    """Add the rows to `sums` (w,) at the columns `part`, in NumPy."""
    own = sums[part]
    for slot, factor in zip(slots, factors, strict=True):
        own += factor * table[slot, part].astype(np.float64)


def add_compiled(table: HostArray, slots: IntArray, factors: FloatArray, part: slice, sums: FloatArray) -> None:
    """Add the rows to `sums` (w,) at the columns `part`, in machine code."""
    lanes = shape_for(8).lanes
    whole = part.start + (part.stop - part.start) // lanes * lanes
    words = (table.ctypes.data, table.shape[1], slots.ctypes.data, factors.ctypes.data, slots.size)
    call = (ctypes.c_int64 * len(_WORDS))(*words, part.start, whole, sums.ctypes.data)
    _function(table.itemsize)(ctypes.addressof(call))
    if whole < part.stop:
        _add_few(table, slots, factors, slice(whole, part.stop), sums)


def _add_few(table: HostArray, slots: IntArray, factors: FloatArray, part: slice, sums: FloatArray) -> None:
    """Add the rows to `sums` (w,) at a few columns, one after the other as :func:`add_plainly` does."""
    terms = np.empty((slots.size + 1, part.stop - part.start))
    terms[0] = sums[part]
    np.multiply(table[slots, part], factors[:, None], out=terms[1:])
    sums[part] = np.add.accumulate(terms)[-1]


@cache
def _function(itemsize: int) -> "Function":
    """Return the compiled loops: for each row, for each vector of the tile, sums += factor * row."""
    module, shape, name = ir.Module("daskkern"), shape_for(8), f"row_sums_{8 * itemsize}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), name)
    function.attributes.add("nounwind")
    e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape)
    words = {word: e.b.load(e.at(function.args[0], at)) for at, word in enumerate(_WORDS)}
    element = ir.FloatType() if itemsize == 4 else F64
    table = e.b.inttoptr(words["table"], element.as_pointer())
    slots = e.b.inttoptr(words["slots"], I64.as_pointer())
    factors, sums = (e.b.inttoptr(words[word], F64.as_pointer()) for word in ("factors", "sums"))
    narrow = ir.VectorType(element, shape.lanes)
    with e.loop(0, words["count"]) as k:
        row = e.at(table, e.times(e.scalar(slots, k), words["stride"]))
        factor = e.splat(e.scalar(factors, k))
        with e.loop(words["start"], words["stop"], shape.lanes) as column:
            values = e.b.load(e.b.bitcast(e.at(row, column), narrow.as_pointer()), align=itemsize)
            wide = values if itemsize == 8 else e.b.fpext(values, e.vector)
            e.store(e.b.fadd(e.load(sums, column), e.b.fmul(factor, wide)), sums, column)
    e.b.ret_void()
    return machine_code(module, shape, name)
