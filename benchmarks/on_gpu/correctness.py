"""Products in float32 on the device against the same formula in float64 on the host."""

from types import ModuleType
from typing import Any

import numpy as np

from daskkern.backend.namespace import to_host
from daskkern.kernels import Gaussian, Laplacian
from on_gpu.sizes import Sizes

_ROWS, _POINTS = 300, 500
_LARGEST_ERROR = 2e-6  # relative to the sum of the terms' magnitudes


def check_products(xp: ModuleType, sizes: Sizes) -> list[dict[str, Any]]:
    """Return the largest error of ``K A`` and ``K^T G`` for each d, and whether it is within float32's."""
    records = []
    for d in sizes.features:
        rng = np.random.default_rng(d)
        X, Z = (rng.standard_normal((n, d)).astype(np.float32) for n in (_ROWS, _POINTS))
        A, G = (rng.standard_normal((n, sizes.outputs)).astype(np.float32) for n in (_POINTS, _ROWS))
        for kernel in (Gaussian(float(d) ** 0.5), Laplacian(float(d) ** 0.5)):
            squared = ((X[:, None].astype(np.float64) - Z[None]) ** 2).sum(axis=2)
            K = np.exp(-squared / (2 * d) if isinstance(kernel, Gaussian) else -np.sqrt(squared / d))
            points = kernel.points(xp.asarray(Z))
            found = kernel.matvec(xp.asarray(X), points, xp.asarray(A))
            turned = kernel.rmatvec(xp.asarray(X), points, xp.asarray(G))
            errors = [
                float((np.abs(to_host(values) - exact) / size).max())
                for values, exact, size in (
                    (found, K @ A, K @ np.abs(A)),
                    (turned, K.T @ G, K.T @ np.abs(G)),
                )
            ]
            error = max(errors)
            right = bool(error < _LARGEST_ERROR)
            records.append({"kernel": kernel.name, "d": d, "largest_relative_error": error, "right": right})
    return records
