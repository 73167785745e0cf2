"""Just-in-time compilation of formulas to functions for this processor, once per process."""

import threading
from functools import cache

from llvmlite import ir

from daskkern.backend.machine_code.compiler import Function, machine_code, register_bytes
from daskkern.backend.machine_code.shape import Shape
from daskkern.kernels.engines.native.call import CallKind
from daskkern.kernels.engines.native.products import Nest
from daskkern.kernels.engines.native.profiles import Lowered, is_expressible, lower
from daskkern.kernels.formula import Instruction, Program

_lock = threading.RLock()
_compiled: dict[tuple[tuple[Instruction, ...], Shape, CallKind], Function] = {}


@cache
def lowered(what: Program) -> Lowered:
    """Return the program in the engine's instructions."""
    return lower(what)


@cache
def is_supported(what: Program, itemsize: int) -> bool:
    """Return whether products with this formula can be compiled for this processor."""
    symbols = frozenset(what.symbols)
    return itemsize in (4, 8) and register_bytes() > 0 and is_expressible(what, itemsize, symbols)


def compiled(what: Lowered, shape: Shape, kind: CallKind) -> Function:
    """Return the function, which takes a pointer to the words of ``products.FIELDS`` and releases the GIL."""
    key = (what.instructions, shape, kind)
    function = _compiled.get(key)
    if function is None:
        with _lock:
            function = _compiled.get(key) or _compile(what, shape, kind)
            _compiled[key] = function
    return function


def _compile(what: Lowered, shape: Shape, kind: CallKind) -> Function:
    module = ir.Module("daskkern")
    Nest(module, shape, what, kind).emit()
    return machine_code(module, shape, kind.name)
