"""CUDA source for a formula: the ``.cu`` files, preceded by the formula and its sizes as macros."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

from daskkern.kernels.formula import DIFFERENCES, Instruction, Program, is_capped

Name = Literal["scores", "block", "sparse", "profile"]
FUNCTIONS: dict[Name, str] = {
    "scores": "scores",
    "block": "write_block",
    "sparse": "write_sparse",
    "profile": "profile",
}
"""The file of each kernel, and the kernel's name in it."""
SCORE_THREADS = 128
"""Threads of a block of `scores`, `profile` and `write_sparse`: THREADS of common.cuh."""
SUM_THREADS = 256
TURNED_LINES = 32
"""Threads of a block of `block_sums`, SUM_THREADS of sums.cu, and the lines that it makes where it is turned."""
BLOCK_TILE = 64
BLOCK_THREADS = 256
"""Rows and columns that a block of `write_block` makes, and its threads: TILE and SIDE * SIDE of block.cu."""
SPARSE_LINES = 8
SPARSE_LISTS = 512
"""Rows of the spread and of the listed side of a block of `write_sparse`: LINES and LISTS * THREADS of sparse.cu."""
_REGISTER_BYTES = 768
_OPERATIONS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "exp": "exp({})",
    "log": "log({})",
    "sqrt": "sqrt({})",
    "arccos": "acos({})",
    "cos": "cos({})",
    "maximum": "larger({}, {})",
}
_SYMBOLS = {
    **dict.fromkeys(("inner", *DIFFERENCES), "inner"),
    "squared_distance": "squared",
    "distance": "sqrt(squared)",
    "cosine": "smaller(larger(inner * (row.inverse * column.inverse), real(-1)), real(1))",
    "norms": "row.norm * column.norm",
}
_SQUARED = "larger(fma(inner, real(-2), row.squared + column.squared), real(0))"


@dataclass(frozen=True)
class KernelSizes:
    """The sizes at compile time: element size, features and outputs (1 where the kernel has none).

    `rows_per_thread` is how many rows' features one thread of `scores` keeps in registers; `both_sparse` whether the
    side that `write_sparse` spreads is CSR, too.
    """

    itemsize: int
    n_features: int = 1
    n_outputs: int = 1
    rows_per_thread: int = 1
    both_sparse: bool = False

    @property
    def most_rows_per_thread(self) -> int:
        """What 255 registers hold of features and sums, at most 4 rows: more share what is read from shared memory."""
        row = (self.n_features + self.n_outputs) * self.itemsize
        return max(1, min(4, _REGISTER_BYTES // row))


@cache
def source(name: Name, instructions: tuple[Instruction, ...], sizes: KernelSizes) -> str:
    """Return the text of one kernel. The formula's constants are arguments: they are not in the text.

    Parameters
    ----------
    name : str
        Of the ``.cu`` file.
    instructions : tuple of Instruction
        Of the formula's program.
    sizes : KernelSizes
    """
    return "\n".join(
        [
            _prologue(instructions, sizes),
            _read("common.cuh"),
            term_function(instructions),
            value_function(instructions),
            _body(name),
        ]
    )


@cache
def sums_source(itemsize: int, n_outputs: int, turned: bool) -> str:
    """Return the text of ``block_sums``, which uses no formula."""
    settings = {"DASKKERN_GENERATED": 1, "N_OUTPUTS": n_outputs, "TURNED": int(turned), "WITH_PROFILE": 0}
    lines = [f"#define {name} {value}" for name, value in settings.items()]
    return "\n".join(
        [_real(itemsize), *lines, f"#define TURNED {int(turned)}\n#define WITH_PROFILE 0", _read("sums.cu")]
    )


@cache
def profile_sums_source(instructions: tuple[Instruction, ...], itemsize: int, n_outputs: int) -> str:
    """Return the text of ``profile_sums``: ``block_sums`` of values whose inner products it reads."""
    parts = [
        _prologue(instructions, KernelSizes(itemsize, n_outputs=n_outputs)),
        "#define TURNED 0\n#define WITH_PROFILE 1",
        _read("common.cuh"),
        value_function(instructions),
        _read("sums.cu"),
    ]
    return "\n".join(parts)


def lines_of_sums(itemsize: int) -> int:
    """Return the lines that a block of threads of `block_sums` makes: WARPS * ROWS of sums.cu."""
    return 8 * 16 // itemsize


@cache
def terms_source() -> str:
    """Return the text of ``tf32_terms``."""
    return _read("terms.cu")


def constants(what: Program, dtype: np.dtype) -> list[np.generic]:
    """Return the program's constants as the last arguments of its kernels."""
    return [dtype.type(value) for value in what.constants]


def value_function(instructions: tuple[Instruction, ...]) -> str:
    """Return ``kernel_value``, which turns an inner product into the kernel's value, as CUDA C++."""
    symbols = {step.op for step in instructions} & set(_SYMBOLS)
    lines = [f"const real squared = {_SQUARED};"] if symbols & {"squared_distance", "distance"} else []
    numbers = iter(f"n{k}" for k in range(len(instructions)))
    for at, step in enumerate(instructions):
        if step.op == "constant":
            text = next(numbers)
        elif step.op in _SYMBOLS:
            text = _SYMBOLS[step.op]
        else:
            text = _OPERATIONS[step.op].format(*(f"v{arg}" for arg in step.args))
        lines.append(f"const real v{at} = {text};")
    lines.append(f"return v{len(instructions) - 1};")
    head = "__device__ __forceinline__ real kernel_value(real inner, Stats row, Stats column NUMBERS_PARAMETERS)"
    return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])


def term_function(instructions: tuple[Instruction, ...]) -> str:
    """Return ``with_term``, which adds one feature's term of an inner product, or of a sum of differences."""
    what = next((step for step in instructions if step.op in DIFFERENCES), None)
    size = "real(fabs(x - z))"
    if is_capped(instructions):
        size = f"smaller({size}, cap)"
    if what is None:
        text = "fma(x, z, sum)"
    elif what.op.endswith("absolute_sum"):
        text = f"sum + {size}"
    elif what.op.endswith("saturated_sum"):
        text = f"sum - real(expm1(-{size}))"
    else:
        constants = [at for at, step in enumerate(instructions) if step.op == "constant"]
        text = f"sum + pow({size}, n{constants.index(what.args[0])})"
    cap = ", real cap" if is_capped(instructions) else ""
    head = f"__device__ __forceinline__ real with_term(real x, real z{cap}, real sum NUMBERS_PARAMETERS)"
    return f"{head} {{ return {text}; }}"


def _prologue(instructions: tuple[Instruction, ...], sizes: KernelSizes) -> str:
    symbols = {step.op for step in instructions}
    count = sum(step.op == "constant" for step in instructions)
    settings = {
        "DASKKERN_GENERATED": 1,
        "N_FEATURES": sizes.n_features,
        "N_OUTPUTS": sizes.n_outputs,
        "ROWS_PER_THREAD": sizes.rows_per_thread,
        "SPREAD_IS_CSR": int(sizes.both_sparse),
        "USES_SQUARED": int(bool(symbols & {"squared_distance", "distance"})),
        "USES_NORM": int("norms" in symbols),
        "USES_INVERSE": int("cosine" in symbols),
        "CAPS_PARAMETER": ", const real* __restrict__ caps" if is_capped(instructions) else "",
        "CAP(k)": ", caps[k]" if is_capped(instructions) else "",
        "NUMBERS_PARAMETERS": "".join(f", real n{k}" for k in range(count)),
        "NUMBERS_ARGUMENTS": "".join(f", n{k}" for k in range(count)),
    }
    lines = [f"#define {name} {value}".rstrip() for name, value in settings.items()]
    return "\n".join([_real(sizes.itemsize), *lines])


def _real(itemsize: int) -> str:
    return f"typedef {'float' if itemsize == 4 else 'double'} real;"


def _body(name: Name) -> str:
    return _read(f"{name}.cu").replace('#include "common.cuh"\n', "")


@cache
def _read(file: str) -> str:
    return files(__package__).joinpath(file).read_text()
