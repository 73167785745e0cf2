"""Measure the error of each precision by emulation on the CPU: features rounded, sums in float32.

    python benchmarks/precision.py --out benchmarks/precision-emulated.json

The reference is float64 on the unrounded rows. A GPU differs only in the order of sums in float32; its speed is not
measured here.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures import Run, add, today
from products.machine import describe_machine, versions

from daskkern.arrays import HostArray
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.kernels.precision import PRECISIONS

M, P, OUTPUTS = 1000, 4096, 10
TINY = 100, 200


def data(d: int, kind: str, m: int = M, p: int = P) -> tuple[HostArray, HostArray]:
    """Return rows (m, d) and points (p, d), float32: standardised features, or pixels as counts from 0 to 255."""
    rng = np.random.default_rng(d)
    if kind == "normal":
        return rng.standard_normal((m, d)).astype(np.float32), rng.standard_normal((p, d)).astype(np.float32)
    lit = rng.random((m + p, d)) < 0.2
    rows = (rng.integers(0, 256, (m + p, d)) * lit).astype(np.float32)
    return rows[:m], rows[m:]


def errors(kernel: Kernel, X: HostArray, Z: HostArray) -> dict[str, dict[str, float]]:
    """Return, by precision, the largest and mean error of k, and the largest of K A over that of its sum of sizes."""
    A = np.random.default_rng(1).standard_normal((len(Z), OUTPUTS))
    exact = kernel.block(X.astype(np.float64), Z.astype(np.float64))
    found = {}
    for precision in PRECISIONS:
        points = kernel.points(Z, kernel.placement_for(Z), precision=precision)
        left = kernel.left(X, points)
        K = kernel.block(left, points).astype(np.float64)
        scores = kernel.matvec(left, points, A)
        found[precision] = {
            "largest_error_of_k": float(np.abs(K - exact).max()),
            "mean_error_of_k": float(np.abs(K - exact).mean()),
            "largest_error_of_scores": float(np.abs(scores - exact @ A).max() / (np.abs(exact) @ np.abs(A)).max()),
        }
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all precisions and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="few of the narrow rows, to check that it runs")
    options = parser.parse_args(argv)
    results, (m, p) = [], TINY if options.tiny else (M, P)
    for d, kind in ((18, "normal"), (784, "normal"), (784, "pixels"))[: 1 if options.tiny else None]:
        X, Z = data(d, kind, m, p)
        scale = float(np.median(np.sqrt(((X[:200, None] - Z[None, :200]) ** 2).sum(axis=2, dtype=np.float64))))
        for kernel in (Gaussian(scale), Laplacian(scale)):
            row = {"kernel": kernel.name, "n_features": d, "data": kind, "length_scale": scale}
            results += [{**row, "precision": name, **found} for name, found in errors(kernel, X, Z).items()]
    settings = {"n_rows": m, "n_points": p, "tiny": options.tiny}
    add(Run("precision", today(), describe_machine(), versions(), settings, {"errors": results}), options.out)


if __name__ == "__main__":
    main()
