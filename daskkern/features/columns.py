"""Random features as columns of a basis: a function and its random weights."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.features.fourier import FourierFeatures
from daskkern.kernels import ArcCosine, Fastfood, Kernel, Neuron, Polynomial, TensorSketch
from daskkern.kernels.columns.fastfood import is_faster, table_bytes
from daskkern.kernels.functions.activations import ACTIVATIONS
from daskkern.kernels.functions.spectral import in_row_coordinates, seen_features, spectral_kernel

KINDS = ("auto", "orthogonal", "fastfood", *ACTIVATIONS)
FOLLOWING = ("auto", "orthogonal", "fastfood", "fourier")
"""The kinds that approximate the chosen kernel."""
_STREAM = 82
_UNITS = ("step", "relu", "relu2")
_WITHOUT_BIAS = (*_UNITS, "projection")


def random_columns(
    kernel: Kernel, kind: str, n: int, d: int, seed: int, dtype: str, scale: float, sparse: bool = False
) -> tuple[Kernel, HostArray]:
    """Return a function and weights (n, d) whose columns approximate `kernel`, or are hidden units of their own.

    Of a TensorSketch, and of Fastfood where transforms are faster, the weights are column numbers (n, 1).

    Parameters
    ----------
    kind : str
        "auto" follows the kernel: Fourier features of radial kernels, units of the arc-cosine kernels, a TensorSketch
        of polynomial kernels. "fourier", "orthogonal" (Yu et al., "Orthogonal random features", NeurIPS 2016) and
        "fastfood" (Le, Sarlos and Smola, ICML 2013) need a radial kernel. The others ignore the kernel: weights are
        standard normal, divided by `scale` for "sigmoid" and "tanh", which have a bias.
    n : int
        Columns; Fourier features need an even number.
    scale : float
        The root of the mean squared norm of the rows.
    sparse : bool
        Whether the rows are sparse: transforms would make them dense.

    Raises
    ------
    SpecError
        When no features of that kind are known for the kernel.
    """
    if isinstance(kernel, Polynomial) and kind == "auto":
        gamma = 1 / d if kernel.gamma is None else kernel.gamma
        sketch = TensorSketch(kernel.degree, gamma, kernel.coef0, n, seed, d)
        return sketch, np.arange(n, dtype=dtype)[:, None]
    if kind == "fastfood" and not sparse and n % 2 == 0 and is_faster(kernel, n, d):
        return Fastfood(kernel, n, seed, d), np.arange(n, dtype=dtype)[:, None]
    activation = _activation(kernel, kind)
    if activation == "fourier":
        half = _frequencies(kernel, kind, n, d, seed)
        return Neuron("fourier", n), np.concatenate([half, -half]).astype(dtype)
    bias = activation not in _WITHOUT_BIAS
    weights = generator(seed, _STREAM).standard_normal((n, d + bias))
    if bias:
        weights[:, :-1] /= max(scale, 1e-30)
    return Neuron(activation, n, bias), weights.astype(dtype)


def sketch_bytes(kernel: Kernel, kind: str, n: int, d: int, seed: int) -> int:
    """Return the bytes of the tables of columns that are numbers; 0 for features of another kind."""
    if kind == "fastfood" and is_faster(kernel, n, d):
        return table_bytes(n, d)
    if not (isinstance(kernel, Polynomial) and kind == "auto"):
        return 0
    return TensorSketch(kernel.degree, 1.0, kernel.coef0, n, seed, d).table_bytes


def _activation(kernel: Kernel, kind: str) -> str:
    if kind not in KINDS:
        raise SpecError(f"got random features of kind {kind!r}; choose one of {', '.join(KINDS)}")
    if kind not in FOLLOWING:
        return kind
    if isinstance(kernel, ArcCosine) and kind == "auto":
        return _UNITS[kernel.degree]
    return "fourier"


def _frequencies(kernel: Kernel, kind: str, n: int, d: int, seed: int) -> FloatArray:
    """Return n / 2 frequencies (n / 2, d) in the coordinates of the rows."""
    radial = spectral_kernel(kernel)
    features, k = FourierFeatures(kernel, n, seed), seen_features(radial, d)
    draw = {"orthogonal": features.orthogonal, "fastfood": features.fastfood}.get(kind, features.frequencies)
    weights = draw(k)
    return in_row_coordinates(radial, weights, d).T
