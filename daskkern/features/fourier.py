"""Random Fourier features of radial kernels.

    phi(x) = (2 / r)^(1/2) [cos(W^T x), sin(W^T x)] ,   W (d, r / 2) from the kernel's spectral density

References
----------
Rahimi and Recht, "Random features for large-scale kernel machines", NeurIPS 2007. Spectral densities: Gaussian for
the Gaussian kernel, multivariate t with 2 nu degrees of freedom for Matern nu (1 for the Laplacian in the Euclidean
distance), and a Gaussian of random scale (2 u)^(1/2), u exponential, for the Cauchy kernel. Le, Sarlos and Smola,
"Fastfood: approximating kernel expansions in loglinear time", ICML 2013.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.kernels import Kernel
from daskkern.kernels.columns.fastfood import STREAM
from daskkern.kernels.columns.hadamard import FastFrequencies
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.functions.spectral import spectral_kernel, spread


@dataclass(frozen=True)
class FourierFeatures:
    """`n` features of a Gaussian, Laplacian, Matern or Cauchy kernel whose length scale is known; `n` is even."""

    kernel: Kernel
    n: int
    seed: int

    def __post_init__(self) -> None:
        spectral_kernel(self.kernel)
        if self.n < 2 or self.n % 2:
            raise SpecError(f"got {self.n} random Fourier features; give an even number of 2 or more")

    def __call__(self, X: Array) -> Array:
        """Return phi of the rows `X` (m, d), dense or CSR, as (m, n) in their dtype."""
        assert isinstance(self.kernel, RadialKernel)
        rows = self.kernel.transform(X)
        frequencies = (self.frequencies(rows.shape[1]) / self.kernel.unit).astype(rows.dtype)
        xp = namespace_of(rows if hasattr(rows, "__array_interface__") else getattr(rows, "data", rows))
        phases = rows @ xp.asarray(frequencies)
        scale = np.asarray((2 / self.n) ** 0.5, rows.dtype)
        return scale * xp.concatenate([xp.cos(phases), xp.sin(phases)], axis=1)

    def frequencies(self, d: int) -> FloatArray:
        """Return the n / 2 columns of W (d, n / 2) for a length scale of 1."""
        rng = generator(self.seed, STREAM)
        return spread(spectral_kernel(self.kernel), rng.standard_normal((d, self.n // 2)), rng)

    def orthogonal(self, d: int) -> FloatArray:
        """Return frequencies in groups of d orthogonal ones, each as long as a normal vector's: less variance."""
        rng, half = generator(self.seed, STREAM), self.n // 2
        groups = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(-(-half // d))]
        lengths = np.sqrt(rng.chisquare(d, half))
        return spread(spectral_kernel(self.kernel), np.concatenate(groups, axis=1)[:, :half] * lengths, rng)

    def fastfood(self, d: int) -> FloatArray:
        """Return frequencies ``D^(-1/2) S H G P H B``, in groups of D, the next power of two from d on.

        They are those of :class:`daskkern.kernels.Fastfood`, which makes products with rows by fast transforms.
        """
        rng, half = generator(self.seed, STREAM), self.n // 2
        return spread(spectral_kernel(self.kernel), FastFrequencies.drawn(rng, d, half).dense(), rng)
