"""Copies of float32 columns into rows: blocks of 16 rows and 16 columns change places in registers."""

import ctypes
import threading
from functools import cache

import numpy as np

from daskkern.arrays import HostArray

try:
    from llvmlite import ir

    from daskkern.backend.machine_code.compiler import Function, machine_code, register_bytes, shape_for
    from daskkern.backend.machine_code.emitter import I64, Emitter, Value
except ModuleNotFoundError as error:  # llvmlite is missing
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = register_bytes() > 0

_SIDE = 16
_WORDS = ("columns", "column_stride", "rows", "row_stride", "m", "d")
_lock = threading.Lock()


def copy_rows(out: HostArray, block: HostArray) -> None:
    """Set the rows `out` (m, d) to `block` (m, d) of the same dtype, fast where the columns of `block` are contiguous.

    The first such copy of a process takes some hundredths of a second more.
    """
    if _available and _suits(out, block):
        copy_compiled(out, block)
    else:
        out[...] = block


def _suits(out: HostArray, block: HostArray) -> bool:
    """Return whether the compiled loops may copy a block; others are for NumPy, which also says what is wrong."""
    if not out.dtype == block.dtype == np.float32 or out.shape != block.shape or min(out.shape) < _SIDE:
        return False
    steps = (block.strides[0], out.strides[1]) == (4, 4) and block.strides[1] % 4 == out.strides[0] % 4 == 0
    return steps and out.flags.writeable and not np.may_share_memory(out, block)


def copy_compiled(out: HostArray, block: HostArray) -> None:
    """Copy at least 16 rows of at least 16 columns: `out` has contiguous rows, `block` contiguous columns."""
    (m, d), own = out.shape, (block.ctypes.data, block.strides[1] // 4)
    call = (ctypes.c_int64 * len(_WORDS))(*own, out.ctypes.data, out.strides[0] // 4, m, d)
    with _lock:
        function = _function()
    function(ctypes.addressof(call))


@cache
def _function() -> "Function":
    """Return the compiled loops. The last blocks overlap those before, so that all are whole."""
    module, name = ir.Module("daskkern"), "copy_rows"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), name)
    function.attributes.add("nounwind")
    e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape_for(4))
    words = {word: e.b.load(e.at(function.args[0], at)) for at, word in enumerate(_WORDS)}
    columns, rows = (e.b.inttoptr(words[word], ir.FloatType().as_pointer()) for word in ("columns", "rows"))
    vector = ir.VectorType(ir.FloatType(), _SIDE).as_pointer()
    last_row, last_column = (e.b.sub(words[word], I64(_SIDE)) for word in ("m", "d"))
    with e.loop(0, words["m"], _SIDE) as row, e.loop(0, words["d"], _SIDE) as column:
        i, j = e.least(row, last_row), e.least(column, last_column)
        block = []
        for k in range(_SIDE):
            place = e.at(columns, e.times(e.b.add(j, I64(k)), words["column_stride"]), i)
            block.append(e.b.load(e.b.bitcast(place, vector), align=4))
        for k, values in enumerate(_transposed(e, block)):
            place = e.at(rows, e.times(e.b.add(i, I64(k)), words["row_stride"]), j)
            e.b.store(values, e.b.bitcast(place, vector), align=4)
    e.b.ret_void()
    return machine_code(module, shape_for(4), name)


def _transposed(e: "Emitter", block: "list[Value]") -> "list[Value]":
    """Return a block with rows and columns exchanged: its quarters of half the size, and so on within these."""
    half = _SIDE // 2
    while half:
        found = list(block)
        for k in range(_SIDE):
            if k & half:
                continue
            low = [j if not j & half else _SIDE + j - half for j in range(_SIDE)]
            high = [j + half if not j & half else _SIDE + j for j in range(_SIDE)]
            for at, lanes in ((k, low), (k + half, high)):
                mask = ir.Constant(ir.VectorType(ir.IntType(32), _SIDE), lanes)
                found[at] = e.b.shuffle_vector(block[k], block[k + half], mask)
        block, half = found, half // 2
    return block
