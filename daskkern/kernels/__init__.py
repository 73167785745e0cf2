"""Kernels: one class, one file, one row in :data:`KERNELS` each."""

from daskkern.kernels.base import Kernel, Points, plain_products
from daskkern.kernels.columns.coordinate import Coordinate
from daskkern.kernels.columns.fastfood import Fastfood
from daskkern.kernels.columns.locally_linear import LocalFeatures
from daskkern.kernels.columns.mapped import Mapped, nystrom_map
from daskkern.kernels.columns.partition_tree import PartitionTree
from daskkern.kernels.columns.partitioned import Partitioned
from daskkern.kernels.columns.regenerated_features import MOST_DRAWN, Drawn
from daskkern.kernels.columns.tensor_sketch import TensorSketch
from daskkern.kernels.columns.tree_average import TreeAverage
from daskkern.kernels.diagnosis import Diagnosis, arithmetic_note, diagnose, digits_note, length_scale_note
from daskkern.kernels.functions.activations import Neuron
from daskkern.kernels.functions.algebra import Product, Scaled, Sum
from daskkern.kernels.functions.arc_cosine import ArcCosine
from daskkern.kernels.functions.auto import AutoKernel
from daskkern.kernels.functions.callable_kernel import CallableKernel
from daskkern.kernels.functions.cauchy import Cauchy
from daskkern.kernels.functions.chi_squared import AdditiveChiSquared, ChiSquared
from daskkern.kernels.functions.differences.additive import AdditiveLaplacian
from daskkern.kernels.functions.differences.base import DifferenceKernel
from daskkern.kernels.functions.differences.power_laplacian import L1Laplacian, PowerLaplacian
from daskkern.kernels.functions.gaussian import Gaussian
from daskkern.kernels.functions.inverse_polynomial import InversePolynomial
from daskkern.kernels.functions.laplacian import Laplacian
from daskkern.kernels.functions.linear import LinearKernel
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.neural_tangent import NeuralTangent
from daskkern.kernels.functions.polynomial import Polynomial
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.functions.rational_quadratic import RationalQuadratic
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.points import PLAIN, Placement
from daskkern.kernels.precision import Precision, agreed_dtype, check_precision
from daskkern.kernels.registry import KERNELS, from_spec, parse_kernel, short_name, spec_or_name

Linear = LinearKernel  # its name in version 0.1

__all__ = [
    "KERNELS",
    "MOST_DRAWN",
    "PLAIN",
    "AdditiveChiSquared",
    "AdditiveLaplacian",
    "ArcCosine",
    "AutoKernel",
    "CallableKernel",
    "Cauchy",
    "ChiSquared",
    "Coordinate",
    "Diagnosis",
    "DifferenceKernel",
    "Drawn",
    "Fastfood",
    "Gaussian",
    "InversePolynomial",
    "Kernel",
    "L1Laplacian",
    "Laplacian",
    "Linear",
    "LinearKernel",
    "LocalFeatures",
    "Mapped",
    "Matern",
    "NeuralTangent",
    "Neuron",
    "PartitionTree",
    "Partitioned",
    "Placement",
    "Points",
    "Polynomial",
    "PowerLaplacian",
    "Precision",
    "Product",
    "RadialKernel",
    "RationalQuadratic",
    "Scaled",
    "ScaledDistanceKernel",
    "Sum",
    "TensorSketch",
    "TreeAverage",
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
    "short_name",
    "spec_or_name",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
