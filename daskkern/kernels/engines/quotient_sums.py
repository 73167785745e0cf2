"""Sums over features of quotients of two rows, for the chi-squared kernels: compiled, with a NumPy reference.

    chi_squared:  sum_j (x_j - z_j)^2 / (x_j + z_j) ,       harmonic:  sum_j 2 x_j z_j / (x_j + z_j)

A term of two zeros is 0. Both twins add the features in their order, an operation at a time, so that they give the same
bits. The compiled one keeps the sums of a few rows and a vector of columns in registers; the plain one, which CuPy and
processors without compiled code take, passes over the block for each feature.
"""

import ctypes
import threading
from functools import cache

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.engines.dispatch import is_plain

try:
    from llvmlite import ir

    from daskkern.backend.machine_code.compiler import Function, machine_code, register_bytes, shape_for
    from daskkern.backend.machine_code.emitter import I64, Emitter, Value
except ModuleNotFoundError as error:  # a saved model predicts without llvmlite
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = register_bytes() > 0

TERMS = ("chi_squared", "harmonic")
_ROWS = 4
"""Rows whose sums are in registers at once: divisions are what takes the time."""
_WORDS = ("X", "panels", "out", "n_rows", "n_panels", "n_features")
_lock = threading.Lock()


def quotient_sums(X: Array, Z: Array, term: str) -> Array:
    """Return the sums (m, p) of the `term`, one of :data:`TERMS`, for dense rows (m, d) and (p, d) of one dtype."""
    compiled = _available and namespace_of(X) is np and X.dtype in (np.float32, np.float64) and not is_plain()
    if not (compiled and X.size and Z.size):
        return sum_plainly(X, Z, term)
    return sum_compiled(X, Z, term)


def sum_plainly(X: Array, Z: Array, term: str) -> Array:
    """Return the sums in NumPy or CuPy."""
    xp = namespace_of(X)
    found = xp.zeros((X.shape[0], Z.shape[0]), X.dtype)
    tiny = float(np.finfo(X.dtype).tiny)
    for j in range(X.shape[1]):
        x, z = X[:, j, None], Z[None, :, j]
        over = (x - z) * (x - z) if term == "chi_squared" else 2 * x * z
        found += over / xp.maximum(x + z, tiny)
    return found


def sum_compiled(X: HostArray, Z: HostArray, term: str) -> HostArray:
    """Return the sums in machine code, for at least a row each and a feature."""
    (m, d), p, lanes = X.shape, Z.shape[0], shape_for(X.itemsize).lanes
    n_panels = -(-p // lanes)
    padded = np.zeros((n_panels * lanes, d), X.dtype)
    padded[:p] = Z
    panels = np.ascontiguousarray(padded.reshape(n_panels, lanes, d).transpose(0, 2, 1))
    X, out = np.ascontiguousarray(X), np.empty((m, n_panels * lanes), X.dtype)
    words = (X.ctypes.data, panels.ctypes.data, out.ctypes.data, m, n_panels, d)
    call = (ctypes.c_int64 * len(_WORDS))(*words)
    with _lock:
        function = _function(term, X.itemsize)
    function(ctypes.addressof(call))
    return out[:, :p]


@cache
def _function(term: str, itemsize: int) -> "Function":
    """Return the compiled loops: for rows, for panels of columns, for features."""
    module, shape, name = ir.Module("daskkern"), shape_for(itemsize), f"{term}_{8 * itemsize}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), name)
    function.attributes.add("nounwind")
    e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape)
    words = {word: e.b.load(e.at(function.args[0], at)) for at, word in enumerate(_WORDS)}
    X, panels, out = (e.b.inttoptr(words[word], e.element.as_pointer()) for word in _WORDS[:3])
    m, n_panels, d = (words[word] for word in _WORDS[3:])
    least = e.const(float(np.finfo(e.dtype).tiny))

    def added(total: "Value", x: "Value", z: "Value") -> "Value":
        apart = e.b.fsub(x, z)
        over = e.b.fmul(apart, apart) if term == "chi_squared" else e.b.fmul(e.b.fmul(e.const(2.0), x), z)
        return e.b.fadd(total, e.b.fdiv(over, e.larger(e.b.fadd(x, z), least)))

    def emit(rows: int, start: "Value | int", stop: "Value") -> None:
        with e.loop(start, stop, rows) as i, e.loop(0, n_panels) as panel:
            own = e.at(panels, e.times(e.times(panel, d), shape.lanes))
            places = [e.times(e.b.add(i, I64(row)), d) for row in range(rows)]

            def body(k: "Value", totals: "list[Value]") -> "list[Value]":
                z = e.load(own, e.times(k, shape.lanes))
                return [
                    added(total, e.splat(e.scalar(X, place, k)), z) for total, place in zip(totals, places, strict=True)
                ]

            sums = e.accumulate(0, d, [e.const(0.0)] * rows, body)
            for row, total in enumerate(sums):
                line = e.times(e.times(e.b.add(i, I64(row)), n_panels), shape.lanes)
                e.store(total, out, line, e.times(panel, shape.lanes))

    whole = e.times(e.b.sdiv(m, I64(_ROWS)), _ROWS)
    emit(_ROWS, 0, whole)
    emit(1, whole, m)
    e.b.ret_void()
    return machine_code(module, shape, name)
