"""The same bits on any number of ranks, also with the matrix products that BLAS takes on other processors.

A BLAS library has code for each family of processors. With the code of some, the bits of a row of a product depend on
how many rows there are, and with that on how many ranks share them; with that of others they do not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest
from sklearn.datasets import load_digits
from test_ranks_of_a_fit import Fit

from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.losses import Squared, SquaredHinge
from daskkern.solvers import EigenPro, Falkon, Solver
from daskkern.training.feeding.sources import ArraySource, SourceInfo
from daskkern.training.run.settings import FitSettings

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


@pytest.mark.parametrize("family", ["Haswell", "Zen", "SkylakeX"])
def test_bits_do_not_depend_on_the_ranks(family: str) -> None:
    wanted = "avx512vl" if family == "SkylakeX" else "avx2"
    if not llvmlite.binding.get_host_cpu_features().get(wanted):
        pytest.skip(f"this processor lacks {wanted}, which OpenBLAS uses on {family}; run it on one that has it")
    own = {"OPENBLAS_CORETYPE": family, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    environment = {**os.environ, **own}
    run = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    iterated = [found.pop(f"iterative projections, {c} outputs") for c in OUTPUTS]
    assert np.max(iterated) < 1e-4  # conjugate gradient sums numbers of all ranks, which the next product amplifies
    assert found == {f"{name}, {c} outputs": [0.0, 0.0] for name in CASES if "iterative" not in name for c in OUTPUTS}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(json.dumps({f"{name}, {c} outputs": differences(name, c) for name in CASES for c in OUTPUTS}))
