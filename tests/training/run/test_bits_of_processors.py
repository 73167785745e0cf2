"""The same bits on any number of ranks, also with the matrix products that BLAS takes on other processors.

A BLAS library has code for each family of processors. With the code of some, the bits of a row of a product depend on
how many rows there are, and with that on how many ranks share them; with that of others they do not.
"""

import json
import os
import sys

import llvmlite.binding
import numpy as np
import pytest

from tests.support.children.bits import CASES, OUTPUTS
from tests.support.processes import ROOT, ended


@pytest.mark.repeated
@pytest.mark.parametrize("family", ["Haswell", "Zen", "SkylakeX"])
def test_bits_do_not_depend_on_the_ranks(family: str) -> None:
    wanted = "avx512vl" if family == "SkylakeX" else "avx2"
    if not llvmlite.binding.get_host_cpu_features().get(wanted):
        pytest.skip(f"this processor lacks {wanted}, which OpenBLAS uses on {family}; run it on one that has it")
    own = {"OPENBLAS_CORETYPE": family, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **own}
    run = ended([sys.executable, "-m", "tests.support.children.bits"], timeout=200, env=environment, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    iterated = [found.pop(f"iterative projections, {c} outputs") for c in OUTPUTS]
    assert np.max(iterated) < 1e-4  # conjugate gradient sums numbers of all ranks, which the next product amplifies
    assert found == {f"{name}, {c} outputs": [0.0, 0.0] for name in CASES if "iterative" not in name for c in OUTPUTS}
