"""Run as a process of its own: how far the coefficients of several ranks are from those of one, as JSON."""

import json

import numpy as np
from sklearn.datasets import load_digits

from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.losses import Squared, SquaredHinge
from daskkern.solvers import EigenPro, Falkon, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit

RANKS = (1, 2, 3)
OUTPUTS = (1, 10, 20)  # the products of 2 to 12 outputs are compiled, those of others are BLAS's
CASES: dict[str, tuple[BasisSpec, Solver[object]]] = {
    "all rows": (AllRows(), EigenPro()),
    "landmarks": (Landmarks(600), EigenPro()),
    "iterative projections": (Landmarks(600), EigenPro(projection="eigenpro")),
    "falkon": (Landmarks(600), Falkon()),
}


def differences(name: str, outputs: int) -> list[float]:
    """Return how far the coefficients of 2 and 3 ranks are from those of one, relative to the largest."""
    X, y = load_digits(return_X_y=True)
    if outputs == 10:
        info = SourceInfo(1500, 64, "classification", tuple(range(10)), Scaling(), None, 1, True)
        source = ArraySource(X[:1500], y[:1500], None, info)
    else:
        targets = np.cos(y[:1500, None] * np.arange(1, outputs + 1))
        info = SourceInfo(1500, 64, "regression", None, Scaling(), None, outputs, True)
        source = ArraySource(X[:1500], targets, None, info)
    basis, solver = CASES[name]
    loss = Squared() if outputs != 10 or isinstance(solver, Falkon) else SquaredHinge()
    made = Fit.of(source, FitSettings(Gaussian(25.0), loss, basis, solver, 1e-6, max_epochs=2, device="cpu"))

    def coef(ranks: int) -> np.ndarray:
        results = made.results(ranks)
        return np.concatenate([r.coef for r in results])[np.argsort(np.concatenate([r.ids for r in results]))]

    first, *others = (coef(ranks) for ranks in RANKS)
    return [float(np.abs(other - first).max() / np.abs(first).max()) for other in others]


if __name__ == "__main__":
    print(json.dumps({f"{name}, {c} outputs": differences(name, c) for name in CASES for c in OUTPUTS}))
