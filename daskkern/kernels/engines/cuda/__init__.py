"""The CUDA engine: fused kernels, compiled for a formula and its sizes when first needed, and cuBLAS.

The kernels are in the ``.cu`` files, which compile unchanged for the Gaussian. Their plain twins are in
``tests/support/gpu/cuda_twins.py``: the same tiles and the same order of sums in NumPy. Nothing here names CuPy: the
module is that of the arrays.
"""

from daskkern.kernels.engines.cuda.block_by_block import (
    MOST_OUTPUTS,
    PARTIAL_BYTES,
    block_table,
    partial_bytes,
    sum_over_blocks,
    transposed_product,
)
from daskkern.kernels.engines.cuda.device import Device, device_of
from daskkern.kernels.engines.cuda.engine import (
    WORKSPACE_BYTES,
    Operands,
    block,
    double_product,
    fill,
    matvec,
    rmatvec,
)
from daskkern.kernels.engines.cuda.float32_products import WAYS, fastest_exact_way, products_by, terms_bytes
from daskkern.kernels.engines.cuda.tensor_operands import FEW_FEATURES, operand_bytes, tensor_operand

__all__ = [
    "FEW_FEATURES",
    "MOST_OUTPUTS",
    "PARTIAL_BYTES",
    "WAYS",
    "WORKSPACE_BYTES",
    "Device",
    "Operands",
    "block",
    "block_table",
    "device_of",
    "double_product",
    "fastest_exact_way",
    "fill",
    "matvec",
    "operand_bytes",
    "partial_bytes",
    "products_by",
    "rmatvec",
    "sum_over_blocks",
    "tensor_operand",
    "terms_bytes",
    "transposed_product",
]
