"""Spectral densities of radial kernels, from which random frequencies are drawn.

A Gaussian for the Gaussian kernel, multivariate t with 2 nu degrees of freedom for Matern nu (1 for the Laplacian in
the Euclidean distance), and a Gaussian of random scale (2 u)^(1/2), u exponential, for the Cauchy kernel (Rahimi and
Recht, "Random features for large-scale kernel machines", NeurIPS 2007).
"""

from typing import TypeGuard

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel
from daskkern.kernels.functions.cauchy import Cauchy
from daskkern.kernels.functions.gaussian import Gaussian
from daskkern.kernels.functions.laplacian import Laplacian
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.radial import RadialKernel


def has_spectrum(kernel: Kernel) -> TypeGuard[RadialKernel]:
    """Return whether the spectral density of `kernel` is known here."""
    return isinstance(kernel, Gaussian | Laplacian | Matern | Cauchy)


def spectral_kernel(kernel: Kernel) -> RadialKernel:
    """Return `kernel` if its spectral density is known here. Raises SpecError if not."""
    if not has_spectrum(kernel):
        raise SpecError(
            f"got the {kernel.name} kernel for random Fourier features; choose gaussian, laplacian, matern or cauchy"
        )
    return kernel


def spread(kernel: RadialKernel, normal: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return normal vectors (d, h) scaled to the kernel's spectral density, with the next draws of `rng`."""
    half = normal.shape[1]
    if isinstance(kernel, Gaussian):
        return normal
    if isinstance(kernel, Cauchy):
        return normal * np.sqrt(2 * rng.standard_exponential(half))
    freedom = 2 * kernel.nu if isinstance(kernel, Matern) else 1.0
    return normal / np.sqrt(rng.chisquare(freedom, half) / freedom)


def in_row_coordinates(kernel: RadialKernel, frequencies: FloatArray, d: int) -> FloatArray:
    """Return frequencies (k, h) of transformed rows as ones (d, h) of the rows, for the kernel's length scale."""
    if kernel.coordinates == ():
        return frequencies / kernel.unit
    into: FloatArray = kernel.transform(np.eye(d)) @ frequencies
    return into / kernel.unit


def seen_features(kernel: RadialKernel, d: int) -> int:
    """Return the number of features of the transformed rows, for rows of `d` features."""
    return d if kernel.coordinates == () else int(kernel.transform(np.eye(d)).shape[1])
