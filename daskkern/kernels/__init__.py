"""Kernels: one class, one file, one row in :data:`KERNELS` each."""

from daskkern.kernels.arc_cosine import ArcCosine
from daskkern.kernels.base import Kernel, Points, plain_products
from daskkern.kernels.cauchy import Cauchy
from daskkern.kernels.gaussian import Gaussian
from daskkern.kernels.inverse_polynomial import InversePolynomial
from daskkern.kernels.laplacian import Laplacian
from daskkern.kernels.linear import Linear
from daskkern.kernels.polynomial import Polynomial
from daskkern.kernels.registry import KERNELS, from_spec, parse_kernel

__all__ = [
    "KERNELS",
    "ArcCosine",
    "Cauchy",
    "Gaussian",
    "InversePolynomial",
    "Kernel",
    "Laplacian",
    "Linear",
    "Points",
    "Polynomial",
    "from_spec",
    "parse_kernel",
    "plain_products",
]
