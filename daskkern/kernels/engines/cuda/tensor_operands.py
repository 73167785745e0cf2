"""Rows in the layout of tensor cores, prepared once: float16, with lines padded to a multiple of 16 bytes.

cuBLAS takes tensor cores without further copies where the lines of both operands are multiples of 16 bytes: 8 numbers
of float16, 4 of TF32. Zeros fill them up, which change no inner product. **Not measured on a GPU.**
"""

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.kernels.precision import Precision

FEW_FEATURES = 64
"""Features up to which a thread holds whole rows in registers. Not measured on a GPU."""
_LINE_BYTES = 16


def tensor_operand(rows: Array, precision: Precision | None) -> Array | None:
    """Return rows (m, d) on a GPU, already rounded to `precision`, as (m, d') with zeros behind, in its dtype.

    None where a matrix product takes the rows themselves: other precisions, whole lines of TF32, few features, which
    never go through one, sparse rows, and rows in host memory.
    """
    if precision not in ("tf32", "float16") or is_sparse(rows) or rows.shape[1] <= FEW_FEATURES:
        return None
    xp = namespace_of(rows)
    width = operand_bytes(rows.shape[1], precision) // (2 if precision == "float16" else 4)
    if xp is np or not width:
        return None
    out = xp.zeros((rows.shape[0], width), xp.float16 if precision == "float16" else rows.dtype)
    out[:, : rows.shape[1]] = rows
    return out


def operand_bytes(d: int, precision: Precision | None) -> int:
    """Return the bytes of such a copy of one row of `d` features; 0 where there is none."""
    each = {"float16": 2, "tf32": 4}.get(precision or "", 0)
    whole = -(-each * d // _LINE_BYTES) * _LINE_BYTES
    return 0 if d <= FEW_FEATURES or (precision == "tf32" and whole == each * d) else whole
