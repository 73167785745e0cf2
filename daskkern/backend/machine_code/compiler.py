"""Compilation of modules of LLVM's language to functions for this processor."""

import ctypes
import threading
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
from llvmlite import ir

from daskkern.backend.machine_code.shape import Shape, shape_of

_VECTOR_WIDTH = ' nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
_lock = threading.RLock()
_engines: list[llvm.ExecutionEngine] = []  # compiled code lives as long as its engine

Function = Callable[[int], None]


@cache
def register_bytes() -> int:
    """Return the bytes of this processor's widest usable vector register, or 0 where the engine has no code for it."""
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    features = _features()
    triple = llvm.get_process_triple()
    if has_avx512():
        return 64
    if features.get("avx2") and features.get("fma"):
        return 32
    return 16 if triple.startswith(("aarch64", "arm64")) else 0


@cache
def has_avx512() -> bool:
    """Return whether this processor has the instructions of AVX-512."""
    return bool(_features().get("avx512f"))


def has_products_without_carry() -> bool:
    """Return whether this processor multiplies polynomials over GF(2), by the instruction PCLMULQDQ."""
    return bool(_features().get("pclmul"))


@cache
def _features() -> dict[str, bool]:
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:
        return {}


def shape_for(itemsize: int) -> Shape:
    """Return the register tile of this processor."""
    return shape_of(itemsize, register_bytes(), has_avx512())


def machine_code(module: ir.Module, shape: Shape, name: str) -> Function:
    """Return the function `name` of a module as code of this processor."""
    module.triple = llvm.get_process_triple()
    bits = 8 * shape.lanes * shape.itemsize
    # llvmlite knows no attributes by name: without these LLVM halves vectors on many processors.
    parsed = llvm.parse_assembly(str(module).replace(" nounwind", _VECTOR_WIDTH.format(bits=bits)))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False  # done by hand
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    _engines.append(engine)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address(name))
