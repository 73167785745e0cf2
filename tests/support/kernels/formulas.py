"""The kernels that are given by a formula, which engines compile and ONNX files contain."""

from daskkern.kernels import KERNELS
from daskkern.kernels.functions.callable_kernel import ValuesKernel

WITH_FORMULA = [name for name in KERNELS if not isinstance(KERNELS[name].kernel(), ValuesKernel)]
