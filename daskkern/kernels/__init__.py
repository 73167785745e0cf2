"""Kernels: one class, one file, one row in :data:`KERNELS` each."""

from daskkern.kernels.algebra import Product, Scaled, Sum
from daskkern.kernels.arc_cosine import ArcCosine
from daskkern.kernels.auto import AutoKernel
from daskkern.kernels.base import Kernel, Points, plain_products
from daskkern.kernels.callable_kernel import CallableKernel
from daskkern.kernels.cauchy import Cauchy
from daskkern.kernels.coordinate import Coordinate
from daskkern.kernels.diagnosis import Diagnosis, arithmetic_note, diagnose, digits_note, length_scale_note
from daskkern.kernels.drawn import MOST_DRAWN, Drawn
from daskkern.kernels.gaussian import Gaussian
from daskkern.kernels.inverse_polynomial import InversePolynomial
from daskkern.kernels.laplacian import Laplacian
from daskkern.kernels.linear import Linear
from daskkern.kernels.mapped import Mapped, nystrom_map
from daskkern.kernels.matern import Matern
from daskkern.kernels.neural_tangent import NeuralTangent
from daskkern.kernels.neuron import Neuron
from daskkern.kernels.points import PLAIN, Placement
from daskkern.kernels.polynomial import Polynomial
from daskkern.kernels.precision import Precision, agreed_dtype, check_precision
from daskkern.kernels.radial import RadialKernel
from daskkern.kernels.rational_quadratic import RationalQuadratic
from daskkern.kernels.registry import KERNELS, from_spec, parse_kernel, spec_or_name

__all__ = [
    "KERNELS",
    "MOST_DRAWN",
    "PLAIN",
    "ArcCosine",
    "AutoKernel",
    "CallableKernel",
    "Cauchy",
    "Coordinate",
    "Diagnosis",
    "Drawn",
    "Gaussian",
    "InversePolynomial",
    "Kernel",
    "Laplacian",
    "Linear",
    "Mapped",
    "Matern",
    "NeuralTangent",
    "Neuron",
    "Placement",
    "Points",
    "Polynomial",
    "Precision",
    "Product",
    "RadialKernel",
    "RationalQuadratic",
    "Scaled",
    "Sum",
    "agreed_dtype",
    "arithmetic_note",
    "check_precision",
    "diagnose",
    "digits_note",
    "from_spec",
    "length_scale_note",
    "nystrom_map",
    "parse_kernel",
    "plain_products",
    "spec_or_name",
]
