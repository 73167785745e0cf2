"""Measure the error of every kernel in float32 against float64, in both CPU engines, on well- and ill-conditioned rows.

    python -m benchmarks kernel_precision --out benchmarks/results-precision.json

prints the table of docs/precision.md. An error is relative to the value itself, over values of at least 1e-4 of the
largest: smaller ones have the same absolute error.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from figures import Run, add, today
from products.machine import describe_machine, versions

from daskkern.kernels import (
    ArcCosine,
    Cauchy,
    Gaussian,
    InversePolynomial,
    Kernel,
    L1Laplacian,
    Laplacian,
    LinearKernel,
    Matern,
    NeuralTangent,
    Polynomial,
    PowerLaplacian,
    RationalQuadratic,
    plain_products,
)
from tests.support import naive

Rows = npt.NDArray[np.float32]
Factory = Callable[[float, int], Kernel]

KERNELS: dict[str, Factory] = {
    "Gaussian": lambda s, d: Gaussian(s),
    "Laplacian, Matern 1/2": lambda s, d: Laplacian(s),
    "L1 Laplacian": lambda s, d: L1Laplacian(s * d**0.5),
    "L_pq Laplacian, p 1.5, q 1": lambda s, d: PowerLaplacian(s * d ** (1 / 6), 1.5, 1.0),
    "Cauchy": lambda s, d: Cauchy(s),
    "Matern 3/2": lambda s, d: Matern(s, 1.5),
    "Matern 5/2": lambda s, d: Matern(s, 2.5),
    "rational quadratic, alpha 1": lambda s, d: RationalQuadratic(s),
    "rational quadratic, alpha 0.3": lambda s, d: RationalQuadratic(s, alpha=0.3),
    "rational quadratic, alpha 40": lambda s, d: RationalQuadratic(s, alpha=40.0),
    "Gaussian, scale per feature": lambda s, d: Gaussian(tuple(s * (1 + k / d) for k in range(d))),
    "Gaussian, metric": lambda s, d: Gaussian.from_metric(_metric(d), length_scale=s),
    "inverse polynomial": lambda s, d: InversePolynomial(),
    "arc-cosine 0": lambda s, d: ArcCosine(0),
    "arc-cosine 1": lambda s, d: ArcCosine(1),
    "arc-cosine 2": lambda s, d: ArcCosine(2),
    "neural tangent, depth 1": lambda s, d: NeuralTangent(1),
    "neural tangent, depth 3": lambda s, d: NeuralTangent(3),
    "polynomial 3": lambda s, d: Polynomial(3, gamma=1 / d),
    "linear": lambda s, d: LinearKernel(),
}
_LEAST = 1e-4
_NEAR = 0.01


def data_sets(rng: np.random.Generator, tiny: bool) -> dict[str, tuple[Rows, Rows, float]]:
    """Return rows, points and a length scale for each name of a column of the table."""
    m, p = (20, 30) if tiny else (60, 80)
    X, Z = (rng.standard_normal((n, 20)) for n in (m, p))
    again = X[rng.integers(0, m, p)]
    images = [rng.uniform(0, 1, (n, 784)) * (rng.uniform(0, 1, (n, 784)) < 0.2) for n in (m, p)]
    grid = [rng.integers(0, 4, (n, 6)) + 10_000 for n in (m, p)]
    sets = {
        "normal": (X, Z, 6.0),
        "images": (images[0], images[1], 10.0),
        "far": (X + 1e4, Z + 1e4, 6.0),
        "far grid": (grid[0], grid[1], 3.0),
        "equal": (X, again, 6.0),
        "close": (X, again + _NEAR * Z, 6.0),
        "tiny scale": (X, again + _NEAR * Z, 0.05),
    }
    return {name: (a.astype(np.float32), b.astype(np.float32), scale) for name, (a, b, scale) in sets.items()}


def worst_error(kernel: Kernel, X: Rows, Z: Rows) -> float:
    """Return the largest relative error of the block, over values that are not small compared with the largest."""
    spec = {key: np.asarray(value) if isinstance(value, list) else value for key, value in kernel.spec().items()}
    exact = naive.kernel_matrix(spec, X, Z)
    size = np.abs(exact)
    seen = size >= _LEAST * size.max()
    return float((np.abs(kernel.block(X, Z) - exact)[seen] / size[seen]).max())


def measure(tiny: bool) -> dict[str, dict[str, list[float]]]:
    """Return for each kernel and data set the errors of the compiled engine and of its plain counterpart."""
    sets = data_sets(np.random.default_rng(0), tiny)
    table: dict[str, dict[str, list[float]]] = {label: {} for label in KERNELS}
    for label, factory in KERNELS.items():
        for name, (X, Z, scale) in sets.items():
            kernel = factory(scale, X.shape[1])
            compiled = worst_error(kernel, X, Z)
            with plain_products():
                table[label][name] = [compiled, worst_error(kernel, X, Z)]
    return table


def as_markdown(table: dict[str, dict[str, list[float]]]) -> str:
    """Return the table of errors, each of the worse engine."""
    names = list(next(iter(table.values())))
    lines = ["| kernel | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {label} | " + " | ".join(f"{max(row[n]):.0e}" for n in names) + " |" for label, row in table.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Write the errors here, as JSON.")
    parser.add_argument("--tiny", action="store_true", help="Few rows, to check that the script runs.")
    options = parser.parse_args(argv)
    table = measure(options.tiny)
    rows = [
        {
            "kernel": label,
            "rows": name,
            "largest_relative_error": compiled,
            "largest_relative_error_plain_twin": plain,
        }
        for label, row in table.items()
        for name, (compiled, plain) in row.items()
    ]
    settings = {"tiny": options.tiny}
    add(Run("kernel_precision", today(), describe_machine(), versions(), settings, {"errors": rows}), options.out)
    print(as_markdown(table))


def _metric(d: int) -> npt.NDArray[np.float64]:
    factor = np.random.default_rng(1).standard_normal((d, d)) / d**0.5
    metric: npt.NDArray[np.float64] = factor @ factor.T
    return metric


if __name__ == "__main__":
    main()
