"""The compiled CPU engine: products that stay in the cache, compiled for this processor on first use.

One loop nest (``products``) and one formula (``daskkern.kernels.formula``) become machine code through LLVM. Its
plain twin, ``daskkern.kernels.engines.tiled``, gives the same numbers up to rounding, and replaces it where llvmlite
is missing.
"""

from daskkern.kernels.engines.native.engine import (
    MOST_OUTPUTS,
    block,
    block_all,
    double_product,
    is_mirrored,
    matvec,
    prepare,
    rmatvec,
    symmetric_block,
    symmetric_matvec,
)
from daskkern.kernels.engines.native.invoke import LeftRows, is_supported, processor, workspace_bytes
from daskkern.kernels.engines.native.packing import CSRParts, Packed, join_packed

__all__ = [
    "MOST_OUTPUTS",
    "CSRParts",
    "LeftRows",
    "Packed",
    "block",
    "block_all",
    "double_product",
    "is_mirrored",
    "is_supported",
    "join_packed",
    "matvec",
    "prepare",
    "processor",
    "rmatvec",
    "symmetric_block",
    "symmetric_matvec",
    "workspace_bytes",
]
